"""What goes wrong while many States are written in one transaction: each append is settled on its own."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from alpineagents import Message, SQLStore, State, StateConflictError, StoreUnavailableError
from tests.contract.backends import Backend, rows_of
from tests.contract.conftest import database  # noqa: F401  # a fixture
from tests.failures.histories import check_nothing_is_held, check_saved, connections_out, new_state, query
from tests.failures.proxy import Proxy

WRITER = Path(__file__).with_name("group_writer.py")
MANY = 8


async def prepared(store: SQLStore, id: str) -> list[State]:
    """Return new States and saved ones, each with Events that are not saved."""
    states = [new_state(f"{id}-{number}", "one") for number in range(MANY)]
    for state in states[: MANY // 2]:
        await store.save(state)
        state.add_message(Message.user("two"))
    return states


async def test_a_group_whose_reply_is_lost_is_stored_once(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """Each State's append is looked up by its own id, and the one that was in conflict is still refused."""
    for number in range(1, 50):
        states = await prepared(direct, f"lost{number}")
        stale = await direct.load(states[0].id)
        stale.add_message(Message.user("late"))
        await direct.post(stale.id, Message.user("first"))
        proxy.lose_reply(number)

        told = await asyncio.gather(*(store.save(each) for each in [stale, *states[1:]]), return_exceptions=True)

        proxy.lose_nothing()
        assert isinstance(told[0], StateConflictError)
        assert told[1:] == [state.revision for state in states[1:]]
        for state in states[1:]:
            await check_saved(direct, state)
        assert connections_out(store) == 0
        if not proxy.lost:
            assert number > 2
            return
    raise AssertionError("there was no end of replies")


async def test_a_group_whose_database_stays_away_is_saved_later(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """Nobody could say whether it was written; the next save of each State finds out, and writes nothing twice."""
    states = await prepared(direct, "s")
    proxy.lose_reply(1, then_refuse=True)

    told = await asyncio.gather(*(hasty.save(state) for state in states), return_exceptions=True)

    assert all(isinstance(each, StoreUnavailableError) for each in told)
    await proxy.accept()
    for state in states:
        state.add_message(Message.user("more"))
    await asyncio.gather(*(hasty.save(state) for state in states))
    for state in states:
        await check_saved(direct, state)


async def test_a_cancel_while_the_reply_of_a_group_is_away_is_settled_first(
    proxy: Proxy, store: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """The one that is cancelled learns how far it came before its cancellation goes on; nobody else notices."""
    states = await prepared(direct, "s")
    proxy.hold_replies()
    tasks = [asyncio.ensure_future(store.save(state)) for state in states]
    await proxy.held.wait()

    tasks[2].cancel()
    await asyncio.wait(tasks, timeout=0)
    assert not any(task.done() for task in tasks)
    proxy.release()

    told = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(told[2], asyncio.CancelledError)
    assert told[:2] + told[3:] == [state.revision for state in states[:2] + states[3:]]
    for state in states:
        await check_saved(direct, state)
    await check_nothing_is_held(migrated_postgres_url)


@pytest.mark.parametrize("code", ["40P01", "40001"])
async def test_a_group_that_the_server_ends_is_tried_again(migrated_postgres_url: str, code: str) -> None:
    """A deadlock or a serialization failure is nobody's fault, and no conflict."""
    await query(migrated_postgres_url, "CREATE SEQUENCE tries")
    await query(
        migrated_postgres_url,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF nextval('tries') = 3 THEN "
        f"RAISE EXCEPTION 'not now' USING ERRCODE = '{code}'; END IF; RETURN NEW; END $$",
    )
    await query(
        migrated_postgres_url,
        "CREATE TRIGGER refuse BEFORE INSERT ON agent_events FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    async with SQLStore(migrated_postgres_url) as store:
        states = [new_state(f"s{number}") for number in range(MANY)]

        assert await asyncio.gather(*(store.save(state) for state in states)) == [1] * MANY

        for state in states:
            await check_saved(store, state)
    # Each was tried until the third was refused, and then all again.
    assert await query(migrated_postgres_url, "SELECT last_value FROM tries") == [(3 + MANY,)]


@pytest.mark.slow
async def test_processes_killed_in_the_middle_of_groups_lose_nothing_they_were_told(
    database: Backend,  # noqa: F811  # the fixture that is imported above
) -> None:
    """Of each State all that was acknowledged is there, in whole appends, and the next process goes on with it."""
    async with database.open() as store:
        await store.list()
    writers = [
        subprocess.Popen([sys.executable, str(WRITER), str(database.url), name], stdout=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    told: dict[str, int] = {}
    try:
        for enough, writer in zip((150, 300), writers, strict=True):
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(enough)]
            writer.kill()
            lines += writer.stdout.read().splitlines(keepends=True)
            told.update((line.split()[0], int(line.split()[1])) for line in lines if line.endswith("\n"))
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()

    async with database.open() as store:
        assert len(told) == 40
        for id, revision in told.items():
            state = await store.load(id)
            assert state.revision in (revision, revision + 1)
            assert [row[0] for row in await rows_of(store, id)] == list(range(1, state.revision + 1))
            state.add_message(Message.user("on"))
            assert await store.save(state) == state.revision
