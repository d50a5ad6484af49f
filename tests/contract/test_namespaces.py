"""Namespaces: a view of one cannot see or touch another."""

from __future__ import annotations

import pytest

from alpineagents import ConfigError, Message, StateKey, StateNotFoundError, Store
from tests.contract.backends import new_state, saved, words_in


async def test_one_id_in_two_namespaces_is_two_states(store: Store) -> None:
    """Each with its own history."""
    one, two = store.scoped("tenant-a"), store.scoped("tenant-b")
    await saved(store, "s", "of nobody")
    await saved(one, "s", "of a")
    await saved(two, "s", "of b")
    await one.post("s", Message.user("more of a"))

    assert await words_in(store) == ["of nobody"]
    assert await words_in(one) == ["of a", "more of a"]
    assert await words_in(two) == ["of b"]


async def test_a_view_does_not_find_what_is_elsewhere(store: Store) -> None:
    """It cannot tell whether there is such a State at all."""
    await saved(store.scoped("tenant-a"), "s")

    for view in (store, store.scoped("tenant-b")):
        assert not await view.exists("s")
        for ask in (view.load, view.info, view.delete):
            with pytest.raises(StateNotFoundError):
                await ask("s")
        with pytest.raises(StateNotFoundError):
            await view.post("s", Message.user("hello"))
    assert await words_in(store.scoped("tenant-a")) == ["hello"]


async def test_a_list_is_of_one_namespace(store: Store) -> None:
    """Its pages too."""
    one, two = store.scoped("tenant-a"), store.scoped("tenant-b")
    for number in range(4):
        await saved(one, f"a{number}")
        await saved(two, f"b{number}")

    first = await one.list(limit=3)

    assert [info.id for info in first] == ["a3", "a2", "a1"]
    assert [info.id for info in await one.list(limit=3, after=first[-1])] == ["a0"]
    assert {info.namespace for info in first} == {"tenant-a"}
    assert await store.list() == []


async def test_deleting_takes_one_state(store: Store) -> None:
    """The one of the same id in another namespace stays."""
    one, two = store.scoped("tenant-a"), store.scoped("tenant-b")
    await saved(one, "s", "of a")
    await saved(two, "s", "of b")

    await one.delete("s")

    assert not await one.exists("s")
    assert await words_in(two) == ["of b"]


async def test_a_state_of_another_namespace_cannot_be_saved(store: Store) -> None:
    """The error shows the view to use."""
    with pytest.raises(ConfigError, match=r"store\.scoped\('tenant-b'\)"):
        await store.scoped("tenant-a").save(new_state("s", namespace="tenant-b"))
    with pytest.raises(ConfigError):
        await store.save(new_state("s", namespace="tenant-b"))


async def test_a_key_of_another_namespace_is_refused(store: Store) -> None:
    """A view cannot be talked into another namespace by a key."""
    await saved(store.scoped("tenant-b"), "s")

    with pytest.raises(ConfigError, match="tenant-b"):
        await store.scoped("tenant-a").info(StateKey("tenant-b", "s"))


async def test_a_loaded_state_knows_its_namespace(store: Store) -> None:
    """So that it can be saved to where it came from, and nowhere else."""
    view = store.scoped("tenant-a")
    await saved(view, "s")

    state = await view.load("s")
    state.add_message(Message.user("more"))

    assert state.namespace == "tenant-a"
    assert await view.save(state) == 2


@pytest.mark.parametrize("namespace", ["a b", "ä", "a/b", "x" * 129, "a\0", None, 7])
def test_a_namespace_that_cannot_be_is_refused(namespace: str) -> None:
    """Like an id that cannot be."""
    from alpineagents import MemoryStore

    with pytest.raises(ConfigError, match="namespace"):
        MemoryStore().scoped(namespace)
