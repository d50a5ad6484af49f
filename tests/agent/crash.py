"""The crash sweep: a process is killed at a moment, another carries its work on, and what is promised is checked."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import State, StateNotFoundError, ToolFinished, ToolStarted
from alpineagents.stores.sql.urls import async_url
from tests.agent.parts import Place, complaints, of
from tests.agent.processes import run

ANSWER = "Ada and Bob are served."
APPENDS = [1, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
"""The first Event of each append of the uncrashed run, and each result, which may share appends."""
EFFECTS = ["look", "pay-Ada", "put", "pay-Bob", "book"]

MOMENTS = {
    "before an append": [f"before {event}" for event in APPENDS],
    "inside an append": [f"inside {event}" for event in APPENDS],
    "after an append": [f"after {event}" for event in APPENDS],
    "in a tool, before its effect": [f"in {effect}" for effect in EFFECTS],
    "in a tool, behind its effect": [f"behind {effect}" for effect in EFFECTS],
    "in a request to the model": [f"model {n}" for n in (1, 2, 3)],
}
"""When a process is killed, by kind."""


@dataclass
class Story:
    """
    A State that one process worked on until it was killed, and another carried on.

    Attributes:
        place: where the State is.
        known: the last revision that the store had acknowledged to the first process.
        crashed: the State as that process left it; None if it had not come so far.
        ended: the State in the end.
        effects: the idempotency keys with which each effect was made.
    """

    place: Place
    known: int
    crashed: State | None
    ended: State
    effects: dict[str, list[str]]

    @property
    def lost(self) -> int:
        """How many acknowledged Events the crash took."""
        return max(0, self.known - (self.crashed.revision if self.crashed else 0))

    @property
    def in_doubt(self) -> set[str]:
        """The calls that were started and had no result."""
        if self.crashed is None:
            return set()
        finished = {event.call_id for event in of(self.crashed, ToolFinished)}
        return {event.call_id for event in of(self.crashed, ToolStarted)} - finished

    @property
    def names(self) -> dict[str, str]:
        """The name of the effect of each call."""
        calls = [call for message in self.ended.messages for call in message.tool_calls]
        return {call.id: "-".join([call.name, *map(str, call.args.values())]) for call in calls}

    @property
    def outcomes(self) -> dict[str, str]:
        """How each call ended."""
        return {event.call_id: event.outcome for event in of(self.ended, ToolFinished)}

    def check(self) -> None:
        """Check all that is promised."""
        assert self.lost == 0
        if self.crashed is not None:
            assert tuple(self.ended.history[: self.crashed.revision]) == tuple(self.crashed.history)
        assert self.ended.answer == ANSWER
        assert complaints(self.ended.messages) == []
        assert self.ended.status == "stopped"
        assert sorted(self.names.values()) == sorted(EFFECTS)
        for call_id, name in self.names.items():
            self._check_call(call_id, name)
        told = [result for message in self.ended.messages for result in message.tool_results]
        unknown = [result.text for result in told if result.outcome == "unknown"]
        assert all("outcome of this call is unknown" in text for text in unknown)

    def _check_call(self, call_id: str, name: str) -> None:
        times, is_doubtful = len(self.effects[name]), call_id in self.in_doubt
        if name.startswith("pay"):
            # At most once; exactly once and told so, unless the process died while it ran.
            assert times == 1 or (times == 0 and is_doubtful)
            assert self.outcomes[call_id] == ("unknown" if is_doubtful else "ok")
        elif name == "book" and self.place.has_transactions:
            assert times == 1
            assert self.outcomes[call_id] == "ok"
        else:
            assert times == 1 or (times == 2 and is_doubtful)
            assert self.outcomes[call_id] == "ok"
            assert len(set(self.effects[name])) == 1


def acknowledged(folder: Path) -> int:
    """Return the last revision that the store has acknowledged."""
    file = folder / "acknowledged"
    return int(file.read_text().split()[-1]) if file.exists() else 0


async def load(place: Place) -> State | None:
    """Return the State, if there is one."""
    async with place.open() as store:
        try:
            return await store.load("s")
        except StateNotFoundError:
            return None


async def work(place: Place, folder: Path, moment: str, *how: str) -> object:
    """Let a process work; return its answer, or None where it was killed as it should be."""
    if place.has_transactions:
        await _in_database(place, "CREATE TABLE IF NOT EXISTS bookings (booked TEXT NOT NULL)")
    ended = run("worker.py", place.target or "", "s", str(folder), moment, *how)
    if moment != "never":
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return None
    assert ended.returncode == 0, ended.stderr
    answer: object = json.loads(ended.stdout)
    return answer


async def effects(place: Place, folder: Path) -> dict[str, list[str]]:
    """Return the idempotency keys with which each effect was made."""
    file = folder / "effects"
    lines = file.read_text().splitlines() if file.exists() else []
    if place.has_transactions:
        lines += [f"book {key}" for key in await _in_database(place, "SELECT booked FROM bookings")]
    made: dict[str, list[str]] = {name: [] for name in EFFECTS}
    for line in lines:
        name, _, key = line.partition(" ")
        made[name].append(key)
    return made


async def carried_on(place: Place, folder: Path, moment: str) -> Story:
    """Kill a process at a moment, let another go on to the end, and return what became of it."""
    await work(place, folder, moment)
    known, crashed = acknowledged(folder), await load(place)

    await work(place, folder, "never")

    ended = await load(place)
    assert ended is not None
    return Story(place, known, crashed, ended, await effects(place, folder))


async def _in_database(place: Place, statement: str) -> list[str]:
    engine = create_async_engine(async_url(place.target or ""))
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement))
            return list(result.scalars()) if result.returns_rows else []
    finally:
        await engine.dispose()
