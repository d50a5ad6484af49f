"""
A process that asks Claude and, where it is told to, dies: `python claude.py URL SERVER MOMENT`.

MOMENT: `pay` dies in that tool, `delta` while a reply is arriving, `never` not at all. It dies by its own hand at just
that moment, so that nothing depends on the clock.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from alpineagents import Agent, Anthropic, Delta, Message, SQLStore, State, StateNotFoundError, tool

url, server, moment = sys.argv[1:]


def die_at(name: str) -> None:
    if moment == name:
        os.kill(os.getpid(), signal.SIGKILL)


@tool
async def pay(to: str) -> str:
    """Pay someone."""
    die_at("pay")
    return f"paid {to}"


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


async def main() -> None:
    model = Anthropic("claude-sonnet-5-5", base_url=server, api_key="key-1234567890", thinking="adaptive")
    async with SQLStore(url) as store:
        agent = Agent(model, system="Be brief.", tools=[pay, look], store=store, lease=0.2)
        try:
            state = await store.load("s")
        except StateNotFoundError:
            state = State(id="s", messages=[Message.user("Pay Ada")])
        async with agent.stream(state) as items:
            async for item in items:
                if isinstance(item, Delta) and item.kind == "text":
                    die_at("delta")
        print(items.answer)
        await agent.aclose()


if __name__ == "__main__":
    asyncio.run(main())
