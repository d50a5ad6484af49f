"""
Worker threads for sync tools, on asyncio. A thread that has done its work waits a while for more.

The threads are daemons, as trio's are: one of anyio's on asyncio would keep the process from ending as long as a tool
runs. To start one takes longer than to enter most tools.

asyncio is imported where it runs already, so that importing the library does not import it.
"""

from __future__ import annotations

import contextvars
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import anyio.lowlevel
import anyio.to_thread
import sniffio
from anyio._core._eventloop import threadlocals

from alpineagents.sync import serves_a_thread

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")

IDLE_SECONDS = 10.0
"""How long a thread waits for work before it ends."""

_idle: deque[_Worker] = deque()
os.register_at_fork(after_in_child=_idle.clear)


class _Worker:
    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="alpineagents-tool", daemon=True).start()

    def do(self, work: Callable[[], None]) -> None:
        self._work.put(work)

    def _run(self) -> None:
        while True:
            try:
                work = self._work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                # Whoever has taken this one out of the idle ones is about to give it work.
                with suppress(ValueError):
                    _idle.remove(self)
                    return
                work = self._work.get()
            work()
            del work


async def in_thread(function: Callable[[], T]) -> T:
    """
    Run a function that raises nothing in a thread, and leave it behind where the caller is cancelled.

    It sees the caller's context variables, and `anyio.from_thread` works in it.
    """
    limiter = anyio.to_thread.current_default_thread_limiter()
    if serves_a_thread.get():
        # As many tools as there are places may wait for a State below them, whose tools would wait for a place.
        limiter = anyio.CapacityLimiter(1)
    if sniffio.current_async_library() != "asyncio":
        return await anyio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=limiter)
    import asyncio

    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    token = anyio.lowlevel.current_token()
    context = contextvars.copy_context()
    # No event loop runs in the thread, so `_sync` calls work there.
    context.run(sniffio.current_async_library_cvar.set, None)

    def work() -> None:
        # What anyio's own worker threads know.
        threadlocals.current_token = token
        result = context.run(function)
        # Idle before it is told, so that who is told finds this thread.
        _idle.append(worker)
        with suppress(RuntimeError):  # the loop is closed, and nobody waits
            loop.call_soon_threadsafe(partial(_tell, done, result))

    async with limiter:
        try:
            worker = _idle.pop()
        except IndexError:
            worker = _Worker()
        worker.do(work)
        return await done


def _tell(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)
