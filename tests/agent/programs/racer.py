"""
A process that runs a State at the same moment as others: `python racer.py TARGET STATE_ID FOLDER`.

It prints `ready` once it has loaded the State, and runs it when it gets a line. FOLDER keeps what was done, by all.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from place import open_store

from alpineagents import Agent, Request, StateBusyError, StateConflictError, tool
from alpineagents.testing import FakeModel

target, state_id, folder = sys.argv[1:]


def note(line: str) -> None:
    with (Path(folder) / "done").open("a") as lines:
        lines.write(line + "\n")


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    note(f"paid {amount}")
    return "paid"


def respond(request: Request) -> str:
    note("asked")
    return "All is done."


async def main() -> str:
    async with open_store(target) as store:
        state = await store.load(state_id)
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            return str(await Agent(FakeModel(respond), tools=[pay], store=store).run(state))
        except (StateBusyError, StateConflictError):
            return "refused"


print(asyncio.run(main()))
