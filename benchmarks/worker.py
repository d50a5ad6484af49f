"""A process that writes 25 States, with the library or with the driver alone, and prints when and how fast as JSON."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

from alpineagents import Message, SQLStore
from benchmarks.figures import PAYLOAD, TEXT, saved
from benchmarks.raw import rate

STATES = 25


async def main(url: str, side: str, name: str, rounds: int) -> None:
    """Get ready, wait for a line, write."""
    async with SQLStore(url) as store:
        states = [await saved(store, f"{name}-{number}", 1) for number in range(STATES)]
        taken: list[float] = []

        async def go_on(number: int) -> None:
            for _ in range(rounds):
                begin = time.perf_counter()
                states[number].add_message(Message.user(TEXT))
                await store.save(states[number])
                taken.append(time.perf_counter() - begin)

        # As docs/speed.md advises a process that keeps many States.
        gc.collect()
        gc.freeze()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        start = time.monotonic()
        if side == "raw":
            await rate(url, [(state.id, 1) for state in states], PAYLOAD, rounds, writers=0)
        else:
            await asyncio.gather(*map(go_on, range(STATES)))
        p99 = sorted(taken)[int(len(taken) * 0.99)] if taken else 0.0
        print(json.dumps({"start": start, "end": time.monotonic(), "p99": p99}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
