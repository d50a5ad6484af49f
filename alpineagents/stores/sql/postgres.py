"""
Postgres: an append is one statement, so one round trip and a transaction of its own.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
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
from alpineagents.stores.sql.append import (
    FITS,
    INSERT_STATE,
    MOVED_STATE,
    STATE_COLUMNS,
    STATE_VALUES,
    UPDATE_STATE,
    Append,
    Outcome,
    Outcomes,
    of_given,
)
from alpineagents.stores.sql.database import ENDED, Database, Head, Params
from alpineagents.stores.sql.fork import FORK_BLOBS, FORK_EVENTS, FORK_STATE, INSERT_BLOB, Fork

T = TypeVar("T")

CONNECT_SECONDS = 10.0
STATEMENT_SECONDS = 60.0
"""How long a statement may take at most before its connection counts as dead."""
LEAST_SECONDS = 1.0
"""How long a statement of the store's own may take however little patience it has: a healthy server needs some time."""


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

    # For migrations and a tool's own statements; those of the store have less time, see `PostgresDatabase.limited`.
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


HEADER = {
    "namespace": "TEXT",
    "id": "TEXT",
    "expected": "BIGINT",
    "revision": "BIGINT",
    "status": "TEXT",
    "created_at": "TIMESTAMPTZ",
    "follows": "TIMESTAMPTZ",
    "first_message": "TEXT",
    "summary": "TEXT",
    "parent_id": "TEXT",
    "run_id": "TEXT",
    "seconds": "DOUBLE PRECISION",
}
"""The parameters of an append that move its header."""

ROW = {
    "row_revision": "BIGINT",
    "row_kind": "TEXT",
    "row_version": "INTEGER",
    "row_at": "TIMESTAMPTZ",
    "row_run_id": "TEXT",
    "row_append_id": "TEXT",
    "row_payload": "TEXT",
}
"""The columns of an Event's row."""


def unnested(columns: Mapping[str, str]) -> str:
    """Return SQL for a table whose columns are parameters, each an array of the name in the plural."""
    return f"unnest({', '.join(f'CAST(:{name}s AS {kind}[])' for name, kind in columns.items())})"


# A header that another transaction holds is left out, to be waited for alone: so a group waits for nobody that could
# wait for it, and one State that is held keeps no other one.
TOGETHER = f"""
WITH given AS (
    SELECT * FROM {unnested(HEADER)} WITH ORDINALITY AS given ({", ".join(HEADER)}, place)
), created AS (
    INSERT INTO {{states}} {STATE_COLUMNS} SELECT {of_given(STATE_VALUES)} FROM given WHERE given.expected = 0
    ORDER BY given.namespace, given.id ON CONFLICT (namespace, id) DO NOTHING RETURNING namespace, id
), free AS (
    SELECT given.* FROM given, {{states}} s WHERE given.expected > 0 AND {of_given(FITS)}
    FOR NO KEY UPDATE OF s SKIP LOCKED
), moved AS (
    UPDATE {{states}} AS s SET {of_given(MOVED_STATE)} FROM free AS given
    WHERE s.namespace = given.namespace AND s.id = given.id RETURNING s.namespace, s.id
), written AS (
    SELECT given.namespace, given.id, given.place - 1 AS place FROM given
    JOIN (SELECT * FROM created UNION ALL SELECT * FROM moved) AS headers USING (namespace, id)
), history AS (
    INSERT INTO {{events}} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload)
    SELECT written.namespace, written.id, {", ".join(ROW)} FROM written
    JOIN {unnested({"place": "BIGINT", **ROW})} AS rows (place, {", ".join(ROW)}) USING (place)
)
SELECT place FROM written
"""  # noqa: S608  # names and types of this file only


class PostgresDatabase(Database):
    """A Postgres database."""

    now = updated = "clock_timestamp()"
    time = "TIMESTAMPTZ"
    lease_end = "clock_timestamp() + make_interval(secs => CAST(:seconds AS DOUBLE PRECISION))"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        rows = f"""
            INSERT INTO {{events}} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload)
            SELECT :namespace, :id, row.* FROM {unnested(ROW)} AS row WHERE EXISTS (SELECT FROM moved)"""  # noqa: S608  # names and types of this file only
        self._create = self.statement(f"WITH moved AS ({INSERT_STATE} RETURNING 1) {rows}")
        self._extend = self.statement(f"WITH moved AS ({UPDATE_STATE} RETURNING 1) {rows}")
        self._together = self.statement(TOGETHER, of_many=True)
        self._delete = self.statement("DELETE FROM {states} WHERE namespace = :namespace AND id = :id")
        self._page = self.statement(
            "SELECT s.revision AS head, s.parent_id, s.created_at, "
            "e.revision, e.kind, e.version, e.at, e.run_id, e.append_id, e.payload "
            "FROM {states} s LEFT JOIN {events} e ON e.namespace = s.namespace AND e.state_id = s.id "
            "AND e.revision > :after AND e.revision <= :until WHERE s.namespace = :namespace AND s.id = :id "
            "ORDER BY e.revision"
        )

    async def append_alone(self, append: Append) -> Outcome:
        return await self._limited(self._writer(append))

    async def append_together(self, appends: Sequence[Append]) -> Outcomes:
        headers, rows = [append.params() for append in appends], [row for append in appends for row in append.rows]
        columns: dict[str, object] = {f"{name}s": [header[name] for header in headers] for name in HEADER}
        columns |= _row_columns(rows)
        columns["places"] = [place for place, append in enumerate(appends) for _ in append.rows]
        args = self._together.args(columns)

        async def write(driver: asyncpg.Connection) -> list[asyncpg.Record]:
            written: list[asyncpg.Record] = await driver.fetch(self._together.sql, *args)
            return written

        written = await self._limited(write)
        return {appends[place].key: appends[place].revision for (place,) in written}

    async def append_in(self, connection: AsyncConnection, append: Append) -> Outcome:
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
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None
        with self._ending(driver):
            yield

    @contextmanager
    def _ending(self, driver: asyncpg.Connection) -> Iterator[None]:
        """End the connection if the block takes longer than a statement may; what waits for it learns it at once."""
        # Here and not by the driver alone: an app's own engine may have no limit.
        seconds = min(STATEMENT_SECONDS, max(self.patience, LEAST_SECONDS))
        ended = False

        def end() -> None:
            nonlocal ended
            ended = True
            driver.terminate()

        timer = asyncio.get_running_loop().call_later(seconds, end)
        try:
            yield
        except Exception as error:
            if ended:
                raise TimeoutError(f"nothing came within {seconds:g} seconds") from error
            raise
        finally:
            timer.cancel()

    def _writer(self, append: Append) -> Callable[[asyncpg.Connection], Coroutine[Any, Any, Outcome]]:
        params = {**append.params(), **_row_columns(append.rows)}
        statement = self._extend if append.expected else self._create
        args = statement.args(params)

        async def write(driver: asyncpg.Connection) -> Outcome:
            tag: str = await driver.execute(statement.sql, *args)
            if _count(tag):
                return append.revision
            found = await driver.fetchrow(self._found.sql, *self._found.args(params))
            return None if found is None else Found(*found)

        return write

    async def renew(self, params: Params) -> bool:
        args = self._renew.args(params)

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(self._renew.sql, *args)) > 0

        return await settled(lambda: self._limited(write))

    async def write_blob(self, params: Params) -> bool:
        insert = self.statement(INSERT_BLOB.replace(":data", "CAST(:data AS BYTEA)"))
        args = insert.args(params)

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(insert.sql, *args)) > 0

        return await settled(lambda: self._limited(write))

    async def fork(self, fork: Fork) -> int | None:
        # One statement sees one moment of the State, however fast a run writes meanwhile.
        copy = self.statement(f"WITH moved AS ({FORK_STATE} RETURNING revision), blobs AS ({FORK_BLOBS}) {FORK_EVENTS}")
        args = copy.args(fork.params())

        async def write(driver: asyncpg.Connection) -> int | None:
            return _count(await driver.execute(copy.sql, *args)) or None

        return await settled(lambda: self._limited(write))

    async def delete(self, key: StateKey) -> bool:
        # The rows of the other tables go with it.
        args = self._delete.args(key._asdict())

        async def write(driver: asyncpg.Connection) -> bool:
            return _count(await driver.execute(self._delete.sql, *args)) > 0

        return await settled(lambda: self._limited(write))

    async def page(self, key: StateKey, after: int, until: int | None, size: int) -> tuple[Head | None, list[EventRow]]:
        upto = after + size if until is None else min(after + size, until)
        args = self._page.args({"namespace": key.namespace, "id": key.id, "after": after, "until": upto})

        async def fetch(driver: asyncpg.Connection) -> list[asyncpg.Record]:
            rows: list[asyncpg.Record] = await driver.fetch(self._page.sql, *args)
            return rows

        rows = await settled(lambda: self._limited(fetch))
        if not rows:
            return None, []
        return Head(*tuple(rows[0])[:3]), [EventRow(*tuple(row)[3:]) for row in rows if row[3] is not None]

    async def fetch(self, sql: str, params: Params) -> Sequence[Sequence[Any]]:
        statement = self.statement(sql)

        async def fetch(driver: asyncpg.Connection) -> Sequence[Sequence[Any]]:
            rows: list[asyncpg.Record] = await driver.fetch(statement.sql, *statement.args(params))
            return [tuple(row) for row in rows]

        return await settled(lambda: self._limited(fetch))

    async def _limited(self, function: Callable[[asyncpg.Connection], Coroutine[Any, Any, T]]) -> T:
        async def within(driver: asyncpg.Connection) -> T:
            with self._ending(driver):
                try:
                    return await function(driver)
                except TimeoutError:
                    driver.terminate()
                    raise

        return await self._on_driver(within)

    def _is_at_rest(self, driver: asyncpg.Connection) -> bool:
        return not driver.is_closed() and not driver.is_in_transaction()


def _count(tag: str) -> int:
    return int(tag.rsplit(" ", 1)[1])


def _row_columns(rows: Sequence[EventRow]) -> dict[str, object]:
    return {f"row_{name}s": column for name, column in zip(EventRow._fields, zip(*rows, strict=True), strict=True)}
