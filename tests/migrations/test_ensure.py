"""The schema at the start of a store: what is found, what is done about it, and what is left alone."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from alembic.ddl.impl import DefaultImpl
from sqlalchemy import Connection, event, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from alpineagents.errors import AlpineAgentsError, ConfigError, StoreSchemaError, StoreUnavailableError
from alpineagents.stores.sql import migrate, migration_lock
from alpineagents.stores.sql.migrate import async_url, check, current, ensure, head, upgrade
from alpineagents.stores.sql.tables import TABLE_NAMES, VERSION_TABLE
from alpineagents.stores.sql.urls import place
from tests.migrations.databases import execute, fetch, tables


async def test_an_empty_database_gets_the_tables(engine: AsyncEngine) -> None:
    """With `migrate` the first use makes every table and notes the revision."""
    await ensure(engine, schema=None, migrate=True)

    assert await tables(engine) == TABLE_NAMES
    assert await fetch(engine, f"SELECT version_num FROM {VERSION_TABLE}") == [head()]


async def test_a_start_at_the_head_takes_no_lock(engine: AsyncEngine, url: str) -> None:
    """A start on a migrated database does not wait for a writer, nor for one who holds the lock for migrations."""
    await ensure(engine, schema=None, migrate=True)
    other = create_async_engine(async_url(url))
    taken = (
        "BEGIN IMMEDIATE"
        if engine.dialect.name == "sqlite"
        else (f"SELECT pg_advisory_xact_lock({migration_lock._LOCK_KEY})")
    )

    async with other.connect() as connection:
        await connection.execute(text(taken))
        with anyio.fail_after(5):
            await ensure(engine, schema=None, migrate=True)

    await other.dispose()


async def test_a_database_without_tables_names_the_command(engine: AsyncEngine) -> None:
    """Without `migrate` an empty database is refused with the lines that help, and stays empty."""
    with pytest.raises(StoreSchemaError) as refused:
        await ensure(engine, schema=None, migrate=False)

    where = place(engine.url)
    for line in (f"alpineagents db upgrade {where}", "alembic upgrade head", f"SQLStore({where!r}, migrate=True)"):
        assert line in str(refused.value)
    assert await tables(engine) == set()


def test_asking_makes_no_file(tmp_path: Path) -> None:
    """`check` and `current` of a SQLite file that does not exist leave it so."""
    file = tmp_path / "agents.db"

    with pytest.raises(StoreSchemaError):
        check(file)

    assert current(file) is None
    assert not file.exists()


async def test_a_newer_database_asks_for_a_newer_library(engine: AsyncEngine) -> None:
    """A revision that this release does not know is refused, with and without `migrate`."""
    await ensure(engine, schema=None, migrate=True)
    await execute(engine, f"UPDATE {VERSION_TABLE} SET version_num = 'aa9999'")

    for wanted in (True, False):
        with pytest.raises(StoreSchemaError, match=r"'aa9999'.*pip install --upgrade alpineagents"):
            await ensure(engine, schema=None, migrate=wanted)


async def test_tables_without_a_revision_are_left_alone(engine: AsyncEngine) -> None:
    """Tables that no migration is noted for may be anyone's: refused, and nothing is changed."""
    await execute(engine, "CREATE TABLE agent_states (mine INTEGER)", "INSERT INTO agent_states VALUES (7)")

    with pytest.raises(StoreSchemaError, match=r"agent_states.*nothing was changed"):
        await ensure(engine, schema=None, migrate=True)

    assert await tables(engine) == {"agent_states"}
    assert await fetch(engine, "SELECT mine FROM agent_states") == [7]


async def test_a_revision_without_its_tables_is_refused(engine: AsyncEngine) -> None:
    """A backup that was restored by half is not filled up with empty tables."""
    await ensure(engine, schema=None, migrate=True)
    await execute(engine, "DROP TABLE agent_blobs")

    with pytest.raises(StoreSchemaError, match=r"lacks agent_blobs\. Nothing was changed"):
        await ensure(engine, schema=None, migrate=True)

    assert "agent_blobs" not in await tables(engine)


async def test_the_wait_for_another_process_ends(
    engine: AsyncEngine, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that never lets the lock go does not hold others for ever."""
    monkeypatch.setattr(migration_lock, "WAIT_SECONDS", 0.3)
    other = create_async_engine(async_url(url))
    taken = (
        "BEGIN EXCLUSIVE"
        if engine.dialect.name == "sqlite"
        else (f"SELECT pg_advisory_xact_lock({migration_lock._LOCK_KEY})")
    )

    async with other.connect() as connection:
        await connection.execute(text(taken))
        with anyio.fail_after(10), pytest.raises(StoreUnavailableError, match="locked by another process"):
            await ensure(engine, schema=None, migrate=True)

    await other.dispose()
    await ensure(engine, schema=None, migrate=True)


@pytest.mark.parametrize("milliseconds", range(0, 120, 8))
async def test_a_cancel_at_any_moment_leaves_no_lock(engine: AsyncEngine, url: str, milliseconds: int) -> None:
    """asyncio's own cancellation, which no shield holds off, leaves all or nothing, and the next one can start."""
    task = asyncio.create_task(ensure(engine, schema=None, migrate=True))
    await asyncio.wait([task], timeout=milliseconds / 1000)
    task.cancel()
    await asyncio.wait([task])

    assert await tables(engine) in (set(), TABLE_NAMES)
    other = create_async_engine(async_url(url))
    with anyio.fail_after(10):
        await ensure(other, schema=None, migrate=True)
    await other.dispose()


async def test_a_cancel_in_the_middle_goes_on_after_the_commit(
    engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that has begun is brought to its end, and then the task is cancelled."""
    loop = asyncio.get_running_loop()
    create_table = DefaultImpl.create_table

    def cancel_too(*args: Any, **options: Any) -> None:
        loop.call_soon_threadsafe(task.cancel)
        create_table(*args, **options)

    monkeypatch.setattr(DefaultImpl, "create_table", cancel_too)
    task = asyncio.create_task(ensure(engine, schema=None, migrate=True))
    await asyncio.wait([task])

    assert task.cancelled()
    assert await tables(engine) == TABLE_NAMES


async def test_several_databases_are_migrated_at_once_in_one_process(tmp_path: Path) -> None:
    """alembic has one context a process; each database gets its own tables all the same."""
    engines = [create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{number}.db") for number in range(8)]

    async with anyio.create_task_group() as group:
        for engine in engines:
            group.start_soon(partial(ensure, engine, schema=None, migrate=True))

    for engine in engines:
        assert await tables(engine) == TABLE_NAMES
        await engine.dispose()


async def test_the_apps_own_version_table_is_untouched(engine: AsyncEngine) -> None:
    """An app that keeps its tables with alembic too keeps its revision, its tables and its rows."""
    await execute(
        engine,
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
        "INSERT INTO alembic_version VALUES ('theirs')",
    )

    await ensure(engine, schema=None, migrate=True)

    assert await fetch(engine, "SELECT version_num FROM alembic_version") == ["theirs"]


# ------------------------------------------------------------------------------------------------ SQLite


async def test_a_database_in_memory_is_migrated() -> None:
    """The tables are on the one connection that the engine keeps."""
    engine = create_async_engine("sqlite+aiosqlite://")

    await ensure(engine, schema=None, migrate=True)

    assert await tables(engine) == TABLE_NAMES
    await engine.dispose()


async def test_a_sqlite_file_is_in_wal_mode(tmp_path: Path) -> None:
    """Readers do not wait for the writer; the mode stays with the file."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/agents.db")

    await ensure(engine, schema=None, migrate=True)

    assert await fetch(engine, "PRAGMA journal_mode") == ["wal"]
    await engine.dispose()


async def test_an_app_s_own_hooks_do_not_get_in_the_way(tmp_path: Path) -> None:
    """An engine whose hooks begin deferred transactions is migrated, and its connections keep their settings."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/agents.db")

    @event.listens_for(engine.sync_engine, "connect")
    def settle(connection: Any, _record: object) -> None:
        connection.isolation_level = "EXCLUSIVE"
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA busy_timeout = 1234")

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    await ensure(engine, schema=None, migrate=True)

    async with engine.connect() as connection:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        assert driver.isolation_level == "EXCLUSIVE"
    assert await fetch(engine, "PRAGMA foreign_keys") == [1]
    assert await fetch(engine, "PRAGMA busy_timeout") == [1234]
    await engine.dispose()


def test_a_migration_runs_without_foreign_keys(tmp_path: Path) -> None:
    """SQLite changes a table by a copy; with foreign keys on, to drop the old one would delete the rows of others."""
    keys = migrate.run_locked(tmp_path / "agents.db", lambda db: db.exec_driver_sql("PRAGMA foreign_keys").scalar())

    assert keys == 0


# ------------------------------------------------------------------------------------------------ Postgres


async def test_a_schema_of_its_own_is_made_and_used(postgres_url: str) -> None:
    """With `schema` every table is there, the version table too, and nothing is in public."""
    engine = create_async_engine(async_url(postgres_url))

    await ensure(engine, schema="agents", migrate=True)
    await ensure(engine, schema="agents", migrate=False)

    assert await tables(engine) == TABLE_NAMES
    assert set(await fetch(engine, "SELECT schemaname FROM pg_tables WHERE tablename LIKE '%agent%'")) == {"agents"}
    assert current(postgres_url) is None
    assert current(postgres_url, schema="agents") == head()
    await engine.dispose()


async def test_an_existing_schema_needs_no_right_to_make_one(postgres_url: str) -> None:
    """A role that may only use its own schema can migrate it."""
    engine = create_async_engine(async_url(postgres_url))
    await execute(engine, 'CREATE SCHEMA "Agents-1"')
    statements: list[str] = []
    event.listen(engine.sync_engine, "before_cursor_execute", lambda *args: statements.append(args[2]))

    await ensure(engine, schema="Agents-1", migrate=True)

    assert not [statement for statement in statements if statement.startswith("CREATE SCHEMA")]
    await engine.dispose()


async def test_two_schemas_of_one_database_are_two_stores(postgres_url: str) -> None:
    """The tables of one schema do not count for the other."""
    upgrade(postgres_url, schema="one")

    with pytest.raises(StoreSchemaError, match="--schema two"):
        check(postgres_url, schema="two")


@pytest.mark.parametrize("level", ["AUTOCOMMIT", "SERIALIZABLE"])
async def test_the_lock_holds_whatever_the_isolation_of_the_engine(postgres_url: str, level: Any) -> None:
    """With AUTOCOMMIT the lock would end with its statement, with SERIALIZABLE the view would be older than it."""
    engine = create_async_engine(async_url(postgres_url), isolation_level=level)
    mine = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()")

    def look(connection: Connection) -> tuple[Any, Any]:
        return connection.scalar(text("SHOW transaction_isolation")), connection.scalar(mine)

    assert await migration_lock.run(engine, look, schema=None, lock=True) == ("read committed", 1)
    await engine.dispose()


# ------------------------------------------------------------------------------------------------ from sync code


def test_upgrade_check_and_current_agree(url: str) -> None:
    """What the command line calls: nothing there, made, in place."""
    assert current(url) is None

    assert upgrade(url) == head()

    assert current(url) == head()
    check(url)


async def test_upgrade_works_where_a_loop_runs(url: str) -> None:
    """Called inside an event loop, it runs its own in another thread."""
    assert upgrade(url) == head()


@pytest.mark.parametrize(
    "bad",
    [
        "postgresql://bob:s3cret@127.0.0.1:1/db",
        "postgresql://bob:s3cret@localhost:1/db?sslmode=disable",
        "postgresql://127.0.0.1:1/db?user=bob&password=s3cret",
        "postgresql://bob:s3cret@host:port/db",
        "postgresql://bob:s3@cret@host/db",
        "postgresql://bob:s3cret@host/db?unknown=s3cret",
        "postgresql:bob:s3cret@host/db",
        "mysql://bob:s3cret@host/db",
        "post-gres://bob:s3cret@host/db",
    ],
)
def test_a_password_is_in_no_error(bad: str) -> None:
    """Whatever is wrong with a URL, the message names neither the password nor a part of it."""
    with pytest.raises(AlpineAgentsError) as refused:
        upgrade(bad)

    assert "cret" not in f"{refused.value} {refused.value!r}"


def test_an_unreachable_database_is_named(tmp_path: Path) -> None:
    """Host, port and database are in the message; for SQLite the path."""
    with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/orders"):
        upgrade("postgresql://bob:s3cret@127.0.0.1:1/orders")
    with pytest.raises(StoreUnavailableError, match=r"missing/agents\.db"):
        upgrade(tmp_path / "missing" / "agents.db")


def test_a_schema_is_for_postgres_only(tmp_path: Path) -> None:
    """SQLite has none."""
    with pytest.raises(ConfigError, match="Postgres only"):
        upgrade(tmp_path / "agents.db", schema="agents")
