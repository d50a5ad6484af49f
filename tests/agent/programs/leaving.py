"""
A script that ends without closing its store: `python leaving.py TARGET HOW`.
"""

from __future__ import annotations

import asyncio
import sys

from place import open_store

from alpineagents import Agent, tool
from alpineagents.testing import FakeModel, tool_call

target, how = sys.argv[1:]


@tool
def leave() -> str:
    """Leave the program."""
    sys.exit(3)


@tool(name="leave")
async def leave_in_loop() -> str:
    """Leave the program."""
    sys.exit(3)


store = open_store(target)
hello = Agent(FakeModel(lambda request: "Hi"), store=store)


async def stop_in_mid_stream() -> None:
    async with hello.stream("Hello", id="streamed") as items:
        async for item in items:
            if item.kind == "model_replied":
                break


if how in ("asyncio", "both"):
    print(asyncio.run(hello.run("Hello", id="a")))
if how in ("sync", "both"):
    print(hello.run_sync("Hello", id="b"))
if how == "both":
    print(asyncio.run(hello.resume("b", "Hello again")), hello.resume_sync("a", "Hello again"))
if how == "stream":
    asyncio.run(stop_in_mid_stream())
    print("Hi")
if how == "exit of a model":
    try:
        Agent(FakeModel([SystemExit(3)]), store=store).run_sync("Go", id="left")
    except SystemExit as left:
        print(left.code, hello.run_sync("Hello", id="c"))
if "exit in" in how:
    tool_that_leaves = leave if how.endswith("thread") else leave_in_loop
    agent = Agent(FakeModel([tool_call("leave")]), tools=[tool_that_leaves], store=store)
    if how.startswith("sync"):
        agent.run_sync("Go", id="left")
    else:
        asyncio.run(agent.run("Go", id="left"))
