"""
A process that works on a State and, if told to, dies: `python worker.py TARGET STATE_ID FOLDER MOMENT [again]`.

MOMENT: as in `dying`, or `in NAME` and `behind NAME` for the effect of a tool, `model N` for the N-th request, `never`.
With `again` the process was given its message a second time, as by a queue. FOLDER keeps what the tools did, one line
each, and what the store acknowledged. A database needs a table `bookings`, for the tool whose effect is a row of it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from dying import Death, die_in
from patience import when_free
from place import open_store
from sqlalchemy import text

from alpineagents import (
    Agent,
    Message,
    Request,
    State,
    StateNotFoundError,
    Store,
    ToolContext,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

target, state_id, folder, moment, *how = sys.argv[1:]
death = Death(moment)
store = open_store(target)
PROMPT = "Pay Ada and Bob"


def write(file: str, line: str) -> None:
    with (Path(folder) / file).open("a") as lines:
        lines.write(line + "\n")


def effect(name: str, context: ToolContext) -> None:
    death.at(f"in {name}")
    write("effects", f"{name} {context.idempotency_key}")
    death.at(f"behind {name}")


@tool
async def pay(to: str, context: ToolContext) -> str:
    """Pay someone."""
    effect(f"pay-{to}", context)
    return f"paid {to}"


@tool(read_only=True)
def look(context: ToolContext) -> str:
    """Look, in a thread."""
    effect("look", context)
    return "seen"


@tool(idempotent=True)
async def put(context: ToolContext) -> str:
    """Put something in its place."""
    effect("put", context)
    return "put"


@tool(transaction=True)
async def book(context: ToolContext) -> str:
    """Book, in the database."""
    assert context.connection is not None
    death.at("in book")
    await context.connection.execute(text("INSERT INTO bookings VALUES (:key)"), {"key": context.idempotency_key})
    death.at("behind book")
    return "booked"


@tool(name="book", idempotent=True, parallel=False)
async def book_in_file(context: ToolContext) -> str:
    """Book, where there is no database."""
    effect("book", context)
    return "booked"


def respond(request: Request) -> object:
    """Decide by what was said, so that another process goes on where this one died."""
    rounds = sum(bool(message.tool_calls) for message in request.messages)
    death.at(f"model {rounds + 1}")
    if rounds == 0:
        return [tool_call("look"), tool_call("pay", to="Ada"), tool_call("put")]
    return [tool_call("pay", to="Bob"), tool_call("book")] if rounds == 1 else "Ada and Bob are served."


async def main() -> None:
    tools = [pay, look, put, book if store.has_transactions else book_in_file]
    die_in(store, death, lambda landed: write("acknowledged", str(landed)))
    agent = Agent(FakeModel(respond), tools=tools, store=store, lease=0.5)
    print(json.dumps(await when_free(lambda: go_on(agent, store))))
    await store.aclose()


async def go_on(agent: Agent, store: Store) -> Any:
    if "again" in how:
        return await agent.resume(state_id, PROMPT)
    try:
        state = await store.load(state_id)
    except StateNotFoundError:
        state = State(id=state_id, messages=[Message.user(PROMPT)])
    return await agent.run(state)


if __name__ == "__main__":
    asyncio.run(main())
