"""
A clock that stands still and ids that count, for tests that compare whole histories.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self

from alpineagents import clock
from alpineagents.errors import ConfigError


class frozen:  # noqa: N801  # read as `with frozen() as clock:`
    """
    Hold the time of Events still, and count ids of States, runs and calls: `id-1`, `id-2` and so on.

    It holds for the whole process. A store keeps its own clock for leases and for the order of its lists. Ids begin
    anew in each block, so give each one a store of its own.

    Args:
        at: the time, aware; the begin of 2026 if none is given.

    Raises:
        ConfigError: the time has no zone.

    Example:
        >>> from alpineagents import Message, State
        >>> with frozen() as clock:
        ...     state = State(messages=[Message.user("Hello")])
        ...     clock.advance(60)
        ...     state.add_message(Message.user("Still there?"))
        >>> state.id, [event.at.minute for event in state.history]
        ('id-1', [0, 1])
    """

    def __init__(self, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if not isinstance(at, datetime) or at.tzinfo is None:
            raise ConfigError(f"{at!r} is not a time with a zone: frozen(datetime(2026, 1, 1, tzinfo=UTC))")
        self._at = at.astimezone(UTC)
        self._ids = 0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        """Return the time."""
        return self._at

    def new_id(self) -> str:
        """Return the next id."""
        with self._lock:
            self._ids += 1
            return f"id-{self._ids}"

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self._at += timedelta(seconds=seconds)

    def __enter__(self) -> Self:
        clock.put(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock.take_back(self)
