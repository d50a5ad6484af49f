"""
The contract of all stores, as a class of tests: who passes it can be given to an Agent.
"""

from __future__ import annotations

import pytest

from alpineagents.stores.base import Store
from alpineagents.testing.rules.appending import AppendRules
from alpineagents.testing.rules.blobs import BlobRules
from alpineagents.testing.rules.cancelling import CancelRules
from alpineagents.testing.rules.forks import ForkRules
from alpineagents.testing.rules.headers import HeaderRules
from alpineagents.testing.rules.history import HistoryRules
from alpineagents.testing.rules.inbox import InboxRules
from alpineagents.testing.rules.leases import LeaseRules
from alpineagents.testing.rules.namespaces import NamespaceRules
from alpineagents.testing.rules.runs import RunRules
from alpineagents.testing.rules.watching import WatchRules
from alpineagents.testing.rules.writers import WriterRules


@pytest.mark.anyio
class StoreContract(
    AppendRules,
    HistoryRules,
    HeaderRules,
    ForkRules,
    BlobRules,
    NamespaceRules,
    InboxRules,
    WatchRules,
    LeaseRules,
    WriterRules,
    CancelRules,
    RunRules,
):
    """
    The rules that every store keeps, for a backend of one's own.

    Give a subclass a fixture `store`. The tests run with anyio's plugin for pytest, on the event loops that the fixture
    `anyio_backend` names. Where the backend does not implement an optional part, its tests are skipped, and the reason
    says what is lacking. Each test makes States with ids of their own, so the store need not be empty.

    Attributes:
        complete: whether the backend is meant to lack nothing; then what would be skipped fails.

    Example:
        >>> from collections.abc import AsyncIterator
        >>> from alpineagents import MemoryStore
        >>> class TestMyStore(StoreContract):
        ...     complete = True
        ...
        ...     @pytest.fixture
        ...     async def store(self) -> AsyncIterator[Store]:
        ...         async with MemoryStore() as store:
        ...             yield store
    """

    @pytest.fixture
    def store(self) -> Store:
        """The store under test, which a subclass gives."""
        pytest.fail(
            f"{type(self).__name__} has no store to test. Give it the fixture:\n\n"
            "    @pytest.fixture\n"
            "    async def store(self):\n"
            "        async with YourStore(…) as store:\n"
            "            yield store",
            pytrace=False,
        )
