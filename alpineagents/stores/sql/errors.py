"""The errors of drivers, translated by their codes in this one place."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from alpineagents.errors import StoreError, StoreSchemaError, StoreUnavailableError

_LATER = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)
_NO_TABLE = "42P01"

ERRORS = (DBAPIError, asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error, OSError, PoolTimeoutError)
"""What SQLAlchemy, the drivers and their sockets raise."""


@contextmanager
def translated(place: str) -> Iterator[None]:
    """
    Raise the library's errors for the drivers'.

    Args:
        place: the database as people name it, without a password.
    """
    try:
        yield
    except ERRORS as error:
        raise translate(error, place) from error


def translate(error: Exception, place: str) -> Exception:
    """Return the library's error for one of a driver; an error that is no fault of the database comes back as it is."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(error, DBAPIError) and isinstance(cause.__cause__, (asyncpg.PostgresError, asyncpg.InterfaceError)):
        cause = cause.__cause__
    if isinstance(cause, sqlite3.Error):
        return _of_sqlite(cause, place)
    if isinstance(cause, asyncpg.PostgresError) and not isinstance(cause, asyncpg.PostgresConnectionError):
        return _of_postgres(cause, place)
    if isinstance(cause, ValueError):
        # The driver cannot encode a value.
        return StoreError(f"{place} cannot take what was given: {_short(cause)}")
    unreachable = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError, PoolTimeoutError)
    if isinstance(cause, TimeoutError):
        return StoreUnavailableError(
            f"{place} does not answer: {_short(cause)}. Is the server running, and is this its address? Where it runs, "
            "another session may hold a lock on what was asked for: look for its `wait_event_type` in pg_stat_activity"
        )
    if isinstance(cause, unreachable) or isinstance(error, (OperationalError, InterfaceError)):
        return StoreUnavailableError(
            f"{place} does not answer: {_short(cause)}. Is the server running, and is this its address?"
        )
    return StoreError(f"{place} failed: {_short(cause)}")


def _of_sqlite(error: sqlite3.Error, place: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    # The low byte is the code itself, the rest says more about it.
    if code is not None and code & 0xFF in _LATER:
        return StoreUnavailableError(
            f"{place} is locked by another process, or by a tool in a transaction, that does not let go: "
            f"{_short(error)}"
        )
    if code is not None and code & 0xFF == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailableError(f"{place} cannot be opened. Is there such a folder, and may you write to it?")
    return StoreError(f"{place} failed: {_short(error)}")


def _of_postgres(error: asyncpg.PostgresError, place: str) -> StoreError:
    state = error.sqlstate or ""
    if state == _NO_TABLE:
        return StoreSchemaError(f"{place} has no tables of alpineagents: run `alpineagents db upgrade`")
    if state.startswith(("08", "53", "55", "57", "40", "3D", "28")):
        return StoreUnavailableError(f"{place} cannot be used now: {_short(error)}")
    return StoreError(f"{place} failed: {_short(error)}")


def _short(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:500]
