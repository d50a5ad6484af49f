"""A process of its own behind a pooler: it works on States of its own and on one that all share."""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy import text

from alpineagents import Agent, Message, SQLStore, State, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call


@tool(transaction=True)
async def pay(amount: int, ctx: ToolContext) -> str:
    """Pay an amount."""
    assert ctx.connection is not None
    await ctx.connection.execute(
        text("INSERT INTO payments VALUES (:id, :amount)"), {"id": ctx.state_id, "amount": amount}
    )
    return "paid"


async def work(store: SQLStore, id: str) -> None:
    state = State(id=id, messages=[Message.user("Pay 4.")])
    await store.save(state)
    agent = Agent(FakeModel([tool_call("pay", amount=4), "Paid."]), tools=[pay], store=store)
    assert await agent.resume(id) == "Paid."
    for number in range(5):
        await store.post("shared", Message.user(f"{id} {number}"))
        assert len(await store.list(limit=500)) > 1
    assert (await store.load(id)).answer == "Paid."
    await store.delete(id)


async def main(url: str, name: str) -> None:
    async with SQLStore(url) as store:
        await asyncio.gather(*(work(store, f"{name}-{number}") for number in range(4)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
