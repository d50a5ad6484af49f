"""
What each peer's program does with its peer: grow one conversation, load it, write many at once.

A program reads one request a line and writes one answer a line, as JSON. It imports nothing but the standard library
and its peer, because it runs in the peer's environment, where this project is not installed.

    {"do": "grow", "kind": "sqlite", "place": "…/a.db", "lengths": [10, 100, 1000], "window": 20, "each": false}
    {"do": "prepare", …}  {"do": "join", …, "states": 25, "worker": 3}  {"do": "race", "seconds": 3}
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

TEXT = "x" * 440
"""With what each side stores around it, an Event of about 600 bytes."""


class Conversation(Protocol):
    """One conversation of a peer."""

    async def step(self) -> None:
        """Add one message; it is durable when this returns, as far as the peer promises it."""

    async def fill(self, count: int) -> None:
        """Add many messages in the fastest way that the peer has."""

    async def close(self) -> None:
        """Give back what it holds."""


class Peer(Protocol):
    """A way of a peer to keep conversations, opened on a place: a path, or a URL of Postgres."""

    async def open(self, place: str) -> None:
        """Open the place; make what it needs if it is new."""

    async def start(self, id: str) -> Conversation:
        """Start a conversation."""

    async def load(self, id: str) -> int:
        """Load a conversation anew and return how many messages it has."""

    async def close(self) -> None:
        """Close it."""


Work = Callable[[dict[str, Any]], Awaitable[object]]


class Served:
    """The requests that every peer's program answers."""

    def __init__(self, kinds: dict[str, Callable[[], Peer]], works: dict[str, Work], ask: Callable[..., Any]) -> None:
        self._kinds, self._ask = kinds, ask
        self._racers: list[Conversation] = []
        self._peer: Peer | None = None
        base: dict[str, Work] = {"grow": self.grow, "prepare": self.prepare, "join": self.join, "race": self.race}
        self.works = base | works

    async def grow(self, given: dict[str, Any]) -> dict[str, Any]:
        """Grow one conversation and measure its steps at each length."""
        peer = self._kinds[given["kind"]]()
        await peer.open(given["place"])
        one = await peer.start("growing")
        length, window = 0, given["window"]
        steps: dict[str, float] = {}
        spread: dict[str, list[float]] = {}
        written: dict[str, float] = {}
        at_start = self._written(given)
        for wanted in given["lengths"]:
            if given["each"]:
                for _ in range(wanted - length):
                    await one.step()
            elif wanted > length:
                await one.fill(wanted - length)
            before = self._written(given)
            taken = [await clocked(one.step) for _ in range(window)]
            length = wanted + window
            steps[str(wanted)] = statistics.median(taken)
            spread[str(wanted)] = [min(taken), max(taken)]
            written[str(wanted)] = (self._written(given) - before) / window
        total = self._written(given) - at_start
        loads = [await clocked(lambda: peer.load("growing")) for _ in range(3)]
        found = await peer.load("growing")
        await one.close()
        await peer.close()
        if found != length:
            raise SystemExit(f"{given['kind']}: {found} messages came back of {length}")
        size = self._ask("size") if given["postgres"] else size_of(Path(given["place"]).parent)
        return {
            "step": steps, "spread": spread, "written": written, "load": statistics.median(loads), "length": length,
            "size": size, "total": total,
        }  # fmt: skip

    def _written(self, given: dict[str, Any]) -> int:
        """Return the bytes that this process gave to write(), or the server to its log."""
        if given["postgres"]:
            return int(self._ask("written"))
        lines = Path("/proc/self/io").read_text().splitlines() if Path("/proc/self/io").exists() else ["wchar: 0"]
        return next(int(line.split()[1]) for line in lines if line.startswith("wchar"))

    async def prepare(self, given: dict[str, Any]) -> None:
        """Make the tables, so that the processes that follow do not race for that."""
        peer = self._kinds[given["kind"]]()
        await peer.open(given["place"])
        await (await peer.start("first")).close()
        await peer.close()

    async def join(self, given: dict[str, Any]) -> None:
        """Open the place and start this process's conversations."""
        self._peer = self._kinds[given["kind"]]()
        await self._peer.open(given["place"])
        names = [f"w{given['worker']}-{n}" for n in range(given["states"])]
        self._racers = [await self._peer.start(name) for name in names]
        # What docs/speed.md advises a process that keeps many States; every peer has it.
        gc.collect()
        gc.freeze()

    async def race(self, given: dict[str, Any]) -> dict[str, Any]:
        """Step all conversations at once until the time is over."""
        assert self._peer is not None
        taken: list[float] = []
        errors: dict[str, int] = {}
        end = time.perf_counter() + given["seconds"]

        async def go(one: Conversation) -> None:
            while time.perf_counter() < end:
                try:
                    taken.append(await clocked(one.step))
                except Exception as error:  # noqa: BLE001  # what a peer raises is what is counted
                    lock = any(word in str(error).lower() for word in ("locked", "lock timeout", "deadlock"))
                    name = "lock" if lock else type(error).__name__
                    errors[name] = errors.get(name, 0) + 1
                    await asyncio.sleep(0.001)

        start = time.perf_counter()
        await asyncio.gather(*map(go, self._racers))
        seconds = time.perf_counter() - start
        for one in self._racers:
            await one.close()
        await self._peer.close()
        return {"events": len(taken), "seconds": seconds, "taken": sorted(taken), "errors": errors}


async def clocked(work: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds that the work takes."""
    start = time.perf_counter()
    await work()
    return time.perf_counter() - start


def size_of(folder: Path) -> int:
    """Return the bytes of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class LoopClock:
    """Measures how late the event loop is: a task that sleeps a millisecond, again and again."""

    async def __aenter__(self) -> LoopClock:
        self.late: list[float] = []
        self.worked: list[float] = []
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0.05)
        self.late.clear()
        self.worked.clear()
        return self

    async def _run(self) -> None:
        while True:
            start, work = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.001)
            self.late.append(time.perf_counter() - start - 0.001)
            self.worked.append(time.thread_time() - work)

    async def __aexit__(self, *raised: object) -> None:
        # One more round, so that a stall at the very end is seen.
        await asyncio.sleep(0.005)
        self._task.cancel()


def percentile(values: list[float], share: float) -> float:
    """Return a percentile of some values, 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def serve(kinds: dict[str, Callable[[], Peer]], works: dict[str, Work] | None = None) -> None:
    """Answer requests until standard input ends."""
    # What a peer prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def ask(question: str) -> Any:
        print(json.dumps({"ask": question}), file=answers)
        return json.loads(sys.stdin.readline())

    async def work(given: dict[str, Any]) -> object:
        return await served.works[given["do"]](given)

    served = Served(kinds, works or {}, ask)
    with asyncio.Runner() as runner:
        for line in iter(sys.stdin.readline, ""):
            print(json.dumps({"answer": runner.run(work(json.loads(line)))}), file=answers)
