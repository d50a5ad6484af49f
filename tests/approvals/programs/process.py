"""
A process of its own: `python process.py KIND TARGET ACTION …`, with one of the actions

    run FOLDER              begin the State "s", whose call waits
    die FOLDER              the same, and die while a person at hand is asked
    list                    print what waits
    approve CALL_ID NAME    or deny CALL_ID NAME
    resume FOLDER           go on with the State; FOLDER/paid keeps what was paid, by all processes

It prints `ready`, acts when it gets a line, and prints what came of it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from alpineagents import Agent, AlpineAgentsError, FileStore, PendingApproval, SQLStore, Store, tool
from alpineagents.testing import FakeModel, tool_call

kind, target, action, *arguments = sys.argv[1:]


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    with (Path(arguments[0]) / "paid").open("a") as lines:
        lines.write(f"{amount}\n")
    return "paid"


class Deadly:
    """Ends the process that asks."""

    name = "Deadly"

    async def approve(self, request: PendingApproval) -> bool:
        os.kill(os.getpid(), signal.SIGKILL)
        return False

    async def ask(self, question: str) -> str:
        return question


async def act(store: Store) -> object:
    if action == "run":
        await Agent(FakeModel([tool_call("pay", amount=5)]), tools=[pay], store=store).run("Pay", id="s")
        return (await store.info("s")).status
    if action == "die":
        model = FakeModel([tool_call("pay", amount=5)])
        await Agent(model, tools=[pay], store=store, human=Deadly(), lease=0.5).run("Pay", id="s")
    if action == "list":
        return [f"{each.state_id} {each.call_id} {each.tool} {each.args}" for each in await store.approvals()]
    if action == "resume":
        return await Agent(FakeModel(["All done."]), tools=[pay], store=store).resume("s")
    call_id, by = arguments
    if action == "approve":
        await store.approve("s", call_id, by=by)
    else:
        await store.deny("s", call_id, by=by, reason="no")
    return f"{action} by {by}"


async def main() -> object:
    async with FileStore(target) if kind == "files" else SQLStore(target) as store:
        await store.exists("s")
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            return await act(store)
        except AlpineAgentsError as error:
            return type(error).__name__


print(asyncio.run(main()))
