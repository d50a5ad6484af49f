"""Behind a pooler that gives each transaction another session of the server's."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import NullPool
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import Message, SQLStore
from alpineagents.stores.sql.urls import async_url
from tests.failures.histories import check_saved, new_state, query, texts
from tests.failures.pgbouncer import find_pgbouncer, pgbouncer

CLIENT = Path(__file__).with_name("pooler_client.py")
WITHOUT_STATEMENTS = "?prepared_statement_cache_size=0"


@pytest.fixture
def pooled_url(migrated_postgres_url: str) -> Iterator[str]:
    """The URL of a fresh database by way of PgBouncer."""
    program = find_pgbouncer()
    if program is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    # Not the folder of the test: who runs the pooler must be able to walk to it.
    with tempfile.TemporaryDirectory(prefix="alpineagents-pgbouncer-", dir="/tmp") as folder:
        with pgbouncer(program, migrated_postgres_url, Path(folder)) as url:
            yield url


async def test_one_option_of_the_url_is_enough_behind_a_pooler(pooled_url: str, migrated_postgres_url: str) -> None:
    """Several processes share two sessions: no statement that one has prepared gets in another one's way."""
    await query(migrated_postgres_url, "CREATE TABLE payments (id TEXT, amount INTEGER)")
    url = pooled_url + WITHOUT_STATEMENTS
    async with SQLStore(url) as store:
        await store.save(new_state("shared", "begin"))
        command = [sys.executable, str(CLIENT), url]
        clients = [
            subprocess.Popen([*command, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for name in "ab"
        ]
        outputs = [client.communicate(timeout=60)[0] for client in clients]

        assert outputs == ["", ""]
        assert len(await texts(store, "shared")) == 1 + 2 * 4 * 5
        assert await query(migrated_postgres_url, "SELECT count(*) FROM payments") == [(8,)]


async def test_no_statement_stays_on_the_server_behind_a_pooler(pooled_url: str) -> None:
    """What has a name would be left behind in a session that others use next."""
    async with SQLStore(pooled_url + WITHOUT_STATEMENTS) as store:
        await store.save(new_state("s", "one"))
        await store.list()
        async with store._databases.here().engine.connect() as connection:
            left = await connection.exec_driver_sql("SELECT name FROM pg_prepared_statements WHERE name <> ''")
            assert left.all() == []


async def test_an_engine_of_the_apps_own_works_behind_a_pooler(pooled_url: str) -> None:
    """With the settings that the docs show."""
    engine = create_async_engine(
        async_url(pooled_url),
        poolclass=NullPool,
        connect_args={
            "statement_cache_size": 0,
            "prepared_statement_cache_size": 0,
            "prepared_statement_name_func": lambda: "",
        },
    )
    async with SQLStore(engine) as store:
        state = new_state("s", "one")
        await store.save(state)
        await store.post("s", Message.user("two"))
        assert await texts(store) == ["one", "two"]
        assert [info.revision for info in await store.list()] == [2]
        await store.delete("s")
    await engine.dispose()


async def test_tables_are_made_through_a_pooler(pooled_url: str, migrated_postgres_url: str) -> None:
    """The lock for migrations ends with its transaction, so it needs no session of its own."""
    await query(migrated_postgres_url, "DROP TABLE agent_blobs, agent_events, agent_states, alpineagents_version")

    async with SQLStore(pooled_url + WITHOUT_STATEMENTS, migrate=True) as store:
        state = new_state("s", "one")
        await store.save(state)
        await check_saved(store, state)


async def test_the_option_reaches_both_caches(migrated_postgres_url: str) -> None:
    """SQLAlchemy's and the driver's: without PgBouncer, that can be seen at least."""
    async with SQLStore(migrated_postgres_url + WITHOUT_STATEMENTS) as store:
        await store.save(new_state("s", "one"))
        await store.list()
        async with store._databases.here().engine.connect() as connection:
            left = await connection.exec_driver_sql("SELECT name FROM pg_prepared_statements WHERE name <> ''")
            assert left.all() == []


async def test_statements_are_kept_without_a_pooler(migrated_postgres_url: str) -> None:
    """Planning once is the faster way, so it stays the default."""
    async with SQLStore(migrated_postgres_url) as store:
        await store.save(new_state("s", "one"))
        async with store._databases.here().engine.connect() as connection:
            left = await connection.exec_driver_sql("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''")
            assert left.scalar_one() >= 1
