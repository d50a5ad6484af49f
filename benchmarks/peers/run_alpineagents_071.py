"""alpineagents 0.7.1, another project that bears this one's name on PyPI: its FileStore, and what it is compared in."""

from __future__ import annotations

import asyncio
import copy
import time
import uuid
from typing import Any

from serving import TEXT, LoopClock, clocked, serve

from alpineagents import Agent, FileStore, Message, State, tool
from alpineagents.testing import FakeModel, tool_call


class Conversation:
    """A State; `asave` writes its new entries on a worker thread and flushes the log and the info to the disk."""

    def __init__(self, store: FileStore, id: str) -> None:
        self._store, self._state = store, State(id=id)

    async def step(self) -> None:
        """Add one message and save it."""
        self._state.add_message(Message.user(TEXT))
        await self._store.asave(self._state)

    async def fill(self, count: int) -> None:
        """Add many messages and save them at once."""
        for _ in range(count):
            self._state.add_message(Message.user(TEXT))
        await self._store.asave(self._state)

    async def close(self) -> None:
        """Nothing is held."""


class Peer:
    """The store."""

    async def open(self, place: str) -> None:
        """Name the folder."""
        self._store = FileStore(place)

    async def start(self, id: str) -> Conversation:
        """Start a State."""
        return Conversation(self._store, id)

    async def load(self, id: str) -> int:
        """Replay a State."""
        return len((await self._store.aload(id)).messages)

    async def close(self) -> None:
        """Nothing is held."""


@tool
def nothing() -> str:
    """Do nothing"""
    return "nothing"


def agent_of(turns: int, store: FileStore | None = None) -> Agent:
    """Return an Agent whose model asks for the tool in each turn but the last."""
    replies = [*(tool_call("nothing") for _ in range(turns - 1)), "Done."]
    return Agent(model=FakeModel(replies), tools=[nothing], store=store, reporter=None)


async def load(given: dict[str, Any]) -> dict[str, float]:
    """Load a long history and say how late the event loop was meanwhile."""
    store = FileStore(given["place"])
    state = State(id="short")
    state.add_message(Message.user(TEXT))
    state.add_message(Message.user(TEXT))
    await store.asave(state)
    record = store.read("short")
    assert record is not None
    # Written through the store's own `write`: adding them one by one takes it minutes.
    entries = [{**copy.deepcopy(record.entries[-1]), "seq": n} for n in range(given["events"])]
    store.write("long", entries, record.info, create=True)
    del entries
    async with LoopClock() as clock:
        seconds = await clocked(lambda: store.aload("long"))
    return {"seconds": seconds, "stall": max(clock.late), "stall_cpu": max(clock.worked)}


async def turns(given: dict[str, Any]) -> dict[str, float]:
    """Run many States at once, with one tool."""
    store = FileStore(given["place"])
    agents = [agent_of(given["turns"], store) for _ in range(given["states"])]
    states = [State(id=uuid.uuid4().hex, messages=[Message.user(f"Go {n}")]) for n in range(given["states"])]
    work = asyncio.gather(*(agent.arun(state) for agent, state in zip(agents, states, strict=True)))
    seconds = await clocked(lambda: work)
    return {"turns_a_second": given["states"] * given["turns"] / seconds}


async def cpu(given: dict[str, Any]) -> dict[str, float]:
    """Run turns without a store and count the processor's time."""
    await agent_of(given["turns"]).arun("Warm up")
    agents = [agent_of(given["turns"]) for _ in range(given["runs"])]
    start = time.process_time()
    for agent in agents:
        await agent.arun("Go")
    return {"cpu_a_turn": (time.process_time() - start) / given["runs"] / given["turns"]}


if __name__ == "__main__":
    serve({"files": Peer}, {"load": load, "turns": turns, "cpu": cpu})
