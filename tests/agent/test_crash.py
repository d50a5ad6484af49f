"""A process that is killed at each of its moments in turn, and another that carries its work to the same end."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from alpineagents import ModelRequested
from tests.agent.crash import ANSWER, APPENDS, EFFECTS, MOMENTS, acknowledged, carried_on, effects, load, work
from tests.agent.crash_table import PROPERTY, STORES, facts
from tests.agent.parts import Place, of

ROOT = Path(__file__).parents[2]
ALL = [moment for moments in MOMENTS.values() for moment in moments]
FULL = bool(os.environ.get("ALPINE_TEST_FULL"))
SOME = ALL if FULL else ALL[::3]
"""On SQLite all moments are tried; the short form takes every third of them on the other places."""

pytestmark = [pytest.mark.slow, pytest.mark.asyncio_only]


async def test_a_run_that_is_not_killed_has_the_moments_of_the_sweep(shared: Place, tmp_path: Path) -> None:
    """So that the sweep leaves none out."""
    assert await work(shared, tmp_path, "never") == ANSWER

    state = await load(shared)
    assert state is not None
    assert acknowledged(tmp_path) == state.revision == APPENDS[-1]
    made = await effects(shared, tmp_path)
    assert {name: len(keys) for name, keys in made.items()} == dict.fromkeys(EFFECTS, 1)
    assert len(of(state, ModelRequested)) == len(MOMENTS["in a request to the model"])


@pytest.mark.parametrize("moment", ALL)
async def test_a_kill_at_any_moment_has_the_same_end(
    moment: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """On SQLite: before, inside and after each append, in each tool before and behind its effect, in each request."""
    await check_carried_on(Place("sqlite", str(tmp_path / "agents.db")), tmp_path, moment, record_property)


@pytest.mark.parametrize("moment", SOME)
async def test_a_kill_at_any_moment_has_the_same_end_in_files(
    moment: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same in a folder."""
    await check_carried_on(Place("files", str(tmp_path / "agent-runs")), tmp_path, moment, record_property)


@pytest.mark.parametrize("moment", SOME)
async def test_a_kill_at_any_moment_has_the_same_end_on_postgres(
    moment: str, migrated_postgres_url: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The same on Postgres."""
    await check_carried_on(Place("postgres", migrated_postgres_url), tmp_path, moment, record_property)


async def check_carried_on(
    place: Place, folder: Path, moment: str, record_property: Callable[[str, object], None]
) -> None:
    story = await carried_on(place, folder, moment)
    record_property(PROPERTY, facts(moment, story))
    story.check()


def test_the_docs_have_the_table_of_the_sweep() -> None:
    """For each store and kind of moment, with as many kills as the sweep has."""
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")

    shown = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in page.splitlines()]

    for kind, moments in MOMENTS.items():
        for store in STORES.values():
            assert (store, kind, str(len(moments))) in shown


@pytest.mark.parametrize("moment", ["before 4", "in pay-Ada", "before 11", "model 2", "in pay-Bob"])
async def test_a_message_given_again_after_a_crash_is_stored_once(moment: str, shared: Place, tmp_path: Path) -> None:
    """A queue gives the same work to the next process, which goes on from the stored message."""
    await work(shared, tmp_path, moment)

    assert await work(shared, tmp_path, "never", "again") == ANSWER

    state = await load(shared)
    assert state is not None
    assert [message.text for message in state.messages if message.is_plain] == ["Pay Ada and Bob"]


@pytest.mark.parametrize("moment", ["model 1", "model 3"])
async def test_a_request_that_a_crash_interrupted_counts_in_the_usage(
    moment: str, shared: Place, tmp_path: Path
) -> None:
    """It was made and may have been paid, so it is not left out of the sum."""
    await work(shared, tmp_path, moment)
    await work(shared, tmp_path, "never")

    state = await load(shared)
    assert state is not None
    assert state.usage.requests == len(of(state, ModelRequested)) == 4
