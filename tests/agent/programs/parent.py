"""
A process with an Agent that works for another one: `python parent.py TARGET FOLDER WHOSE MOMENT [tool]`.

WHOSE: `parent` or `child`, the State in whose appends the moment is. MOMENT: as in `dying`, or `in NAME` and
`behind NAME` for the effect of a tool of the child, `model N` for its N-th request, `never`. FOLDER keeps what the
tools did, one line each. With `tool` the child's run is started by a tool.
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

from alpineagents import Agent, Message, Request, State, StateNotFoundError, Store, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call

target, folder, whose, moment, *how = sys.argv[1:]
death = Death(moment)


def effect(name: str) -> None:
    death.at(f"in {name}")
    with (Path(folder) / "effects").open("a") as lines:
        lines.write(name + "\n")
    death.at(f"behind {name}")


@tool
async def pay(to: str) -> str:
    """Pay someone; not twice."""
    effect("pay")
    return f"paid {to}"


@tool(read_only=True)
async def look() -> str:
    """Look."""
    effect("look")
    return "seen"


@tool(idempotent=True)
async def hire(prompt: str, context: ToolContext) -> Any:
    """Have the clerk work."""
    return await clerk.run(prompt, context=context)


def work(request: Request) -> Any:
    """Do the child's work: look, pay, say so."""
    rounds = sum(bool(message.tool_calls) for message in request.messages)
    death.at(f"model {rounds + 1}")
    return [[tool_call("look")], [tool_call("pay", to="Ada")], "Ada is paid."][rounds]


def lead(request: Request) -> Any:
    """Have the child work, and end."""
    asked = any(message.tool_calls for message in request.messages)
    return "All is done." if asked else tool_call("hire" if how else "clerk", prompt="Pay Ada")


clerk = Agent(FakeModel(work), tools=[look, pay], name="clerk")


async def main() -> None:
    store = open_store(target)
    die_in(store, death, lambda _landed: None, lambda key: (key.id == "s") == (whose == "parent"))
    agent = Agent(FakeModel(lead), tools=[hire if how else clerk], store=store, lease=0.5)
    print(json.dumps(await when_free(lambda: go_on(agent, store))))
    await store.aclose()


async def go_on(agent: Agent, store: Store) -> Any:
    try:
        state = await store.load("s")
    except StateNotFoundError:
        state = State(id="s", messages=[Message.user("Have Ada paid")])
    return await agent.run(state)


if __name__ == "__main__":
    asyncio.run(main())
