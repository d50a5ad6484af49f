"""
Forks: a State with the history of another up to a revision, and nothing else in common with it.
"""

from __future__ import annotations

from alpineagents.errors import StateExistsError, StateNotFoundError
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.testing.rules.base import Rules, claim, fresh, patience, refused, said, saved, words_in
from alpineagents.testing.rules.story import told


class ForkRules(Rules):
    """Rules of `fork`."""

    async def test_a_fork_is_what_the_state_was(self, store: Store) -> None:
        """At every revision, and its header says what the fold says there; what was running can be run."""
        state = State(id=fresh("contract"))
        values = [each.snapshot() for each in told(state)]
        await store.save(state)

        for value in values:
            name = fresh("fork")
            landed = await store.fork(state.id, name, value.revision)

            loaded, info = await store.load(name), await store.info(name)
            assert landed == value.revision, f"fork(id, new_id, {value.revision}) returned {landed!r}: the revision"
            assert loaded.snapshot() == value, (
                f"fork(id, new_id, {value.revision}) made another State, at revision {loaded.revision}"
            )
            found = (info.revision, info.status, info.turn, info.usage, info.stopped, info.created_at)
            # Without an `info` of its own, a store says what the history does.
            free = value.status == "running" and type(store).info is not Store.info
            status = "ready" if free else value.status
            wanted = (value.revision, status, value.turn, value.usage, value.stopped, value.created_at)
            assert found == wanted, f"of a fork at revision {value.revision} info() says {found}, not {wanted}"

    async def test_a_fork_of_all_has_the_whole_history(self, store: Store) -> None:
        """Also where it is longer than a page."""
        state = said(*map(str, range(1_200)))
        await store.save(state)
        name = fresh("fork")

        landed = await store.fork(state.id, name)

        loaded = await store.load(name)
        assert landed == loaded.revision == 1_200, f"of 1,200 Events fork() copied {loaded.revision} and said {landed}"
        assert loaded.snapshot() == state.snapshot(), "fork() made another State than there was"

    async def test_a_fork_goes_its_own_way(self, store: Store) -> None:
        """What happens to one of the two, a deletion too, does not happen to the other."""
        origin, name = await saved(store, "one"), fresh("fork")
        await store.fork(origin.id, name)
        with patience():
            await store.post(name, Message.user("in the fork"))
            await store.post(origin.id, Message.user("in the origin"))

        found = (await words_in(store, origin.id), await words_in(store, name))
        await store.delete(origin.id)
        left = await words_in(store, name)

        wanted = (["one", "in the origin"], ["one", "in the fork"])
        assert found == wanted, f"origin and fork say {found}, not {wanted}: copy the rows"
        assert left == wanted[1], f"after delete() of its origin the fork says {left}"

    async def test_a_fork_needs_a_free_id(self, store: Store) -> None:
        """The State that has it stays as it is."""
        origin, other = await saved(store, "one"), await saved(store, "other")

        for taken in (other.id, origin.id):
            with refused(StateExistsError, "fork() must not write over a State"):
                await store.fork(origin.id, taken)
        found = (await words_in(store, origin.id), await words_in(store, other.id))
        assert found == (["one"], ["other"]), f"a fork that was refused changed a State: {found}"

    async def test_a_fork_of_nothing_is_refused(self, store: Store) -> None:
        """Of a State that is not there, and of a revision that it has not; no State is made."""
        origin, name = await saved(store, "one"), fresh("fork")

        with refused(StateNotFoundError, "fork() of an id that the store has not"):
            await store.fork(fresh("nobody"), name)
        with refused(StateNotFoundError, "fork() of a revision that the State has not"):
            await store.fork(origin.id, name, 2)
        assert not await store.exists(name), "a fork that was refused left a State behind"

    async def test_a_fork_of_a_state_that_runs_is_free(self, store: Store) -> None:
        """Its lease stays where it is: another run may claim the fork at once, and none the origin."""
        await self.needs_leases(store)
        origin, name = said("one"), fresh("fork")
        await claim(store, origin, "r1")

        await store.fork(origin.id, name)
        landed = await claim(store, await store.load(name), "r2")

        assert landed == 3, f"a claim of the fork landed at {landed}"
        found = [(await store.info(each)).run_id for each in (origin.id, name)]
        assert found == ["r1", "r2"], f"origin and fork are owned by {found}: a lease is not copied"

    async def test_a_copy_knows_its_parent(self, store: Store) -> None:
        """As a fork does that was made in memory."""
        self.needs(
            store, "info", "it cannot say which State another was forked from, and reads the history to describe one"
        )
        origin, name = await saved(store, "one", "two"), fresh("fork")
        await store.fork(origin.id, name, 1)

        found = ((await store.info(name)).parent_id, (await store.load(name)).parent_id)

        assert found == (origin.id, origin.id), f"info() and load() say that the parent is {found}"
