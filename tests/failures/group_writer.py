"""A process that saves many States at once, again and again, and prints each save that it was told of, until killed."""

from __future__ import annotations

import asyncio
import sys

from alpineagents import Message, SQLStore, State

MANY = 20


async def go_on(store: SQLStore, state: State) -> None:
    while True:
        state.add_message(Message.user(f"{state.revision + 1}"))
        revision = await store.save(state)
        print(state.id, revision, flush=True)


async def main(url: str, name: str) -> None:
    async with SQLStore(url) as store:
        await asyncio.gather(*(go_on(store, State(id=f"{name}{number}")) for number in range(MANY)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
