"""What all tests share: the event loop they run on, and a real Postgres that nobody has to set up."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest

from tests.postgres_server import PostgresServer, PostgresServerError

T = TypeVar("T")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background of a shell, which has its children ignore Ctrl+C; those of the tests must not.
    signal.signal(signal.SIGINT, signal.default_int_handler)

POSTGRES_FIXTURES = {"postgres_url", "migrated_postgres_url", "postgres_server", "postgres_admin_url"}
URL_VARIABLE = "ALPINE_TEST_POSTGRES_URL"
SWITCH_VARIABLE = "ALPINE_TEST_POSTGRES"


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run async tests on asyncio; those of `ON_BOTH` run on trio too, where their store does."""
    return "asyncio"


ON_BOTH = {"agent", "approvals", "test_calls.py", "test_fork.py", "test_kit.py", "test_post.py"}
"""The folders and files of tests whose subject stands on anyio alone."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have async tests run on both event loops."""
    named = any("anyio_backend" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    path = metafunc.definition.path
    if ON_BOTH & {path.name, path.parent.name} and inspect.iscoroutinefunction(metafunc.function) and not named:
        metafunc.parametrize("anyio_backend", ["asyncio", "trio"])


def runs_nowhere(item: pytest.Function) -> bool:
    """Tell whether a test was put on trio that needs asyncio: by itself, or for a database."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if params.get("anyio_backend") != "trio":
        return False
    # The programs of the tests choose their event loop by themselves.
    needs_asyncio = {"shared", *POSTGRES_FIXTURES}.intersection(item.fixturenames)
    return (
        bool(needs_asyncio)
        or item.get_closest_marker("asyncio_only") is not None
        or any(str(value).startswith(("sqlite", "postgres")) for value in params.values())
    )


# One server for a run


@dataclass
class Postgres:
    """What a run knows of its server: where it is, why it could not be had, or that it was left out."""

    url: str | None = None
    error: str | None = None
    server: PostgresServer | None = None

    @classmethod
    def find(cls) -> Postgres:
        """Take the server that the environment names, or start one."""
        if left_out():
            return cls()
        named = os.environ.get(URL_VARIABLE)
        if named:
            return cls(url=named)
        try:
            server = PostgresServer()
        except PostgresServerError as error:
            return cls(error=str(error))
        return cls(url=server.url, server=server)

    def close(self) -> None:
        if self.server is not None:
            self.server.close()


POSTGRES: pytest.StashKey[Postgres] = pytest.StashKey()


def left_out() -> bool:
    return os.environ.get(SWITCH_VARIABLE, "").lower() == "off"


def skip_if_left_out() -> None:
    if left_out():
        pytest.skip(f"{SWITCH_VARIABLE}=off leaves the Postgres tests out")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start the server in the process that starts the workers, and tell each worker of it: it outlives every worker."""
    postgres = node.config.stash.setdefault(POSTGRES, None) or Postgres.find()
    node.config.stash[POSTGRES] = postgres
    node.workerinput["postgres_url"] = postgres.url
    node.workerinput["postgres_error"] = postgres.error


def pytest_unconfigure(config: pytest.Config) -> None:
    postgres = config.stash.get(POSTGRES, None)
    if postgres is not None:
        postgres.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Postgres, so that `pytest -m postgres` runs just that, and leave out what cannot be on trio."""
    items[:] = [item for item in items if not isinstance(item, pytest.Function) or not runs_nowhere(item)]
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        asked = any(isinstance(value, str) and value == "postgres" for value in parameters)
        if asked or POSTGRES_FIXTURES.intersection(item.fixturenames):
            item.add_marker("postgres")


@pytest.fixture(scope="session")
def postgres_admin_url(request: pytest.FixtureRequest) -> str:
    """The URL of the run's server, with the right to create databases. Skips only where Postgres is switched off."""
    skip_if_left_out()
    config = request.config
    given = getattr(config, "workerinput", None)
    if given is not None:
        postgres = Postgres(url=given["postgres_url"], error=given["postgres_error"])
    else:
        postgres = config.stash.get(POSTGRES, None) or Postgres.find()
        config.stash[POSTGRES] = postgres
    if postgres.url is None:
        pytest.fail(str(postgres.error), pytrace=False)
    return postgres.url


# A database for each test


@pytest.fixture
def postgres_url(postgres_admin_url: str) -> Iterator[str]:
    """A fresh, empty database, dropped after the test with whatever is still connected to it."""
    with database(postgres_admin_url, template="template0") as url:
        yield url


@pytest.fixture
def migrated_postgres_url(postgres_admin_url: str, migrated_template: str) -> Iterator[str]:
    """A fresh database that holds the library's tables, dropped after the test."""
    with database(postgres_admin_url, template=migrated_template) as url:
        yield url


@pytest.fixture(scope="session")
def migrated_template(postgres_admin_url: str) -> Iterator[str]:
    """The name of a database that was migrated once, for this worker to copy."""
    from alpineagents.stores.sql.migrate import upgrade

    with database(postgres_admin_url, template="template0") as url:
        in_a_thread(lambda: finished(upgrade(url)))
        yield urlsplit(url).path.removeprefix("/")


@pytest.fixture
def postgres_server() -> Iterator[PostgresServer]:
    """A server for this test alone, to be stopped and started: `.url`, `.stop_immediate()`, `.start()`."""
    skip_if_left_out()
    try:
        server = PostgresServer()
    except PostgresServerError as error:
        pytest.fail(str(error), pytrace=False)
    with server:
        yield server


@contextmanager
def database(admin_url: str, *, template: str) -> Iterator[str]:
    """Create a database as a copy of another, and drop it at the end."""
    name = f"alpine_test_{uuid.uuid4().hex}"
    execute(admin_url, f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    try:
        yield urlunsplit(urlsplit(admin_url)._replace(path=f"/{name}"))
    finally:
        execute(admin_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def execute(url: str, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(url, timeout=30)
        try:
            await connection.execute(statement, timeout=60)
        finally:
            await connection.close(timeout=10)

    in_a_thread(lambda: asyncio.run(run()))


def finished(value: Any) -> Any:
    """Wait for what a function gave, if it is an async one."""
    if not inspect.isawaitable(value):
        return value

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def in_a_thread(function: Callable[[], T]) -> T:
    """
    Call a function that starts an event loop of its own.

    A fixture may be asked for while the test's own loop runs, and a thread that runs one cannot start another.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that asked
            errors.append(error)

    thread = threading.Thread(target=call, name="postgres-admin")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
