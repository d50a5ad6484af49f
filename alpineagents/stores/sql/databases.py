"""
The databases of a SQL store: one for each event loop that uses it, since connections belong to the loop that made them.

What is left of a loop that was closed, or of the process that this one was forked from, is let go of without harm.
"""

from __future__ import annotations

import asyncio
import os

from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncEngine

from alpineagents.errors import ConfigError, StoreClosedError, StoreError
from alpineagents.stores.sql import postgres, sqlite
from alpineagents.stores.sql.database import Database
from alpineagents.stores.sql.urls import is_in_memory, place
from alpineagents.sync import close_at_exit

BACKENDS = {
    "sqlite": (sqlite.make_engine, sqlite.SQLiteDatabase),
    "postgresql": (postgres.make_engine, postgres.PostgresDatabase),
}


_INHERITED: list[object] = []
"""The pools of the process that this one was forked from."""


class Databases:
    """The databases of a store, one for each event loop that uses it; the views of a store share them."""

    def __init__(self, target: URL | AsyncEngine, schema: str | None, migrate: bool, patience: float) -> None:
        self.target, self.schema, self.migrate, self.patience = target, schema, migrate, patience
        self.place = place(self.url)
        self.closed = False
        self.pid = os.getpid()
        self.by_loop: dict[asyncio.AbstractEventLoop, Database] = {}

    @property
    def url(self) -> URL:
        return self.target.url if isinstance(self.target, AsyncEngine) else self.target

    @property
    def in_memory(self) -> bool:
        return is_in_memory(self.url)

    def here(self) -> Database:
        if self.closed:
            raise StoreClosedError(f"SQLStore({self.place!r})")
        if self.pid != os.getpid():
            self._forget()
        loop = _running_loop()
        database = self.by_loop.get(loop)
        if database is None:
            self._abandon_closed()
            self._check_second_loop()
            database = self.by_loop[loop] = self._make()
            close_at_exit(database.close)
        return database

    def _make(self) -> Database:
        make_engine, kind = BACKENDS[self.url.get_backend_name()]
        owned = not isinstance(self.target, AsyncEngine)
        engine = make_engine(self.target, self.patience) if isinstance(self.target, URL) else self.target
        options = {"schema": self.schema, "migrate": self.migrate, "owned": owned, "patience": self.patience}
        return kind(engine, **options)

    def _check_second_loop(self) -> None:
        if not self.by_loop:
            return
        if isinstance(self.target, AsyncEngine):
            raise StoreError(
                "the AsyncEngine of this SQLStore belongs to another event loop. Give the store a URL instead, "
                'SQLStore("postgresql://…"), and it opens connections of its own in each loop'
            )
        if self.in_memory:
            raise StoreError(
                "a SQLite database in memory lives in the event loop that made it, and this is another. "
                'Use a file: SQLStore("agents.db")'
            )

    def _abandon_closed(self) -> None:
        for loop, database in list(self.by_loop.items()):
            if loop.is_closed() and database.owned and not self.in_memory:
                database.abandon()
                del self.by_loop[loop]

    def _forget(self) -> None:
        # After a fork the sockets are the parent's: closing them here would end its sessions.
        for database in self.by_loop.values():
            if database.owned:
                # Kept for ever: the end of a connection object would take its socket from what the parent watches.
                _INHERITED.append(database.engine.sync_engine.pool)
                database.engine.sync_engine.dispose(close=False)
        in_use, self.pid = bool(self.by_loop), os.getpid()
        if in_use and isinstance(self.target, URL):
            self.by_loop.clear()

    async def aclose(self) -> None:
        self.closed = True
        self._abandon_closed()
        here = asyncio.get_running_loop()
        for loop, database in list(self.by_loop.items()):
            if loop is here:
                await database.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(database.close(), loop))
            else:
                continue  # it rests: what belongs to it can be closed once it runs again
            del self.by_loop[loop]


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigError(
            'SQLStore runs on asyncio only, since its drivers do: anyio.run(main, backend="asyncio"). '
            'On trio there are FileStore(".agent-runs") and MemoryStore()'
        ) from None
