"""
A database as one event loop uses it: an engine, and the few things that a store asks of it.

The hot statements go to the driver itself, taken out of SQLAlchemy's pool; all else is Core. A backend module
(`sqlite`, `postgres`) says how a transaction runs there.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
from sqlalchemy import Executable, Row, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from alpineagents.shield import settled
from alpineagents.stores.codec import EventRow, ascii_json
from alpineagents.stores.header import Found, StateHeader, StateKey
from alpineagents.stores.sql.migrate import ensure
from alpineagents.stores.sql.tables import Tables

Params = Mapping[str, object]

ENDED = "the tool ended the transaction of its result itself: leave commit and rollback to the library"


class Head(NamedTuple):
    """What a reader needs of a header."""

    revision: int
    parent_id: str | None


class Statement:
    """A statement with named parameters, compiled once for a driver."""

    def __init__(self, sql: str, engine: AsyncEngine) -> None:
        compiled = text(sql).compile(dialect=engine.dialect)
        self.sql: str = compiled.string
        self._names: Sequence[str] = compiled.positiontup or ()

    def args(self, params: Params) -> tuple[Any, ...]:
        """Return the parameters in the order of the driver's placeholders."""
        return tuple(params[name] for name in self._names)


@dataclass(frozen=True, slots=True)
class Append:
    """One append, as a database gets it."""

    key: StateKey
    rows: Sequence[EventRow]
    expected: int
    header: StateHeader
    append_id: str | None

    def params(self) -> dict[str, object]:
        lease = self.header.lease
        return {
            "namespace": self.key.namespace,
            "id": self.key.id,
            "expected": self.expected,
            "revision": self.expected + len(self.rows),
            "status": self.header.status,
            "created_at": self.header.created_at,
            "follows": self.header.follows,
            "first_message": self.header.first_message,
            "summary": None if self.header.summary is None else ascii_json(self.header.summary),
            "parent_id": self.header.parent_id,
            "run_id": None if lease is None else lease.run_id,
            "seconds": None if lease is None else float(lease.seconds),
            "append_id": self.append_id,
        }


@dataclass(frozen=True, slots=True)
class Fork:
    """
    A copy of a State, as a database gets it.

    Attributes:
        header: of an earlier revision; None for that of the last one.
        append_id: of all rows of the copy, to know them again where the reply was lost.
    """

    key: StateKey
    new_id: str
    revision: int | None
    header: StateHeader | None
    append_id: str

    def params(self) -> dict[str, object]:
        header = self.header
        return {
            "namespace": self.key.namespace,
            "id": self.key.id,
            "new_id": self.new_id,
            "revision": self.revision,
            "status": header and header.status,
            "first_message": header and header.first_message,
            "summary": None if header is None or header.summary is None else ascii_json(header.summary),
            "follows": header and header.follows,
            "append_id": self.append_id,
        }


class Database(abc.ABC):
    """
    An engine of one event loop.

    Attributes:
        now: SQL for the database's own clock, for leases.
        updated: SQL for the time of an append, to the microsecond, for the order of lists.
        time: SQL for the type of a time.
        lease_end: SQL for the time when a lease of `:seconds` from now on ends.
    """

    now: str
    updated: str
    time: str
    lease_end: str
    waits_by_itself = False
    """Whether the driver has waited as long as the store may before it says that there is no answer."""

    def __init__(self, engine: AsyncEngine, tables: Tables, *, schema: str | None, migrate: bool, owned: bool) -> None:
        self.engine, self.tables, self.owned = engine, tables, owned
        self._schema, self._migrate = schema, migrate
        self._ready = False
        self._opening = anyio.Lock()
        prefix = f'"{schema}".' if schema else ""
        self._names = {
            "states": f"{prefix}agent_states",
            "events": f"{prefix}agent_events",
            "blobs": f"{prefix}agent_blobs",
        }
        self._insert, self._update = self.statement(INSERT_STATE), self.statement(UPDATE_STATE)
        self._found, self._renew = self.statement(FIND_STATE), self.statement(RENEW_LEASE)

    def statement(self, sql: str) -> Statement:
        """Compile a statement whose tables, clock and types are written as `{states}`, `{now}` and so on."""
        seconds = "CAST(:seconds AS DOUBLE PRECISION)"
        clock = {
            "time": self.time,
            "now": self.now,
            "updated": self.updated,
            "lease_end": self.lease_end,
            "seconds": seconds,
        }
        return Statement(sql.format(**self._names, **clock), self.engine)

    async def open(self) -> None:
        """
        Check the schema at the first use, and make it where that is wanted.

        Raises:
            StoreSchemaError: the tables are missing or of another release.
        """
        if self._ready:
            return
        async with self._opening:
            if not self._ready:
                await ensure(self.engine, schema=self._schema, migrate=self._migrate)
                self._ready = True

    @property
    def is_open(self) -> bool:
        """Whether the database was reached before."""
        return self._ready

    async def rows(self, statement: Executable) -> Sequence[Row[Any]]:
        """Return all rows of a Core statement."""

        async def fetch() -> Sequence[Row[Any]]:
            async with self.engine.connect() as connection, self.limited(connection):
                found = (await connection.execute(statement)).all()
                # Here and not at the connection's return, so that the limit holds for it too.
                await connection.rollback()
                return found

        return await settled(fetch)

    @asynccontextmanager
    async def limited(self, _connection: AsyncConnection) -> AsyncIterator[None]:
        """Break the connection if the statements of the block are not answered in time."""
        yield

    @abc.abstractmethod
    async def append(self, append: Append) -> int | Found | None:
        """
        Move the header and insert the rows, in one transaction.

        Returns:
            The new revision; else what was found where it did not fit, None for no such State.
        """

    @abc.abstractmethod
    async def append_in(self, connection: AsyncConnection, append: Append) -> int | Found | None:
        """Do what `append` does, in the transaction of the connection."""

    @abc.abstractmethod
    async def begin(self, connection: AsyncConnection) -> None:
        """Begin a transaction that the connection's owner ends."""

    async def begun(self) -> AsyncConnection:
        """Take a connection out of the pool and begin a transaction, for `transaction` to end."""
        connection = self.engine.connect()
        begun = False

        async def begin() -> None:
            nonlocal begun
            await connection.start()
            try:
                async with self.limited(connection):
                    await self.begin(connection)
                begun = True
            except BaseException:
                await self._end(connection)
                raise

        try:
            await settled(begin)
        except BaseException:
            # A cancellation that came meanwhile: nobody will go on with it.
            if begun:
                await settled(lambda: self._end(connection))
            raise
        return connection

    @asynccontextmanager
    async def transaction(self, connection: AsyncConnection) -> AsyncIterator[None]:
        """
        Commit a transaction at the end of the block; roll it back on any exception.

        A connection whose block was left by an exception is thrown away: a statement of the block's may still be on its
        way to it.
        """

        async def commit() -> None:
            async with self.limited(connection):
                await self.commit(connection)

        try:
            yield
            await settled(commit)
        except BaseException:
            await settled(lambda: self._throw_away(connection))
            raise
        finally:
            await settled(connection.close)

    @abc.abstractmethod
    async def commit(self, connection: AsyncConnection) -> None:
        """Commit what `begin` began."""

    async def _end(self, connection: AsyncConnection) -> None:
        await self._throw_away(connection)
        await connection.close()

    async def _throw_away(self, connection: AsyncConnection) -> None:
        if not connection.invalidated:
            await connection.invalidate()

    @abc.abstractmethod
    async def renew(self, params: Params) -> bool:
        """Move the end of a lease; say whether the run still has it."""

    @abc.abstractmethod
    async def write_blob(self, params: Params) -> bool:
        """Keep a blob; say whether it is new, and its State there."""

    @abc.abstractmethod
    async def fork(self, fork: Fork) -> int | None:
        """Copy a State; return the revision, None where nothing was copied."""

    @abc.abstractmethod
    async def delete(self, key: StateKey) -> bool:
        """Delete a State; say whether there was one."""

    @abc.abstractmethod
    async def page(self, key: StateKey, after: int, until: int | None, size: int) -> tuple[Head | None, list[EventRow]]:
        """Return the head of a State, None for no such State, and at most `size` rows behind `after`."""

    def abandon(self) -> None:
        """Let go of the connections of an event loop that was closed before them."""
        self.engine.sync_engine.dispose(close=False)

    async def close(self) -> None:
        """Close the connections, if the engine is the store's own."""
        if self.owned:
            await self.engine.dispose()


INSERT_STATE = """
INSERT INTO {states} (namespace, id, revision, status, created_at, updated_at, first_message, summary, parent_id,
                      run_id, lease_until)
VALUES (:namespace, :id, :revision, :status, :created_at, {updated}, :first_message, :summary, :parent_id,
        CASE WHEN {seconds} > 0 THEN :run_id END, CASE WHEN {seconds} > 0 THEN {lease_end} END)
ON CONFLICT (namespace, id) DO NOTHING
"""

# The revision lets one of two writers in, the Event at that revision keeps out whoever read another State of the same
# id, and the lease keeps a second run from claiming a State that another owns.
UPDATE_STATE = """
UPDATE {states}
SET revision = :revision, status = COALESCE(:status, status), updated_at = {updated}, first_message = :first_message,
    summary = COALESCE(:summary, summary),
    run_id = CASE WHEN {seconds} IS NULL THEN run_id WHEN {seconds} > 0 THEN :run_id END,
    lease_until = CASE WHEN {seconds} IS NULL THEN lease_until WHEN {seconds} > 0 THEN {lease_end} END
WHERE namespace = :namespace AND id = :id AND revision = :expected
  AND (CAST(:follows AS {time}) IS NULL OR EXISTS (
      SELECT 1 FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision = :expected
      AND e.at = CAST(:follows AS {time})))
  AND ({seconds} IS NULL OR run_id IS NULL OR run_id = :run_id OR lease_until IS NULL OR lease_until <= {now})
"""

FIND_STATE = """
SELECT revision,
       (SELECT e.at FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision = :expected),
       CASE WHEN lease_until > {now} THEN run_id END,
       (SELECT max(e.revision) FROM {events} e
        WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision > :expected AND e.append_id = :append_id)
FROM {states} WHERE namespace = :namespace AND id = :id
"""

RENEW_LEASE = """
UPDATE {states} SET lease_until = {lease_end} WHERE namespace = :namespace AND id = :id AND run_id = :run_id
"""

# The Event at the revision keeps a header that was read from one State from being put on the rows of another.
FORK_STATE = """
INSERT INTO {states} (namespace, id, revision, status, created_at, updated_at, first_message, summary, parent_id,
                      run_id, lease_until)
SELECT s.namespace, CAST(:new_id AS TEXT), COALESCE(CAST(:revision AS BIGINT), s.revision),
       COALESCE(CAST(:status AS TEXT), s.status), s.created_at, {updated},
       COALESCE(CAST(:first_message AS TEXT), s.first_message), COALESCE(CAST(:summary AS TEXT), s.summary), s.id,
       NULL, NULL
FROM {states} s WHERE s.namespace = :namespace AND s.id = :id
  AND (CAST(:follows AS {time}) IS NULL OR EXISTS (
      SELECT 1 FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id
      AND e.revision = CAST(:revision AS BIGINT) AND e.at = CAST(:follows AS {time})))
ON CONFLICT (namespace, id) DO NOTHING
"""

FORK_EVENTS = """
INSERT INTO {events} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload)
SELECT e.namespace, CAST(:new_id AS TEXT), e.revision, e.kind, e.version, e.at, e.run_id, CAST(:append_id AS TEXT),
       e.payload
FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id
  AND e.revision <= (SELECT revision FROM moved)
"""

FORK_BLOBS = """
INSERT INTO {blobs} (namespace, state_id, sha256, media_type, size, data)
SELECT b.namespace, CAST(:new_id AS TEXT), b.sha256, b.media_type, b.size, b.data
FROM {blobs} b WHERE b.namespace = :namespace AND b.state_id = :id AND EXISTS (SELECT 1 FROM moved)
"""

INSERT_BLOB = """
INSERT INTO {blobs} (namespace, state_id, sha256, media_type, size, data)
SELECT s.namespace, s.id, CAST(:sha256 AS TEXT), CAST(:media_type AS TEXT), CAST(:size AS BIGINT), :data
FROM {states} s WHERE s.namespace = :namespace AND s.id = :id
ON CONFLICT (namespace, state_id, sha256) DO NOTHING
"""
