"""Google ADK's session services: SqliteSessionService, and DatabaseSessionService on SQLite and Postgres."""

from __future__ import annotations

from typing import Any

from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types
from serving import TEXT, serve

WHERE = {"app_name": "bench", "user_id": "user"}


class Conversation:
    """A session; `append_event` looks whether it is stale and inserts one row."""

    def __init__(self, service: Any, session: Any) -> None:
        self._service, self._session = service, session

    async def step(self) -> None:
        """Append one event."""
        content = types.Content(role="user", parts=[types.Part(text=TEXT)])
        await self._service.append_event(self._session, Event(author="user", invocation_id="one", content=content))

    async def fill(self, count: int) -> None:
        """Append events one by one: there is no call for many."""
        for _ in range(count):
            await self.step()

    async def close(self) -> None:
        """Nothing is held."""


class Sqlite:
    """The service."""

    async def open(self, place: str) -> None:
        """Make the service."""
        self._service: Any = SqliteSessionService(db_path=place)

    async def start(self, id: str) -> Conversation:
        """Start a session."""
        return Conversation(self._service, await self._service.create_session(**WHERE, session_id=id))

    async def load(self, id: str) -> int:
        """Read a session."""
        return len((await self._service.get_session(**WHERE, session_id=id)).events)

    async def close(self) -> None:
        """Close the service."""
        await self._service.close()


class Database(Sqlite):
    """The service on SQLAlchemy."""

    async def open(self, place: str) -> None:
        """Make the service."""
        postgres = place.startswith("postgres")
        url = place.replace("postgresql://", "postgresql+asyncpg://") if postgres else f"sqlite+aiosqlite:///{place}"
        self._service = DatabaseSessionService(db_url=url)


if __name__ == "__main__":
    serve({"sqlite": Sqlite, "database": Database, "database-postgres": Database})
