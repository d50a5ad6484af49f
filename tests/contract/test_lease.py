"""Leases: which run owns a State, for how long, and who may take it over."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alpineagents import Message, State, StateBusyError, StateConflictError, StateNotFoundError, StoppedByLimit, Store
from alpineagents.events import AgentInfo, RunStarted, RunStopped
from alpineagents.stores.header import Lease
from tests.contract.backends import change_header, new_state, saved, words_in

LONG = 600.0
PAST: dict[str, Any] = {
    "memory": datetime(2020, 1, 1, tzinfo=UTC),
    "sqlite": "2020-01-01 00:00:00.000",
    "postgresql": datetime(2020, 1, 1, tzinfo=UTC),
}


async def claim(store: Store, state: State, run_id: str, seconds: float = LONG) -> int:
    state.run_id = run_id
    state.record(RunStarted, agent=AgentInfo(model="m"))
    return await store.save_with(state, Lease(run_id, seconds))


async def expire(store: Store, id: str) -> None:
    """Put the end of a lease into the past, so that no test waits for it."""
    from tests.contract.backends import engine_of

    kind = engine_of(store).dialect.name if type(store).__name__ == "SQLStore" else "memory"
    await change_header(store, id, lease_until=PAST[kind])


async def test_a_run_claims_a_new_state(store: Store) -> None:
    """With the append that creates it."""
    await claim(store, new_state(), "r1")

    info = await store.info("s")
    assert (info.run_id, info.status) == ("r1", "running")
    assert info.lease_until is not None


async def test_a_run_claims_a_state_that_is_there(store: Store) -> None:
    """With its first append."""
    await saved(store)

    await claim(store, await store.load("s"), "r1")

    assert (await store.info("s")).run_id == "r1"


async def test_a_lease_lasts_as_long_as_it_says(store: Store) -> None:
    """By the store's clock, to the second."""
    before = datetime.now(UTC)
    await claim(store, new_state(), "r1", seconds=100.0)
    after = datetime.now(UTC)

    until = (await store.info("s")).lease_until

    assert until is not None
    # The clocks of a server and of this process may differ a little.
    assert before + timedelta(seconds=95) < until < after + timedelta(seconds=105)
    assert until.utcoffset() == timedelta(0)


async def test_a_second_run_is_refused(store: Store) -> None:
    """While the lease of the first is alive, and the error says who owns the State."""
    await claim(store, new_state(), "r1")

    with pytest.raises(StateBusyError, match=r"await store\.post\('s'") as busy:
        await claim(store, await store.load("s"), "r2")

    assert (busy.value.state_id, busy.value.run_id) == ("s", "r1")
    info = await store.info("s")
    assert (info.run_id, info.revision) == ("r1", 2)


async def test_a_stale_second_run_hears_that_the_state_is_busy(store: Store) -> None:
    """That is why it came too late, and to load again would not help it."""
    await saved(store)
    late = await store.load("s")
    await claim(store, await store.load("s"), "r1")

    with pytest.raises(StateBusyError):
        await claim(store, late, "r2")


async def test_the_owner_goes_on(store: Store) -> None:
    """Every append of the run that owns the State is let in and moves the end of the lease."""
    state = new_state()
    await claim(store, state, "r1", seconds=100)
    first = (await store.info("s")).lease_until
    state.add_message(Message.user("more"))

    await store.save_with(state, Lease("r1", 200))

    last = (await store.info("s")).lease_until
    assert first is not None
    assert last is not None
    assert last - first > timedelta(seconds=90)


async def test_an_expired_lease_is_taken_over(store: Store) -> None:
    """The process of the run died, and another run goes on."""
    await claim(store, new_state(), "r1")
    await expire(store, "s")

    await claim(store, await store.load("s"), "r2")

    assert (await store.info("s")).run_id == "r2"


async def test_who_lost_the_lease_is_refused_by_the_revision(store: Store) -> None:
    """The run that was taken over from cannot write, although it believes that it owns the State."""
    old = new_state()
    await claim(store, old, "r1")
    await expire(store, "s")
    await claim(store, await store.load("s"), "r2")
    old.add_message(Message.user("late"))

    with pytest.raises((StateBusyError, StateConflictError)):
        await store.save_with(old, Lease("r1", LONG))

    assert await words_in(store) == ["hello"]


async def test_a_lease_is_given_up(store: Store) -> None:
    """With the last append of a run; then another may begin at once."""
    state = new_state()
    await claim(store, state, "r1")
    state.record(RunStopped, stopped=StoppedByLimit(turns=1))
    await store.save_with(state, Lease("r1", 0))

    info = await store.info("s")
    assert (info.run_id, info.lease_until) == (None, None)
    await claim(store, await store.load("s"), "r2")
    assert (await store.info("s")).run_id == "r2"


async def test_renew_holds_the_state_for_longer(store: Store) -> None:
    """Without an Event."""
    await claim(store, new_state(), "r1", seconds=100)
    first = (await store.info("s")).lease_until

    assert await store.renew("s", Lease("r1", 500))

    info = await store.info("s")
    assert first is not None
    assert info.lease_until is not None
    assert info.lease_until - first > timedelta(seconds=300)
    assert info.revision == 2


async def test_renew_says_when_the_state_is_lost(store: Store) -> None:
    """A run that was taken over from learns it at its next heartbeat, and does not take the State back."""
    await claim(store, new_state(), "r1")
    await expire(store, "s")
    await claim(store, await store.load("s"), "r2")

    assert not await store.renew("s", Lease("r1", LONG))
    assert (await store.info("s")).run_id == "r2"


async def test_renew_revives_an_expired_lease_that_nobody_took(store: Store) -> None:
    """A process that slept goes on, and is safe from others again."""
    await claim(store, new_state(), "r1")
    await expire(store, "s")

    assert await store.renew("s", Lease("r1", LONG))

    with pytest.raises(StateBusyError):
        await claim(store, await store.load("s"), "r2")


async def test_renew_of_a_deleted_state_does_not_make_it_again(store: Store) -> None:
    """The run learns that the State is no longer its own."""
    await claim(store, new_state(), "r1")
    await store.delete("s")

    with contextlib.suppress(StateNotFoundError):
        assert not await store.renew("s", Lease("r1", LONG))
    assert not await store.exists("s")


async def test_a_post_leaves_the_lease_alone(store: Store) -> None:
    """Whoever writes a message does not own the State, nor free it."""
    await claim(store, new_state(), "r1")
    before = await store.info("s")

    await store.post("s", Message.user("faster"))

    after = await store.info("s")
    assert (after.run_id, after.lease_until, after.status) == ("r1", before.lease_until, "running")


async def test_a_save_without_a_lease_leaves_the_owner_alone(store: Store) -> None:
    """An app that saves a State in a run does not free it."""
    await claim(store, new_state(), "r1")
    other = await store.load("s")
    other.add_message(Message.user("from the app"))

    await store.save(other)

    assert (await store.info("s")).run_id == "r1"


async def test_a_claim_that_landed_is_found_again(store: Store) -> None:
    """After a lost acknowledgement the run that owns the State is not told that another does."""
    from alpineagents.stores.header import header_of

    state = await saved(store)
    state.run_id = "r1"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    header = header_of(state.snapshot(), lease=Lease("r1", LONG))

    revisions = [await store.append("s", state.unsaved, expected=1, header=header, append_id="a1") for _ in range(2)]

    assert revisions == [2, 2]
