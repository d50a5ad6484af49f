"""What must hold of a history after any failure, and the small States and Agents that the tests here use."""

from __future__ import annotations

from typing import Any

import anyio
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import Message, SQLStore, State
from alpineagents.stores.sql.urls import async_url


def new_state(id: str = "s", *words: str) -> State:
    """Return a State in which something was said."""
    return State(id=id, messages=[Message.user(word) for word in words or ("hello",)])


async def check_saved(store: SQLStore, state: State) -> None:
    """Hold what is stored against the State in memory: the same Events in the same order, each once, none missing."""
    loaded = await store.load(state.id)

    assert state.unsaved == ()
    assert [event.revision for event in loaded.history] == list(range(1, state.revision + 1))
    assert list(loaded.history) == list(state.history)
    assert loaded.snapshot() == state.snapshot()
    assert (await store.info(state.id)).revision == state.revision


async def texts(store: SQLStore, id: str = "s") -> list[str]:
    """Return what was said in a State, as the store has it."""
    return [message.text for message in (await store.load(id)).messages]


async def query(url: str, statement: str, **params: Any) -> list[Any]:
    """Run a statement past the store and return its rows."""
    engine = create_async_engine(async_url(url))
    try:
        async with engine.begin() as connection:
            result = await connection.execute(text(statement), params)
            return list(result.all()) if result.returns_rows else []
    finally:
        await engine.dispose()


async def end_leases(url: str) -> None:
    """Let the time pass that a dead run owns its State for."""
    await query(url, "UPDATE agent_states SET lease_until = lease_until - INTERVAL '1 day'")


async def check_nothing_is_held(url: str) -> None:
    """Hold the server to it that soon no session has an open transaction, nor a lock on our tables."""
    with anyio.fail_after(10):
        while await query(url, _HELD):
            await anyio.sleep(0.02)


_HELD = """
    SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
    UNION
    SELECT pid FROM pg_locks JOIN pg_class ON pg_class.oid = relation
    WHERE pid <> pg_backend_pid() AND relname LIKE 'agent%'
      AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def connections_out(store: SQLStore) -> int:
    """Return how many connections are taken out of the pool of this event loop."""
    checked_out: int = store._databases.here().engine.pool.checkedout()
    return checked_out
