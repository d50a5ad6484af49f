"""The driver alone, on the same tables and with the same durability: what everything here is compared with."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import asyncpg

T = TypeVar("T")

MOVE = "UPDATE agent_states SET revision = revision + 1, updated_at = {now} WHERE namespace = '' AND id = {id}"
ROW = "INSERT INTO agent_events (namespace, state_id, revision, kind, version, at, run_id, append_id, payload) "


class RawSQLite:
    """sqlite3 on a thread of its own, with one hop a transaction; WAL and `synchronous=FULL`."""

    def __init__(self, path: str, state_id: str) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._id = state_id
        self._db = self._thread.submit(self._open, path).result()
        self.revision = 0

    @staticmethod
    def _open(path: str) -> sqlite3.Connection:
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA foreign_keys = ON")
        return db

    async def begin(self, revision: int) -> None:
        """Say which revision the State has."""
        self.revision = revision

    async def append(self, payload: str) -> None:
        """Move the header and insert one Event."""
        self.revision += 1
        revision = self.revision

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(MOVE.format(now="'2026-01-01 00:00:00.000000'", id="?"), (self._id,))
            self._db.execute(
                ROW + "VALUES ('', ?, ?, 'message_added', 1, '2026-01-01 00:00:00.000000', NULL, 'x', ?)",
                (self._id, revision, payload),
            )
            self._db.execute("COMMIT")

        await self._run(write)

    async def payloads(self) -> list[str]:
        """Return the payloads of the whole history."""
        query = "SELECT payload FROM agent_events WHERE namespace = '' AND state_id = ? ORDER BY revision"
        return await self._run(lambda: [row[0] for row in self._db.execute(query, (self._id,)).fetchall()])

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def aclose(self) -> None:
        """Close the connection and end the thread."""
        await self._run(self._db.close)
        self._thread.shutdown()


class RawPostgres:
    """asyncpg with one prepared statement an append."""

    def __init__(self, url: str, state_id: str) -> None:
        self._url, self._id = url, state_id
        self.revision = 0

    async def begin(self, revision: int) -> None:
        """Connect, and say which revision the State has."""
        self.revision = revision
        self._connection = await asyncpg.connect(self._url)
        moved = MOVE.format(now="clock_timestamp()", id="$1") + " RETURNING 1"
        self._append = await self._connection.prepare(
            f"WITH moved AS ({moved}) {ROW} SELECT '', $1, $2, 'message_added', 1, clock_timestamp(), NULL, 'x', $3 "
            "WHERE EXISTS (SELECT FROM moved)"
        )

    async def append(self, payload: str) -> None:
        """Move the header and insert one Event."""
        self.revision += 1
        await self._append.fetch(self._id, self.revision, payload)

    async def payloads(self) -> list[str]:
        """Return the payloads of the whole history."""
        query = "SELECT payload FROM agent_events WHERE namespace = '' AND state_id = $1 ORDER BY revision"
        return [row[0] for row in await self._connection.fetch(query, self._id)]

    async def aclose(self) -> None:
        """Close the connection."""
        await self._connection.close()
