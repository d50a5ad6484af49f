"""Errors travel: through a process pool, and with whatever an exception says."""

from __future__ import annotations

import pickle

import pytest

from alpineagents import (
    Agent,
    ConfigError,
    EventOrderError,
    MemoryStore,
    OutputError,
    ResumeWarning,
    SQLStore,
    StateBusyError,
    StateConflictError,
    StateDamagedError,
    StateExistsError,
    StateIdError,
    StateNotFoundError,
    StoreClosedError,
    StoreFeatureError,
    SyncInsideLoopError,
    ValueNotStorableError,
)
from alpineagents.errors import RateLimitError
from alpineagents.testing import FakeModel

ERRORS = [
    SyncInsideLoopError("save_sync", "await store.save(state)"),
    ValueNotStorableError("extra_data['x']", "is a set"),
    StateIdError("no id"),
    StateNotFoundError("a", revision=3),
    StateExistsError("a"),
    StateConflictError("a", 1, 2),
    StateBusyError("a", "r1"),
    EventOrderError("a", "finished", 3, "because"),
    StateDamagedError("a", 3, "its row is missing"),
    StoreClosedError("MemoryStore()"),
    StoreFeatureError("DictStore", "list"),
    RateLimitError("slow down", status=429, request_id="r", retry_after=2.0),
    OutputError("no number", "text"),
    ResumeWarning("a", {"model": ("x", "y")}),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_goes_through_a_process_pool_as_it_is(error: Exception) -> None:
    """Its text and its attributes are the same on the other side."""
    other = pickle.loads(pickle.dumps(error))

    assert type(other) is type(error)
    assert str(other) == str(error)
    assert other.__dict__ == error.__dict__


async def test_an_exception_that_cannot_say_what_it_is_ends_the_run_as_recorded() -> None:
    """Its own text fails; the run's end is saved all the same, and the exception comes out as itself."""

    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    store = MemoryStore()

    with pytest.raises(MuteError):
        await Agent(FakeModel([MuteError()]), store=store).run("Hello", id="s")

    assert (await store.info("s")).status == "failed"


@pytest.mark.parametrize("target", [None, 5, "postgres//user:secret@host/x", "postgresql:/host", "a\0b", ""])
def test_what_names_no_database_is_refused(target: object) -> None:
    """It is neither taken for a path nor shown, since it may hold a password."""
    with pytest.raises(ConfigError) as refused:
        SQLStore(target)

    assert "secret" not in str(refused.value)


async def test_leaving_a_view_does_not_close_its_store() -> None:
    """A request may take a view of a store in `async with`; the store is its maker's to close."""
    store = MemoryStore()

    async with store.scoped("tenant"):
        pass

    assert await store.list() == []
