"""
Postgres: an append is one statement, so one round trip and a transaction of its own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
from sqlalchemy import URL, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from alpineagents.errors import StoreError
from alpineagents.shield import settled
from alpineagents.stores.codec import EventRow
from alpineagents.stores.header import Found, StateKey
from alpineagents.stores.sql.database import (
    ENDED,
    FORK_BLOBS,
    FORK_EVENTS,
    FORK_STATE,
    INSERT_BLOB,
    INSERT_STATE,
    UPDATE_STATE,
    Append,
    Database,
    Fork,
    Head,
    Params,
)

T = TypeVar("T")

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
"""How long a statement may take before its connection counts as dead."""


def make_engine(url: URL, patience: float) -> AsyncEngine:
    """
    Return an engine with bounded waits.

    With `prepared_statement_cache_size=0` in its URL it keeps no statements on the server, not even under a name: a
    pooler gives each transaction another of the server's sessions.
    """
    starting: weakref.WeakKeyDictionary[asyncpg.Connection, asyncio.TimerHandle] = weakref.WeakKeyDictionary()

    async def connect(*args: Any, **options: Any) -> asyncpg.Connection:
        driver: asyncpg.Connection = await asyncpg.connect(*args, timeout=CONNECT_SECONDS, **options)
        # SQLAlchemy asks a new connection a few things before anybody gets it.
        starting[driver] = asyncio.get_running_loop().call_later(CONNECT_SECONDS, driver.terminate)
        return driver

    options: dict[str, Any] = {"async_creator_fn": connect, "command_timeout": STATEMENT_SECONDS}
    if url.query.get("prepared_statement_cache_size") == "0":
        options.update(statement_cache_size=0, prepared_statement_name_func=lambda: "")
    engine = create_async_engine(url, connect_args=options, pool_timeout=patience)

    @event.listens_for(engine.sync_engine, "handle_error")
    def end(context: ExceptionContext) -> None:
        # The driver has asked the server to cancel, and would wait for the word of it, for ever where none comes.
        if isinstance(context.original_exception, TimeoutError) and context.connection is not None:
            driver = context.connection.connection.driver_connection
            assert driver is not None
            driver.terminate()
            context.is_disconnect = True

    @event.listens_for(engine.sync_engine, "checkout")
    def check(connection: Any, _record: object, _proxy: object) -> None:
        driver = connection.driver_connection
        if (timer := starting.pop(driver, None)) is not None:
            timer.cancel()
        if driver.is_closed():
            # It ended while it lay in the pool, and so did the others as a rule: the pool connects anew.
            raise InvalidatePoolError

    return engine


class PostgresDatabase(Database):
    """A Postgres database."""

    now = updated = "clock_timestamp()"
    time = "TIMESTAMPTZ"
    lease_end = "clock_timestamp() + make_interval(secs => CAST(:seconds AS DOUBLE PRECISION))"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        rows = """
            INSERT INTO {events} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload)
            SELECT :namespace, :id, row.* FROM unnest(
                CAST(:revisions AS BIGINT[]), CAST(:kinds AS TEXT[]), CAST(:versions AS INTEGER[]),
                CAST(:ats AS TIMESTAMPTZ[]), CAST(:run_ids AS TEXT[]), CAST(:append_ids AS TEXT[]),
                CAST(:payloads AS TEXT[])) AS row
            WHERE EXISTS (SELECT FROM moved)"""
        self._create = self.statement(f"WITH moved AS ({INSERT_STATE} RETURNING 1) {rows}")
        self._extend = self.statement(f"WITH moved AS ({UPDATE_STATE} RETURNING 1) {rows}")
        self._delete = self.statement("DELETE FROM {states} WHERE namespace = :namespace AND id = :id")
        self._page = self.statement(
            "SELECT s.revision AS head, s.parent_id, "
            "e.revision, e.kind, e.version, e.at, e.run_id, e.append_id, e.payload "
            "FROM {states} s LEFT JOIN {events} e ON e.namespace = s.namespace AND e.state_id = s.id "
            "AND e.revision > :after AND e.revision <= :until WHERE s.namespace = :namespace AND s.id = :id "
            "ORDER BY e.revision"
        )

    async def append(self, append: Append) -> int | Found | None:
        return await self._on_driver(self._writer(append))

    async def append_in(self, connection: AsyncConnection, append: Append) -> int | Found | None:
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        if not driver.is_in_transaction():
            raise StoreError(ENDED)
        return await self._writer(append)(driver)

    async def begin(self, connection: AsyncConnection) -> None:
        await connection.begin()
        # SQLAlchemy begins at the first statement; the append does not go through it.
        await connection.exec_driver_sql("SELECT 1")

    async def commit(self, connection: AsyncConnection) -> None:
        await connection.commit()

    @asynccontextmanager
    async def limited(self, connection: AsyncConnection) -> AsyncIterator[None]:
        # Whatever waits for a connection that is ended learns it at once. An app's own engine may have no limit.
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        timer = asyncio.get_running_loop().call_later(STATEMENT_SECONDS, driver.terminate)
        try:
            yield
        finally:
            timer.cancel()

    def _writer(self, append: Append) -> Callable[[asyncpg.Connection], Awaitable[int | Found | None]]:
        params = append.params()
        columns = list(zip(*append.rows, strict=True))
        names = ("revisions", "kinds", "versions", "ats", "run_ids", "append_ids", "payloads")
        params.update(zip(names, columns, strict=True))
        statement = self._extend if append.expected else self._create
        args, find_args = statement.args(params), self._found.args(params)

        async def write(driver: asyncpg.Connection) -> int | Found | None:
            tag: str = await driver.execute(statement.sql, *args)
            if _count(tag):
                return append.expected + len(append.rows)
            found = await driver.fetchrow(self._found.sql, *find_args)
            return None if found is None else Found(*found)

        return write

    async def renew(self, params: Params) -> bool:
        args = self._renew.args(params)

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(self._renew.sql, *args)) > 0

        return await self._on_driver(write)

    async def write_blob(self, params: Params) -> bool:
        insert = self.statement(INSERT_BLOB.replace(":data", "CAST(:data AS BYTEA)"))
        args = insert.args(params)

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(insert.sql, *args)) > 0

        return await self._on_driver(write)

    async def fork(self, fork: Fork) -> int | None:
        # One statement sees one moment of the State, however fast a run writes meanwhile.
        copy = self.statement(f"WITH moved AS ({FORK_STATE} RETURNING revision), blobs AS ({FORK_BLOBS}) {FORK_EVENTS}")
        args = copy.args(fork.params())

        async def write(driver: asyncpg.Connection) -> int | None:
            return _count(await driver.execute(copy.sql, *args)) or None

        return await self._on_driver(write)

    async def delete(self, key: StateKey) -> bool:
        # The rows of the other tables go with it.
        args = self._delete.args(key._asdict())

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(self._delete.sql, *args)) > 0

        return await self._on_driver(write)

    async def page(self, key: StateKey, after: int, until: int | None, size: int) -> tuple[Head | None, list[EventRow]]:
        upto = after + size if until is None else min(after + size, until)
        args = self._page.args({"namespace": key.namespace, "id": key.id, "after": after, "until": upto})

        async def fetch(driver: asyncpg.Connection) -> list[asyncpg.Record]:
            rows: list[asyncpg.Record] = await driver.fetch(self._page.sql, *args)
            return rows

        rows = await self._on_driver(fetch)
        if not rows:
            return None, []
        return Head(rows[0][0], rows[0][1]), [EventRow(*tuple(row)[2:]) for row in rows if row[2] is not None]

    async def _on_driver(self, function: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        async def hop() -> T:
            async with self.engine.connect() as connection:
                driver = (await connection.get_raw_connection()).driver_connection
                assert driver is not None
                try:
                    async with self.limited(connection):
                        return await function(driver)
                except BaseException as error:
                    if isinstance(error, TimeoutError):
                        driver.terminate()
                    # Only a connection that is at rest goes back to the pool.
                    if driver.is_closed() or driver.is_in_transaction():
                        await connection.invalidate()
                    raise

        return await settled(hop)


def _count(tag: str) -> int:
    return int(tag.rsplit(" ", 1)[1])
