"""
A process whose tool ends after its run: `python late.py TARGET HOW`.

`hanging`: the store hangs when the result is to be saved, and the process ends meanwhile. `interrupted`: Ctrl+C ends
the run, and the process lives on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from typing import Any

from place import open_store

from alpineagents import Agent, tool
from alpineagents.testing import FakeModel, tool_call

target, how = sys.argv[1:]
gate, hangs = threading.Event(), threading.Event()
store: Any = open_store(target)


@tool
def climb() -> str:
    """Climb."""
    if how == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    gate.wait()
    return "up there"


@tool(name="climb", timeout=0.05)
def climb_for_short() -> str:
    """Climb."""
    return climb()


class Hanging(type(store)):  # type: ignore[misc]
    async def post(self, *_: Any) -> int:
        hangs.set()
        await asyncio.sleep(3600)
        return 0


async def end_while_it_hangs() -> None:
    await Agent(FakeModel([tool_call("climb"), "done"]), tools=[climb_for_short], store=store).run("Go", id="s")
    gate.set()
    while not hangs.is_set():
        await asyncio.sleep(0.01)


if how == "hanging":
    store.__class__ = Hanging
    asyncio.run(end_while_it_hangs())
else:
    try:
        Agent(FakeModel([tool_call("climb")]), tools=[climb], store=store).run_sync("Go", id="s")
    except KeyboardInterrupt:
        seen = store.info_sync("s").revision
        gate.set()
        while store.info_sync("s").revision == seen:
            time.sleep(0.01)
        store.close_sync()
print(how)
