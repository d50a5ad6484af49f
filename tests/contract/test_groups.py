"""Many States written at once: each append is let in or refused on its own, however they are written together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest
from sqlalchemy import text

from alpineagents import Message, SQLStore, State, StateConflictError, StateExistsError, Store, StoreError
from alpineagents.stores.sql.append import Append, Outcomes
from tests.contract.backends import Backend, engine_of, execute, new_state, rows_of, words_in
from tests.contract.stepping import cancelled_at

MANY = 12
ENOUGH = 200


def groups_of(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the list into which the ids of each group that is written go."""
    assert isinstance(store, SQLStore)
    groups = store._databases.here()._groups
    written: list[list[str]] = []
    write = groups._write

    async def note(appends: list[Append]) -> Outcomes:
        written.append([append.key.id for append in appends])
        return await write(appends)

    monkeypatch.setattr(groups, "_write", note)
    return written


async def many(store: Store, *, id: str = "s") -> list[State]:
    """Return saved States, each with one Event more that is not saved."""
    states = [new_state(f"{id}{number}", "one") for number in range(MANY)]
    for state in states:
        await store.save(state)
        state.add_message(Message.user("two"))
    return states


async def save_all(store: Store, states: list[State]) -> list[int | BaseException]:
    return await asyncio.gather(*(store.save(state) for state in states), return_exceptions=True)


async def check(store: Store, ids: list[str], words: list[str]) -> None:
    for id in ids:
        assert await words_in(store, id) == words
        assert [row[0] for row in await rows_of(store, id)] == list(range(1, len(words) + 1))


async def test_many_at_once_are_all_kept(store: Store) -> None:
    """Of new States and of ones that go on, with one Event or several, each under its own id."""
    states = await many(store)
    states[3].add_message(Message.user("three"))
    states += [new_state(f"new{number}", *("one", "two")[: 1 + number % 2]) for number in range(MANY)]

    assert await save_all(store, states) == [state.revision for state in states]

    for state in states:
        assert (await store.load(state.id)).history == state.history
        assert (await store.info(state.id)).revision == state.revision


async def test_a_conflict_among_many_fails_alone(store: Store) -> None:
    """A State that moved on and a new one whose id is taken are refused; their neighbours are kept."""
    states = await many(store)
    await store.post("s4", Message.user("posted"))
    states.append(new_state("s5", "taken"))

    told = await save_all(store, states)

    assert isinstance(told[4], StateConflictError)
    assert isinstance(told[-1], StateExistsError)
    assert told[:4] + told[5:-1] == [2] * (MANY - 1)
    await check(store, [f"s{number}" for number in range(MANY) if number != 4], ["one", "two"])
    await check(store, ["s4"], ["one", "posted"])


async def test_a_cancel_among_many_touches_nobody_else(store: Store) -> None:
    """At every point of its wait: the neighbours are told that they are kept, and its own append is whole."""
    for point in range(1, ENOUGH):
        states = await many(store, id=f"p{point}-")
        gone = asyncio.ensure_future(cancelled_at(store.save(states[0]), point))

        told = await save_all(store, states[1:])

        assert told == [2] * (MANY - 1)
        ended = await gone
        assert await store.save(states[0]) == 2
        await check(store, [state.id for state in states], ["one", "two"])
        if ended == "done":
            return
    raise AssertionError("the call never came to its end")


async def test_appends_that_wait_at_once_share_a_transaction(sql_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as wait, each State once."""
    states = await many(sql_store)
    written = groups_of(sql_store, monkeypatch)

    assert await save_all(sql_store, states) == [2] * MANY

    assert written == [[state.id for state in states]]


async def test_one_that_is_alone_waits_for_nobody(sql_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a group of one."""
    written = groups_of(sql_store, monkeypatch)

    await sql_store.save(new_state("s"))

    assert written == [["s"]]


REFUSE = {
    "sqlite": [
        (
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_events WHEN NEW.state_id = 's3' AND NEW.revision = 2 "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    ],
    "postgres": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$",
        (
            "CREATE TRIGGER refuse BEFORE INSERT ON agent_events FOR EACH ROW "
            "WHEN (NEW.state_id = 's3' AND NEW.revision = 2) EXECUTE FUNCTION refuse()"
        ),
    ],
}


async def test_what_the_database_refuses_fails_alone(database: Backend, sql_store: Store) -> None:
    """An error that is no conflict ends the transaction of all; then each is tried alone."""
    states = await many(sql_store)
    for statement in REFUSE[database.name]:
        async with engine_of(sql_store).begin() as connection:
            await connection.exec_driver_sql(statement)

    told = await save_all(sql_store, states)

    assert isinstance(told[3], StoreError)
    assert "not this one" in str(told[3])
    assert told[:3] + told[4:] == [2] * (MANY - 1)
    await check(sql_store, ["s3"], ["one"])
    await check(sql_store, [state.id for state in states if state.id != "s3"], ["one", "two"])


@asynccontextmanager
async def locked(store: Store, id: str) -> AsyncIterator[None]:
    """Hold the header of a State in another transaction, as a tool's does before it commits."""
    async with engine_of(store).begin() as connection:
        await connection.execute(text("SELECT 1 FROM agent_states WHERE id = :id FOR UPDATE"), {"id": id})
        yield


async def test_a_state_that_is_held_keeps_no_other(migrated_postgres_url: str) -> None:
    """Postgres locks rows: the neighbours of a State that another transaction holds are kept meanwhile."""
    async with SQLStore(migrated_postgres_url) as store:
        states = await many(store)
        async with locked(store, "s3"):
            held = asyncio.ensure_future(store.save(states[3]))
            with anyio.fail_after(20):
                assert await save_all(store, states[:3] + states[4:]) == [2] * (MANY - 1)
                states[0].add_message(Message.user("three"))
                assert await store.save(states[0]) == 3
            assert not held.done()

        assert await held == 2
        await check(store, ["s3"], ["one", "two"])


async def test_groups_in_opposite_orders_do_not_lock_each_other(shared: Backend) -> None:
    """Two stores, as two processes have them, move the same States again and again; every post is kept."""
    async with shared.open() as one, shared.open() as other:
        for number in range(MANY):
            await one.save(new_state(f"s{number}", "begin"))
        ids = [f"s{number}" for number in range(MANY)]

        async def post_all(store: Store, ids: list[str], words: str) -> None:
            for number in range(5):
                await asyncio.gather(*(store.post(id, Message.user(f"{words} {number}")) for id in ids))

        with anyio.fail_after(60):
            await asyncio.gather(post_all(one, ids, "one"), post_all(other, ids[::-1], "other"))

        for id in ids:
            words = (await words_in(one, id))[1:]
            assert sorted(words) == sorted(f"{name} {number}" for name in ("one", "other") for number in range(5))


async def test_headers_say_what_a_single_append_says(database: Backend) -> None:
    """The statement of a group and that of one append write the same columns."""
    columns = "revision, status, created_at, first_message, summary, parent_id, run_id, lease_until"
    async with database.open() as store:
        states = await many(store)
        forks = [state.fork(id=f"{state.id}-fork") for state in states]
        alone = states[0].fork(id="alone")
        await store.save(alone)
        await save_all(store, [*states, *forks])

        rows = await execute(store, f"SELECT {columns} FROM agent_states WHERE id IN ('s0-fork', 'alone')")
        assert rows[0] == rows[1]
        infos = [await store.info(state.id) for state in states]
        assert {(info.revision, info.first_message, info.status) for info in infos} == {(2, "one", "ready")}
