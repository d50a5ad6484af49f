"""
The schema in place: checked at each start, made and upgraded where that is wanted, by one process at a time.

    at head   two short SELECTs, no lock
    behind    take the lock, look again, run alembic, commit: one transaction, so a kill leaves what was there before
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.resources
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import URL, Connection, bindparam, column, select, table, text
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from alpineagents.errors import StoreSchemaError
from alpineagents.shield import in_async_code
from alpineagents.stores.sql.errors import translated
from alpineagents.stores.sql.migration_lock import BusyError, Work, run
from alpineagents.stores.sql.tables import TABLE_NAMES, VERSION_TABLE
from alpineagents.stores.sql.urls import async_url, place, sqlite_file

if TYPE_CHECKING:
    from alembic.config import Config

T = TypeVar("T")

__all__ = [
    "async_url",
    "check",
    "current",
    "ensure",
    "head",
    "include_name",
    "migrations_folder",
    "run_locked",
    "upgrade",
]

HEAD = "aa0001"
"""The revision that this release needs; written here because to ask alembic for it costs an import at every start."""

CONNECT_SECONDS = 10.0

# alembic's context belongs to the process: two threads in it would migrate each other's database.
_alembic_in_use = threading.Lock()


# ------------------------------------------------------------------------------------------------ what callers use


async def ensure(engine: AsyncEngine, *, schema: str | None, migrate: bool) -> None:
    """
    See to it that the database has the tables of this release.

    A cancellation waits for the transaction that runs, and nothing is left locked.

    Args:
        schema: the Postgres schema that holds the tables; None for the first of the search path.
        migrate: make or upgrade the tables where they are missing or old.

    Raises:
        StoreSchemaError: the tables are missing or old and `migrate` is off, or they are of a newer release, or only
            a part of them is there. Nothing was changed.
        StoreUnavailableError: no answer, or another process kept the lock for `WAIT_SECONDS`.
    """
    where = place(engine.url)
    with translated(where):
        found = await _found(engine, schema)
        if not _is_behind(found, where):
            return
        if not migrate:
            raise _needs_upgrade(found, where, schema)
        # Before the lock is taken, and not on the event loop: the import takes a while.
        await anyio.to_thread.run_sync(importlib.import_module, "alembic.command")
        await run(engine, partial(_upgrade, schema=schema), schema=schema, lock=True)


def head() -> str:
    """Return the revision that this release needs."""
    return HEAD


def upgrade(url: str | Path | URL, *, schema: str | None = None) -> str:
    """
    Make or upgrade the tables, and return the revision that is in place now.

    Raises:
        ConfigError: the URL is of no database that is known here.
        StoreSchemaError, StoreUnavailableError: as `ensure`.
    """
    _with_engine(url, partial(ensure, schema=schema, migrate=True))
    return HEAD


def check(url: str | Path | URL, *, schema: str | None = None) -> None:
    """Raise `StoreSchemaError` unless the tables are those of this release; change nothing."""
    _with_engine(url, partial(ensure, schema=schema, migrate=False))


def current(url: str | Path | URL, *, schema: str | None = None) -> str | None:
    """Return the revision of the database, or None where no migration has run; change nothing."""

    async def ask(engine: AsyncEngine) -> str | None:
        with translated(place(engine.url)):
            return (await _found(engine, schema)).revision

    return _with_engine(url, ask)


def run_locked(url: str | Path | URL, work: Work[T], *, schema: str | None = None) -> T:
    """Run a function in one transaction that holds the lock for migrations: how alembic's own command line comes in."""

    async def locked(engine: AsyncEngine) -> T:
        with translated(place(engine.url)):
            return await run(engine, work, schema=schema, lock=True)

    return _with_engine(url, locked)


def include_name(name: str | None, type_: str, parent_names: Mapping[Any, str | None]) -> bool:  # noqa: ARG001  # as alembic calls it
    """
    Leave the library's tables out of an app's own autogenerate, which would drop them.

    Example:
        >>> include_name("agent_states", "table", {"schema_name": None})
        False
        >>> include_name("invoices", "table", {"schema_name": None})
        True
    """
    return type_ != "table" or name not in TABLE_NAMES


# ------------------------------------------------------------------------------------------------ what is there


@dataclass(frozen=True, slots=True)
class _Found:
    """
    What a database holds of the library.

    Attributes:
        revision: as alembic noted it; None where no migration has run.
        tables: those of `TABLE_NAMES` that exist.
    """

    revision: str | None
    tables: frozenset[str]


# One statement has one view of the catalog: a schema that is just being committed is seen whole or not at all.
_TABLES_OF_POSTGRES = text("""
    SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relname IN :names
      AND CASE WHEN CAST(:schema AS TEXT) IS NULL THEN pg_catalog.pg_table_is_visible(c.oid)
               ELSE n.nspname = CAST(:schema AS TEXT) END
""").bindparams(bindparam("names", sorted(TABLE_NAMES), expanding=True))


def _look(connection: Connection, schema: str | None) -> _Found:
    if connection.dialect.name == "sqlite":
        names = connection.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'").scalars()
    else:
        names = connection.execute(_TABLES_OF_POSTGRES, {"schema": schema}).scalars()
    there = TABLE_NAMES.intersection(names)
    if VERSION_TABLE not in there:
        return _Found(None, there)
    revisions = connection.execute(select(table(VERSION_TABLE, column("version_num"), schema=schema))).scalars()
    return _Found(", ".join(revisions) or None, there)


async def _found(engine: AsyncEngine, schema: str | None) -> _Found:
    file = sqlite_file(engine.url)
    # To connect would make the file.
    if file is not None and not await anyio.Path(file).exists():
        return _Found(None, frozenset())
    return await run(engine, partial(_look, schema=schema), schema=schema, lock=False)


def _is_behind(found: _Found, where: str) -> bool:
    missing = TABLE_NAMES - found.tables
    if found.revision == HEAD and not missing:
        return False
    there = found.tables - {VERSION_TABLE}
    if found.revision is None and not there:
        return True
    if found.revision is None:
        raise StoreSchemaError(
            f"{where} has tables named {', '.join(sorted(there))}, but no revision in {VERSION_TABLE} that says which "
            "release made them; nothing was changed. Restore the whole backup, or move them out of the way; if this "
            f"release made them without alembic, run `alembic stamp {HEAD}`"
        )
    if found.revision not in _known_revisions():
        raise StoreSchemaError(
            f"{where} is at revision {found.revision!r}, which a newer release of alpineagents made; this one knows "
            f"{HEAD!r}. Upgrade the library: pip install --upgrade alpineagents"
        )
    if found.revision == HEAD or not there:
        raise StoreSchemaError(
            f"{where} is at {found.revision!r} by its {VERSION_TABLE}, but lacks {', '.join(sorted(missing))}. "
            f"Nothing was changed. Restore the whole backup, or if nothing is to be kept, drop {VERSION_TABLE} and "
            "the tables that are left"
        )
    return True


def _needs_upgrade(found: _Found, where: str, schema: str | None) -> StoreSchemaError:
    state = "has no tables of alpineagents yet" if found.revision is None else f"is at revision {found.revision!r}"
    option, argument = (f" --schema {schema}", f", schema={schema!r}") if schema else ("", "")
    secret = " (with the password in the place of ***)" if "***" in where else ""
    return StoreSchemaError(
        f"{where} {state}, and this release needs {HEAD!r}. Run `alpineagents db upgrade {where}{option}`{secret} or "
        f"`alembic upgrade head`, or let the store do it: SQLStore({where!r}{argument}, migrate=True)"
    )


# ------------------------------------------------------------------------------------------------ alembic


def _upgrade(connection: Connection, schema: str | None) -> None:
    from alembic import command

    if not _is_behind(_look(connection, schema), place(connection.engine.url)):
        return
    if not _alembic_in_use.acquire(blocking=False):
        raise BusyError
    try:
        config = _config()
        config.attributes.update(connection=connection, schema=schema)
        command.upgrade(config, "head")
    finally:
        _alembic_in_use.release()


def migrations_folder() -> Path:
    """Return the folder of alembic's `script_location`: in the wheel inside the package, in a checkout beside it."""
    package = Path(str(importlib.resources.files("alpineagents")))
    return next(path for path in (package / "migrations", package.parent / "migrations") if path.is_dir())


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    # A % would be read as the start of a reference to another option.
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _known_revisions() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    return frozenset(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


# ------------------------------------------------------------------------------------------------ from sync code


def _with_engine(url: str | Path | URL, function: Callable[[AsyncEngine], Coroutine[Any, Any, T]]) -> T:
    async def on_engine() -> T:
        # Both drivers call it so.
        engine = create_async_engine(async_url(url), connect_args={"timeout": CONNECT_SECONDS})
        try:
            return await function(engine)
        finally:
            await engine.dispose()

    if not in_async_code():
        return asyncio.run(on_engine())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(on_engine())).result()
