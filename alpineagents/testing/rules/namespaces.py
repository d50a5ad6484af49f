"""
Namespaces: a view of one cannot see or touch another.
"""

from __future__ import annotations

from alpineagents.errors import ConfigError, StateExistsError, StateNotFoundError
from alpineagents.messages import Message
from alpineagents.stores.base import Store
from alpineagents.stores.header import StateKey
from alpineagents.testing.rules.base import Rules, fresh, patience, refused, saved, words_in

KEY = (
    "keep a State under its whole key, `self.key(id)`, a namespace and an id. A backend without namespaces overrides "
    "scoped() to raise StoreFeatureError"
)


class NamespaceRules(Rules):
    """Rules of `scoped`."""

    async def test_one_id_in_two_namespaces_is_two_states(self, store: Store) -> None:
        """Each with its own history, and deleted for itself."""
        one, two = self.scoped(store, fresh("a")), self.scoped(store, fresh("b"))
        name = fresh("contract")
        try:
            for view, words in ((store, "of nobody"), (one, "of a"), (two, "of b")):
                await saved(view, words, id=name)
        except StateExistsError as error:
            raise AssertionError(f"an id that is taken in one namespace is refused in another: {KEY}") from error
        with patience():
            await one.post(name, Message.user("more of a"))

        found = [await words_in(view, name) for view in (store, one, two)]
        await one.delete(name)
        left = [await view.exists(name) for view in (store, one, two)]

        assert found == [["of nobody"], ["of a", "more of a"], ["of b"]], f"three namespaces hold {found}: {KEY}"
        assert left == [True, False, True], f"after delete() in one of three namespaces exists() says {left}: {KEY}"

    async def test_a_view_does_not_find_what_is_elsewhere(self, store: Store) -> None:
        """By no call: it cannot tell whether there is such a State at all."""
        one, two = self.scoped(store, fresh("a")), self.scoped(store, fresh("b"))
        state = await saved(one, "of a")

        for view in (store, two):
            assert not await view.exists(state.id), f"a State of another namespace is found: {KEY}"
            for call in (view.load, view.info, view.delete):
                with refused(StateNotFoundError, KEY):
                    await call(state.id)
        assert await words_in(one, state.id) == ["of a"], f"another namespace touched a State: {KEY}"

    async def test_a_key_of_another_namespace_is_refused(self, store: Store) -> None:
        """A view cannot be talked into another namespace by a key, and takes its own."""
        one, other = self.scoped(store, fresh("a")), fresh("b")
        state = await saved(one, "of a")

        assert [event.revision async for event in one.read(StateKey(one.namespace, state.id))] == [1], (
            f"read() must take a StateKey as well as an id: {KEY}"
        )
        with refused(ConfigError, f"read() must refuse it: {KEY}"):
            async for _ in one.read(StateKey(other, state.id)):
                pass
        with refused(ConfigError, f"delete() must refuse it: {KEY}"):
            await one.delete(StateKey(other, state.id))

    async def test_a_list_is_of_one_namespace(self, store: Store) -> None:
        """Its pages too."""
        self.needs(store, "list", "it cannot show which States a namespace holds")
        one, two, empty = (self.scoped(store, fresh(name)) for name in "abc")
        mine = [(await saved(one, "of a")).id for _ in range(3)]
        for _ in range(3):
            await saved(two, "of b")

        first = await one.list(limit=2)
        second = await one.list(limit=9, after=first[-1])
        nothing = await empty.list()

        found = [info.id for info in (*first, *second)]
        assert found == mine[::-1], f"the list of a namespace is {found}, not {mine[::-1]}: {KEY}"
        assert {info.namespace for info in first} == {one.namespace}, "info.namespace must be that of the State"
        assert nothing == [], f"the list of a new namespace is {nothing}: {KEY}"
