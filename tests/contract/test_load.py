"""Loading: what comes back is what was there, at every revision."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from alpineagents import ConfigError, Message, State, StateNotFoundError, Store
from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.header import header_of
from tests.contract.backends import new_state, saved
from tests.corpus.story import told


async def test_a_state_comes_back_at_every_revision(store: Store) -> None:
    """Saved Event by Event and loaded after each, in the middle of turns too, it is what it was in memory."""
    for state in told(State(id="s")):
        await store.save(state)

        assert (await store.load("s")).snapshot() == state.snapshot()


async def test_every_earlier_revision_can_be_loaded(store: Store) -> None:
    """Of a history that was saved in one piece."""
    state = State(id="s")
    values = [(each.revision, each.snapshot()) for each in told(state)]
    await store.save(state)

    for revision, value in values:
        assert (await store.load("s", revision=revision)).snapshot() == value


async def test_the_history_comes_back(store: Store) -> None:
    """Event by Event, with times and runs."""
    state = State(id="s")
    list(told(state))
    await store.save(state)

    assert (await store.load("s")).history == state.history


async def test_read_gives_a_part_of_the_history(store: Store) -> None:
    """Behind one revision and up to another."""
    await saved(store, "s", *"abcde")

    read = [event.revision async for event in store.read("s", after=1, until=4)]

    assert read == [2, 3, 4]


async def test_read_beyond_the_end_gives_nothing(store: Store) -> None:
    """Whoever follows a history asks for what is not there yet."""
    await saved(store, "s", "a", "b")

    assert [event async for event in store.read("s", after=2)] == []
    assert [event.revision async for event in store.read("s", after=1, until=9)] == [2]


async def test_a_loaded_state_has_nothing_unsaved(store: Store) -> None:
    """It is as the store has it, and its next save writes what is new only."""
    await saved(store, "s", "a", "b")

    state = await store.load("s")

    assert (state.id, state.namespace, state.saved_revision, state.unsaved) == ("s", "", 2, ())


async def test_load_changes_nothing(store: Store) -> None:
    """The header is what it was, the time of the last change too."""
    await saved(store)
    before = await store.info("s")

    await store.load("s")
    await store.load("s", revision=1)

    assert await store.info("s") == before


async def test_what_is_not_there_is_not_found(store: Store) -> None:
    """By load, info, read, post and delete; the error shows how to see what is there."""

    async def read(id: str) -> None:
        async for _ in store.read(id):
            pass

    async def post(id: str) -> None:
        await store.post(id, Message.user("hello"))

    calls: list[Any] = [store.load, store.info, store.delete, read, post]
    for call in calls:
        with pytest.raises(StateNotFoundError, match=r"store\.list\(\)") as missing:
            await call("nobody")
        assert missing.value.state_id == "nobody"


async def test_a_state_that_is_deleted_meanwhile_is_whole_or_not_found(store: Store) -> None:
    """A reader never takes a State that goes away for a damaged one."""
    for _ in range(50):
        await saved(store, "s", "a", "b", "c")
        ends: list[object] = []

        async def load(ends: list[object] = ends) -> None:
            try:
                ends.append((await store.load("s")).revision)
            except StateNotFoundError:
                ends.append(None)

        async with anyio.create_task_group() as group:
            group.start_soon(store.delete, "s")
            for _ in range(3):
                group.start_soon(load)

        assert set(ends) <= {3, None}


async def test_a_revision_that_is_not_there_is_not_found(store: Store) -> None:
    """The error says which one is the last."""
    await saved(store, "s", "a", "b")

    with pytest.raises(StateNotFoundError, match="Its last one is 2") as missing:
        await store.load("s", revision=3)

    assert missing.value.revision == 3


async def test_a_revision_is_a_positive_integer(store: Store) -> None:
    """Nothing else is made into one."""
    await saved(store)
    wrong: list[Any] = [0, -1, "1", 1.0, True]

    for revision in wrong:
        with pytest.raises(ConfigError, match="is not a revision"):
            await store.load("s", revision=revision)


async def test_an_earlier_revision_cannot_be_saved_over_a_later_one(store: Store) -> None:
    """Who loads an old revision looks at it, or forks it."""
    from alpineagents import StateConflictError

    await saved(store, "s", "a", "b")
    earlier = await store.load("s", revision=1)
    earlier.add_message(Message.user("another b"))

    with pytest.raises(StateConflictError):
        await store.save(earlier)


async def test_a_fork_of_an_earlier_revision_is_a_state_of_its_own(store: Store) -> None:
    """It has the history up to there, and knows where it comes from."""
    await saved(store, "s", "a", "b")
    fork = (await store.load("s", revision=1)).fork(id="f")
    fork.add_message(Message.user("another b"))

    await store.save(fork)

    assert [message.text for message in (await store.load("f")).messages] == ["a", "another b"]
    assert (await store.info("f")).parent_id == "s"
    assert [message.text for message in (await store.load("s")).messages] == ["a", "b"]


async def test_info_says_what_the_fold_says(store: Store) -> None:
    """At every revision, without reading the history."""
    for state in told(State(id="s")):
        await store.save(state)
        value, info = state.snapshot(), await store.info("s")

        header = header_of(value)
        assert (info.id, info.revision, info.status) == ("s", value.revision, value.status)
        assert (info.created_at, info.first_message) == (value.created_at, header.first_message)
        assert (info.stopped, info.turn, info.usage) == (value.stopped, value.turn, value.usage)
        assert info.agent == (None if value.agent is None else value.agent.name)


async def test_a_history_longer_than_a_page_comes_back(store: Store) -> None:
    """Databases read it in pages of a thousand Events."""
    state = new_state("s", *map(str, range(2500)))
    await store.save(state)

    loaded = await store.load("s")

    assert loaded.snapshot() == state.snapshot()
    assert loaded.snapshot() != StateSnapshot()
    for revision in (999, 1000, 1001, 2000, 2500):
        assert (await store.load("s", revision=revision)).revision == revision
