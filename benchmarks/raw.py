"""The driver alone, on the same tables and with the same durability: what everything here is compared with."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar

import asyncpg

T = TypeVar("T")

COLUMNS = "namespace, state_id, revision, kind, version, at, run_id, append_id, payload"
HISTORY = (
    "SELECT revision, kind, version, at, run_id, append_id, payload FROM agent_events "
    "WHERE namespace = '' AND state_id = {id} ORDER BY revision"
)
NEWEST = "SELECT * FROM agent_states WHERE namespace = '' ORDER BY updated_at DESC, id DESC LIMIT 50"

Step = tuple[str, int, str]
"""A State's id, the revision it gets, and the payload of the Event."""


class RawSQLite:
    """sqlite3 on a thread of its own, with one hop a transaction; WAL and `synchronous=FULL`."""

    _MOVE = "UPDATE agent_states SET revision = ?, updated_at = ? WHERE namespace = '' AND id = ? AND revision = ?"
    _ROW = f"INSERT INTO agent_events ({COLUMNS}) VALUES ('', ?, ?, 'message_added', 1, ?, NULL, 'x', ?)"

    def __init__(self, path: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._db = self._thread.submit(self._open, path).result()

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None, timeout=20)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    async def append(self, *steps: Step) -> None:
        """Move the headers and insert one Event each, in one transaction."""
        now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            for name, revision, payload in steps:
                self._db.execute(self._MOVE, (revision, now, name, revision - 1))
                self._db.execute(self._ROW, (name, revision, now, payload))
            self._db.execute("COMMIT")

        await self._run(write)

    async def rows(self, id: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a history; the payload is the last column."""
        return await self._run(lambda: self._db.execute(HISTORY.format(id="?"), (id,)).fetchall())

    async def newest(self) -> Sequence[Sequence[Any]]:
        """Return the headers of the 50 States that were updated last."""
        return await self._run(lambda: self._db.execute(NEWEST).fetchall())

    async def size(self) -> int:
        """Return the bytes of the file."""

        def measure() -> int:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (pages,), (size,) = (self._db.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
            return int(pages * size)

        return await self._run(measure)

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def aclose(self) -> None:
        """Close the connection and end the thread."""
        await self._run(self._db.close)
        self._thread.shutdown()


class RawPostgres:
    """asyncpg with one prepared statement an append."""

    _APPEND = f"""
        WITH given AS (
            SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[]) AS given (id, revision, payload)
        ), moved AS (
            UPDATE agent_states s SET revision = given.revision, updated_at = clock_timestamp() FROM given
            WHERE s.namespace = '' AND s.id = given.id AND s.revision = given.revision - 1
            RETURNING given.id, given.revision, given.payload
        )
        INSERT INTO agent_events ({COLUMNS})
        SELECT '', id, revision, 'message_added', 1, clock_timestamp(), NULL, 'x', payload FROM moved"""
    _ONE = f"""
        WITH moved AS (
            UPDATE agent_states SET revision = $2, updated_at = clock_timestamp()
            WHERE namespace = '' AND id = $1 AND revision = $2 - 1 RETURNING 1
        )
        INSERT INTO agent_events ({COLUMNS})
        SELECT '', $1, $2, 'message_added', 1, clock_timestamp(), NULL, 'x', $3 WHERE EXISTS (SELECT FROM moved)
        """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: asyncpg.Connection | None = None

    async def _connect(self) -> asyncpg.Connection:
        if self._connection is None:
            self._connection = await asyncpg.connect(self._url)
            self._one = await self._connection.prepare(self._ONE)
            self._many = await self._connection.prepare(self._APPEND)
        return self._connection

    async def append(self, *steps: Step) -> None:
        """Move the headers and insert one Event each, in one statement."""
        await self._connect()
        if len(steps) == 1:
            await self._one.fetch(*steps[0])
        else:
            await self._many.fetch(*map(list, zip(*steps, strict=True)))

    async def rows(self, id: str) -> Sequence[Sequence[Any]]:
        """Return the rows of a history; the payload is the last column."""
        return list(await (await self._connect()).fetch(HISTORY.format(id="$1"), id))

    async def newest(self) -> Sequence[Sequence[Any]]:
        """Return the headers of the 50 States that were updated last."""
        return list(await (await self._connect()).fetch(NEWEST))

    async def size(self) -> int:
        """Return the bytes of the history, its index and its overflow table."""
        return int(await (await self._connect()).fetchval("SELECT pg_total_relation_size('agent_events')"))

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()


Raw = RawSQLite | RawPostgres


def raw_of(url: str) -> Raw:
    """Return the driver for a database."""
    return RawPostgres(url) if url.startswith("postgres") else RawSQLite(url)


async def rate(url: str, states: Sequence[tuple[str, int]], payload: str, rounds: int, *, writers: int = 1) -> float:
    """
    Return the Events a second that the driver alone writes.

    Args:
        states: ids with the revision that each has.
        writers: among how many connections the States are shared; each writes one Event a commit. 0: one connection
            writes an Event of each State a commit.
    """
    drivers = [raw_of(url) for _ in range(max(1, writers))]
    for driver in drivers:
        await driver.rows("nobody")

    async def write(driver: Raw, mine: Sequence[tuple[str, int]]) -> None:
        for number in range(1, rounds + 1):
            steps = [(name, revision + number, payload) for name, revision in mine]
            if writers == 0:
                await driver.append(*steps)
                continue
            for step in steps:
                await driver.append(step)

    start = time.perf_counter()
    await asyncio.gather(*(write(driver, states[place :: len(drivers)]) for place, driver in enumerate(drivers)))
    taken = time.perf_counter() - start
    for driver in drivers:
        await driver.aclose()
    return len(states) * rounds / taken
