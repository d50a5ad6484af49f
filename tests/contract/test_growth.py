"""What a step writes does not grow with the history: counted in rows and bytes of the databases, not in time."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alpineagents import Message, SQLStore, Store
from tests.contract.backends import execute, new_state, rows_of

EARLY, LATE = 10, 1_000
WORDS = "x" * 2_000


async def test_an_append_writes_its_own_rows_only(store: Store) -> None:
    """Their size is that of the new messages, and the rows before stay what they are."""
    state = new_state("s", *([WORDS] * EARLY))
    await store.save(state)
    before = await rows_of(store, "s")

    state.add_message(Message.user(WORDS))
    await store.save(state)

    after = await rows_of(store, "s")
    assert after[:-1] == before
    assert len(after[-1][2]) < len(WORDS) + 200


async def test_a_header_is_as_large_late_as_early(sql_store: Store) -> None:
    """It is written with every append."""
    state = new_state("s", *([WORDS] * EARLY))
    await sql_store.save(state)
    sizes = []
    for _ in range(2):
        [row] = await execute(sql_store, "SELECT first_message, summary, status FROM agent_states WHERE id = 's'")
        sizes.append(sum(map(len, row)))
        for _ in range(LATE):
            state.add_message(Message.user(WORDS))
        await sql_store.save(state)

    assert sizes[1] <= sizes[0] + 8


async def test_the_log_of_a_database_grows_by_what_is_new(tmp_path: Path) -> None:
    """SQLite writes as many pages for a step late as early: its write-ahead log holds all that were written."""
    file = tmp_path / "agents.db"
    written = {}
    async with SQLStore(file) as store:
        state = new_state("s", *([WORDS] * EARLY))
        await store.save(state)
        for turns in (EARLY, LATE):
            while state.revision < turns:
                state.add_message(Message.user(WORDS))
            await store.save(state)
            empty_log(file)
            for _ in range(10):
                state.add_message(Message.user(WORDS))
                await store.save(state)
            written[turns] = (tmp_path / "agents.db-wal").stat().st_size

    assert written[LATE] < written[EARLY] * 1.5
    # Ten steps of 2 KB each; the whole conversation would be 2 MB a step.
    assert written[LATE] < 1_000_000


def empty_log(file: Path) -> None:
    connection = sqlite3.connect(file)
    assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    connection.close()


async def test_a_long_conversation_takes_the_room_of_what_was_said(tmp_path: Path) -> None:
    """500 turns that say 200 KB take less than a megabyte, not the 140 MB of one copy a turn."""
    file = tmp_path / "agents.db"
    async with SQLStore(file) as store:
        state = new_state("s")
        for _ in range(500):
            state.add_message(Message.user("x" * 400))
            await store.save(state)
    empty_log(file)

    assert file.stat().st_size < 1_000_000


async def test_a_server_gets_one_row_a_step(migrated_postgres_url: str) -> None:
    """An insert into the history: no row of it is written again, however long it is."""
    versions = "SELECT revision, CAST(xmin AS TEXT), CAST(ctid AS TEXT) FROM agent_events ORDER BY revision"
    async with SQLStore(migrated_postgres_url) as store:
        state = new_state("s", *([WORDS] * LATE))
        await store.save(state)
        before = await execute(store, versions)

        for _ in range(10):
            state.add_message(Message.user(WORDS))
            await store.save(state)

        after = await execute(store, versions)
    # A row that is written again gets a new transaction and a new place.
    assert after[:LATE] == before
    assert len(after) == LATE + 10
