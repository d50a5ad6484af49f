"""
A process that works on a State and, where it is told to, dies: `python worker.py URL STATE_ID FOLDER MOMENT [again]`.

MOMENT: `before N` and `after N` mean the append that saves Event N, `in NAME` and `behind NAME` the effect of a tool,
`model N` the N-th request, `never` none. With `again` the process was given its message a second time, as by a queue.
FOLDER keeps what the tools did, one line each, and what the store acknowledged.

It dies by its own hand at just that moment, so that nothing depends on the clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio

from alpineagents import (
    Agent,
    Event,
    Message,
    Request,
    SQLStore,
    State,
    StateBusyError,
    StateNotFoundError,
    ToolContext,
    tool,
)
from alpineagents.testing import FakeModel, tool_call

url, state_id, folder, moment, *how = sys.argv[1:]
PROMPT = "Pay Ada and Bob"
PATIENCE_SECONDS = 30.0


def die_at(name: str) -> None:
    if moment == name:
        os.kill(os.getpid(), signal.SIGKILL)


def write(file: str, line: str) -> None:
    with (Path(folder) / file).open("a") as lines:
        lines.write(line + "\n")


class Dying(SQLStore):
    async def append(self, key: Any, events: Sequence[Event], **how: Any) -> int:
        for event in events:
            die_at(f"before {event.revision}")
        landed = await super().append(key, events, **how)
        for event in events:
            die_at(f"after {event.revision}")
        write("acknowledged", str(landed))
        return landed


def effect(name: str, context: ToolContext) -> None:
    die_at(f"in {name}")
    write("effects", f"{name} {context.idempotency_key}")
    die_at(f"behind {name}")


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


def respond(request: Request) -> object:
    """Decide by what was said, so that another process goes on where this one died."""
    rounds = sum(bool(message.tool_calls) for message in request.messages)
    die_at(f"model {rounds + 1}")
    if rounds == 0:
        return [tool_call("look"), tool_call("pay", to="Ada"), tool_call("put")]
    return tool_call("pay", to="Bob") if rounds == 1 else "Ada and Bob are served."


async def main() -> None:
    store = Dying(url)
    agent = Agent(FakeModel(respond), tools=[pay, look, put], store=store, lease=0.5)  # type: ignore[arg-type]
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                answer = await go_on(agent, store)
            except StateBusyError:
                # The lease of the process that died is not over yet.
                await anyio.sleep(0.05)
            else:
                break
    print(json.dumps(answer))
    await store.aclose()


async def go_on(agent: Agent, store: SQLStore) -> Any:
    if "again" in how:
        return await agent.resume(state_id, PROMPT)
    try:
        state = await store.load(state_id)
    except StateNotFoundError:
        state = State(id=state_id, messages=[Message.user(PROMPT)])
    return await agent.run(state)


if __name__ == "__main__":
    asyncio.run(main())
