"""
A function on a connection, run to its end; if asked for, in a transaction that holds the lock for migrations.

The lock is SQLite's own write lock, and on Postgres an advisory lock that ends with the transaction, so that it works
behind a pooler. Nobody blocks in the database for it: who does not get it comes again a little later.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import URL, Connection, StaticPool, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from alpineagents.errors import ConfigError, StoreUnavailableError
from alpineagents.shield import settled
from alpineagents.stores.sql.urls import check_schema, place, sqlite_file

T = TypeVar("T")
Work = Callable[[Connection], T]

WAIT_SECONDS = 60.0
"""How long a process waits for another one that migrates."""

_SQLITE_BUSY_MILLISECONDS = 100
_LOCK_KEY = int.from_bytes(b"alpineag")


class BusyError(Exception):
    """Another process or thread is at it: come again a little later."""


async def run(engine: AsyncEngine, work: Work[T], *, schema: str | None, lock: bool) -> T:
    """
    Run a function on a connection to its end, whatever is cancelled.

    Only the single try is shielded: a caller that waits for another process can be cancelled between two.

    Args:
        lock: in a transaction that holds the lock for migrations.
    """
    check_schema(schema, engine.dialect.name)
    hop = _HOPS.get(engine.dialect.name)
    if hop is None:
        raise ConfigError(f"{engine.dialect.name!r} is no database that is known here: use SQLite or Postgres")
    give_up_at = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return await settled(partial(hop, engine, work, schema, lock))
        except BusyError as error:
            if time.monotonic() > give_up_at:
                raise StoreUnavailableError(
                    f"{place(engine.url)} has been locked by another process for {WAIT_SECONDS:g} seconds. It may be "
                    "migrating: look which one that is, then start again"
                ) from error.__cause__
        await anyio.sleep(random.uniform(0.02, 0.1))


async def _in_postgres(engine: AsyncEngine, work: Work[T], schema: str | None, lock: bool) -> T:
    def locked(connection: Connection) -> T:
        if not connection.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": _LOCK_KEY}):
            raise BusyError
        # A table that the app keeps locked must not keep the lock for migrations as long.
        connection.execute(text("SET LOCAL lock_timeout = '30s'"))
        if schema is not None:
            _enter(connection, schema)
        return work(connection)

    async with engine.connect() as connection:
        # An engine's own level may be AUTOCOMMIT, which gives the lock up at once, or one that keeps looking at what
        # was there before the lock was had.
        await connection.execution_options(isolation_level="READ COMMITTED")
        async with connection.begin():
            return await connection.run_sync(locked if lock else work)


def _enter(connection: Connection, schema: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote(schema)
    # IF NOT EXISTS asks for the right to create schemas also where it exists.
    known = text("SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = :schema")
    if not connection.scalar(known, {"schema": schema}):
        connection.execute(text(f"CREATE SCHEMA {quoted}"))
    connection.execute(text(f"SET LOCAL search_path TO {quoted}"))


async def _in_sqlite(engine: AsyncEngine, work: Work[T], _schema: str | None, lock: bool) -> T:
    file = sqlite_file(engine.url)
    try:
        if file is not None:
            # Where a file cannot be opened the driver leaves its thread behind, which then meets a closed loop.
            await anyio.to_thread.run_sync(lambda: sqlite3.connect(file).close())
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            assert driver is not None
            result: T = await driver._execute(_on_thread, driver._conn, engine.url, work, lock)
            return result
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # The low byte is the code itself, the rest says more about it.
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise BusyError from error
        raise


def _on_thread(db: sqlite3.Connection, url: URL, work: Work[T], lock: bool) -> T:
    """
    Run a function on the driver's own connection, in its thread, where nothing can interrupt it.

    An engine around that connection is what alembic needs. It is not the app's, whose hooks may begin transactions.
    """
    if getattr(db, "autocommit", None) is False:
        raise ConfigError("an AsyncEngine with autocommit=False is always in a transaction: leave that argument out")
    if db.in_transaction:
        # Someone else's, of a database in memory that has one connection for all.
        raise BusyError
    engine = create_engine(url.set(drivername="sqlite"), creator=lambda: db, poolclass=StaticPool)
    with _plain(db):
        if lock and db.execute("PRAGMA journal_mode").fetchone()[0] in ("delete", "persist", "truncate"):
            # It cannot be in a transaction. It ignores the busy timeout, but what is refused is tried again.
            db.execute("PRAGMA journal_mode = WAL")
        with engine.connect() as connection:
            if not lock:
                return work(connection)
            with connection.begin():
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                return work(connection)


@contextmanager
def _plain(db: sqlite3.Connection) -> Iterator[None]:
    """Take from a connection, for a while, what would get into a migration's way."""
    level = db.isolation_level
    busy, keys = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("busy_timeout", "foreign_keys"))
    db.isolation_level = None
    db.execute(f"PRAGMA busy_timeout = {_SQLITE_BUSY_MILLISECONDS}")
    # To change a table is to copy and drop it, and with foreign keys that deletes the rows that refer to it.
    db.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        db.execute(f"PRAGMA busy_timeout = {busy}")
        db.execute(f"PRAGMA foreign_keys = {keys}")
        db.isolation_level = level


_HOPS: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {"sqlite": _in_sqlite, "postgresql": _in_postgres}
