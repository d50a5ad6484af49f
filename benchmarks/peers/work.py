"""What this project and alpineagents 0.7.1 are compared in, written for the first: loads, runs, CPU, memory."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from serving import TEXT, LoopClock, clocked, percentile

from alpineagents import Agent, Message, SQLStore, State, tool
from alpineagents.testing import FakeModel, tool_call


@tool(read_only=True)
def nothing() -> str:
    """Do nothing."""
    return "nothing"


def agent_of(turns: int, store: SQLStore | None = None) -> Agent:
    """Return an Agent whose model asks for the tool in each turn but the last."""
    replies = [*(tool_call("nothing") for _ in range(turns - 1)), "Done."]
    return Agent(FakeModel(replies), tools=[nothing], store=store)


async def load(given: dict[str, Any]) -> dict[str, float]:
    """Load a long history and say how late the event loop was meanwhile."""
    async with SQLStore(given["place"]) as store:
        state = State(id="long")
        for _ in range(given["events"]):
            state.add_message(Message.user(TEXT))
        await store.save(state)
        del state
    async with SQLStore(given["place"]) as store, LoopClock() as clock:
        seconds = await clocked(lambda: store.load("long"))
    return {"seconds": seconds, "stall": max(clock.late), "stall_cpu": max(clock.worked)}


async def turns(given: dict[str, Any]) -> dict[str, float]:
    """Run many States at once, with one tool."""
    async with SQLStore(given["place"]) as store:
        await store.list(limit=1)
        agents = [agent_of(given["turns"], store) for _ in range(given["states"])]
        work = asyncio.gather(*(agent.run(f"Go {n}") for n, agent in enumerate(agents)))
        seconds = await clocked(lambda: work)
    return {"turns_a_second": given["states"] * given["turns"] / seconds}


async def cpu(given: dict[str, Any]) -> dict[str, float]:
    """Run turns without a store and count the processor's time."""
    await agent_of(given["turns"]).run("Warm up")
    agents = [agent_of(given["turns"]) for _ in range(given["runs"])]
    start = time.process_time()
    for agent in agents:
        await agent.run("Go")
    return {"cpu_a_turn": (time.process_time() - start) / given["runs"] / given["turns"]}


async def many(given: dict[str, Any]) -> dict[str, float]:
    """Run a thousand runs at once and say how late the event loop was."""
    async with SQLStore(given["place"]) as store, LoopClock() as clock:
        agents = [agent_of(2, store) for _ in range(given["runs"])]
        work = asyncio.gather(*(agent.run("Go") for agent in agents))
        seconds = await clocked(lambda: work)
    return {"seconds": seconds, "lag_p50": percentile(clock.late, 0.5), "lag_p99": percentile(clock.late, 0.99)}


async def memory(given: dict[str, Any]) -> dict[str, float]:
    """Hold many States in memory and say what one Event takes, its text of about 440 bytes included."""
    import gc

    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    before = resident()
    kept = []
    for s in range(given["states"]):
        state = State(id=f"s{s}")
        for n in range(given["events"]):
            state.add_message(Message.user(f"{s} {n} {TEXT}"))
        kept.append(state)
    return {"bytes_an_event": (resident() - before) / given["states"] / given["events"]}


WORKS = {"load": load, "turns": turns, "cpu": cpu, "many": many, "memory": memory}
