"""A process that is killed while a subagent works, and another that carries both on to the same end."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from alpineagents import ToolFinished
from tests.agent.parts import Place, complaints, of
from tests.agent.processes import run

CHILD_APPENDS = [1, 4, 6, 8, 10, 12, 13]
"""The first Event of each append of the child, which is not killed."""

MOMENTS = [
    *(("child", f"{how} {event}") for how in ("before", "inside", "after") for event in CHILD_APPENDS),
    *(("child", f"{how} {name}") for how in ("in", "behind") for name in ("look", "pay")),
    *(("child", f"model {n}") for n in (1, 2, 3)),
    # Between the end of the child and the result of the call, and on both sides of it.
    *(("parent", f"{how} {event}") for how in ("before", "inside", "after") for event in (4, 6)),
]
ALL = [pytest.param(*moment, id=" ".join(moment)) for moment in MOMENTS]
SOME = ALL if os.environ.get("ALPINE_TEST_FULL") else ALL[::3]
"""On SQLite all moments are tried; the short form takes every third of them on the other places."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio_only]


@pytest.mark.parametrize("whose, moment", ALL)
async def test_a_kill_while_a_subagent_works_has_the_same_end(whose: str, moment: str, tmp_path: Path) -> None:
    """On SQLite: in the child's tools, in its appends, and between its end and the parent's result."""
    await check_carried_on(Place("sqlite", str(tmp_path / "agents.db")), tmp_path, whose, moment)


@pytest.mark.parametrize("whose, moment", SOME)
async def test_a_kill_while_a_subagent_works_has_the_same_end_in_files(whose: str, moment: str, tmp_path: Path) -> None:
    """The same in a folder."""
    await check_carried_on(Place("files", str(tmp_path / "agent-runs")), tmp_path, whose, moment)


@pytest.mark.parametrize("whose, moment", SOME)
async def test_a_kill_while_a_subagent_works_has_the_same_end_on_postgres(
    whose: str, moment: str, migrated_postgres_url: str, tmp_path: Path
) -> None:
    """The same on Postgres."""
    await check_carried_on(Place("postgres", migrated_postgres_url), tmp_path, whose, moment)


@pytest.mark.parametrize(
    "whose, moment", [("child", "before 1"), ("child", "in pay"), ("child", "inside 10"), ("parent", "before 6")]
)
async def test_a_kill_while_a_run_of_a_tool_goes_on_has_the_same_end(
    whose: str, moment: str, shared: Place, tmp_path: Path
) -> None:
    """A run that a tool starts with its context is found again, as an Agent in `tools=` is."""
    await check_carried_on(shared, tmp_path, whose, moment, "tool")


async def check_carried_on(place: Place, folder: Path, whose: str, moment: str, *how: str) -> None:
    assert place.target is not None
    killed = run("parent.py", place.target, str(folder), whose, moment, *how)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    async with place.open() as store:
        crashed = {info.id: tuple((await store.load(info.id)).history) for info in await store.list()}

    ended = run("parent.py", place.target, str(folder), whose, "never", *how)
    assert ended.returncode == 0, ended.stderr

    assert json.loads(ended.stdout) == "All is done."
    async with place.open() as store:
        parent = await store.load("s")
        [finished] = of(parent, ToolFinished)
        [child_id] = finished.children
        child = await store.load(child_id)
        assert {info.id for info in await store.list()} == {"s", child_id}
    for state in (parent, child):
        before = crashed.get(state.id, ())
        assert tuple(state.history[: len(before)]) == before
        assert complaints(state.messages) == []
        assert state.status == "stopped"
    assert child.answer == "Ada is paid."
    assert [block.text for block in finished.content] == ["Ada is paid."]
    own = sum(event.usage.requests for event in parent.history if event.kind in ("model_replied", "model_failed"))
    assert finished.usage == child.usage
    assert parent.usage.requests == own + child.usage.requests
    made = (folder / "effects").read_text().split()
    in_doubt = moment in ("in pay", "after 10", "inside 12", "before 12", "behind pay") and whose == "child"
    assert made.count("pay") == 1 or (made.count("pay") == 0 and in_doubt)
