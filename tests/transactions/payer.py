"""
A process that pays inside a transaction and, where it is told to, dies there: `python payer.py URL STATE_ID MOMENT`.

It waits for a moment by nothing but its own steps: the signal is sent from the step itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from sqlalchemy import text

from alpineagents import Agent, Message, Request, SQLStore, State, StateBusyError, StateNotFoundError, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call

url, state_id, moment = sys.argv[1:]


def die_at(name: str) -> None:
    if moment == name:
        os.kill(os.getpid(), signal.SIGKILL)


@tool(transaction=True)
async def pay(amount: int, context: ToolContext) -> str:
    """Pay an amount."""
    assert context.connection is not None
    die_at("entered")
    await context.connection.execute(text("INSERT INTO payments (amount) VALUES (:amount)"), {"amount": amount})
    die_at("paid")
    return "paid"


def reply(request: Request) -> object:
    if request.messages[-1].tool_results:
        die_at("committed")
        return "All is paid."
    return tool_call("pay", amount=5)


async def main() -> None:
    async with SQLStore(url, migrate=True) as store:
        agent = Agent(FakeModel(reply), tools=[pay], store=store, lease=2.0)
        try:
            state = await store.load(state_id)
        except StateNotFoundError:
            state = State(id=state_id, messages=[Message.user("Pay 5")])
        while True:
            try:
                print(await agent.run(state))
                return
            except StateBusyError:
                # The lease of the process that died is not over yet.
                await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(main())
