"""The places where the States of these runs are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from alpineagents import Store
from tests.agent.parts import Place


def place_of(name: str, request: pytest.FixtureRequest) -> Place:
    if name == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return Place(name, str(folder / "agents.db"))
    return Place(name, request.getfixturevalue("migrated_postgres_url") if name == "postgres" else None)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest) -> Place:
    """Each place, empty."""
    return place_of(request.param, request)


@pytest.fixture(params=["sqlite", "postgres"])
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
        if place.url is None:
            return store
        opened.append(place.open())
        return opened[-1]

    yield open_another
    for each in opened:
        await each.aclose()
