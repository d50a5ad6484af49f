"""Databases that can be made to fail, and stores that do not wait long for them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from alpineagents import SQLStore
from tests.failures.proxy import Proxy

PATIENCE = 5.0
"""Long enough for every retry that must succeed, and never waited for where it does."""

LITTLE = 0.05
"""For tests in which the database stays away."""


@pytest.fixture
async def proxy(migrated_postgres_url: str) -> AsyncIterator[Proxy]:
    """A proxy before a fresh database."""
    async with Proxy(migrated_postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[SQLStore]:
    """A store whose way to its database is the proxy; its first connection is made."""
    async with SQLStore(proxy.url, patience=PATIENCE) as store:
        await store.list()
        yield store


@pytest.fixture
async def hasty(proxy: Proxy) -> AsyncIterator[SQLStore]:
    """A store like `store`, which soon gives up."""
    async with SQLStore(proxy.url, patience=LITTLE) as store:
        await store.list()
        yield store


@pytest.fixture
async def direct(migrated_postgres_url: str) -> AsyncIterator[SQLStore]:
    """A store that goes past the proxy, to see what is there."""
    async with SQLStore(migrated_postgres_url) as store:
        yield store
