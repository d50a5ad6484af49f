"""URLs as people write them, and as the drivers take them."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents.errors import ConfigError
from alpineagents.stores.sql.migrate import async_url
from tests.migrations.databases import fetch


def shown(url: str | Path | URL) -> str:
    return async_url(url).render_as_string(hide_password=False)


@pytest.mark.parametrize(
    "written, meant",
    [
        ("agents.db", "sqlite+aiosqlite:///agents.db"),
        ("/data/agents.db", "sqlite+aiosqlite:////data/agents.db"),
        (Path("data/agents.db"), "sqlite+aiosqlite:///data/agents.db"),
        ("sqlite:///agents.db", "sqlite+aiosqlite:///agents.db"),
        (":memory:", "sqlite+aiosqlite:///%3Amemory%3A"),
        ("sqlite://", "sqlite+aiosqlite://"),
        ("postgresql://bob:pw@host:5432/db", "postgresql+asyncpg://bob:pw@host:5432/db"),
        ("postgres://bob:p%40w@host/db", "postgresql+asyncpg://bob:p%40w@host/db"),
        ("postgresql+asyncpg://host/db", "postgresql+asyncpg://host/db"),
        (make_url("postgresql://host/db"), "postgresql+asyncpg://host/db"),
    ],
)
def test_the_driver_is_chosen(written: str | Path | URL, meant: str) -> None:
    """A path is SQLite, and every spelling of Postgres is asyncpg."""
    assert shown(written) == meant


def test_a_path_may_begin_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the home folder, as in a shell."""
    monkeypatch.setenv("HOME", "/home/bob")

    assert async_url("~/agents.db").database == "/home/bob/agents.db"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "mysql://host/db",
        "postgresql+psycopg://host/db",
        "postgresql:host/db",
        "sqlite://agents.db",
        "postgresql://host:port/db",
        "postgresql://host/db?channel_binding=require",
    ],
)
def test_anything_else_is_refused_with_a_line_to_write(written: str) -> None:
    """The error shows a URL that would work, or what to leave out."""
    with pytest.raises(ConfigError, match=r"sqlite:///|postgresql://|leave it out"):
        async_url(written)


def test_parameters_of_libpq_become_those_of_asyncpg() -> None:
    """`sslmode` is `ssl`, what the driver knows by DSN goes there, and what is about waiting is left out."""
    url = async_url(
        "postgresql://host/db?sslmode=require&application_name=my%20app&connect_timeout=5&gssencmode=prefer"
    )

    assert url.query == {"ssl": "require", "dsn": "postgresql://?application_name=my+app"}


def test_a_password_among_the_parameters_takes_its_place() -> None:
    """There it is hidden wherever the URL is shown."""
    url = async_url("postgresql://host?user=bob&password=s3cret&dbname=orders")

    assert (url.username, url.password, url.database, url.query) == ("bob", "s3cret", "orders", {})


def test_twice_is_once() -> None:
    """A URL that was turned before stays as it is."""
    url = async_url("postgresql://host/db?application_name=a&sslmode=disable")

    assert async_url(url) == url


async def test_the_server_gets_the_parameters(postgres_url: str) -> None:
    """A real connection has the name and the options of the URL."""
    given = "application_name=my%20app&options=-c%20statement_timeout%3D7s&sslmode=disable&connect_timeout=5"
    engine = create_async_engine(async_url(f"{postgres_url}?{given}"))

    assert await fetch(engine, "SELECT current_setting('application_name')") == ["my app"]
    assert await fetch(engine, "SELECT current_setting('statement_timeout')") == ["7s"]
    await engine.dispose()
