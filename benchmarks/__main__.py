"""`python -m benchmarks`: what an append, many at once, a load and a list cost, as ratios to the driver alone."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import tempfile
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import SQLStore
from alpineagents.stores.sql.urls import async_url
from benchmarks.figures import Figure, at_once, lists, processes, reading, room, steps, turn
from benchmarks.raw import raw_of

ROUNDS = 300


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


async def measure(name: str, url: str, rounds: int) -> list[Figure]:
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


def table(name: str, figures: list[Figure]) -> None:
    """Print what was measured."""
    print(f"\n{name}\n\n| work | median | from | to | target | |\n|---|---|---|---|---|---|")
    for figure in figures:
        bound = "" if figure.target is None else f"{'≥' if figure.at_least else '≤'} {figure.target:g}"
        words = "falls short" if figure.falls_short else ""
        values = " | ".join(f"{value:,.2f}" for value in (figure.median, min(figure.values), max(figure.values)))
        print(f"| {figure.name} | {values} | {bound} | {words} |")


async def main() -> None:
    """Run what the arguments ask for and print tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="appends of each kind (default: %(default)s)")
    parser.add_argument(
        "--postgres", default=os.environ.get("DATABASE_URL"), help="URL of an empty database (default: DATABASE_URL)"
    )
    parser.add_argument("--folder", help="where the SQLite file is made (default: the one for temporary files)")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    found: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        found["SQLite"] = await measure("SQLite", f"{folder}/bench.db", given.rounds)
        table("SQLite", found["SQLite"])
    if given.postgres:
        found["Postgres"] = await measure("Postgres", given.postgres, given.rounds)
        table("Postgres", found["Postgres"])
    found["memory"] = await turn(given.rounds)
    table("memory", found["memory"])
    if given.json:
        plain = {name: {figure.name: list(figure.values) for figure in figures} for name, figures in found.items()}
        given.json.write_text(json.dumps(plain, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    asyncio.run(main())
