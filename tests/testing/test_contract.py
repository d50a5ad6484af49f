"""Every store of the library keeps the whole contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from alpineagents import FileStore, MemoryStore, SQLStore, Store
from alpineagents.testing import StoreContract


class TestMemoryStore(StoreContract):
    """In memory."""

    complete = True

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with MemoryStore() as store:
            yield store


class TestMemoryStoreOnTrio(TestMemoryStore):
    """The same on trio."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "trio"


class TestSQLStore(StoreContract):
    """In a SQLite file."""

    complete = True

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with SQLStore(str(tmp_path / "agents.db")) as store:
            yield store


class TestSQLStoreOnPostgres(StoreContract):
    """In a Postgres database."""

    complete = True

    @pytest.fixture
    async def store(self, migrated_postgres_url: str) -> AsyncIterator[Store]:
        async with SQLStore(migrated_postgres_url) as store:
            yield store


class TestFileStore(StoreContract):
    """In files."""

    complete = True

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        async with FileStore(tmp_path / "agent-runs") as store:
            yield store


class TestFileStoreOnTrio(TestFileStore):
    """The same on trio."""

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "trio"
