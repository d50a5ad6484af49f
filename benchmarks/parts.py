"""`python -m benchmarks.parts`: µs of the processor that the parts of an append, a load and a turn take, each alone."""

from __future__ import annotations

import asyncio
import tempfile
import time
import timeit
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

from alpineagents import Agent, Message, MessageAdded, SQLStore, State, tool
from alpineagents.fold import apply
from alpineagents.shield import settled
from alpineagents.stores.codec import decode_all, encode
from alpineagents.stores.header import StateKey, header_of
from alpineagents.stores.sql.append import Append
from alpineagents.testing import FakeModel, tool_call
from benchmarks.figures import TEXT

HISTORY = 10_000


def alone(function: Callable[[], object], number: int = 20_000) -> float:
    """Return the µs of a call, the least of five series."""
    return min(timeit.repeat(function, number=number, repeat=5, timer=time.process_time)) / number * 1e6


async def awaited(function: Callable[[], Awaitable[object]], number: int = 1_000) -> float:
    """Return the µs of a call that is awaited, the least of five series."""
    series = []
    for _ in range(5):
        start = time.process_time()
        for _ in range(number):
            await function()
        series.append((time.process_time() - start) / number * 1e6)
    return min(series)


async def nothing() -> None:
    """Do nothing."""


@tool
def sync_tool() -> str:
    """Do nothing in a thread."""
    return "done"


@tool
async def async_tool() -> str:
    """Do nothing."""
    return "done"


async def turn(used: object, turns: int = 20) -> float:
    """Return the µs of a turn with one tool, without a store."""
    replies = [*(tool_call(used.name) for _ in range(turns - 1)), "done"]  # type: ignore[attr-defined]  # a Tool
    return await awaited(lambda: Agent(FakeModel(replies), tools=[used]).run("go"), number=10) / turns


async def main() -> None:
    """Print a line for each part."""
    message, now = Message.user(TEXT), datetime.now(UTC)
    state = State(id="parts", messages=[message])
    value, (event,) = state.snapshot(), state.history
    second = MessageAdded(revision=2, at=now, message=message)
    header = header_of(value)
    append = Append(StateKey("", "parts"), [encode(event, "a")], 1, header, "a")
    parts = {
        "Message.user": alone(lambda: Message.user(TEXT)),
        "the Event, checked by pydantic": alone(lambda: MessageAdded(revision=2, at=now, message=message)),
        "the fold": alone(lambda: apply(value, second)),
        "the header from the value": alone(lambda: header_of(value)),
        "its parameters, the summary as JSON": alone(append.params),
        "the row of the Event": alone(lambda: encode(event, "a")),
        "a pass through the event loop": await awaited(lambda: asyncio.sleep(0)),
        "a shield: a task, a scope, the wait for it": await awaited(lambda: settled(nothing)),
    }
    with tempfile.TemporaryDirectory() as folder:
        async with SQLStore(Path(folder) / "parts.db") as store:
            await store.save(state)
            database = store._databases.here()
            parts["the hop to SQLite's thread and back"] = await awaited(lambda: database._on_thread(lambda _: None))  # type: ignore[attr-defined]

            async def saved() -> None:
                state.add_message(message)
                await store.save(state)

            parts["all of an append, SQLite's own work included"] = await awaited(saved, number=300)
            while state.revision < HISTORY:
                state.add_message(message)
            await store.save(state)
            key = StateKey("", "parts")
            rows = [
                row for after in range(0, HISTORY, 1_000) for row in (await database.page(key, after, None, 1_000))[1]
            ]
            pages = await awaited(lambda: database.page(key, 0, None, 1_000), number=10)
            parts["an Event of a load: SELECT and row"] = pages / 1_000
            parts["an Event of a load: decoding"] = alone(lambda: decode_all(rows), number=1) / HISTORY
            parts["an Event of a load: all"] = await awaited(lambda: store.load("parts"), number=1) / HISTORY
    parts["a turn with an async tool, without a store"] = await turn(async_tool)
    parts["a turn with a sync tool, without a store"] = await turn(sync_tool)
    for name, took in parts.items():
        print(f"| {name} | {took:.1f} |")


if __name__ == "__main__":
    asyncio.run(main())
