"""
Leases: which run owns a State, for how long, and who may take it over.
"""

from __future__ import annotations

import anyio

from alpineagents.errors import StateBusyError, StateConflictError, StateNotFoundError
from alpineagents.events import RunStopped
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stopped import StoppedByLimit
from alpineagents.stores.base import Store
from alpineagents.stores.header import Lease, header_of
from alpineagents.testing.rules.base import LONG, Rules, append, claim, patience, refused, said, saved, words_in

SHORT = 0.2
"""Seconds of a lease that ends during a test."""

BUSY = (
    "append() must refuse a header.lease of another run while the lease that the store has is alive, also where the "
    "revision fits"
)
OVER = "a lease ends `seconds` after the append or the renew() that gave it; then another run may claim the State"


async def take_over(store: Store, id: str, run_id: str) -> None:
    """Claim a State as soon as the lease of its owner has ended."""
    with anyio.move_on_after(10):
        while True:
            try:
                await claim(store, await store.load(id), run_id)
                return
            except StateBusyError:
                await anyio.sleep(SHORT / 10)
    raise AssertionError(f"10 seconds after a lease of {SHORT} began the State is still busy: {OVER}")


class LeaseRules(Rules):
    """Rules of `header.lease` and `renew`."""

    async def test_a_second_run_is_refused(self, store: Store) -> None:
        """While the lease of the first is alive; the error says who owns the State, and nothing is written."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1")

        with refused(StateBusyError, BUSY) as busy:
            await claim(store, await store.load(state.id), "r2")

        owner = busy.error.run_id
        assert owner == "r1", f"StateBusyError.run_id is {owner!r}, not 'r1': append() of a new State claims it, too"
        assert (await store.load(state.id)).revision == 2, "a refused claim must write nothing"

    async def test_a_stale_second_run_hears_that_the_state_is_busy(self, store: Store) -> None:
        """That is why it came too late, and to load again would not help it."""
        await self.needs_leases(store)
        state = await saved(store, "one")
        late = await store.load(state.id)
        await claim(store, await store.load(state.id), "r1")

        with refused(StateBusyError, "where both the owner and the revision do not fit, the owner is named"):
            await claim(store, late, "r2")

    async def test_the_owner_goes_on(self, store: Store) -> None:
        """Every append of the run that owns the State is let in, and so is everyone who claims nothing."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1")
        state.add_message(Message.user("two"))
        await store.save_with(state, Lease("r1", LONG))
        other = await store.load(state.id)
        other.add_message(Message.user("three"))
        await store.save(other)

        words = await words_in(store, state.id)
        with refused(StateBusyError, "an append without header.lease must leave the owner as it is"):
            await claim(store, await store.load(state.id), "r2")

        assert words == ["one", "two", "three"], f"the history is {words}"

    async def test_an_expired_lease_is_taken_over(self, store: Store) -> None:
        """The process of the run died. Should it be alive after all, it can neither write nor renew."""
        await self.needs_leases(store)
        old = said("one")
        await claim(store, old, "r1", SHORT)

        await take_over(store, old.id, "r2")

        old.add_message(Message.user("late"))
        with refused((StateBusyError, StateConflictError), "a run that was taken over from must not write"):
            await store.save_with(old, Lease("r1", LONG))
        assert not await store.renew(old.id, Lease("r1", LONG)), (
            "renew() by a run that owns the State no more returns False"
        )
        with refused(StateBusyError, "renew() by another run must not change the owner"):
            await claim(store, await store.load(old.id), "r3")

    async def test_a_lease_is_given_up(self, store: Store) -> None:
        """With the last append of a run, by 0 seconds; then another may begin at once."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1")
        state.record(RunStopped, stopped=StoppedByLimit(turns=1))
        await store.save_with(state, Lease("r1", 0))

        try:
            await claim(store, await store.load(state.id), "r2")
        except StateBusyError as error:
            raise AssertionError("a lease of 0 seconds frees the State: forget run_id and the end") from error

    async def test_renew_holds_the_state_for_longer(self, store: Store) -> None:
        """Without an Event, also where the lease had ended and nobody took the State."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1", SHORT)

        renewed = await store.renew(state.id, Lease("r1", LONG))
        await anyio.sleep(2 * SHORT)

        assert renewed, "renew() by the run that owns the State returns True"
        with refused(StateBusyError, "renew() must move the end of the lease"):
            await claim(store, await store.load(state.id), "r2")
        assert (await store.load(state.id)).revision == 2, "renew() must not write an Event"

    async def test_an_append_renews(self, store: Store) -> None:
        """The lease ends as many seconds after the last append as it says."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1", SHORT)
        state.add_message(Message.user("two"))

        await store.save_with(state, Lease("r1", LONG))
        await anyio.sleep(2 * SHORT)

        with refused(StateBusyError, "an append with header.lease must move the end of the lease"):
            await claim(store, await store.load(state.id), "r2")

    async def test_info_says_who_owns_a_state(self, store: Store) -> None:
        """And until when, as an aware time; nobody once it was given up."""
        await self.needs_leases(store)
        self.needs(store, "info", "it cannot say which run owns a State")
        state = said("one")
        free = [await self._owner(store, await saved(store, "one"))]
        await claim(store, state, "r1")
        held = await self._owner(store, state)
        state.record(RunStopped, stopped=StoppedByLimit(turns=1))
        await store.save_with(state, Lease("r1", 0))
        free.append(await self._owner(store, state))

        assert held == ("r1", True), f"info() of a State that r1 owns says (run_id, has lease_until) = {held}"
        assert free == [(None, False)] * 2, f"info() of States that nobody owns says (run_id, has lease_until) = {free}"

    async def test_a_claim_that_landed_is_found_again(self, store: Store) -> None:
        """After a lost acknowledgement the run that owns the State is not told that another does."""
        await self.needs_leases(store)
        await self.needs_append_id(store)
        state = await saved(store, "one")
        state.add_message(Message.user("two"))
        header = header_of(state.snapshot(), follows=state.follows, lease=Lease("r1", LONG))

        landed = [await store.append(state.id, state.unsaved, expected=1, header=header, append_id="a1") for _ in "12"]

        assert landed == [2, 2], f"two tries of one claim returned {landed}, not the revision at which it landed"

    async def test_a_renew_of_a_deleted_state_does_not_make_it_again(self, store: Store) -> None:
        """Nor does a State of that id which is made later belong to the run."""
        await self.needs_leases(store)
        state = said("one")
        await claim(store, state, "r1")
        await store.delete(state.id)

        with patience():
            await self._renew_missing(store, state)
        await append(store, said("new", id=state.id))

        assert await self._claimed(store, state.id), "a lease of a State that was deleted holds the one made after it"

    async def _owner(self, store: Store, state: State) -> tuple[str | None, bool]:
        info = await store.info(state.id)
        return info.run_id, info.lease_until is not None and info.lease_until.tzinfo is not None

    async def _renew_missing(self, store: Store, state: State) -> None:
        try:
            renewed = await store.renew(state.id, Lease("r1", LONG))
        except StateNotFoundError:
            renewed = False
        assert not renewed, "renew() of a State that is not there returns False, or raises StateNotFoundError"
        assert not await store.exists(state.id), "renew() made a State that was deleted"

    async def _claimed(self, store: Store, id: str) -> bool:
        try:
            await claim(store, await store.load(id), "r2")
        except StateBusyError:
            return False
        return True
