"""
A process that dies at a chosen moment, by its own hand, so that nothing depends on the clock.

A moment is `before N`, `inside N` or `after N` for the append that saves Event N, or any other name that a program
gives to a place in it. Inside an append means: in a file, before what was written is seen to the disk; in SQLite,
before the commit of what was written; on a server, once the statement has been sent and before its reply.
"""

from __future__ import annotations

import asyncio.selector_events
import os
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from alpineagents import Event, StateKey, Store


class Death:
    """Waits for one moment."""

    def __init__(self, moment: str) -> None:
        self.moment = moment
        self._is_inside = False

    def at(self, moment: str) -> None:
        """Die, if this is the moment."""
        if self.moment == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, events: Sequence[Event]) -> None:
        """Die before these Events are appended, or be ready to die inside."""
        for event in events:
            self.at(f"before {event.revision}")
        self._is_inside = self.moment in [f"inside {event.revision}" for event in events]

    def inside(self) -> None:
        """Die, if this is an append to die inside of."""
        if self._is_inside:
            os.kill(os.getpid(), signal.SIGKILL)

    def after(self, events: Sequence[Event]) -> None:
        """Die behind these Events."""
        if self._is_inside:
            raise RuntimeError(f"nothing that was seen happened {self.moment!r}")
        for event in events:
            self.at(f"after {event.revision}")


def die_in(
    store: Store,
    death: Death,
    acknowledge: Callable[[int], None],
    concerns: Callable[[StateKey], bool] = lambda _key: True,
) -> None:
    """
    Let the process die in the appends of a store.

    Args:
        acknowledge: called with each new revision that the store has answered with.
        concerns: of which States the appends are meant.
    """
    kind: Any = type(store)

    class Dying(kind):
        async def append(self, key: Any, events: Sequence[Event], **how: Any) -> int:
            if not concerns(key):
                others: int = await super().append(key, events, **how)
                return others
            death.before(events)
            landed: int = await super().append(key, events, **how)
            death.after(events)
            acknowledge(landed)
            return landed

        @asynccontextmanager
        async def transaction(self) -> AsyncIterator[Any]:
            appended: list[Event] = []
            async with super().transaction() as transaction:
                below = transaction.append

                async def append(key: Any, events: Sequence[Event], **how: Any) -> int:
                    death.before(events)
                    appended.extend(events)
                    landed: int = await below(key, events, **how)
                    return landed

                transaction.append = append
                yield transaction
            death.after(appended)
            acknowledge(appended[-1].revision)

    store.__class__ = Dying
    _see_files(death)
    _see_sqlite(death)
    _see_sockets(death)


def _see_files(death: Death) -> None:
    sync = os.fsync

    def fsync(file: int) -> None:
        death.inside()
        sync(file)

    os.fsync = fsync


def _see_sqlite(death: Death) -> None:
    connect = sqlite3.connect

    def connect_traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda sql: death.inside() if sql == "COMMIT" else None)
        return connection

    sqlite3.connect = connect_traced


def _see_sockets(death: Death) -> None:
    transport: Any = asyncio.selector_events._SelectorSocketTransport
    write = transport.write

    def write_and_die(self: Any, data: Any) -> None:
        write(self, data)
        death.inside()

    transport.write = write_and_die
