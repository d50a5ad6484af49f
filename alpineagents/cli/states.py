"""`alpineagents list` and `alpineagents show`: what a store holds, for people and for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from alpineagents.cli.terminal import OUT, say, utc, write
from alpineagents.errors import ConfigError, StateDamagedError
from alpineagents.events import Event
from alpineagents.snapshot import Status
from alpineagents.state import State
from alpineagents.stores import SQLStore, StateInfo
from alpineagents.terminal.gist import Gists, call_text
from alpineagents.terminal.text import clean, one_line, usage_text

PLAIN_GIST_LENGTH = 160
KIND_WIDTH = len("approval_requested")

_STYLES: dict[str, str] = {
    "running": "bold yellow",
    "waiting": "bold magenta",
    "ready": "cyan",
    "finished": "green",
    "stopped": "green",
    "failed": "bold red",
    "cancelled": "red",
}


def open_store(
    target: str, *, must_exist: bool = True, migrate: bool | None = None, schema: str | None = None
) -> SQLStore:
    """
    Return the store that a person named.

    Args:
        must_exist: refuse a SQLite file that is not there, instead of making one.
        migrate, schema: as for `SQLStore`.

    Raises:
        ConfigError: it is no path or URL of a database, or there is no such file.
    """
    from alpineagents.stores.sql.urls import async_url, is_in_memory, place

    url = async_url(target)
    is_file = url.get_backend_name() == "sqlite" and not is_in_memory(url)
    if must_exist and is_file and "uri" not in url.query and not Path(str(url.database)).exists():
        raise ConfigError(
            f"there is no database {place(url)!r}. Name one that is there with --store, "
            "or begin one: alpineagents chat --store " + place(url)
        )
    return SQLStore(target, migrate=migrate, schema=schema)


def shown_store(target: str) -> str:
    """Return a database as it may be shown: without its password."""
    from alpineagents.stores.sql.urls import async_url, place

    return place(async_url(target))


# ------------------------------------------------------------------------------------------------ list


async def list_states(target: str, *, status: Status | None, limit: int, as_json: bool) -> None:
    """Write the States of a store, the most recently updated first."""
    async with open_store(target) as store:
        infos = await store.list(status=status, limit=limit)
    if as_json:
        for info in infos:
            write(_json(info.model_dump(mode="json")))
    elif not infos:
        say(f"no States in {shown_store(target)}" + (f" with status {status}" if status else "") + " yet")
    elif OUT.is_terminal:
        OUT.print(_table(infos), soft_wrap=False)
    else:
        for info in infos:
            cells = (info.id, info.status, str(info.revision), str(info.turn), utc(info.updated_at), info.first_message)
            write("\t".join(one_line(cell) for cell in cells))


def _table(infos: list[StateInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("id", no_wrap=True, min_width=32 if any(len(info.id) >= 32 for info in infos) else None)
    table.add_column("status", no_wrap=True)
    table.add_column("revision", justify="right", min_width=8)
    table.add_column("turn", justify="right", min_width=4)
    table.add_column("updated (UTC)", no_wrap=True)
    table.add_column("first message", no_wrap=True, overflow="ellipsis", ratio=1)
    for info in infos:
        table.add_row(
            Text(info.id),
            Text(info.status, style=_STYLES[info.status]),
            str(info.revision),
            str(info.turn),
            utc(info.updated_at),
            Text(one_line(info.first_message)),
        )
    return table


# ------------------------------------------------------------------------------------------------ show


async def show_state(target: str, state_id: str, *, revision: int | None, as_json: bool) -> None:
    """
    Write the history of a State, and what it comes to.

    Raises:
        StateDamagedError: an Event cannot be read; those before it were written.
    """
    async with open_store(target) as store:
        state = await store.load(state_id, revision=revision) if revision is not None else None
        history = list(state.history) if state is not None else []
        damage: StateDamagedError | None = None
        if state is None:
            try:
                async for event in store.read(state_id):
                    history.append(event)
            except StateDamagedError as error:
                damage = error
    if as_json:
        for event in history:
            write(event_json(event))
    else:
        _write_history(history)
    if damage is not None:
        raise damage
    if not as_json:
        _write_summary(state or State.from_history(state_id, history))


def _write_history(history: list[Event]) -> None:
    for text, style in event_lines(history, OUT.width if OUT.is_terminal else 0):
        OUT.out(text, style=style)


def event_lines(history: list[Event], width: int = 0) -> Iterator[tuple[str, str | None]]:
    """
    Yield a line for each Event of a history, with its style.

    Args:
        width: of the terminal; 0 where there is none.
    """
    gists = Gists()
    digits = len(str(history[-1].revision)) if history else 1
    for event in history:
        start = f"{event.revision:>{digits}}  {utc(event.at)}  {event.kind:<{KIND_WIDTH}}  "
        gist = one_line(gists.of(event), max(width - len(start), 20) if width else PLAIN_GIST_LENGTH)
        yield (start + gist).rstrip(), _style(event)


def _style(event: Event) -> str | None:
    if event.kind == "model_failed" or (event.kind == "tool_finished" and event.outcome != "ok"):
        return "red"
    if event.kind in ("run_started", "run_stopped", "model_requested"):
        return "dim"
    return "bold" if event.kind in ("message_added", "model_replied") else None


def event_json(event: Event) -> str:
    """Return an Event as one line of JSON: its columns, then its own fields."""
    from alpineagents.stores.codec import encode

    row = encode(event)
    columns = {
        "revision": row.revision,
        "at": row.at.isoformat(),
        "kind": row.kind,
        "version": row.version,
        "run_id": row.run_id,
    }
    return _json(columns | json.loads(row.payload))


def _write_summary(state: State) -> None:
    stopped = f" ({state.stopped})" if state.stopped is not None else ""
    OUT.out("")
    OUT.out(f"status  {one_line(state.status + stopped)}")
    for call in state.pending_calls:
        starts = state.snapshot().calls[call.id].starts
        OUT.out(f"open    {one_line(call_text(call))}: {'started, no result yet' if starts else 'not started'}")
    if state.answer is not None:
        answer = state.answer if isinstance(state.answer, str) else _json(state.answer)
        write(f"answer  {clean(answer)}")
    OUT.out(f"usage   {usage_text(state.usage)}, {state.turn} turn(s)")


def _json(value: Any) -> str:
    # In ASCII, so that it can be written whatever the terminal's encoding.
    return json.dumps(value, separators=(",", ":"))
