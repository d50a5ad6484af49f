"""Plain ways to look into a database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine


async def execute(engine: AsyncEngine, *statements: str) -> None:
    """Run statements in a transaction."""
    async with engine.begin() as connection:
        for statement in statements:
            await connection.execute(text(statement))


async def fetch(engine: AsyncEngine, statement: str) -> list[Any]:
    """Return the first column of a query."""
    async with engine.connect() as connection:
        return list((await connection.execute(text(statement))).scalars())


async def tables(engine: AsyncEngine) -> set[str]:
    """Return the names of all tables that an app could have made."""
    if engine.dialect.name == "sqlite":
        return set(await fetch(engine, "SELECT name FROM sqlite_master WHERE type = 'table'"))
    return set(
        await fetch(
            engine, "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        )
    )
