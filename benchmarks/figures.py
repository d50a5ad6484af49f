"""What is measured, as ratios to the driver alone: the two sides take turns, so a busy machine slows both."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from alpineagents import Agent, MemoryStore, Message, SQLStore, State, tool
from alpineagents.testing import FakeModel, tool_call
from benchmarks.raw import Raw, rate

TEXT = "x" * 560
PAYLOAD = json.dumps({"message": {"role": "user", "content": [{"type": "text", "text": TEXT}], "is_notice": False}})
BLOCKS = 5
LONG = 10_000
SHORT = 100
LISTED = 100_000


@dataclass(frozen=True, slots=True)
class Figure:
    """
    A ratio, measured several times.

    Attributes:
        target: what it should be; the figure falls short on the other side of it.
        at_least: whether more is better.
    """

    name: str
    values: Sequence[float]
    target: float | None = None
    at_least: bool = False

    @property
    def median(self) -> float:
        """The one in the middle."""
        return statistics.median(self.values)


async def clocked(work: Callable[[], Awaitable[object]]) -> float:
    """Return the microseconds that the work takes."""
    start = time.perf_counter()
    await work()
    return (time.perf_counter() - start) * 1e6


async def saved(store: SQLStore, id: str, events: int) -> State:
    """Return a saved State with so many Events."""
    state = State(id=id, messages=[Message.user(TEXT) for _ in range(events)])
    await store.save(state)
    return state


async def steps(store: SQLStore, raw: Raw, rounds: int) -> list[Figure]:
    """Measure one append: early, late in a history, and with ten Events."""
    await saved(store, "raw", 10)
    early, late = await saved(store, "early", 10), await saved(store, "late", LONG)
    several = await saved(store, "several", 10)
    at = 10

    async def raw_step() -> None:
        nonlocal at
        at += 1
        await raw.append(("raw", at, PAYLOAD))

    async def step(state: State, events: int = 1) -> None:
        for _ in range(events):
            state.add_message(Message.user(TEXT))
        await store.save(state)

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "raw": raw_step,
        "early": lambda: step(early),
        "late": lambda: step(late),
        "ten": lambda: step(several, 10),
    }
    blocks = []
    for _ in range(BLOCKS + 1):
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(rounds // BLOCKS):
            for name, work in works.items():
                times[name].append(await clocked(work))
        blocks.append({name: statistics.median(taken) for name, taken in times.items()})
    # The first block warms up.
    del blocks[0]
    return [
        Figure("raw append, one Event, µs", [block["raw"] for block in blocks]),
        Figure("one Event an append, × raw", [block["early"] / block["raw"] for block in blocks], 1.5),
        Figure(
            "one Event an append at Event 10,000, × at Event 10",
            [block["late"] / block["early"] for block in blocks],
            1.1,
        ),
        Figure("ten Events in one append, × one", [block["ten"] / block["early"] for block in blocks], 1.7),
    ]


async def reading(store: SQLStore, raw: Raw) -> list[Figure]:
    """Measure the load of a long history."""
    await saved(store, "long", LONG)

    async def raw_load() -> list[object]:
        return [from_json(row[-1]) for row in await raw.rows("long")]

    ratios = []
    for _ in range(BLOCKS * 4):
        # What the one leaves to Python's collector is not the other's to clear away.
        gc.collect()
        alone = await clocked(raw_load)
        gc.collect()
        ratios.append(await clocked(lambda: store.load("long")) / alone)
    return [Figure("load of 10,000 Events, × SELECT and JSON to dicts", ratios, 2.5), *await tails(store)]


async def tails(store: SQLStore) -> list[Figure]:
    """Measure the load of a history from the last change of its context on."""
    state = await saved(store, "compacted", 2 * LONG - SHORT)
    state.compact("a summary")
    for _ in range(SHORT - 1):
        state.add_message(Message.user(TEXT))
    await store.save(state)
    await saved(store, "short", SHORT)
    of_whole, of_short = [], []
    for _ in range(BLOCKS):
        whole = await clocked(lambda: store.load("compacted"))
        for _ in range(BLOCKS):
            short = await clocked(lambda: store.load("short"))
            tail = await clocked(lambda: store.load("compacted", tail=True))
            of_whole.append(whole / tail)
            of_short.append(tail / short)
    return [
        Figure("load of 20,000 Events, × its tail of 100", of_whole, 50.0, at_least=True),
        Figure("load of a tail of 100 Events, × a load of 100 Events", of_short, 2.0),
    ]


async def at_once(store: SQLStore, url: str, rounds: int) -> list[Figure]:
    """Measure 100 States at once in one process, after `gc.freeze()` as docs/speed.md advises, and without it."""
    is_postgres = url.startswith("postgres")
    ratios, ours, cpu, cpu_unfrozen = [], [], [], []
    for block in range(BLOCKS):
        alone = [await saved(store, f"raw{block}-{number}", 1) for number in range(100)]
        states = [await saved(store, f"ours{block}-{number}", 1) for number in range(100)]
        single = [(state.id, 1) for state in alone]
        base = await rate(url, single, PAYLOAD, max(3, rounds // 60), writers=16 if is_postgres else 1)

        async def go_on(state: State) -> None:
            for _ in range(rounds // 20):
                state.add_message(Message.user(TEXT))
                await store.save(state)

        events = 100 * (rounds // 20)
        for used in (cpu_unfrozen, cpu):
            gc.collect()
            if used is cpu:
                gc.freeze()
            start, cpu_start = time.perf_counter(), time.process_time()
            await asyncio.gather(*map(go_on, states))
            taken = time.perf_counter() - start
            used.append((time.process_time() - cpu_start) / events * 1e6)
            gc.unfreeze()
        ours.append(events / taken)
        ratios.append(ours[-1] / base)
    raw_name = "raw with 16 connections" if is_postgres else "raw, a commit an Event"
    return [
        Figure("100 States at once, Events/s", ours),
        Figure("the same, µs of the processor an Event", cpu),
        Figure("the same without gc.freeze(), µs of the processor an Event", cpu_unfrozen),
        Figure(f"100 States at once, Events/s × {raw_name}", ratios, 2.0 if is_postgres else 8.0, at_least=True),
    ]


async def processes(url: str, rounds: int, *, blocks: int = 3) -> list[Figure]:
    """Measure four processes with 25 States each, against the driver that writes 25 Events a commit."""
    ratios, slowest, shares = [], [], []
    for block in range(blocks):
        told = {}
        for side in ("raw", "ours"):
            workers = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "benchmarks.worker", url, side, f"p{block}{side}{name}", str(rounds)),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for name in "abcd"
            ]
            for worker in workers:
                assert worker.stdout is not None
                await worker.stdout.readline()
            printed = await asyncio.gather(*(worker.communicate(b"\n") for worker in workers))
            told[side] = [json.loads(out) for out, _ in printed]
        # From the start of the first to the end of the last.
        spans: dict[str, Any] = {
            side: max(each["end"] for each in out) - min(each["start"] for each in out) for side, out in told.items()
        }
        ratios.append(spans["raw"] / spans["ours"])
        slowest.append(max(each["p99"] for each in told["ours"]) * 1e3)
        lengths = [each["end"] - each["start"] for each in told["ours"]]
        shares.append(max(lengths) / min(lengths))
    return [
        Figure("4 processes with 25 States, Events/s × raw with 25 Events a commit", ratios, 0.6, at_least=True),
        Figure("4 processes with 25 States, p99 of an append in the slowest process, ms", slowest, 200.0),
        Figure("the same, slowest process × fastest", shares),
    ]


async def room(store: SQLStore, raw: Raw, name: str) -> list[Figure]:
    """Measure what 1,000 Events of 600 bytes take on the disk."""
    before = await raw.size()
    await saved(store, "room", 1)
    state = await store.load("room")
    for _ in range(100):
        for _ in range(10):
            state.add_message(Message.user(TEXT))
        await store.save(state)
    size = (await raw.size() - before) / (1_000 * len(PAYLOAD))
    return [Figure("stored bytes of 1,000 Events, × their payload", [size], 1.4 if name == "SQLite" else 1.6)]


async def lists(store: SQLStore, raw: Raw, fill: Callable[[int], Awaitable[None]]) -> list[Figure]:
    """Measure the newest 50 of many States, and a page far behind."""
    await fill(LISTED)
    far = (await store.list(limit=LISTED // 2))[-1]
    first, later = [], []
    for _ in range(BLOCKS * 4):
        alone = await clocked(raw.newest)
        ours = await clocked(store.list)
        first.append(ours / alone)
        later.append(await clocked(lambda: store.list(after=far)) / ours)
    return [
        Figure("newest 50 of 100,000 States, × the same SELECT", first, 2.0),
        Figure("page 1,000 of the list, × the first", later),
    ]


@tool(read_only=True)
def nothing() -> None:
    """Do nothing."""


async def turn(rounds: int) -> list[Figure]:
    """Measure a turn with one tool, where nothing is on disk."""
    model = FakeModel(lambda request: "Done." if request.messages[-1].tool_results else tool_call("nothing"))
    agent = Agent(model, tools=[nothing], store=MemoryStore())
    await agent.run("Go")
    taken = [await clocked(lambda: agent.run("Go")) for _ in range(rounds)]
    return [Figure("a run of two turns with one tool, in memory, µs", taken)]
