"""aisuite's state stores: files and Postgres."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from aisuite.agents import FileStateStore
from aisuite.agents.postgres_state_store import PostgresStateStore
from aisuite.agents.types import RunState
from serving import TEXT, serve


class Conversation:
    """A RunState; `save_state` with the revision writes the whole state (files) or compares all of it (Postgres)."""

    def __init__(self, store: Any, id: str) -> None:
        self._store, self._id, self._revision = store, id, None
        self._state = RunState(agent_name="bench", messages=[])

    async def step(self) -> None:
        """Add one message and save."""
        await self.fill(1)

    async def fill(self, count: int) -> None:
        """Add many messages and save."""
        self._state.messages.extend({"role": "user", "content": TEXT, "id": "x" * 36} for _ in range(count))
        stored = await asyncio.to_thread(self._store.save_state, self._id, self._state, revision=self._revision)
        self._revision = stored.revision

    async def close(self) -> None:
        """Close the connection, if there is one."""
        if isinstance(self._store, PostgresStateStore):
            self._store.connection.close()


class Files:
    """The store of files."""

    async def open(self, place: str) -> None:
        """Name the folder."""
        self._place = place

    def _store(self) -> Any:
        return FileStateStore(self._place)

    async def start(self, id: str) -> Conversation:
        """Start a state."""
        return Conversation(self._store(), id)

    async def load(self, id: str) -> int:
        """Read a state."""
        store = self._store()
        found = await asyncio.to_thread(store.load_state, id)
        if isinstance(store, PostgresStateStore):
            store.connection.close()
        return len(found.state.messages)

    async def close(self) -> None:
        """Nothing is held."""


class Postgres(Files):
    """The store on Postgres, with a connection a conversation: one cannot be shared by threads."""

    async def open(self, place: str) -> None:
        """Make the tables."""
        await super().open(place)
        with psycopg.connect(place) as connection:
            PostgresStateStore(connection, create_schema=True)

    def _store(self) -> Any:
        return PostgresStateStore.from_dsn(self._place)


if __name__ == "__main__":
    serve({"files": Files, "postgres": Postgres})
