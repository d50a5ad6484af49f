"""The migrations make what tables.py says, down to the definitions of indexes and constraints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from alpineagents.stores.sql.migrate import async_url, ensure, head, migrations_folder
from alpineagents.stores.sql.tables import TABLE_NAMES, VERSION_TABLE, make_tables
from tests.migrations.databases import fetch


async def test_alembic_finds_no_difference(engine: AsyncEngine) -> None:
    """Autogenerate, with our own tables as its aim, has nothing to propose."""
    await ensure(engine, schema=None, migrate=True)

    def compare(connection: Connection) -> list[Any]:
        options = {"version_table": VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        return list(compare_metadata(context, make_tables().metadata))

    async with engine.connect() as connection:
        assert await connection.run_sync(compare) == []


async def test_sqlite_has_the_same_definitions(tmp_path: Path) -> None:
    """The text of every table and index is that of a database made from tables.py."""
    migrated, made = (create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/{name}.db") for name in ("a", "b"))
    await ensure(migrated, schema=None, migrate=True)
    async with made.begin() as connection:
        await connection.run_sync(make_tables().metadata.create_all)

    definitions = f"SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name != '{VERSION_TABLE}'"
    assert set(await fetch(migrated, definitions)) == set(await fetch(made, definitions))
    await migrated.dispose()
    await made.dispose()


DEFINITIONS = """
SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, c.reloptions)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
WHERE c.relkind = 'r' AND c.relnamespace = CAST('{0}' AS regnamespace) AND c.relname != '{1}'
UNION ALL
SELECT indexdef FROM pg_indexes WHERE schemaname = '{0}' AND tablename != '{1}'
UNION ALL
SELECT conname || ' ' || pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = CAST('{0}' AS regnamespace) AND conrelid != CAST('{2}' AS regclass)
"""


async def test_postgres_has_the_same_definitions(postgres_url: str) -> None:
    """Columns, storage options, indexes and constraints are those of a schema made from tables.py."""
    engine = create_async_engine(async_url(postgres_url))
    await ensure(engine, schema="one", migrate=True)
    async with engine.begin() as connection:
        await connection.execute(text("CREATE SCHEMA two"))
        await connection.run_sync(make_tables("two").metadata.create_all)

    migrated, made = [
        sorted(await fetch(engine, DEFINITIONS.format(schema, VERSION_TABLE, f"one.{VERSION_TABLE}")))
        for schema in ("one", "two")
    ]

    assert [line.replace("one.", "two.") for line in migrated] == made
    assert len(made) > 30
    await engine.dispose()


async def test_a_history_is_packed_with_lz4_where_the_server_can(postgres_url: str) -> None:
    """The payload is most of the database; lz4 costs the least time."""
    engine = create_async_engine(async_url(postgres_url))
    await ensure(engine, schema=None, migrate=True)

    known = await fetch(
        engine, "SELECT count(*) FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)"
    )
    payload = "attrelid = 'agent_events'::regclass AND attname = 'payload'"
    packed = await fetch(engine, f"SELECT attcompression::text FROM pg_attribute WHERE {payload}")

    assert packed == (["l"] if known == [1] else [""])
    await engine.dispose()


def test_the_head_is_that_of_the_migrations() -> None:
    """A release that adds a migration says so: `head()` is written down, not asked of alembic."""
    script = ScriptDirectory(str(migrations_folder()))

    assert script.get_heads() == [head()]


def test_revisions_have_our_prefix_and_fit() -> None:
    """The version table holds 32 characters, and the prefix tells ours from an app's."""
    for script in ScriptDirectory(str(migrations_folder())).walk_revisions():
        assert script.revision.startswith("aa")
        assert len(script.revision) <= 32


def test_every_table_is_named() -> None:
    """`TABLE_NAMES` leaves out no table: what is not in it would be dropped by an app's autogenerate."""
    assert set(make_tables().metadata.tables) | {VERSION_TABLE} == TABLE_NAMES
