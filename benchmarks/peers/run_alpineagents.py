"""This project's SQLStore, on SQLite and Postgres; and the slow-downs that the targets must catch."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from serving import TEXT, serve
from work import WORKS

from alpineagents import Message, SQLStore, State

SLOW = os.environ.get("BENCH_SLOW", "")


class Conversation:
    """A State; its store appends each message in one transaction that moves its header."""

    def __init__(self, store: SQLStore, id: str) -> None:
        self._store, self._state = store, State(id=id)

    async def step(self) -> None:
        """Add one message and save it."""
        self._state.add_message(Message.user(TEXT))
        if SLOW == "append":
            await asyncio.sleep(0.005)
        if SLOW == "copy":
            # What a library does that copies the history at each step.
            _ = [event.model_copy(deep=True) for event in self._state.history]
        await self._store.save(self._state)

    async def fill(self, count: int) -> None:
        """Add many messages and save them at once."""
        for _ in range(count):
            self._state.add_message(Message.user(TEXT))
        await self._store.save(self._state)

    async def close(self) -> None:
        """Nothing is held."""


class Peer:
    """The store."""

    async def open(self, place: str) -> None:
        """Open it and make the tables."""
        self._store = SQLStore(place, migrate=True)
        await self._store.list(limit=1)

    async def start(self, id: str) -> Conversation:
        """Start a State."""
        return Conversation(self._store, id)

    async def load(self, id: str) -> int:
        """Replay a State."""
        return len((await self._store.load(id)).history)

    async def close(self) -> None:
        """Close the store."""
        await self._store.aclose()


async def flat(given: dict[str, Any]) -> dict[str, float]:
    """Measure the same step early and late in a history, in turns."""
    import statistics

    from serving import clocked

    peer = Peer()
    await peer.open(given["place"])
    early, late = await peer.start("early"), await peer.start("late")
    await early.fill(10)
    await late.fill(given["late"])
    taken: tuple[list[float], list[float]] = ([], [])
    for turn in range(given["rounds"]):
        # Each is first as often as the other.
        for side in (0, 1) if turn % 2 else (1, 0):
            taken[side].append(await clocked((early, late)[side].step))
    await peer.close()
    return {"early": statistics.median(taken[0]), "late": statistics.median(taken[1])}


if __name__ == "__main__":
    serve({"sqlite": Peer, "postgres": Peer}, {**WORKS, "flat": flat})
