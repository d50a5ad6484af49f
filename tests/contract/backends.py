"""The places where States are kept, and ways to get at what lies in them without the library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from alpineagents import FileStore, MemoryStore, Message, SQLStore, State, StateKey, Store
from alpineagents.stores.file.format import from_line

HEADER_COLUMNS = ("status", "first_message", "summary", "updated_at")


@dataclass
class Backend:
    """
    A place where States are kept.

    Attributes:
        url: how its store is told of it; None for a store in memory.
    """

    name: str
    url: str | None

    @property
    def is_sql(self) -> bool:
        return self.url is not None and self.name != "files"

    @property
    def code(self) -> str:
        """The Python that makes a store on this place, for programs."""
        return f"{'FileStore' if self.name == 'files' else 'SQLStore'}({self.url!r})"

    def open(self) -> Store:
        """Return a new store on this place."""
        if self.url is None:
            return MemoryStore()
        return FileStore(self.url) if self.name == "files" else SQLStore(self.url)


def engine_of(store: Store) -> AsyncEngine:
    """Return the engine that a SQLStore uses in this event loop."""
    assert isinstance(store, SQLStore)
    return store._databases.here().engine


async def execute(store: Store, statement: str, **params: Any) -> list[Any]:
    """Run a statement of one's own in the database of a store, and return its rows."""
    async with engine_of(store).begin() as connection:
        result = await connection.execute(text(statement), params)
        return list(result.all()) if result.returns_rows else []


@contextmanager
def reads_of(store: Store) -> Iterator[list[str]]:
    """Note what a store reads in its database, each as a statement that could be run by itself."""
    assert isinstance(store, SQLStore)
    database = store._databases.here()
    fetch, noted = database.fetch, list[str]()

    async def note(sql: str, params: Mapping[str, object]) -> Sequence[Sequence[Any]]:
        terms = {
            name: f"'{value}'" if isinstance(value, (str, datetime)) else str(value) for name, value in params.items()
        }
        names = {**database._names, "time": database.time}
        noted.append(re.sub(r":(\w+)", lambda found: terms[found[1]], sql.format(**names)))
        return await fetch(sql, params)

    database.fetch = note  # type: ignore[method-assign]
    try:
        yield noted
    finally:
        database.fetch = fetch  # type: ignore[method-assign]


def file_of(store: FileStore, id: str, name: str) -> Path:
    """Return a file of a State in a FileStore."""
    return store._folder(StateKey(store.namespace, id)).path / name


def lines_of(store: FileStore, id: str) -> dict[int, int]:
    """Return where the line of each revision stands in the history's file."""
    lines = file_of(store, id, "events.jsonl").read_text().splitlines()
    places = [place for place, line in enumerate(lines) if not line.startswith('{"format":')]
    return {json.loads(lines[place].partition(',"payload":')[0] + "}")["revision"]: place for place in places}


def change_line(store: FileStore, id: str, revision: int, columns: dict[str, Any] | None) -> None:
    """Write other columns into the line of an Event, or take it away."""
    file, place = file_of(store, id, "events.jsonl"), lines_of(store, id)[revision]
    lines = file.read_text().splitlines(keepends=True)
    if columns is None:
        del lines[place]
    else:
        head, _, payload = lines[place].partition(',"payload":')
        named = {**json.loads(head + "}"), **{name: columns[name] for name in columns if name != "payload"}}
        lines[place] = json.dumps(named)[:-1] + ',"payload":' + columns.get("payload", payload[:-2]) + "}\n"
        lines[place] = lines[place].replace('": ', '":').replace(', "', ',"')
    file.write_text("".join(lines))


async def rows_of(store: Store, id: str) -> list[tuple[int, str, str]]:
    """Return revision, append_id and payload of each row of a State, as they lie there."""
    if isinstance(store, MemoryStore):
        kept = store._kept.get(StateKey(store.namespace, id))
        return [] if kept is None else [(row.revision, row.append_id or "", row.payload) for row in kept.rows]
    if isinstance(store, FileStore):
        file = file_of(store, id, "events.jsonl")
        lines = [line for line in file.read_bytes().splitlines() if b'"append_id"' in line] if file.exists() else []
        return [(row.revision, row.append_id or "", row.payload) for line in lines if (row := from_line(line))]
    found = await execute(
        store,
        "SELECT revision, append_id, payload FROM agent_events WHERE namespace = :namespace AND state_id = :id "
        "ORDER BY revision",
        namespace=store.namespace,
        id=id,
    )
    return [tuple(row) for row in found]


async def change_row(store: Store, id: str, revision: int, **columns: Any) -> None:
    """Write into a row of the history behind the library's back."""
    if isinstance(store, MemoryStore):
        rows = store._kept[StateKey(store.namespace, id)].rows
        rows[revision - 1] = rows[revision - 1]._replace(**columns)
        return
    if isinstance(store, FileStore):
        change_line(store, id, revision, columns)
        return
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    await execute(
        store,
        f"UPDATE agent_events SET {assignments} WHERE state_id = :state_id AND revision = :at_revision",
        state_id=id,
        at_revision=revision,
        **columns,
    )


async def drop_row(store: Store, id: str, revision: int) -> None:
    """Take a row of the history away behind the library's back."""
    if isinstance(store, MemoryStore):
        del store._kept[StateKey(store.namespace, id)].rows[revision - 1]
        return
    if isinstance(store, FileStore):
        change_line(store, id, revision, None)
        return
    await execute(
        store, "DELETE FROM agent_events WHERE state_id = :id AND revision = :revision", id=id, revision=revision
    )


async def change_header(store: Store, id: str, **columns: Any) -> None:
    """Write into a header behind the library's back."""
    if isinstance(store, MemoryStore):
        for name, value in columns.items():
            setattr(store._kept[StateKey(store.namespace, id)], name, value)
        return
    if isinstance(store, FileStore):
        info = file_of(store, id, "info.json")
        changed = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in columns.items()}
        info.write_text(json.dumps({**json.loads(info.read_text()), **changed}))
        return
    assignments = ", ".join(f"{name} = :{name}" for name in columns)
    await execute(store, f"UPDATE agent_states SET {assignments} WHERE id = :state_id", state_id=id, **columns)


def new_state(id: str = "s", *words: str, namespace: str = "") -> State:
    """Return a State in which something was said."""
    return State(id=id, namespace=namespace, messages=[Message.user(word) for word in words or ("hello",)])


async def saved(store: Store, id: str = "s", *words: str) -> State:
    """Return a State that the store has."""
    state = new_state(id, *words, namespace=store.namespace)
    await store.save(state)
    return state


async def words_in(store: Store, id: str = "s") -> list[str]:
    """Return what was said in a State, as the store has it."""
    return [message.text for message in (await store.load(id)).messages]
