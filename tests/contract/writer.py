"""
A process that adds to a counter of a State, again and again: `python writer.py KIND TARGET TIMES`.

It does as an app would: load, change, save, and once more if it was too late. It prints a line when it is ready, waits
for one, and prints how often it was told "ok".
"""

from __future__ import annotations

import asyncio
import sys

from alpineagents import FileStore, SQLStore, State, StateConflictError, StateExistsError, StateNotFoundError, Store


async def load(store: Store) -> State:
    try:
        return await store.load("counter")
    except StateNotFoundError:
        return State(id="counter")


async def main(kind: str, target: str, times: int) -> None:
    async with FileStore(target) if kind == "files" else SQLStore(target) as store:
        state = await load(store)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        done = 0
        while done < times:
            with state.edit_extra_data() as data:
                data["n"] = int(str(data.get("n", 0))) + 1
            try:
                await store.save(state)
                done += 1
            except (StateConflictError, StateExistsError):
                state = await load(store)
        print(done)


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
