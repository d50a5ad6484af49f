"""What is known of a reply that is still due: what was shown of it, and what its failed attempts took."""

from __future__ import annotations

import time

from alpineagents.errors import ModelError
from alpineagents.messages import FailedModel
from alpineagents.models.base import Delta, Emit, Emitted, Fallback, Retry
from alpineagents.usage import Usage


class Tally:
    """
    Hands on what a Model emits, and keeps count.

    Attributes:
        usage: what the attempts took that are over, the last one left out unless it was cancelled.
        shown: the text that a person has seen of the attempt that goes on.
        started: whether any part of that attempt was shown.
        by: name of the Model that was asked last, "" where that is the first.
        failures: the Models that were asked before it.
    """

    _next_at = 0.0
    _is_over = False

    def __init__(self, emit: Emit | None) -> None:
        self._emit = emit
        self.usage = Usage()
        self.shown: list[str] = []
        self.started = False
        self.by = ""
        self.failures: tuple[FailedModel, ...] = ()

    def __call__(self, item: Emitted) -> None:
        """Take an item in and hand it on."""
        if isinstance(item, Delta):
            self.started = True
            if item.kind == "text":
                self.shown.append(item.text)
        else:
            self.usage += item.usage
            self._is_over = False
            if isinstance(item, Fallback):
                self.by = item.model
                self.failures += () if item.failed is None else (item.failed,)
            self._next_at = time.monotonic() + (item.wait_seconds if isinstance(item, Retry) else 0.0)
            self.shown.clear()
            self.started = False
        if self._emit is not None:
            self._emit(item)

    def used(self, usage: Usage, *, goes_on: bool = False) -> None:
        """
        Count what a part of the request took, where no reply will say it.

        Args:
            goes_on: whether the provider is asked for more, as after a pause; otherwise the request was cancelled.
        """
        self.usage += usage
        self._is_over = not goes_on
        if isinstance(self._emit, Tally):
            self._emit.used(usage, goes_on=goes_on)

    def spent(self, error: BaseException) -> Usage:
        """Return what all attempts took, of a request that ended in this error; one that had not begun took nothing."""
        is_counted = self._is_over or time.monotonic() < self._next_at
        return self.usage + (Usage() if is_counted else spent(error))


def spent(error: BaseException) -> Usage:
    """
    Return what a request took that ended in an error: what the provider said, nothing, or else nobody knows.

    Example:
        >>> spent(TimeoutError()).unpriced_requests
        1
    """
    if isinstance(error, ModelError) and error.usage is not None:
        return error.usage
    free = isinstance(error, ModelError) and not error.charged
    return Usage(requests=1, unpriced_requests=0 if free else 1)
