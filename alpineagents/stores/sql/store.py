"""
The SQL store: the same rules on SQLite and Postgres, over one schema and one way to replay.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import anyio
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from alpineagents.errors import (
    ConfigError,
    StateConflictError,
    StateDamagedError,
    StateExistsError,
    StateNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from alpineagents.events import Event
from alpineagents.snapshot import Status
from alpineagents.stores.base import check_listing
from alpineagents.stores.codec import EventRow, decode_all, encode
from alpineagents.stores.header import (
    Lease,
    Names,
    StateHeader,
    StateInfo,
    StateInfos,
    StateKey,
    settle_refusal,
)
from alpineagents.stores.paged import PagedStore, Pages
from alpineagents.stores.sql.append import LAST_CONTEXT_CHANGE, Append, Outcome
from alpineagents.stores.sql.database import Database, Head
from alpineagents.stores.sql.databases import BACKENDS, Databases
from alpineagents.stores.sql.errors import ERRORS, translate, translated
from alpineagents.stores.sql.fork import BLOBS, READ_BLOB, Fork
from alpineagents.stores.sql.headers import NAMESPACES, ONE, info_of, newest
from alpineagents.stores.sql.urls import async_url

T = TypeVar("T")

PAGE = 1_000
"""How many Events are read at a time: the memory that a reader needs, and the longest that decoding holds the loop."""

MAX_REVISION = 2**63 - 1
"""The last one that a row can have."""

PATIENCE_SECONDS = 20.0
"""How long a call waits, unless told otherwise, for a database that is away or locked."""

LEAST_SECONDS = 1.0
"""How long a tool may hold a transaction in SQLite although other writers have less patience."""


class SQLStore(PagedStore):
    """
    Keeps States in SQLite or Postgres.

    Each event loop that uses the store gets connections of its own, so it may be made once at import and used from
    scripts, tests and threads. A SQLite file is made and migrated at first use.

    Args:
        target: a path or `sqlite:///…` for SQLite, `:memory:` for a database that lives as long as the store;
            `postgresql://…` for Postgres; or an `AsyncEngine` of the app's own, which stays open.
        schema: the Postgres schema that holds the tables; None for the first of the search path.
        migrate: make or upgrade the tables at first use. None: on SQLite yes, on Postgres no.
        patience: seconds that a call waits for a database that is away, or locked by another process, before it raises
            `StoreUnavailableError`; twice that where a connection hangs or a row of Postgres stays locked, since a
            new connection is tried. The first call of all does not wait for a server that is away: its address may
            be wrong.

    Raises:
        ConfigError: the target is none of these, or another argument cannot work.

    Example:
        >>> from alpineagents import Message, State
        >>> store = SQLStore(":memory:")
        >>> store.save_sync(State(id="demo", messages=[Message.user("Hello")]))
        1
        >>> store.close_sync()
    """

    def __init__(
        self,
        target: str | Path | URL | AsyncEngine,
        *,
        schema: str | None = None,
        migrate: bool | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        where = target if isinstance(target, AsyncEngine) else async_url(target)
        backend = (where.url if isinstance(where, AsyncEngine) else where).get_backend_name()
        if backend not in BACKENDS:
            raise ConfigError(f'SQLStore keeps States in SQLite or Postgres, not {backend!r}: SQLStore("agents.db")')
        if schema is not None and (backend != "postgresql" or not schema.replace("_", "").isalnum()):
            raise ConfigError(f"schema={schema!r} is for Postgres only, and has letters, digits and '_'")
        if not isinstance(patience, (int, float)) or not 0 <= patience < math.inf:
            raise ConfigError(f'patience={patience!r} is not a number of seconds: SQLStore("agents.db", patience=20.0)')
        wanted = backend == "sqlite" if migrate is None else migrate
        self._databases = Databases(where, schema, wanted, float(patience))
        # The one connection of a database in memory serves all at once, so no transaction can be left open in it.
        self.has_transactions = not self._databases.in_memory

    @property
    def transaction_seconds(self) -> float | None:
        # Of SQLite a transaction holds the file's only write lock. A writer that waits for it must not lose patience.
        in_sqlite = self._databases.url.get_backend_name() == "sqlite"
        return max(self._databases.patience / 2, LEAST_SECONDS) if in_sqlite else None

    def __repr__(self) -> str:
        scope = f", namespace={self.namespace!r}" if self.namespace else ""
        return f"SQLStore({self._databases.place!r}{scope})"

    async def __aenter__(self) -> SQLStore:
        await self._call(_itself)
        return self

    async def append(
        self,
        key: str | StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        key = self.key(key)
        # Without an id, a reply that is lost could not be told from another writer's append.
        append_id = append_id or uuid.uuid4().hex
        append = Append(key, [encode(event, append_id) for event in events], expected, header, append_id)
        outcome = await self._call(lambda database: database.append(append))
        return _landed(append, outcome)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[SQLTransaction]:
        if not self.has_transactions:
            raise StoreError(f'{self!r} cannot keep a transaction open: use a file, SQLStore("agents.db")')
        database = await self._call(_itself)
        # Nothing has been done in it yet, so to begin it is tried again like a call.
        connection = await self._call(Database.begun)
        with translated(self._databases.place):
            async with database.transaction(connection):
                yield SQLTransaction(self, database, connection)

    async def last_context_change(self, id: str | StateKey, *, until: int | None = None) -> int:
        params = {**self.key(id)._asdict(), "until": MAX_REVISION if until is None else min(until, MAX_REVISION)}
        rows = await self._call(lambda database: database.fetch(LAST_CONTEXT_CHANGE, params))
        return int(rows[0][0]) if rows else 0

    async def _pages(self, key: StateKey, after: int, until: int | None) -> Pages:
        made_at = None
        while True:
            head, rows = await self._page(key, after, until)
            if head is None:
                raise StateNotFoundError(key.id)
            if made_at not in (None, head.created_at):
                raise StateNotFoundError(key.id, hint="It was deleted while it was read, and another State has its id")
            made_at = head.created_at
            # Behind a row that is missing, none stands at its place.
            gapless = [row for place, row in enumerate(rows, start=after + 1) if row.revision == place]
            events, damage = decode_all(gapless, state_id=key.id)
            yield head, events
            if damage is not None:
                raise damage
            after += len(gapless)
            if after >= (head.revision if until is None else min(head.revision, until)):
                return
            if len(gapless) < len(rows) or not rows:
                reason = f"its row is missing, where the State is at revision {head.revision}"
                raise StateDamagedError(key.id, after + 1, reason)

    async def _page(self, key: StateKey, after: int, until: int | None) -> tuple[Head | None, list[EventRow]]:
        return await self._call(lambda database: database.page(key, after, until, PAGE))

    async def fork(self, id: str, new_id: str, revision: int | None = None) -> int:
        key, new = self.key(id), self.key(new_id)
        revision, header = await self._forked_at(key, revision)
        copy = Fork(key, new.id, revision, header, uuid.uuid4().hex)
        if landed := await self._call(lambda database: database.fork(copy)):
            return landed
        head, rows = await self._call(lambda database: database.page(new, 0, 1, 1))
        if head is None:
            raise StateNotFoundError(key.id, revision=revision)
        if not rows or rows[0].append_id != copy.append_id:
            raise StateExistsError(new.id)
        # An earlier try had landed, and its reply was lost.
        return head.revision

    async def delete(self, id: str | StateKey) -> None:
        key = self.key(id)
        tries = 0

        async def delete(database: Database) -> bool:
            nonlocal tries
            tries += 1
            # What a second try does not find, the first one has deleted: its reply was lost.
            return await database.delete(key) or tries > 1

        if not await self._call(delete):
            raise StateNotFoundError(key.id)

    async def renew(self, key: str | StateKey, lease: Lease) -> bool:
        params = {**self.key(key)._asdict(), "run_id": lease.run_id, "seconds": float(lease.seconds)}
        return await self._call(lambda database: database.renew(params))

    async def write_blob(self, id: str, data: bytes) -> str:
        key, name = self.key(id), sha256(data).hexdigest()
        params = {**key._asdict(), "sha256": name, "media_type": "text/plain", "size": len(data), "data": data}
        if not await self._call(lambda database: database.write_blob(params)):
            # It is there already, or its State is not.
            await self.info(key)
        return name

    async def read_blob(self, id: str, sha256: str) -> bytes | None:
        params = {**self.key(id)._asdict(), "sha256": sha256}
        rows = await self._call(lambda database: database.fetch(READ_BLOB, params))
        return bytes(rows[0][0]) if rows else None

    async def blobs(self, id: str) -> Names:
        params = self.key(id)._asdict()
        return [row[0] for row in await self._call(lambda database: database.fetch(BLOBS, params))]

    async def info(self, id: str | StateKey) -> StateInfo:
        key = self.key(id)
        rows = await self._call(lambda database: database.fetch(ONE, key._asdict()))
        if not rows:
            raise StateNotFoundError(key.id)
        return info_of(rows[0])

    async def list(
        self, *, status: Status | None = None, limit: int = 50, after: StateInfo | str | None = None
    ) -> StateInfos:
        params: dict[str, object] = {"namespace": self.namespace, "limit": check_listing(status, limit)}
        if status is not None:
            params["status"] = status
        if after is not None:
            last = after if isinstance(after, StateInfo) else await self.info(after)
            params.update(at=last.updated_at, last=last.id)
        page = newest(of_status=status is not None, behind=after is not None)
        return [info_of(row) for row in await self._call(lambda database: database.fetch(page, params))]

    async def namespaces(self) -> Sequence[str]:
        """Return every namespace that has States, for who looks after the whole database."""
        return [row[0] for row in await self._call(lambda database: database.fetch(NAMESPACES, {}))]

    async def aclose(self) -> None:
        await self._databases.aclose()

    async def _call(self, work: Callable[[Database], Awaitable[T]]) -> T:
        database = self._databases.here()
        place = self._databases.place
        if not database.is_open:
            with translated(place):
                await database.open()
        patience = self._databases.patience

        tries, start = 0, time.monotonic()
        while True:
            tries += 1
            try:
                return await work(database)
            except (*ERRORS, StoreUnavailableError) as raised:
                error = raised if isinstance(raised, StoreUnavailableError) else translate(raised, place)
                # A connection that has died unnoticed uses up a statement's whole time, and a new one may do at once.
                enough = (database.waits_by_itself or tries > 1) and time.monotonic() - start >= patience
                if enough or not isinstance(error, StoreUnavailableError):
                    raise error from raised
            await anyio.sleep(random.uniform(0.0, min(0.05 * 2**tries, 2.0)))


class SQLTransaction:
    """
    A transaction that goes on.

    Attributes:
        connection: the connection that it goes on in.
    """

    def __init__(self, store: SQLStore, database: Database, connection: AsyncConnection) -> None:
        self.connection = connection
        self._store, self._database = store, database

    async def append(
        self,
        key: StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        """Do what `SQLStore.append` does; it lasts if the transaction does."""
        key = self._store.key(key)
        append = Append(key, [encode(event, append_id) for event in events], expected, header, append_id)
        outcome = await self._database.append_in(self.connection, append)
        return _landed(append, outcome)


def _landed(append: Append, outcome: Outcome) -> int:
    if isinstance(outcome, int):
        return outcome
    key, expected = append.key, append.expected
    landed = settle_refusal(key, expected, append.header, outcome)
    if landed > expected + len(append.rows):
        raise StateConflictError(
            key.id,
            expected,
            landed,
            hint="An append that seemed to have failed was written after all, with more than the State has now. "
            f"Load it again: state = await store.load({key.id!r})",
        )
    return landed


async def _itself(database: Database) -> Database:
    return database
