"""
The URLs that people write, turned into those of the drivers that are used here.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlencode

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from alpineagents.errors import ConfigError

_DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}

_OF_SQLALCHEMY = frozenset({"host", "port", "ssl", "prepared_statement_cache_size"})
_OF_SERVER = frozenset({"application_name", "options", "search_path", "statement_timeout", "lock_timeout", "timezone"})
_OF_DSN = _OF_SERVER | {
    "gsslib",
    "krbsrvname",
    "passfile",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslnegotiation",
    "sslpassword",
    "sslrootcert",
    "target_session_attrs",
}
_WITHOUT_EFFECT = frozenset(
    {
        "client_encoding",
        "connect_timeout",
        "keepalives",
        "keepalives_count",
        "keepalives_idle",
        "keepalives_interval",
    }
)


def async_url(url: str | Path | URL) -> URL:
    """
    Return the URL with the driver that the library uses.

    Parameters of libpq are handed to asyncpg in the form that it knows: `sslmode` as `ssl`, the others as its `dsn`.
    Those about waiting and keeping alive have no effect: the store has limits of its own.

    Args:
        url: a path, `sqlite:///…`, `postgresql://…` or `postgres://…`; `:memory:` or `sqlite://` for a database that
            lives as long as its engine.

    Raises:
        ConfigError: it is none of these. The message holds no part that could be a password.
    """
    parsed = _parsed(url)
    driver = _DRIVERS.get(parsed.drivername)
    if driver is None:
        raise ConfigError(
            f"{parsed.drivername!r} is no database that is known here. Write sqlite:///agents.db or "
            "postgresql://user:password@host/database; the driver is chosen for you"
        )
    parsed = parsed.set(drivername=driver)
    return _of_sqlite(parsed) if driver == "sqlite+aiosqlite" else _of_postgres(parsed)


def _parsed(url: str | Path | URL) -> URL:
    if isinstance(url, URL):
        return url
    if not isinstance(url, (str, Path)):
        raise ConfigError(
            f'a {type(url).__name__} names no database: write SQLStore("agents.db") or SQLStore("postgresql://…"); '
            "is the variable set that should hold the URL?"
        )
    if isinstance(url, Path) or "://" not in url:
        name = str(url)
        # One letter is a drive of Windows.
        unlike_a_path = re.match(r"[A-Za-z][A-Za-z0-9+.-]+:|postgres|sqlite/", name) or "\0" in name or "@" in name
        if not name or (isinstance(url, str) and unlike_a_path):
            raise ConfigError(
                "this is neither a path nor a URL: write agents.db, sqlite:///agents.db or postgresql://…"
            )
        return URL.create("sqlite", database=name if name == ":memory:" else str(Path(name).expanduser()))
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # The parsers' own words may quote a part of the password.
        raise ConfigError(
            "this URL cannot be read: write postgresql://user:password@host:5432/database, with %40 for @, %2F for / "
            "and %3A for : inside the password"
        ) from None


def _of_sqlite(url: URL) -> URL:
    if url.host is not None:
        raise ConfigError(f"a SQLite URL has three slashes before the path: sqlite:///{url.host}")
    return url


def _of_postgres(url: URL) -> URL:
    if url.host is not None and "@" in url.host:
        raise ConfigError("this URL has more than one @: write %40 for those inside the password")
    query = dict(url.query)
    parts = {name: _last(query.pop(name)) for name in ("user", "password", "dbname") if name in query}
    # In the URL's own place the password is hidden wherever the URL is shown.
    url = url.set(username=parts.get("user"), password=parts.get("password"), database=parts.get("dbname"))
    if "sslmode" in query:
        query["ssl"] = query.pop("sslmode")
    for name in ("channel_binding", "gssencmode"):
        # asyncpg has neither, so it is enough that they are not demanded.
        if query.get(name) in ("disable", "prefer"):
            query.pop(name)
    unknown = sorted(query.keys() - _OF_SQLALCHEMY - _OF_DSN - _WITHOUT_EFFECT - {"dsn"})
    if unknown:
        raise ConfigError(
            f"asyncpg does not understand {', '.join(unknown)} in the URL: leave it out, or make the engine yourself: "
            "SQLStore(create_async_engine(…))"
        )
    kept = {name: value for name, value in query.items() if name in _OF_SQLALCHEMY | {"dsn"}}
    dsn = {name: value for name, value in query.items() if name in _OF_DSN}
    if dsn:
        kept["dsn"] = f"postgresql://?{urlencode(dsn, doseq=True)}"
    return url.set(query=kept)


def _last(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else value[-1]


def place(url: URL) -> str:
    """Return the database as people write it, with *** for the password."""
    if url.get_backend_name() == "sqlite":
        return url.database or ":memory:"
    return url.set(drivername=url.get_backend_name(), query={}).render_as_string(hide_password=True)


def check_schema(schema: str | None, backend: str) -> None:
    """Refuse a schema where the database has none."""
    if schema is not None and backend != "postgresql":
        raise ConfigError(f"schema={schema!r} is for Postgres only: leave it out for {backend}")


def is_in_memory(url: URL) -> bool:
    """Tell whether it is a SQLite database that lives as long as its engine."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def sqlite_file(url: URL) -> str | None:
    """Return the file of a SQLite database, None for one in memory, another database, or a name with options in it."""
    in_a_file = url.get_backend_name() == "sqlite" and url.database != ":memory:" and "uri" not in url.query
    return (url.database or None) if in_a_file else None
