"""Every store in turn, so that each is held to the same rules, and the fake to what the databases do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from alpineagents import Store
from tests.contract.backends import Backend

ALL = ["memory", "files", "sqlite in memory", "sqlite", "postgres"]
SHARED = ["files", "sqlite", "postgres"]
"""What several processes and event loops can use."""
DATABASES = ["sqlite", "postgres"]


def backend_of(name: str, request: pytest.FixtureRequest) -> Backend:
    if name == "sqlite":
        folder: Path = request.getfixturevalue("tmp_path")
        return Backend(name, str(folder / "agents.db"))
    if name == "postgres":
        return Backend(name, request.getfixturevalue("migrated_postgres_url"))
    if name == "files":
        return Backend(name, str(request.getfixturevalue("tmp_path") / "agent-runs"))
    return Backend(name, None if name == "memory" else ":memory:")


@pytest.fixture(params=ALL)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each place where States can be kept, empty."""
    return backend_of(request.param, request)


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest) -> Backend:
    """Each place that several processes can use, empty."""
    return backend_of(request.param, request)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest) -> Backend:
    """A file and a server, empty."""
    return backend_of(request.param, request)


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    """Each store, empty, closed after the test."""
    async with backend.open() as store:
        yield store


@pytest.fixture
async def sql_store(database: Backend) -> AsyncIterator[Store]:
    """A store in a file and one in a server, empty, closed after the test."""
    async with database.open() as store:
        yield store
