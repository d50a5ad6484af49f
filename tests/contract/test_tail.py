"""A State loaded from the last change of its context on: the same State, from fewer rows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alpineagents import (
    ConfigError,
    FileStore,
    Message,
    SQLStore,
    State,
    StateConflictError,
    StateDamagedError,
    StateKey,
    StateNotFoundError,
    Store,
)
from alpineagents.events import ContextChanged
from alpineagents.stores.file.folder import Folder, Place
from alpineagents.stores.sql.append import LAST_CONTEXT_CHANGE
from alpineagents.stores.sql.store import MAX_REVISION
from tests.contract.backends import Backend, change_row, drop_row, engine_of, new_state, rows_of, saved
from tests.corpus.story import told


def change_of(state: State) -> int:
    """Return the revision of the last change of a State's context, or 0."""
    return max((event.revision for event in state.history if isinstance(event, ContextChanged)), default=0)


async def compacted(store: Store, id: str = "s", *, before: int = 3, behind: int = 2) -> State:
    """Return a saved State whose context was changed once."""
    state = new_state(id, *(f"before {n}" for n in range(before)), namespace=store.namespace)
    state.compact("a summary")
    for n in range(behind):
        state.add_message(Message.user(f"behind {n}"))
    await store.save(state)
    return state


async def test_it_is_the_same_state_at_every_revision(store: Store) -> None:
    """In mid-turn too: its value, what it was forked from, who saved it last, and the part of the history it has."""
    for state in told(State(id="s")):
        await store.save(state)

        tail = await store.load("s", tail=True)

        assert tail.snapshot() == state.snapshot()
        assert (tail.history_after, tail.revision) == (max(change_of(state) - 1, 0), state.revision)
        assert tail.history == state.history[tail.history_after :]
        assert (tail.unsaved, tail.follows) == ((), state.history[-1].at)
        assert (tail.saved_by, tail.namespace) == (state.snapshot().agent, "")


async def test_an_earlier_revision_can_be_loaded_so(store: Store) -> None:
    """From the last change of the context up to it; one that is not there is not found."""
    state = new_state("s", "one")
    for number in range(3):
        state.compact(f"summary {number}")
        state.add_message(Message.user(f"after {number}"))
    values = {at: fold_of(state, at) for at in range(1, state.revision + 1)}
    await store.save(state)

    for revision, value in values.items():
        tail = await store.load("s", revision, tail=True)
        assert tail.snapshot() == value
        assert tail.history_after == max(revision // 2 * 2 - 1, 0)
    for beyond in (8, 2**70):
        with pytest.raises(StateNotFoundError, match="Its last one is 7"):
            await store.load("s", beyond, tail=True)
    with pytest.raises(ConfigError, match="is not a revision"):
        await store.load("s", 0, tail=True)


def fold_of(state: State, revision: int) -> Any:
    return State.from_history("s", state.history[:revision]).snapshot()


async def test_the_rest_of_the_history_can_be_read(store: Store) -> None:
    """Up to where the State's own begins: together they are all of it."""
    state = await compacted(store)
    tail = await store.load("s", tail=True)

    before = [event async for event in store.read("s", until=tail.history_after)]

    assert [*before, *tail.history] == list(state.history)


async def test_without_a_change_of_the_context_all_is_read(store: Store) -> None:
    """There is nowhere else to begin."""
    await saved(store, "s", "a", "b")

    tail = await store.load("s", tail=True)

    assert (tail.history_after, len(tail.history)) == (0, 2)


async def test_it_goes_on_like_any_other(store: Store) -> None:
    """It is saved behind what there is, and what it adds is in the whole history too."""
    await compacted(store)
    tail = await store.load("s", tail=True)

    tail.add_message(Message.user("new"))
    with tail.edit_extra_data() as data:
        data["a"] = 1
    tail.clear_tool_results()
    tail.restore(tail.snapshot())
    assert await store.save(tail) == 10

    whole = await store.load("s")
    assert whole.snapshot() == tail.snapshot()
    again = await store.load("s", tail=True)
    assert (again.history_after, again.snapshot()) == (9, whole.snapshot())


async def test_of_two_writers_one_wins(store: Store) -> None:
    """However much of the history each of them has."""
    await compacted(store)
    one, two = await store.load("s", tail=True), await store.load("s")
    for state in (one, two):
        state.add_message(Message.user("mine"))
    await store.save(two)

    with pytest.raises(StateConflictError) as conflict:
        await store.save(one)

    assert (conflict.value.expected, conflict.value.actual) == (6, 7)


async def test_who_has_a_part_of_a_deleted_state_is_refused(store: Store) -> None:
    """A State that was made again under its id is another one."""
    await compacted(store)
    tail = await store.load("s", tail=True)
    await store.delete("s")
    await compacted(store)
    tail.add_message(Message.user("late"))

    with pytest.raises(StateConflictError, match="another of the same id"):
        await store.save(tail)


async def test_the_store_forks_it_as_a_whole(store: Store) -> None:
    """The rows are the store's own, so no State has to have them all."""
    state = await compacted(store)

    await store.fork("s", "f")

    fork = await store.load("f", tail=True)
    assert fork.snapshot() == state.snapshot()
    assert (fork.history_after, fork.parent_id) == (3, "s")
    assert (await store.load("f")).history == state.history


async def test_a_state_of_another_namespace_is_not_looked_at(store: Store) -> None:
    """The change of its context is where that one begins, not this one."""
    await compacted(store.scoped("tenant-a"))
    await saved(store, "s", *"abcdefg")

    tail = await store.load("s", tail=True)

    assert (tail.history_after, tail.revision) == (0, 7)
    with pytest.raises(StateNotFoundError):
        await store.load("nobody", tail=True)


async def payload_of(store: Store, revision: int) -> dict[str, Any]:
    [payload] = [payload for at, _, payload in await rows_of(store, "s") if at == revision]
    found: dict[str, Any] = json.loads(payload)
    return found


@pytest.mark.parametrize("kind", ["of an older release", "changed where it is stored"])
async def test_a_checkpoint_that_counts_for_nothing_is_no_bar(store: Store, kind: str) -> None:
    """The whole history is read, and says what the State is."""
    state = await compacted(store)
    payload = await payload_of(store, 4)
    if kind == "of an older release":
        del payload["checkpoint"]
    else:
        payload["checkpoint"]["always_allowed"] = ["pay"]
    await change_row(store, "s", 4, payload=json.dumps(payload, separators=(",", ":")))

    tail = await store.load("s", tail=True)

    assert tail.snapshot() == state.snapshot()
    assert tail.history_after == 0


async def test_a_state_that_was_made_again_meanwhile_is_loaded_as_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the search for a beginning and the read of it, the State may become any other."""
    await compacted(store)
    found = type(store).last_context_change

    async def deleted_then(self: Store, id: str | StateKey, *, until: int | None = None) -> int:
        revision = await found(self, id, until=until)
        await self.delete(id)
        await saved(self, "s", *words)
        return revision

    monkeypatch.setattr(type(store), "last_context_change", deleted_then)
    for words in (["another"], [f"another {n}" for n in range(9)]):
        tail = await store.load("s", tail=True)

        assert [message.text for message in tail.messages] == words
        assert tail.history_after == 0
        monkeypatch.undo()
        await store.delete("s")
        await compacted(store)
        monkeypatch.setattr(type(store), "last_context_change", deleted_then)


async def test_damage_before_it_is_no_bar_and_damage_in_it_is_told(store: Store) -> None:
    """What is not read cannot be looked at; the whole load says what is wrong with it."""
    state = await compacted(store)
    await change_row(store, "s", 2, payload='{"message":1}')
    assert (await store.load("s", tail=True)).snapshot() == state.snapshot()
    with pytest.raises(StateDamagedError) as damaged:
        await store.load("s")
    assert damaged.value.revision == 2

    await drop_row(store, "s", 5)

    with pytest.raises(StateDamagedError) as damaged:
        await store.load("s", tail=True)
    assert damaged.value.revision == 5


async def test_a_long_tail_comes_back(store: Store) -> None:
    """Over several pages, and blocks of a file that are read from its end."""
    state = await compacted(store, before=1_500, behind=2_500)

    tail = await store.load("s", tail=True)

    assert (tail.history_after, tail.revision) == (1_500, 4_001)
    assert tail.snapshot() == state.snapshot()


async def test_only_the_tail_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is before is neither fetched nor decoded, so a long history costs what its last part costs."""
    await compacted(store, before=3_000, behind=20)
    read: list[int] = []
    fetched: list[int] = []
    read_behind, lines_of = type(store)._history, Folder.lines

    async def noted(self: Store, key: StateKey, after: int, until: int | None) -> Any:
        read.append(after)
        return await read_behind(self, key, after, until)

    def lines_noted(self: Folder, place: Place, count: int) -> Any:
        read = lines_of(self, place, count)
        assert read is not None
        fetched.append(sum(map(len, read[0])))
        return read

    monkeypatch.setattr(type(store), "_history", noted)
    monkeypatch.setattr(Folder, "lines", lines_noted)

    tail = await store.load("s", tail=True)

    assert read == [3_000]
    assert len(tail.history) == 21
    assert sum(fetched) < 20_000
    assert bool(fetched) == isinstance(store, FileStore)


async def test_the_beginning_is_found_by_the_primary_key(database: Backend) -> None:
    """It is read from its end on, without a sort and without an index of its own."""
    async with database.open() as store:
        assert isinstance(store, SQLStore)
        await compacted(store, before=3_000, behind=50)
        for number in range(20):
            await compacted(store, f"other-{number}", before=50)
        engine = engine_of(store)
        async with engine.begin() as connection:
            await connection.exec_driver_sql("ANALYZE")
        statement = store._databases.here().statement(LAST_CONTEXT_CHANGE)
        explain = "EXPLAIN QUERY PLAN " if database.name == "sqlite" else "EXPLAIN (FORMAT JSON) "
        async with engine.connect() as connection:
            for until in (MAX_REVISION, 3_010):
                args = statement.args({"namespace": "", "id": "s", "until": until})
                rows = (await connection.exec_driver_sql(explain + statement.sql, args)).all()
                plan = json.dumps([str(column) for row in rows for column in row])
                assert "Sort" not in plan
                assert "TEMP B-TREE" not in plan
                assert "sqlite_autoindex_agent_events_1" in plan or ("pk_agent_events" in plan and "Backward" in plan)
        assert await store.last_context_change("s", until=3_010) == await store.last_context_change("s") == 3_001
