"""
SQLite: each transaction is one function on the driver's thread, so nothing can interrupt it half-way.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import URL, PoolResetState, StaticPool, event
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from alpineagents.errors import StoreError
from alpineagents.shield import settled
from alpineagents.stores.codec import EventRow
from alpineagents.stores.header import Found, StateKey
from alpineagents.stores.sql.append import Append, Outcome, Outcomes
from alpineagents.stores.sql.database import ENDED, Database, Head, Params
from alpineagents.stores.sql.fork import FORK_BLOBS, FORK_EVENTS, FORK_STATE, INSERT_BLOB, Fork
from alpineagents.stores.sql.urls import is_in_memory, sqlite_file

T = TypeVar("T")

# The connections of each engine: the only way to their threads once their event loop is closed.
_OPENED: weakref.WeakKeyDictionary[AsyncEngine, weakref.WeakSet[aiosqlite.Connection]] = weakref.WeakKeyDictionary()


def make_engine(url: URL, patience: float) -> AsyncEngine:
    """Return an engine whose connections are durable and wait their turn, `patience` seconds at most."""
    pool: dict[str, Any] = {"poolclass": StaticPool} if is_in_memory(url) else {}
    # The pool would roll back each connection that comes back, which is a hop to its thread.
    engine = create_async_engine(url, connect_args={"timeout": patience}, pool_reset_on_return=None, **pool)

    opened = _OPENED[engine] = weakref.WeakSet()

    @event.listens_for(engine.sync_engine, "connect")
    def prepare(connection: Any, _record: object) -> None:
        # The driver would begin transactions of its own, deferred ones. A deferred BEGIN takes the write lock only at
        # the first write, where waiting cannot help: two readers that both upgrade are refused at once.
        connection.isolation_level = None
        opened.add(connection.driver_connection)
        cursor = connection.cursor()
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    @event.listens_for(engine.sync_engine, "reset")
    def reset(connection: Any, _record: object, state: PoolResetState) -> None:
        if state.asyncio_safe and connection.driver_connection.in_transaction:
            connection.rollback()

    @event.listens_for(engine.sync_engine, "invalidate")
    def interrupt(connection: Any, _record: object, _error: object) -> None:
        # Nobody waits for its statement any more. It would hold up the closing; and as long as somebody holds it, so
        # would a cursor's traceback, even a closed connection keeps the file locked, unless it was rolled back.
        driver = connection.driver_connection
        if driver._connection is None:
            return
        driver._conn.interrupt()
        driver._tx.put_nowait((asyncio.get_running_loop().create_future(), driver._conn.rollback))

    return engine


class SQLiteDatabase(Database):
    """A SQLite file, or a database in memory."""

    waits_by_itself = True
    now = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
    # SQLite's own clock has milliseconds only; the file is of this machine, and so is Python's clock.
    updated = ":updated_at"
    time = "TEXT"
    lease_end = "strftime('%Y-%m-%d %H:%M:%f', 'now', CAST(:seconds AS TEXT) || ' seconds')"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        file = sqlite_file(self.engine.url)
        self._file = None if file is None else Path(file).absolute()
        self._identity: tuple[int, int] | None = None
        self._insert_events = self.statement(
            "INSERT INTO {events} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload) "
            "VALUES (:namespace, :id, :revision, :kind, :version, :at, :run_id, :append_id, :payload)"
        )
        self._page = self.statement(
            "SELECT revision, kind, version, at, run_id, append_id, payload FROM {events} WHERE namespace = :namespace "
            "AND state_id = :id AND revision > :after AND revision <= :until ORDER BY revision"
        )
        self._head = self.statement(
            "SELECT revision, parent_id, created_at FROM {states} WHERE namespace = :namespace AND id = :id"
        )

    async def append_alone(self, append: Append) -> Outcome:
        return await self._transaction(self._writer(append))

    async def append_together(self, appends: Sequence[Append]) -> Outcomes:
        writers = [(append.key, self._writer(append)) for append in appends]
        return await self._transaction(lambda db: {key: write(db) for key, write in writers})

    async def append_in(self, connection: AsyncConnection, append: Append) -> Outcome:
        write = self._writer(append)

        def within(db: sqlite3.Connection) -> Outcome:
            if not db.in_transaction:
                raise StoreError(ENDED)
            return write(db)

        return await _on_thread_of(await _driver_of(connection), within)

    async def begin(self, connection: AsyncConnection) -> None:
        await _on_thread_of(await _driver_of(connection), lambda db: db.execute("BEGIN IMMEDIATE"))

    async def commit(self, connection: AsyncConnection) -> None:
        await _on_thread_of(await _driver_of(connection), lambda db: db.execute("COMMIT"))

    async def _throw_away(self, connection: AsyncConnection) -> None:
        if connection.invalidated:
            return  # a statement of the block's was cancelled, so SQLAlchemy has closed it already
        # The connection of a database in memory is the database, so it is kept.
        await _on_thread_of(await _driver_of(connection), lambda db: db.rollback())
        if not isinstance(self.engine.pool, StaticPool):
            await super()._throw_away(connection)

    def _writer(self, append: Append) -> Callable[[sqlite3.Connection], Outcome]:
        params = append.params()
        if not append.expected:
            params["created_at"] = _to_text(append.header.created_at)
        params["follows"] = None if append.header.follows is None else _to_text(append.header.follows)
        params["updated_at"] = _to_text(datetime.now(UTC))
        move = self._update if append.expected else self._insert
        move_args = move.args(params)
        # The columns of a row in the order of its statement: every append takes this way.
        rows = [
            (*append.key, row.revision, row.kind, row.version, _to_text(row.at), row.run_id, row.append_id, row.payload)
            for row in append.rows
        ]

        def write(db: sqlite3.Connection) -> Outcome:
            if db.execute(move.sql, move_args).rowcount:
                db.executemany(self._insert_events.sql, rows)
                return append.revision
            found = db.execute(self._found.sql, self._found.args(params)).fetchone()
            return found and Found(found[0], found[1] and _from_text(found[1]), found[2], found[3])

        return write

    async def renew(self, params: Params) -> bool:
        args = self._renew.args(params)
        return await settled(lambda: self._transaction(lambda db: db.execute(self._renew.sql, args).rowcount > 0))

    async def write_blob(self, params: Params) -> bool:
        insert = self.statement(INSERT_BLOB)
        args = insert.args(params)
        return await settled(lambda: self._transaction(lambda db: db.execute(insert.sql, args).rowcount > 0))

    async def fork(self, fork: Fork) -> int | None:
        params = fork.params()
        params["follows"] = fork.header and fork.header.follows and _to_text(fork.header.follows)
        params["updated_at"] = _to_text(datetime.now(UTC))
        state = self.statement(FORK_STATE)
        made = "SELECT revision FROM {states} WHERE namespace = :namespace AND id = :new_id"
        events = self.statement(f"WITH moved AS ({made}) {FORK_EVENTS}")

        blobs = self.statement(f"WITH moved AS ({made}) {FORK_BLOBS}")

        def copy(db: sqlite3.Connection) -> int | None:
            if not db.execute(state.sql, state.args(params)).rowcount:
                return None
            db.execute(blobs.sql, blobs.args(params))
            db.execute(events.sql, events.args(params))
            # The driver does not count what a statement WITH others has inserted.
            copied: int = db.execute("SELECT changes()").fetchone()[0]
            return copied

        return await settled(lambda: self._transaction(copy))

    async def delete(self, key: StateKey) -> bool:
        def write(db: sqlite3.Connection) -> bool:
            # The rows of the other tables go with it where the connection minds foreign keys; an app's may not.
            db.execute("DELETE FROM agent_blobs WHERE namespace = ? AND state_id = ?", key)
            db.execute("DELETE FROM agent_events WHERE namespace = ? AND state_id = ?", key)
            return db.execute("DELETE FROM agent_states WHERE namespace = ? AND id = ?", key).rowcount > 0

        return await settled(lambda: self._transaction(write))

    async def page(self, key: StateKey, after: int, until: int | None, size: int) -> tuple[Head | None, list[EventRow]]:
        upto = after + size if until is None else min(after + size, until)
        params = {"namespace": key.namespace, "id": key.id, "after": after, "until": upto}
        head_args, page_args = self._head.args(params), self._page.args(params)

        def fetch(db: sqlite3.Connection) -> tuple[Head | None, list[tuple[Any, ...]]]:
            # Both of one moment: a State that is deleted between them would seem to have lost its rows.
            db.execute("BEGIN")
            try:
                head = db.execute(self._head.sql, head_args).fetchone()
                return (None, []) if head is None else (Head(*head), db.execute(self._page.sql, page_args).fetchall())
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")

        head, rows = await settled(lambda: self._on_thread(fetch))
        return head, [EventRow(row[0], row[1], row[2], _from_text(row[3]), row[4], row[5], row[6]) for row in rows]

    async def fetch(self, sql: str, params: Params) -> Sequence[Sequence[Any]]:
        statement = self.statement(sql)
        args = [_to_text(value) if isinstance(value, datetime) else value for value in statement.args(params)]
        return await settled(lambda: self._on_thread(lambda db: db.execute(statement.sql, args).fetchall()))

    def abandon(self) -> None:
        opened = list(_OPENED.pop(self.engine, ()))

        def stop() -> None:
            for connection in opened:
                connection.stop()

        # In a thread of its own: `stop` would have the loop that runs here be told of the end, and that may end first.
        thread = threading.Thread(target=stop)
        thread.start()
        thread.join()
        super().abandon()

    async def _transaction(self, write: Callable[[sqlite3.Connection], T]) -> T:
        def transaction(db: sqlite3.Connection) -> T:
            db.execute("BEGIN IMMEDIATE")
            try:
                result = write(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

        return await self._on_thread(transaction)

    async def _on_thread(self, function: Callable[[sqlite3.Connection], T]) -> T:
        def checked(db: sqlite3.Connection) -> T:
            self._check_file()
            return function(db)

        return await self._on_driver(lambda driver: _on_thread_of(driver, checked))

    @asynccontextmanager
    async def limited(self, connection: AsyncConnection) -> AsyncIterator[None]:
        # The driver has a limit of its own; what else is to be seen to before a statement is the file.
        await _on_thread_of(await _driver_of(connection), lambda _: self._check_file())
        yield

    def _check_file(self) -> None:
        """
        Refuse to go on in a file that has another name now, or none.

        To SQLite an open file is as good as ever. What is written to it would be acknowledged, and be gone.
        """
        if self._file is None:
            return
        try:
            found = self._file.stat()
        except FileNotFoundError:
            raise StoreError(
                f"{self._file} was deleted while it was in use, so nothing can be saved in it. Make a new store"
            ) from None
        identity = (found.st_dev, found.st_ino)
        if self._identity is None:
            self._identity = identity
        elif self._identity != identity:
            raise StoreError(
                f"{self._file} was replaced by another file while it was in use. Make a new store for that one"
            )


async def _driver_of(connection: AsyncConnection) -> aiosqlite.Connection:
    driver: aiosqlite.Connection | None = (await connection.get_raw_connection()).driver_connection
    assert driver is not None
    return driver


async def _on_thread_of(driver: aiosqlite.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
    result: T = await driver._execute(function, driver._conn)  # type: ignore[no-untyped-call]  # aiosqlite has no other way
    return result


def _to_text(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(" ", "microseconds")[:26]  # without the zone, as all are UTC


def _from_text(text: str) -> datetime:
    return datetime.fromisoformat(text + "+00:00")
