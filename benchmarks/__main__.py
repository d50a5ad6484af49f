"""
`python -m benchmarks`: what an append, a step late in a history and a load cost, as ratios to the driver alone.

The two sides take turns in one run, so that a machine that is busy slows both. Medians are printed, never judged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from alpineagents import Agent, MemoryStore, Message, SQLStore, State, tool
from alpineagents.testing import FakeModel, tool_call
from benchmarks.raw import RawPostgres, RawSQLite

TEXT = "x" * 560
ROUNDS = 300


async def clocked(work: Callable[[], Awaitable[object]]) -> float:
    """Return the microseconds that the work takes."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1e6


async def grown(store: SQLStore, id: str, events: int) -> State:
    """Return a saved State with so many Events."""
    state = State(id=id, messages=[Message.user(TEXT) for _ in range(events)])
    await store.save(state)
    return state


async def compare(name: str, store: SQLStore, raw: RawSQLite | RawPostgres, rounds: int) -> dict[str, float]:
    """Measure one database."""
    await grown(store, "raw", 10)
    await raw.begin(10)
    early, late = await grown(store, "early", 10), await grown(store, "late", 10_000)
    several = await grown(store, "several", 10)
    payload = json.dumps({"message": {"role": "user", "content": [{"type": "text", "text": TEXT}], "is_notice": False}})

    async def step(state: State, events: int = 1) -> None:
        for _ in range(events):
            state.add_message(Message.user(TEXT))
        await store.save(state)

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "raw": lambda: raw.append(payload),
        "early": lambda: step(early),
        "late": lambda: step(late),
        "ten": lambda: step(several, 10),
    }
    times: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(rounds):
        for work, run in works.items():
            times[work].append(await clocked(run))
    median = {work: statistics.median(taken[rounds // 10 :]) for work, taken in times.items()}
    loads = [await clocked(lambda: store.load("late")) for _ in range(5)]

    async def raw_load() -> None:
        _ = [json.loads(text) for text in await raw.payloads()]

    raw_loads = [await clocked(raw_load) for _ in range(5)]
    return {
        f"{name}: raw append, µs": median["raw"],
        f"{name}: one Event an append, × raw": median["early"] / median["raw"],
        f"{name}: the same at Event 10,000, × at Event 10": median["late"] / median["early"],
        f"{name}: ten Events in one append, × one": median["ten"] / median["early"],
        f"{name}: load of 10,000 Events, ms": statistics.median(loads) / 1e3,
        f"{name}: the same, × SELECT and json of {raw.revision} Events an Event": (
            statistics.median(loads) / 10_000 / (statistics.median(raw_loads) / raw.revision)
        ),
    }


@tool(read_only=True)
def nothing() -> None:
    """Do nothing."""


async def turn(rounds: int) -> dict[str, float]:
    """Measure a turn with one tool, where nothing is on disk."""
    agent = Agent(asking_model(), tools=[nothing], store=MemoryStore())
    await agent.run("Go")
    taken = [await clocked(lambda: agent.run("Go")) for _ in range(rounds)]
    return {"memory: a run of two turns with one tool, µs": statistics.median(taken)}


def asking_model() -> FakeModel:
    """Return a model that asks for the tool once a run."""
    return FakeModel(lambda request: "Done." if request.messages[-1].tool_results else tool_call("nothing"))


async def main() -> None:
    """Run what the arguments ask for and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="appends of each kind (default: %(default)s)")
    parser.add_argument(
        "--postgres", default=os.environ.get("DATABASE_URL"), help="URL of an empty database (default: DATABASE_URL)"
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/bench.db"
        async with SQLStore(path) as store:
            raw: RawSQLite | RawPostgres = RawSQLite(path, "raw")
            figures |= await compare("SQLite", store, raw, given.rounds)
            await raw.aclose()
    if given.postgres:
        async with SQLStore(given.postgres, migrate=True) as store:
            raw = RawPostgres(given.postgres, "raw")
            figures |= await compare("Postgres", store, raw, given.rounds)
            await raw.aclose()
    figures |= await turn(given.rounds)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, medians of {given.rounds} rounds\n")
    print("| work | figure |\n|---|---|")
    for name, figure in figures.items():
        print(f"| {name} | {figure:,.2f} |")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


asyncio.run(main())
