"""
A process that adds to a counter of a State, again and again, as an app would: load, change, save, and again if it was
too late. It prints a line when it is ready, waits for one, and prints how often it was told "ok".
"""

from __future__ import annotations

import asyncio
import sys

from alpineagents import SQLStore, StateConflictError


async def main(url: str, count: int) -> None:
    async with SQLStore(url) as store:
        state = await store.load("counter")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        done = 0
        while done < count:
            with state.edit_extra_data() as data:
                data["n"] = int(str(data["n"])) + 1
            try:
                await store.save(state)
                done += 1
            except StateConflictError:
                state = await store.load("counter")
        print(done)


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
