"""
A database as one event loop uses it: an engine, and the few things that a store asks of it.

The statements go to the driver itself, taken out of SQLAlchemy's pool: Core would take three times as long. A backend
module (`sqlite`, `postgres`) says how a transaction runs there.
"""

from __future__ import annotations

import abc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import anyio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.util import await_only, greenlet_spawn

from alpineagents.errors import StoreUnavailableError
from alpineagents.shield import settled
from alpineagents.stores.codec import EventRow
from alpineagents.stores.header import StateKey
from alpineagents.stores.sql.append import (
    FIND_STATE,
    INSERT_STATE,
    RENEW_LEASE,
    UPDATE_STATE,
    Append,
    Outcome,
    Outcomes,
    of_given,
)
from alpineagents.stores.sql.errors import ERRORS, translate
from alpineagents.stores.sql.fork import Fork
from alpineagents.stores.sql.group import Groups
from alpineagents.stores.sql.migrate import ensure

T = TypeVar("T")

Params = Mapping[str, object]

ENDED = "the tool ended the transaction of its result itself: leave commit and rollback to the library"


class Head(NamedTuple):
    """What a reader needs of a header; a State that was made again under the id has another `created_at`."""

    revision: int
    parent_id: str | None
    created_at: object


class Statement:
    """A statement with named parameters, compiled once for a driver."""

    def __init__(self, sql: str, engine: AsyncEngine) -> None:
        compiled = text(sql).compile(dialect=engine.dialect)
        self.sql: str = compiled.string
        names = compiled.positiontup or ()
        # With one name alone this would give no tuple; a statement names a State, so it has two at least, or none.
        self._pick = itemgetter(*names) if names else _nothing

    def args(self, params: Params) -> tuple[Any, ...]:
        """Return the parameters in the order of the driver's placeholders."""
        picked: tuple[Any, ...] = self._pick(params)
        return picked


def _nothing(_params: Params) -> tuple[()]:
    return ()


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

    def __init__(self, engine: AsyncEngine, *, schema: str | None, migrate: bool, owned: bool, patience: float) -> None:
        self.engine, self.owned, self.patience = engine, owned, patience
        self._schema, self._migrate = schema, migrate
        self._ready = False
        self._opening = anyio.Lock()
        self._groups = Groups(self._append_group)
        prefix = f'"{schema}".' if schema else ""
        self._names = {
            "states": f"{prefix}agent_states",
            "events": f"{prefix}agent_events",
            "blobs": f"{prefix}agent_blobs",
        }
        self._statements: dict[tuple[str, bool], Statement] = {}
        self._insert, self._update = self.statement(INSERT_STATE), self.statement(UPDATE_STATE)
        self._found, self._renew = self.statement(FIND_STATE), self.statement(RENEW_LEASE)

    def statement(self, sql: str, *, of_many: bool = False) -> Statement:
        """
        Compile a statement whose tables, clock and types are written as `{states}`, `{now}` and so on; once.

        Args:
            of_many: its parameters are columns of `given`.
        """
        if (known := self._statements.get((sql, of_many))) is not None:
            return known
        terms = {
            "time": self.time,
            "now": self.now,
            "updated": self.updated,
            "lease_end": self.lease_end,
            "seconds": "CAST(:seconds AS DOUBLE PRECISION)",
        }
        if of_many:
            terms = {name: of_given(term) for name, term in terms.items()}
        statement = self._statements[sql, of_many] = Statement(sql.format(**self._names, **terms), self.engine)
        return statement

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

    @abc.abstractmethod
    async def fetch(self, sql: str, params: Params) -> Sequence[Sequence[Any]]:
        """Return all rows of a statement that reads, written as for `statement`."""

    @asynccontextmanager
    async def limited(self, _connection: AsyncConnection) -> AsyncIterator[None]:
        """Break the connection if the statements of the block are not answered in time."""
        yield

    async def append(self, append: Append) -> Outcome:
        """
        Move the header and insert the rows, in one transaction; others that wait at the same moment share it.

        Returns:
            The new revision; else what was found where it did not fit, None for no such State.
        """
        outcomes = await self._groups.append(append)
        if append.key in outcomes:
            return outcomes[append.key]
        return await settled(lambda: self.append_alone(append))

    async def _append_group(self, appends: Sequence[Append]) -> Outcomes:
        if len(appends) == 1:
            return {appends[0].key: await self.append_alone(appends[0])}
        try:
            return await self.append_together(appends)
        except (*ERRORS, ValueError, OverflowError) as error:
            if isinstance(translate(error, ""), StoreUnavailableError):
                raise
            # A value of one of them is at fault: each is tried alone, so that it fails alone.
            return {}

    @abc.abstractmethod
    async def append_alone(self, append: Append) -> Outcome:
        """Write one append in a transaction of its own."""

    @abc.abstractmethod
    async def append_together(self, appends: Sequence[Append]) -> Outcomes:
        """Write appends of different States in one transaction; those that do not fit keep none of the others out."""

    @abc.abstractmethod
    async def append_in(self, connection: AsyncConnection, append: Append) -> Outcome:
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

    async def _on_driver(self, function: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Take a connection out of the pool, hand it over as the driver's own, and give it back, in one hop."""

        def hop() -> T:
            with self.engine.sync_engine.connect() as connection:
                driver = connection.connection.driver_connection
                try:
                    return await_only(function(driver))
                except BaseException:
                    if not self._is_at_rest(driver):
                        connection.invalidate()
                    raise

        return await greenlet_spawn(hop)

    def _is_at_rest(self, driver: Any) -> bool:
        """Whether a connection may go back to the pool after an error."""
        return True

    def abandon(self) -> None:
        """Let go of the connections of an event loop that was closed before them."""
        self.engine.sync_engine.dispose(close=False)

    async def close(self) -> None:
        """Close the connections, if the engine is the store's own."""
        if self.owned:
            await self.engine.dispose()
