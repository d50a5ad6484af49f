"""The drivers alone: a compare-and-set of a header and one row, in one durable transaction."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
from serving import TEXT, serve

TABLES = """
CREATE TABLE IF NOT EXISTS heads (id TEXT PRIMARY KEY, revision BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS rows (
  id TEXT NOT NULL, revision BIGINT NOT NULL, payload TEXT NOT NULL, PRIMARY KEY (id, revision)
);
"""
PAYLOAD = json.dumps({"message": {"role": "user", "content": [{"type": "text", "text": TEXT}]}, "at": "x" * 60})


class Conversation:
    """A header and its rows."""

    def __init__(self, peer: Any, id: str) -> None:
        self._peer, self._id, self._revision = peer, id, 0

    async def step(self) -> None:
        """Move the header and insert a row."""
        await self._peer.append(self._id, self._revision, 1)
        self._revision += 1

    async def fill(self, count: int) -> None:
        """Insert many rows at once."""
        await self._peer.append(self._id, self._revision, count)
        self._revision += count

    async def close(self) -> None:
        """Nothing is held."""


class SQLite:
    """sqlite3 on a thread of its own, one hop a transaction."""

    async def open(self, place: str) -> None:
        """Connect."""
        self._thread = ThreadPoolExecutor(1)

        def connect() -> sqlite3.Connection:
            db = sqlite3.connect(place, isolation_level=None, timeout=20)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.executescript(TABLES)
            return db

        self._db = await self._run(connect)

    async def _run(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def start(self, id: str) -> Conversation:
        """Insert a header."""
        await self._run(lambda: self._db.execute("INSERT INTO heads VALUES (?, 0)", (id,)))
        return Conversation(self, id)

    async def append(self, id: str, revision: int, count: int) -> None:
        """Compare and set, and insert."""

        def write() -> None:
            self._db.execute("BEGIN IMMEDIATE")
            moved = self._db.execute(
                "UPDATE heads SET revision = revision + ? WHERE id = ? AND revision = ?", (count, id, revision)
            )
            assert moved.rowcount == 1
            rows = [(id, revision + n + 1, PAYLOAD) for n in range(count)]
            self._db.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")

        await self._run(write)

    async def load(self, id: str) -> int:
        """Read and decode."""
        query = "SELECT payload FROM rows WHERE id = ? ORDER BY revision"
        return len(await self._run(lambda: [json.loads(row[0]) for row in self._db.execute(query, (id,))]))

    async def close(self) -> None:
        """Close the connection and end the thread."""
        await self._run(self._db.close)
        self._thread.shutdown()


class Postgres:
    """asyncpg, one prepared statement an append."""

    async def open(self, place: str) -> None:
        """Connect."""
        self._pool = await asyncpg.create_pool(place, min_size=1, max_size=5)
        await self._pool.execute(TABLES)

    async def start(self, id: str) -> Conversation:
        """Insert a header."""
        await self._pool.execute("INSERT INTO heads VALUES ($1, 0)", id)
        return Conversation(self, id)

    async def append(self, id: str, revision: int, count: int) -> None:
        """Compare and set, and insert, in one statement."""
        done = await self._pool.execute(
            "WITH moved AS (UPDATE heads SET revision = revision + $3 WHERE id = $1 AND revision = $2 RETURNING 1) "
            "INSERT INTO rows SELECT $1, $2 + n, $4 FROM generate_series(1, $3) n WHERE EXISTS (SELECT FROM moved)",
            id, revision, count, PAYLOAD,
        )  # fmt: skip
        assert done == f"INSERT 0 {count}"

    async def load(self, id: str) -> int:
        """Read and decode."""
        rows = await self._pool.fetch("SELECT payload FROM rows WHERE id = $1 ORDER BY revision", id)
        return len([json.loads(row[0]) for row in rows])

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()


if __name__ == "__main__":
    serve({"sqlite": SQLite, "postgres": Postgres})
