"""
Appends that wait at the same moment are written together, in one transaction.

    append ──> waiting ─> a group ──> write ──> outcomes    one that comes alone is a group of one and waits for nobody;
                  ^──────────────────────┘                  what comes while a group is written forms the next one

A task leads as long as there are appends to write, and then ends: there is none to be started or stopped. It is no
caller's, so an append that was added is written whatever becomes of the one who added it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from alpineagents.shield import held_off
from alpineagents.stores.header import StateKey
from alpineagents.stores.sql.append import Append, Outcomes

MOST_APPENDS = 100
MOST_CHARACTERS = 1_000_000
"""Bounds of a group, so that none keeps the appends behind it waiting for long."""

Write = Callable[[Sequence[Append]], Awaitable[Outcomes]]


class _Entry:
    """An append that waits for its group, and whoever waits for what comes of it."""

    def __init__(self, append: Append, told: asyncio.Future[Outcomes]) -> None:
        self.append, self.told = append, told
        self.is_settled = False

    def settle(self, outcomes: Outcomes | Exception | None) -> None:
        """Tell what came of the group; None where the event loop ends before it was written."""
        self.is_settled = True
        if self.told.done():
            return  # who waited was cancelled
        if isinstance(outcomes, Exception):
            self.told.set_exception(outcomes)
        elif outcomes is None:
            self.told.cancel()
        else:
            self.told.set_result(outcomes)


class Groups:
    """
    The appends of one database and event loop.

    Args:
        write: writes a group, in which no two appends are of one State.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[_Entry] = deque()
        self._leader: asyncio.Task[None] | None = None

    async def append(self, append: Append) -> Outcomes:
        """
        Write an append with those that wait at the same moment.

        A cancellation goes on after it.

        Returns:
            What came of its group.

        Raises:
            Exception: what the write raised.
        """
        loop = asyncio.get_running_loop()
        entry = _Entry(append, loop.create_future())
        self._waiting.append(entry)
        if self._leader is None:
            self._leader = loop.create_task(self._lead())
        try:
            return await entry.told
        except asyncio.CancelledError as error:
            if entry.is_settled:
                raise
            # The cancellation has taken the future with it.
            entry.told = loop.create_future()
            if (cancelled := await held_off(error, entry.told)) is not None:
                raise cancelled from entry.told.exception()
            return entry.told.result()

    async def _lead(self) -> None:
        group: list[_Entry] = []
        try:
            while self._waiting:
                group = self._next()
                try:
                    outcomes: Outcomes | Exception = await self._write([entry.append for entry in group])
                except Exception as error:  # noqa: BLE001  # raised where the append was asked for
                    outcomes = error
                for entry in group:
                    entry.settle(outcomes)
        finally:
            self._leader = None
            # Something is left only where the event loop ends, and nobody is to wait for that.
            for entry in (*group, *self._waiting):
                if not entry.is_settled:
                    entry.settle(None)
            self._waiting.clear()

    def _next(self) -> list[_Entry]:
        group: list[_Entry] = []
        left: list[_Entry] = []
        states: set[StateKey] = set()
        size = 0
        while self._waiting and len(group) < MOST_APPENDS:
            entry = self._waiting.popleft()
            append = entry.append
            if append.key in states:
                left.append(entry)
                continue
            size += append.size
            if group and size > MOST_CHARACTERS:
                left.append(entry)
                break
            states.add(append.key)
            group.append(entry)
        # In the order they came, so the oldest is in the next group for certain.
        self._waiting.extendleft(reversed(left))
        return group
