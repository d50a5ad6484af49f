"""
A script that blocks until Ctrl+C: `python interrupted.py TARGET STATE_ID DOOR PLACE`.

It prints a line once it blocks. DOOR is `asyncio` or `sync`, PLACE says what blocks.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from typing import NoReturn

import anyio
from place import open_store

from alpineagents import Agent, Request, tool
from alpineagents.testing import FakeModel, tool_call

target, state_id, door, place = sys.argv[1:]
LONG = 120.0


def blocked() -> None:
    print("blocked", flush=True)


@tool(name="wait")
def wait_in_thread() -> NoReturn:
    """Block a thread."""
    blocked()
    threading.Event().wait(LONG)
    raise AssertionError("nobody came")


@tool(name="wait")
async def wait() -> NoReturn:
    """Wait in the loop."""
    blocked()
    await anyio.sleep(LONG)
    raise AssertionError("nobody came")


@tool(name="wait")
async def resist() -> NoReturn:
    """Wait, and take no notice of a cancellation."""
    with anyio.CancelScope(shield=True):
        blocked()
        await anyio.sleep(LONG)
    raise AssertionError("nobody came")


async def respond(request: Request) -> object:
    if place == "model":
        blocked()
        await anyio.sleep(LONG)
    return tool_call("wait")


tools = {"sync tool": wait_in_thread, "async tool": wait, "model": wait, "stubborn tool": resist}
agent = Agent(FakeModel(respond), tools=[tools[place]], store=open_store(target))


async def main() -> None:
    # With a handler of its own, asyncio has itself woken by signals. Without one, a signal that comes as the loop falls
    # asleep is handled when it wakes up the next time.
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
    await agent.run("Wait", id=state_id)


if door == "sync":
    agent.run_sync("Wait", id=state_id)
else:
    asyncio.run(main())
