"""The peers' programs as processes: one question a line, one answer a line, and an end that does not hang."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from benchmarks.peers.catalog import Peer

FOLDER = Path(__file__).parent / "peers"
QUESTIONS = {
    "written": "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint",
    "size": (
        "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE relkind = 'r' AND nspname NOT IN ('pg_catalog', 'information_schema')"
    ),
}


class PeerFailedError(Exception):
    """A peer's program ended, or did not answer in time; the message ends with what it said."""


def python_of(peer: Peer, environments: Path | None) -> Path | None:
    """Return the Python that has the peer, or None where it is not installed."""
    if peer.environment is None:
        return Path(sys.executable)
    found = environments and environments / peer.environment / "bin" / "python"
    return found if found and found.exists() else None


class Program:
    """One process of a peer's program."""

    def __init__(self, python: Path, name: str, **env: str) -> None:
        self.name = name
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed in close()
        # Without PYTHONPATH: in a peer's environment its own package must be found, which may bear this one's name.
        own = python == Path(sys.executable)
        inherited = {name: value for name, value in os.environ.items() if own or name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            [str(python), str(FOLDER / name)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, bufsize=1,
            env={**inherited, "PYTHONWARNINGS": "ignore", "OTEL_SDK_DISABLED": "true", **env},
        )  # fmt: skip

    def say(self, **request: Any) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerFailedError(self._last_words()) from None

    def hear(self, seconds: float, database: str | None = None) -> Any:
        """Wait for the answer, at most so long; answer questions about the database that come before it."""
        assert self._process.stdout is not None
        # Only this process is ended, by its own handle.
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                heard = json.loads(line)
                if "answer" in heard:
                    return heard["answer"]
                assert self._process.stdin is not None
                print(asyncio.run(query(str(database), QUESTIONS[heard["ask"]])), file=self._process.stdin, flush=True)
        finally:
            timer.cancel()
        raise PeerFailedError(self._last_words())

    def ask(self, seconds: float, database: str | None = None, **request: Any) -> Any:
        """Send a request and wait for its answer."""
        self.say(**request)
        return self.hear(seconds, database)

    def _last_words(self) -> str:
        self._process.wait(10)
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines() or ["it said nothing"]
        return f"{self.name}: {lines[-1][:300]}"

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


async def query(url: str, sql: str) -> Any:
    """Ask a Postgres for one value."""
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(sql)
    finally:
        await connection.close()


@dataclass(frozen=True)
class Place:
    """Where a peer writes: a path or a URL, and the same as a request says it."""

    target: str
    postgres: bool

    @property
    def asked(self) -> dict[str, Any]:
        """As a request names it."""
        return {"place": self.target, "postgres": self.postgres}

    @property
    def database(self) -> str | None:
        """The URL to ask about sizes."""
        return self.target if self.postgres else None


@contextmanager
def fresh_place(peer: Peer, postgres: str | None) -> Iterator[Place]:
    """Give a new folder or a new database of the server, and remove it."""
    if peer.database != "Postgres":
        folder = Path(tempfile.mkdtemp(prefix="bench-"))
        try:
            yield Place(str(folder / "conversations.db"), postgres=False)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    assert postgres is not None
    name = f"bench_{uuid.uuid4().hex}"
    asyncio.run(query(postgres, f"CREATE DATABASE {name}"))
    try:
        yield Place(postgres.rpartition("/")[0] + f"/{name}", postgres=True)
    finally:
        asyncio.run(query(postgres, f"DROP DATABASE {name} WITH (FORCE)"))
