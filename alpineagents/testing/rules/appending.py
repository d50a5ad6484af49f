"""
Appending: compare-and-set on the revision, who is refused and how, and what a lost acknowledgement means.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from alpineagents.errors import StateConflictError, StateExistsError, StateNotFoundError
from alpineagents.messages import Message
from alpineagents.stores.base import Store
from alpineagents.stores.header import header_of
from alpineagents.testing.rules.base import Rules, append, fresh, patience, refused, said, saved, words_in

COMPARE = (
    "append() must compare `expected` with the revision that the store has, and write only where they are equal, in "
    "one step. `settle_refusal` in alpineagents.stores.header raises the right error"
)
FOLLOWS = (
    "append() must compare header.follows, unless it is None, with the time of the Event at `expected`: under the id "
    "of a deleted State there may be another one now"
)
APPEND_ID = "look for append_id among the rows behind `expected` before refusing, and return the last revision it has"


class AppendRules(Rules):
    """Rules of `append` and `delete`."""

    async def test_append_returns_the_new_revision(self, store: Store) -> None:
        """It is the number of Events that the State now has."""
        state = said("one", "two")

        first = await append(store, state)
        state.mark_saved(2)
        state.add_message(Message.user("three"))
        second = await append(store, state)

        assert (first, second) == (2, 3), f"append() returned {first!r}, then {second!r}: return expected + len(events)"

    async def test_a_stale_writer_is_refused(self, store: Store) -> None:
        """The second of two that loaded one revision is refused; what the first wrote stays, and nothing else."""
        state = await saved(store, "one")
        first, second = await store.load(state.id), await store.load(state.id)
        first.add_message(Message.user("first"))
        second.add_message(Message.user("second"))
        await store.save(first)

        with refused(StateConflictError, COMPARE) as refusal:
            await store.save(second)

        found = (refusal.error.state_id, refusal.error.expected, refusal.error.actual)
        assert found == (state.id, 1, 2), (
            f"the error says (state_id, expected, actual) = {found}, not {(state.id, 1, 2)}"
        )
        words = await words_in(store, state.id)
        assert words == ["one", "first"], f"a refused append left {words}: it must write nothing"

    async def test_a_writer_ahead_of_the_store_is_refused(self, store: Store) -> None:
        """Where the store was set back, the revision that a writer knows is not there, and a gap would follow."""
        state = await saved(store, "one")
        ahead = await store.load(state.id)
        ahead.add_message(Message.user("two"))
        ahead.mark_saved(2)
        ahead.add_message(Message.user("three"))

        with refused(StateConflictError, COMPARE):
            await store.save(ahead)

        words = await words_in(store, state.id)
        assert words == ["one"], f"a refused append left {words}: it must write nothing"

    async def test_a_new_state_whose_id_is_taken_is_refused(self, store: Store) -> None:
        """However many Events it has; what is there stays as it is."""
        state = await saved(store, "mine")

        for words in (["yours"], ["a", "b", "c"]):
            with refused(StateExistsError, "where `expected` is 0 and there is such a State, append() raises this"):
                await store.save(said(*words, id=state.id))

        kept = await words_in(store, state.id)
        assert kept == ["mine"], f"a refused append left {kept}: it must write nothing"

    async def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        """By read, load, info, delete, post and an append that follows something; exists says so."""

        async def read(id: str) -> None:
            async for _ in store.read(id):
                pass

        async def go_on(id: str) -> None:
            state = said("one", id=id)
            state.mark_saved(1)
            state.add_message(Message.user("two"))
            await store.save(state)

        async def post(id: str) -> None:
            await store.post(id, Message.user("hello"))

        calls: dict[str, Callable[[str], Awaitable[Any]]] = {
            "read": read,
            "load": store.load,
            "info": store.info,
            "delete": store.delete,
            "append": go_on,
            "post": post,
        }
        for name, call in calls.items():
            nobody = fresh("nobody")
            with (
                patience(),
                refused(StateNotFoundError, f"{name}() of an id that the store has not raises this") as refusal,
            ):
                await call(nobody)
            assert refusal.error.state_id == nobody, f"the error of {name}() names {refusal.error.state_id!r}"
            assert not await store.exists(nobody), f"exists() says True of a State that {name}() has not found"

    async def test_a_deleted_state_is_gone(self, store: Store) -> None:
        """With its history, while others stay; a save of it does not bring it back."""
        state, other = await saved(store, "one"), await saved(store, "other")

        await store.delete(state.id)

        assert not await store.exists(state.id), "delete() must take the State away with all its rows"
        state.add_message(Message.user("more"))
        with refused(StateNotFoundError, "append() behind a revision of a State that was deleted raises this"):
            await store.save(state)
        assert not await store.exists(state.id), "an append to a deleted State must not make it again"
        assert await words_in(store, other.id) == ["other"], "delete() took away more than the State of that id"

    async def test_a_state_made_again_is_another_one(self, store: Store) -> None:
        """Who holds the deleted State of an id is refused by the new one, although the revisions are equal."""
        old = await saved(store, "old")
        await store.delete(old.id)
        await saved(store, "new", id=old.id)
        old.add_message(Message.user("of the old one"))

        with refused(StateConflictError, FOLLOWS):
            await store.save(old)

        words = await words_in(store, old.id)
        assert words == ["new"], (
            f"the history is {words}: after delete() nothing of the old State may come back. {FOLLOWS}"
        )

    async def test_ids_that_are_alike_are_told_apart(self, store: Store) -> None:
        """Large letters from small ones, `-` from `_`, and the longest from one that begins like it."""
        base = fresh("i")
        ids = [f"{base}-a", f"{base}-A", f"{base}_a", f"{base}-", base.ljust(128, "x"), base.ljust(127, "x")]
        for name in ids:
            await saved(store, name, id=name)

        for name in ids:
            words = await words_in(store, name)
            assert words == [name], (
                f"under the id {name!r} lies what was said in {words}: ids are compared letter by letter"
            )

    async def test_an_append_done_twice_lands_once(self, store: Store) -> None:
        """After a lost acknowledgement the append is tried again with its id, and is told where it landed."""
        await self.needs_append_id(store)
        new, more = said("one"), await saved(store, "one")
        more.add_message(Message.user("two"))

        for state in (new, more):
            landed = [await append(store, state, append_id="a1") for _ in range(3)]

            assert landed == [state.revision] * 3, f"three tries of one append returned {landed}: {APPEND_ID}"
            revisions = [event.revision async for event in store.read(state.id)]
            assert revisions == [*range(1, state.revision + 1)], (
                f"after three tries the rows are {revisions}: {APPEND_ID}"
            )

    async def test_an_append_that_landed_is_found_behind_others(self, store: Store) -> None:
        """Another writer may have gone on before the append is tried again."""
        await self.needs_append_id(store)
        state = await saved(store, "one")
        state.add_message(Message.user("two"))
        state.add_message(Message.user("three"))
        await append(store, state, append_id="a1")
        with patience():
            await store.post(state.id, Message.user("posted"))

        try:
            landed = await append(store, state, append_id="a1")
        except StateConflictError as error:
            raise AssertionError(
                f"an append that landed is refused once another stands behind it: {APPEND_ID}"
            ) from error

        assert landed == 3, f"the append landed at revision 3, and its second try returned {landed!r}: {APPEND_ID}"
        assert await words_in(store, state.id) == ["one", "two", "three", "posted"], "a second try changed the history"

    async def test_only_its_id_tells_a_second_try_from_a_second_writer(self, store: Store) -> None:
        """The same Events with another append_id, or with none, are refused."""
        state = await saved(store, "one")
        state.add_message(Message.user("two"))
        await append(store, state, append_id="a1")

        for other in ("a2", None):
            with refused(StateConflictError, f"append_id={other!r} is not that of the append that landed"):
                await append(store, state, append_id=other)

    async def test_a_lost_acknowledgement_is_settled_by_the_next_save(self, store: Store) -> None:
        """The rows are there and the State in memory does not know it: saving again stores nothing twice."""
        await self.needs_append_id(store)
        state = await saved(store, "one")
        state.add_message(Message.user("two"))
        header = header_of(state.snapshot(), follows=state.follows)
        await store.append(state.id, state.unsaved, expected=1, header=header, append_id=state.append_id)
        state.add_message(Message.user("three"))

        try:
            landed = await store.save(state)
        except StateConflictError as error:
            raise AssertionError(f"a State is refused because of its own append: {APPEND_ID}") from error

        words = await words_in(store, state.id)
        assert (landed, words) == (3, ["one", "two", "three"]), f"revision {landed!r} with {words}: {APPEND_ID}"
