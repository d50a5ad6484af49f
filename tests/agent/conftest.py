"""The places where the States of these runs are kept."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from alpineagents import Store
from tests.agent.crash_table import PROPERTY, table
from tests.agent.parts import Place

FILES = {"files": "agent-runs", "sqlite": "agents.db"}


def place_of(name: str, request: pytest.FixtureRequest) -> Place:
    if name in FILES:
        folder: Path = request.getfixturevalue("tmp_path")
        return Place(name, str(folder / FILES[name]))
    return Place(name, request.getfixturevalue("migrated_postgres_url") if name == "postgres" else None)


@pytest.fixture(params=["memory", "files", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each place, empty."""
    return place_of(request.param, request)


@pytest.fixture(params=["files", "sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> Place:
    """Each place that several processes can use, empty."""
    return place_of(request.param, request)


@pytest.fixture
async def store(place: Place) -> AsyncIterator[Store]:
    """Each store, empty, closed after the test."""
    async with place.open() as store:
        yield store


@pytest.fixture
async def another(place: Place, store: Store) -> AsyncIterator[Callable[[], Store]]:
    """Gives another store object on the place of `store`, as another process has it; memory has but one."""
    opened: list[Store] = []

    def open_another() -> Store:
        if place.target is None:
            return store
        opened.append(place.open())
        return opened[-1]

    yield open_another
    for each in opened:
        await each.aclose()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the table of the crash sweep, where all of it was done."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    calls = [report for report in reports if getattr(report, "when", "") == "call"]
    kills = [value for call in calls for name, value in call.user_properties if name == PROPERTY]
    if kills and os.environ.get("ALPINE_TEST_FULL"):
        terminalreporter.section("crash sweep")
        terminalreporter.write("\n".join(table(kills)) + "\n")
