"""
How many calls of a tool are made at the same time.
"""

from __future__ import annotations

import math
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
        self._pools: RunVar[Pool] = RunVar(f"alpineagents-places-{uuid.uuid4().hex}")

    def pool(self) -> Pool:
        """Return the places in the event loop that runs."""
        try:
            return self._pools.get()
        except LookupError:
            pool = Pool(self.count)
            self._pools.set(pool)
            return pool


class Pool:
    """The places in one event loop, used in its thread alone."""

    def __init__(self, count: int) -> None:
        self._limiter = anyio.CapacityLimiter(count)
        self._given_up: set[Place] = set()
        self._waiting: dict[anyio.CancelScope, float] = {}

    async def take(self, place: Place, patience: float) -> bool:
        """
        Wait for a place.

        Args:
            patience: seconds to wait while no call runs any more that anybody waits for, so that none may ever end.

        Returns:
            Whether there was one.
        """
        is_taken = False
        with anyio.CancelScope() as scope:
            self._waiting[scope] = patience
            try:
                self._bound(scope)
                await self._limiter.acquire_on_behalf_of(place)
                is_taken = True
            finally:
                del self._waiting[scope]
        return is_taken

    def give_up(self, place: Place) -> None:
        """Take note that nobody waits any more for the call that has a place."""
        self._given_up.add(place)
        for scope in self._waiting:
            self._bound(scope)

    def free(self, place: Place) -> None:
        """Give a place back."""
        if place in self._given_up:
            self._given_up.remove(place)
            for scope in self._waiting:
                self._bound(scope)
        self._limiter.release_on_behalf_of(place)

    def _bound(self, scope: anyio.CancelScope) -> None:
        is_stuck = len(self._given_up) == self._limiter.total_tokens
        scope.deadline = anyio.current_time() + self._waiting[scope] if is_stuck else math.inf


class Place:
    """
    The place of one call.

    It is given back by whoever ends last: the caller, or the thread of a sync tool that nobody waits for any more.
    """

    def __init__(self, places: Places | None) -> None:
        self._pool = None if places is None else places.pool()
        self._lock = threading.Lock()
        self._thread_runs = False
        self._is_left = False

    async def take(self, patience: float) -> bool:
        """Wait for it, as `Pool.take` does; there is one at once where a tool has no number of them."""
        return self._pool is None or await self._pool.take(self, patience)

    def free(self) -> None:
        """Give it back."""
        if self._pool is not None:
            self._pool.free(self)

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
        elif self._pool is not None:
            self._pool.give_up(self)
