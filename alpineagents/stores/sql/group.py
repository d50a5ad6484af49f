"""
Appends that wait at the same moment are written together, in one transaction.

    add ──> waiting ──> a group ──> write ──> outcomes      one that comes alone is a group of one and waits for nobody;
               ^───────────────────────┘                    what comes while a group is written forms the next one

A task leads as long as there are appends to write, and then ends: there is none to be started or stopped. It is no
caller's, so an append that was added is written whatever becomes of the one who added it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence

from alpineagents.stores.header import StateKey
from alpineagents.stores.sql.append import Append, Outcomes

MOST_APPENDS = 100
MOST_CHARACTERS = 1_000_000
"""Bounds of a group, so that none keeps the appends behind it waiting for long."""

Entry = tuple[Append, asyncio.Future[Outcomes]]
Write = Callable[[Sequence[Append]], Awaitable[Outcomes]]


class Groups:
    """
    The appends of one database and event loop.

    Args:
        write: writes a group, in which no two appends are of one State.
    """

    def __init__(self, write: Write) -> None:
        self._write = write
        self._waiting: deque[Entry] = deque()
        self._leader: asyncio.Task[None] | None = None

    def add(self, append: Append) -> asyncio.Future[Outcomes]:
        """Queue an append; the future gets what came of its group, or what the write raised."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Outcomes] = loop.create_future()
        self._waiting.append((append, future))
        if self._leader is None:
            self._leader = loop.create_task(self._lead())
        return future

    async def _lead(self) -> None:
        group: list[Entry] = []
        try:
            while self._waiting:
                group = self._next()
                try:
                    outcomes = await self._write([append for append, _ in group])
                except Exception as error:  # noqa: BLE001  # raised where the append was asked for
                    for future in _unsettled(group):
                        future.set_exception(error)
                else:
                    for future in _unsettled(group):
                        future.set_result(outcomes)
        finally:
            self._leader = None
            # Something is left only where the event loop ends, and nobody is to wait for that.
            for future in _unsettled((*group, *self._waiting)):
                future.cancel()
            self._waiting.clear()

    def _next(self) -> list[Entry]:
        group: list[Entry] = []
        left: list[Entry] = []
        states: set[StateKey] = set()
        size = 0
        while self._waiting and len(group) < MOST_APPENDS:
            append, _ = entry = self._waiting.popleft()
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


def _unsettled(entries: Iterable[Entry]) -> list[asyncio.Future[Outcomes]]:
    return [future for _, future in entries if not future.done()]
