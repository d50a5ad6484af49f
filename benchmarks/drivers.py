"""The store beside the driver alone, on the same tables: what an append, many at once, a load and a list cost."""

from __future__ import annotations

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import SQLStore
from alpineagents.stores.sql.urls import async_url
from benchmarks.figures import Figure, at_once, lists, processes, reading, room, steps, turn
from benchmarks.pair import ON_POSTGRES, OURS
from benchmarks.programs import fresh_place
from benchmarks.raw import raw_of


def measure(postgres: str | None, *, rounds: int) -> dict[str, list[Figure]]:
    """
    Measure each database, and a run without one.

    Args:
        rounds: appends of each kind.
    """
    found: dict[str, list[Figure]] = {}
    for peer in (OURS, ON_POSTGRES) if postgres else (OURS,):
        with fresh_place(peer, postgres) as place:
            found[peer.database] = asyncio.run(of_database(peer.database, place.target, rounds))
    found["memory"] = asyncio.run(turn(rounds))
    return found


async def fill(url: str, number: int) -> None:
    """Put so many headers into a database, each a second older than the one before."""
    is_postgres = url.startswith("postgres")
    columns = "(namespace, id, revision, status, created_at, updated_at, first_message, summary)"
    values = "'', 'listed-' || i, 1, 'ready', {at}, {at}, 'hello', '{{}}'"
    if is_postgres:
        at = "CAST('2020-01-01' AS TIMESTAMPTZ) - make_interval(secs => i)"
        rows = f"SELECT {values.format(at=at)} FROM generate_series(1, {number}) AS i"
    else:
        at = "strftime('%Y-%m-%d %H:%M:%S.000000', '2020-01-01', '-' || i || ' seconds')"
        numbers = f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {number})"
        rows = f"{numbers} SELECT {values.format(at=at)} FROM n"
    engine = create_async_engine(async_url(url))
    async with engine.begin() as connection:
        await connection.exec_driver_sql(f"INSERT INTO agent_states {columns} {rows}")
    if is_postgres:
        async with engine.connect() as connection:
            await (await connection.execution_options(isolation_level="AUTOCOMMIT")).execute(text("VACUUM ANALYZE"))
    await engine.dispose()


async def of_database(name: str, url: str, rounds: int) -> list[Figure]:
    """Measure one database."""
    async with SQLStore(url, migrate=True) as store:
        raw = raw_of(url)
        figures = await room(store, raw, name)
        figures += await steps(store, raw, rounds)
        figures += await reading(store, raw)
        figures += await at_once(store, url, rounds)
        figures += await processes(url, rounds // 6)
        figures += await lists(store, raw, lambda number: fill(url, number))
        await raw.aclose()
    return figures
