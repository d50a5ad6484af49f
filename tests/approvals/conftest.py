"""Every store in turn, and those that several processes can use."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from alpineagents import Store
from tests.contract.backends import Backend
from tests.contract.conftest import backend_of


@pytest.fixture(params=["memory", "files", "sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each place where States can be kept, empty."""
    return backend_of(request.param, request)


@pytest.fixture(params=["files", "sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> Backend:
    """Each place that several processes can use, empty."""
    return backend_of(request.param, request)


@pytest.fixture
async def store(backend: Backend) -> AsyncIterator[Store]:
    """Each store, empty, closed after the test."""
    async with backend.open() as store:
        yield store
