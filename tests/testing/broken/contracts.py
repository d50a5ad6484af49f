"""A contract for each broken store: `test_broken.py` runs this and expects the failures."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import ClassVar

import pytest
from broken import blobs, forks, headers, leases, reading, writing
from broken.base import Broken

from alpineagents import Store
from alpineagents.testing import StoreContract


class BrokenContract(StoreContract):
    """The contract of a broken store."""

    complete = True
    backend: ClassVar[type[Store]]

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        async with self.backend() as store:
            yield store

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"


for _module in (blobs, forks, headers, leases, reading, writing):
    for _name, _backend in vars(_module).copy().items():
        if isinstance(_backend, type) and issubclass(_backend, Broken) and _backend is not Broken:
            _members = {"backend": _backend, "__module__": __name__}
            globals()[f"Test{_name}"] = type(f"Test{_name}", (BrokenContract,), _members)


class TestRemembersLittle(BrokenContract):
    """A contract that is not said to be complete: a store that half remembers fails, one that forgets is told so."""

    complete = False
    backend = writing.RemembersLastAppendId


class TestForgets(BrokenContract):
    """A store that forgets append ids, and was not said to be complete."""

    complete = False
    backend = writing.ForgetsAppendId
