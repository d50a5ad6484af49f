"""A process that is killed at each of its moments in turn, and another that carries its work to the same end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from alpineagents import ModelRequested, State, StateNotFoundError, ToolFinished, ToolStarted
from tests.agent.parts import Place, complaints, of
from tests.agent.processes import run

ANSWER = "Ada and Bob are served."
EVENTS = [1, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
"""The first Event of each append of the uncrashed run, and each result, which may share appends."""
EFFECTS = ["look", "pay-Ada", "put", "pay-Bob"]
MOMENTS = [
    *(f"{when} {event}" for event in EVENTS for when in ("before", "after")),
    *(f"{when} {effect}" for effect in EFFECTS for when in ("in", "behind")),
    *(f"model {n}" for n in (1, 2, 3)),
]
FULL = bool(os.environ.get("ALPINE_TEST_FULL"))
SOME = MOMENTS if FULL else MOMENTS[::3]
"""On the slower place, the short form takes every third."""

pytestmark = pytest.mark.slow


def effects(folder: Path) -> list[str]:
    """Return what the tools did: name and idempotency key."""
    file = folder / "effects"
    return file.read_text().splitlines() if file.exists() else []


def acknowledged(folder: Path) -> int:
    """Return the last revision that the store has acknowledged."""
    file = folder / "acknowledged"
    return int(file.read_text().split()[-1]) if file.exists() else 0


async def load(place: Place) -> State | None:
    async with place.open() as store:
        try:
            return await store.load("s")
        except StateNotFoundError:
            return None


def work(place: Place, folder: Path, moment: str, *how: str) -> object:
    """Run the worker; return its answer, or None where it was killed as it should be."""
    ended = run("worker.py", place.url or "", "s", str(folder), moment, *how)
    if moment != "never":
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        return None
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def names(state: State) -> dict[str, str]:
    """Return the names of the effects of all calls by their ids."""
    calls = [call for message in state.messages for call in message.tool_calls]
    return {call.id: "-".join([call.name, *map(str, call.args.values())]) for call in calls}


async def check_carried_on(place: Place, folder: Path, moment: str) -> None:
    """Kill a worker at a moment, let another go on, and check all that is promised."""
    work(place, folder, moment)
    crashed = await load(place)
    assert (crashed.revision if crashed else 0) >= acknowledged(folder)

    assert work(place, folder, "never") == ANSWER

    state = await load(place)
    assert state is not None
    if crashed is not None:
        assert tuple(state.history[: crashed.revision]) == tuple(crashed.history)
    assert complaints(state.messages) == []
    assert state.status == "stopped"
    done = effects(folder)
    keys = {name: [line.split()[1] for line in done if line.startswith(f"{name} ")] for name in EFFECTS}
    outcome = {event.call_id: event.outcome for event in of(state, ToolFinished)}
    in_doubt = doubtful(crashed)
    for call_id, name in names(state).items():
        if name.startswith("pay"):
            # At most once; exactly once and told so, unless the process died while it ran.
            assert len(keys[name]) <= 1
            assert outcome[call_id] == ("unknown" if call_id in in_doubt else "ok")
            assert len(keys[name]) == 1 or call_id in in_doubt
        else:
            assert len(keys[name]) in ((1, 2) if call_id in in_doubt else (1,))
            assert outcome[call_id] == "ok"
            assert len(set(keys[name])) == 1
    told = [result for message in state.messages for result in message.tool_results if result.outcome == "unknown"]
    assert all("outcome of this call is unknown" in result.text for result in told)
    assert len(names(state)) == len(EFFECTS)


def doubtful(crashed: State | None) -> set[str]:
    """Return the calls that were started and have no result."""
    if crashed is None:
        return set()
    finished = {event.call_id for event in of(crashed, ToolFinished)}
    return {event.call_id for event in of(crashed, ToolStarted)} - finished


def test_a_run_that_is_not_killed_has_the_moments_of_the_sweep(tmp_path: Path) -> None:
    """So that the sweep leaves none out."""
    place = Place("sqlite", str(tmp_path / "agents.db"))

    assert work(place, tmp_path, "never") == ANSWER

    assert acknowledged(tmp_path) == EVENTS[-1]
    assert sorted(line.split()[0] for line in effects(tmp_path)) == sorted(EFFECTS)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_kill_at_any_moment_has_the_same_end(moment: str, tmp_path: Path) -> None:
    """On SQLite: before and after each append, in each tool before and after its effect, in each request."""
    await check_carried_on(Place("sqlite", str(tmp_path / "agents.db")), tmp_path, moment)


@pytest.mark.parametrize("moment", SOME)
async def test_a_kill_at_any_moment_has_the_same_end_on_postgres(
    moment: str, migrated_postgres_url: str, tmp_path: Path
) -> None:
    """The same on Postgres."""
    await check_carried_on(Place("postgres", migrated_postgres_url), tmp_path, moment)


@pytest.mark.parametrize("moment", ["before 4", "in pay-Ada", "before 11", "model 2", "in pay-Bob"])
async def test_a_message_given_again_after_a_crash_is_stored_once(moment: str, shared: Place, tmp_path: Path) -> None:
    """A queue gives the same work to the next process, which goes on from the stored message."""
    work(shared, tmp_path, moment)

    assert work(shared, tmp_path, "never", "again") == ANSWER

    state = await load(shared)
    assert state is not None
    assert [message.text for message in state.messages if message.is_plain] == ["Pay Ada and Bob"]


@pytest.mark.parametrize("moment", ["model 1", "model 3"])
async def test_a_request_that_a_crash_interrupted_counts_in_the_usage(
    moment: str, shared: Place, tmp_path: Path
) -> None:
    """It was made and may have been paid, so it is not left out of the sum."""
    work(shared, tmp_path, moment)
    work(shared, tmp_path, "never")

    state = await load(shared)
    assert state is not None
    assert state.usage.requests == len(of(state, ModelRequested)) == 4
