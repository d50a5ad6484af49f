"""Appending is compare-and-set: who is let in, who is refused, and what a lost acknowledgement means."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from alpineagents import (
    ConfigError,
    Message,
    State,
    StateConflictError,
    StateExistsError,
    StateIdError,
    StateKey,
    StateNotFoundError,
    Store,
)
from alpineagents.events import Event, MessageAdded
from alpineagents.stores.header import StateHeader, header_of
from tests.contract.backends import new_state, rows_of, saved, words_in


def said(revision: int, words: str) -> Event:
    return MessageAdded(revision=revision, at=datetime.now(UTC), message=Message.user(words))


def header(state: State) -> StateHeader:
    return header_of(state.snapshot())


async def test_save_returns_the_revision(store: Store) -> None:
    """It is the number of Events that the store now has, and the State knows it."""
    state = new_state("s", "one", "two")

    assert await store.save(state) == 2
    assert (state.saved_revision, state.unsaved) == (2, ())


async def test_save_writes_what_is_new(store: Store) -> None:
    """A second save adds rows behind the first ones and touches none of them."""
    state = await saved(store, "s", "one")
    first = await rows_of(store, "s")
    state.add_message(Message.user("two"))

    await store.save(state)

    rows = await rows_of(store, "s")
    assert rows[:1] == first
    assert [row[0] for row in rows] == [1, 2]


async def test_a_save_of_nothing_new_writes_nothing(store: Store) -> None:
    """It is no error either."""
    state = await saved(store)
    before = await store.info("s")

    assert await store.save(state) == 1
    assert await store.info("s") == before


async def test_a_stale_writer_is_refused(store: Store) -> None:
    """The second of two that loaded one revision gets the revision that the store has, and nothing of its is kept."""
    await saved(store, "s", "one")
    first, second = await store.load("s"), await store.load("s")
    first.add_message(Message.user("first"))
    second.add_message(Message.user("second"))
    await store.save(first)

    with pytest.raises(StateConflictError) as refused:
        await store.save(second)

    assert (refused.value.state_id, refused.value.expected, refused.value.actual) == ("s", 1, 2)
    assert await words_in(store) == ["one", "first"]


async def test_a_refused_writer_keeps_what_it_has(store: Store) -> None:
    """The State in memory still has its Events unsaved, to be done again on what the store has."""
    await saved(store, "s", "one")
    late = await store.load("s")
    late.add_message(Message.user("late"))
    await store.post("s", Message.user("first"))

    with pytest.raises(StateConflictError):
        await store.save(late)

    assert [event.revision for event in late.unsaved] == [2]
    assert late.saved_revision == 1


async def test_a_stale_writer_is_refused_every_time(store: Store) -> None:
    """Trying again without loading does not help."""
    await saved(store, "s", "one")
    late = await store.load("s")
    late.add_message(Message.user("late"))
    await store.post("s", Message.user("first"))

    for _ in range(3):
        with pytest.raises(StateConflictError):
            await store.save(late)

    assert await words_in(store) == ["one", "first"]


async def test_a_conflict_shows_the_line_to_write(store: Store) -> None:
    """The error says how to go on."""
    await saved(store)
    late = await store.load("s")
    late.add_message(Message.user("late"))
    await store.post("s", Message.user("first"))

    with pytest.raises(StateConflictError, match=r"state = await store\.load\('s'\)"):
        await store.save(late)


async def test_a_new_state_whose_id_is_taken_is_refused(store: Store) -> None:
    """What is there stays as it is."""
    await saved(store, "s", "mine")

    with pytest.raises(StateExistsError, match=r"await agent\.resume\('s', "):
        await store.save(new_state("s", "yours"))

    assert await words_in(store) == ["mine"]


async def test_a_longer_new_state_does_not_pass_for_a_later_one(store: Store) -> None:
    """Its id is taken, however many Events it has."""
    await saved(store, "s", "mine")

    with pytest.raises(StateExistsError):
        await store.save(new_state("s", "a", "b", "c"))


async def test_one_of_many_new_states_with_one_id_is_let_in(store: Store) -> None:
    """The first insert of a header is raced for, and the losers get the library's own error."""
    outcomes: list[str] = []

    async def create(words: str) -> None:
        try:
            await store.save(new_state("s", words))
            outcomes.append(words)
        except StateExistsError:
            outcomes.append("exists")

    async with anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(create, str(number))

    assert outcomes.count("exists") == 9
    assert [await words_in(store)] == [[word] for word in outcomes if word != "exists"]


async def test_a_state_that_was_deleted_is_not_found(store: Store) -> None:
    """A save does not bring it back."""
    state = await saved(store)
    await store.delete("s")
    state.add_message(Message.user("more"))

    with pytest.raises(StateNotFoundError):
        await store.save(state)

    assert not await store.exists("s")


async def test_a_state_of_another_store_is_not_found(store: Store) -> None:
    """What it says is saved is not here."""
    state = new_state()
    state.mark_saved(1)
    state.add_message(Message.user("more"))

    with pytest.raises(StateNotFoundError):
        await store.save(state)


async def test_a_state_made_again_is_another_one(store: Store) -> None:
    """Who holds the old State of an id is refused by the new one, also where the revisions are equal."""
    old = await saved(store, "s", "old")
    await store.delete("s")
    await saved(store, "s", "new")
    old.add_message(Message.user("of the old one"))

    with pytest.raises(StateConflictError, match="another of the same id"):
        await store.save(old)

    assert await words_in(store) == ["new"]


async def test_a_fork_made_again_is_another_one(store: Store) -> None:
    """Two forks of one State begin with the same Event; who holds the first is refused by the second all the same."""
    origin = new_state("origin", "begin")
    old = origin.fork(id="s")
    old.add_message(Message.user("old"))
    await store.save(old)
    await store.delete("s")
    new = origin.fork(id="s")
    new.add_message(Message.user("new"))
    await store.save(new)
    old.add_message(Message.user("of the old one"))

    with pytest.raises(StateConflictError):
        await store.save(old)

    assert await words_in(store) == ["begin", "new"]


async def test_an_append_done_twice_lands_once(store: Store) -> None:
    """After a lost acknowledgement the append is tried again with its id, and is told the revision it landed at."""
    state = await saved(store)
    event = said(2, "more")
    state.record(MessageAdded, message=event.message)

    revisions = [await store.append("s", [event], expected=1, header=header(state), append_id="a1") for _ in range(3)]

    assert revisions == [2, 2, 2]
    assert [row[:2] for row in await rows_of(store, "s")][1:] == [(2, "a1")]


async def test_a_first_append_done_twice_lands_once(store: Store) -> None:
    """A State whose first acknowledgement was lost does not exist already: it is the same one."""
    state = new_state()

    first = await store.append("s", state.unsaved, expected=0, header=header(state), append_id="a1")
    second = await store.append("s", state.unsaved, expected=0, header=header(state), append_id="a1")

    assert (first, second) == (1, 1)
    assert len(await rows_of(store, "s")) == 1


async def test_an_append_that_landed_is_found_behind_others(store: Store) -> None:
    """Another writer may have gone on before the append is tried again."""
    state = await saved(store)
    event = said(2, "more")
    state.record(MessageAdded, message=event.message)
    await store.append("s", [event], expected=1, header=header(state), append_id="a1")
    await store.post("s", Message.user("another"))

    landed = await store.append("s", [event], expected=1, header=header(state), append_id="a1")

    assert landed == 2
    assert await words_in(store) == ["hello", "more", "another"]


async def test_another_append_of_the_same_events_is_refused(store: Store) -> None:
    """Only the id tells a second try from a second writer."""
    state = await saved(store)
    event = said(2, "more")
    state.record(MessageAdded, message=event.message)
    await store.append("s", [event], expected=1, header=header(state), append_id="a1")

    for other in ("a2", None):
        with pytest.raises(StateConflictError):
            await store.append("s", [event], expected=1, header=header(state), append_id=other)


async def test_a_lost_acknowledgement_is_settled_by_the_next_save(store: Store, monkeypatch: Any) -> None:
    """The rows are there, the State in memory does not know it: saving again stores nothing twice."""
    state = await saved(store, "s", "one")
    state.add_message(Message.user("two"))
    append = store.append

    async def lose(*args: Any, **options: Any) -> int:
        await append(*args, **options)
        raise ConnectionError("the acknowledgement was lost")

    monkeypatch.setattr(store, "append", lose)
    with pytest.raises(ConnectionError):
        await store.save(state)
    monkeypatch.setattr(store, "append", append)
    state.add_message(Message.user("three"))

    assert await store.save(state) == 3
    assert await words_in(store) == ["one", "two", "three"]


async def test_two_saves_of_one_state_at_once_store_it_once(store: Store) -> None:
    """The same Events come with the same append id."""
    state = await saved(store, "s", "one")
    state.add_message(Message.user("two"))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(store.save, state)

    assert await words_in(store) == ["one", "two"]
    assert state.unsaved == ()


async def test_exactly_one_of_two_writers_wins(store: Store) -> None:
    """A hundred times in one process: one is told "ok", one gets the conflict, and the history has the one."""
    await saved(store, "s", "0")
    wins: list[str] = []
    conflicts = 0

    async def write(state: State, words: str) -> None:
        nonlocal conflicts
        state.add_message(Message.user(words))
        try:
            await store.save(state)
            wins.append(words)
        except StateConflictError:
            conflicts += 1

    for number in range(100):
        one, other = await store.load("s"), await store.load("s")
        async with anyio.create_task_group() as group:
            group.start_soon(write, one, f"{number} one")
            group.start_soon(write, other, f"{number} other")

    assert conflicts == 100
    assert await words_in(store) == ["0", *wins]


async def test_an_id_that_cannot_be_is_refused(store: Store) -> None:
    """By every call, before the database is asked."""
    wrong: list[Any] = ["", "a b", "ä", "a/b", "../x", "a\0", "a\n", "x" * 129, None, 7]

    for id in wrong:
        for ask in (store.load, store.info, store.exists, store.delete):
            with pytest.raises(StateIdError, match="letters"):
                await ask(id)


async def test_a_state_without_events_cannot_be_saved(store: Store) -> None:
    """The error shows the line that gives it one."""
    with pytest.raises(ConfigError, match=r"state\.add_message"):
        await store.save(State(id="s"))

    assert not await store.exists("s")


async def test_only_a_state_can_be_saved(store: Store) -> None:
    """The error names what it was."""
    wrong: list[Any] = [None, "s", {"id": "s"}, new_state().snapshot()]

    for value in wrong:
        with pytest.raises(ConfigError, match=type(value).__name__):
            await store.save(value)


async def test_a_deleted_state_is_gone(store: Store) -> None:
    """With its history and its place in the list, while others stay."""
    await saved(store, "s")
    await saved(store, "other")

    await store.delete("s")

    assert await rows_of(store, "s") == []
    assert [info.id for info in await store.list()] == ["other"]
    for ask in (store.load, store.info, store.delete):
        with pytest.raises(StateNotFoundError) as missing:
            await ask("s")
        assert missing.value.state_id == "s"


async def test_exists_tells_what_is_there(store: Store) -> None:
    """Of this id, not of one like it."""
    await saved(store, "s")

    assert await store.exists("s")
    assert not await store.exists("S")
    assert not await store.exists("s_")


async def test_a_key_names_a_state_as_well(store: Store) -> None:
    """Backends and runs use it."""
    await saved(store)

    assert (await store.info(StateKey("", "s"))).id == "s"
