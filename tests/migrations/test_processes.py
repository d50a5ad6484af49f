"""Several processes at one empty database, and one that dies."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from alpineagents.stores.sql import migrate
from tests.migrations.databases import execute, fetch, tables

HERE = Path(__file__).parent


@contextmanager
def processes(script: str, *arguments: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, str(HERE / script), *arguments]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(count)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def start_together(url: str, *, sessions: int) -> list[str]:
    """Open the database in 8 processes at one instant; return what they print."""
    with processes("starter.py", url, str(sessions), count=8) as started:
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        return [process.communicate(timeout=90)[0] for process in started]


@pytest.mark.slow
async def test_eight_processes_start_on_an_empty_database(url: str, engine: AsyncEngine) -> None:
    """All of them start, and the schema is made once."""
    printed = start_together(url, sessions=1)

    assert printed == [""] * 8
    assert await fetch(engine, "SELECT version_num FROM alpineagents_version") == [migrate.head()]


@pytest.mark.slow
def test_160_sessions_of_8_processes_open_a_fresh_sqlite_file(tmp_path: Path) -> None:
    """None fails, although the switch to WAL heeds no busy timeout."""
    url = f"sqlite:///{tmp_path}/agents.db"

    printed = start_together(url, sessions=20)

    assert printed == [""] * 8
    migrate.check(url)


@pytest.mark.slow
async def test_a_kill_in_the_middle_leaves_what_was_there_before(url: str, engine: AsyncEngine) -> None:
    """After SIGKILL between two statements the database is empty, unlocked, and can be migrated."""
    await execute(engine, "CREATE TABLE invoices (id INTEGER)")
    with processes("stopper.py", url, count=1) as [process]:
        assert process.stdout is not None
        assert process.stdout.readline() == "middle\n"

    assert await tables(engine) == {"invoices"}
    assert migrate.upgrade(url) == migrate.head()
