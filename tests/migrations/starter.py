"""
A process that opens a database as an app does at its start: `starter.py URL SESSIONS`.

It says "ready", waits for a line, opens the database with so many engines at once, and prints the errors, one a line.
"""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents.stores.sql.migrate import async_url, ensure


async def start(url: str) -> None:
    engine = create_async_engine(async_url(url))
    try:
        await ensure(engine, schema=None, migrate=True)
    finally:
        await engine.dispose()


async def main(url: str, sessions: int) -> None:
    results = await asyncio.gather(*(start(url) for _ in range(sessions)), return_exceptions=True)
    for error in filter(None, results):
        print(repr(error))


if __name__ == "__main__":
    print("ready", flush=True)
    sys.stdin.readline()
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
