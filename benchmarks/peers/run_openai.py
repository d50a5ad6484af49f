"""OpenAI Agents' sessions: SQLiteSession, and SQLAlchemySession on SQLite and Postgres."""

from __future__ import annotations

from typing import Any

from agents import SQLiteSession
from agents.extensions.memory import SQLAlchemySession
from serving import TEXT, serve
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

ITEM = {"role": "user", "content": TEXT, "id": "x" * 36}


class Conversation:
    """A session; `add_items` inserts rows in one transaction."""

    def __init__(self, session: Any) -> None:
        self.session = session

    async def step(self) -> None:
        """Add one item."""
        await self.session.add_items([ITEM])

    async def fill(self, count: int) -> None:
        """Add many items at once."""
        await self.session.add_items([ITEM] * count)

    async def close(self) -> None:
        """Close the connection of a SQLiteSession."""
        if isinstance(self.session, SQLiteSession):
            self.session.close()


class SQLite:
    """A SQLiteSession a conversation, as its page shows."""

    async def open(self, place: str) -> None:
        """Name the file."""
        self._place = place

    async def start(self, id: str) -> Conversation:
        """Start a session."""
        return Conversation(SQLiteSession(id, self._place))

    async def load(self, id: str) -> int:
        """Read all items with a new session."""
        session = SQLiteSession(id, self._place)
        try:
            return len(await session.get_items())
        finally:
            session.close()

    async def close(self) -> None:
        """Nothing is held."""


class Alchemy:
    """Sessions that share one engine."""

    _engine: AsyncEngine

    async def open(self, place: str) -> None:
        """Make the engine."""
        postgres = place.startswith("postgres")
        url = place.replace("postgresql://", "postgresql+asyncpg://") if postgres else f"sqlite+aiosqlite:///{place}"
        self._engine = create_async_engine(url)

    async def start(self, id: str) -> Conversation:
        """Start a session, and make the tables."""
        session = SQLAlchemySession(id, engine=self._engine, create_tables=True)
        await session.get_items(limit=1)
        return Conversation(session)

    async def load(self, id: str) -> int:
        """Read all items with a new session."""
        return len(await SQLAlchemySession(id, engine=self._engine).get_items())

    async def close(self) -> None:
        """Close the engine."""
        await self._engine.dispose()


if __name__ == "__main__":
    serve({"sqlite": SQLite, "alchemy": Alchemy, "alchemy-postgres": Alchemy})
