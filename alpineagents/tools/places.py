"""
How many calls of a tool are made at the same time.
"""

from __future__ import annotations

import threading
import uuid

import anyio
from anyio.lowlevel import RunVar

from alpineagents.errors import ToolDefinitionError


class Places:
    """
    The places of a tool, in each event loop so many; copies of the tool share them.

    Raises:
        ToolDefinitionError: that is no number of calls.
    """

    def __init__(self, tool_name: str, count: int) -> None:
        if type(count) is not int or count < 1:
            raise ToolDefinitionError(
                f"max_concurrency={count!r} of tool {tool_name!r} is not a number of calls: @tool(max_concurrency=4)"
            )
        self.count = count
        self._limiters: RunVar[anyio.CapacityLimiter] = RunVar(f"alpineagents-places-{uuid.uuid4().hex}")

    def limiter(self) -> anyio.CapacityLimiter:
        """Return what bounds the calls in the event loop that runs."""
        try:
            return self._limiters.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(self.count)
            self._limiters.set(limiter)
            return limiter


class Place:
    """
    The place of one call.

    It is given back by whoever ends last: the caller, or the thread of a sync tool that nobody waits for any more.
    """

    def __init__(self, places: Places | None) -> None:
        self._limiter = None if places is None else places.limiter()
        self._lock = threading.Lock()
        self._thread_runs = False
        self._is_left = False

    async def take(self) -> None:
        """Wait for it."""
        if self._limiter is not None:
            await self._limiter.acquire_on_behalf_of(self)

    def free(self) -> None:
        """Give it back."""
        if self._limiter is not None:
            self._limiter.release_on_behalf_of(self)

    def thread_begins(self) -> bool:
        """Tell a thread, at its beginning, whether it is still waited for; if not, it does nothing."""
        with self._lock:
            self._thread_runs = not self._is_left
            return self._thread_runs

    def thread_ends(self) -> bool:
        """Tell the thread, at its end, whether it was left behind: then it gives the place back."""
        with self._lock:
            self._thread_runs = False
            return self._is_left

    def leave(self) -> None:
        """End the call: the place is free, unless its thread still runs."""
        with self._lock:
            self._is_left = True
            thread_runs = self._thread_runs
        if not thread_runs:
            self.free()
