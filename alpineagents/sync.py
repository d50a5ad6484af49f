"""
The door for scripts: each `_sync` call runs its async twin on one background event loop a process.

One loop, because the connections of a store belong to the loop that made them. The thread is a daemon and holds
nothing that must be saved, so it never keeps a process from ending.

What only scripts need is imported by the first such call.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from alpineagents.errors import SyncInsideLoopError
from alpineagents.shield import in_async_code

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

T = TypeVar("T")

CLOSE_SECONDS = 2.0


class _Door:
    def __init__(self) -> None:
        import asyncio

        self.pid = os.getpid()
        self.loop = asyncio.new_event_loop()
        self.closing = False
        self.at_exit: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self.thread = threading.Thread(target=self._run, name="alpineagents-sync", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        import asyncio

        asyncio.set_event_loop(self.loop)
        while not self.closing:
            # A tool that calls sys.exit() in a task of its own ends a loop; other calls need it still.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()

    async def _give_back(self) -> None:
        for give_back in self.at_exit:
            with suppress(Exception):
                await give_back()
        await self.loop.shutdown_asyncgens()

    def close(self) -> None:
        import asyncio
        from concurrent.futures import wait

        if self.pid != os.getpid():
            return
        # Bounded: a database that does not answer must not keep a process from ending.
        wait([asyncio.run_coroutine_threadsafe(self._give_back(), self.loop)], timeout=CLOSE_SECONDS)
        self.closing = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=CLOSE_SECONDS)
        if not self.thread.is_alive():
            self.loop.close()


_lock = threading.Lock()
_door: _Door | None = None


def _opened() -> _Door:
    global _door  # noqa: PLW0603  # one loop a process is the point
    with _lock:
        # A fork copies the object but not its thread.
        if _door is None or _door.pid != os.getpid():
            _door = _Door()
            atexit.register(_door.close)
        return _door


def run_sync(coroutine: Coroutine[Any, Any, T], *, called: str, instead: str) -> T:
    """
    Run a coroutine on the background loop and wait for it.

    Ctrl+C cancels it and waits until it has come to a clean end; a second one stops waiting.

    Args:
        called: name of the call, for the error.
        instead: what to write inside async code.

    Raises:
        SyncInsideLoopError: an event loop runs in this thread; it would wait for itself.
    """
    from concurrent.futures import Future, wait

    if in_async_code():
        coroutine.close()
        raise SyncInsideLoopError(called, instead)
    door = _opened()
    outcome: Future[T] = Future()
    task: list[asyncio.Task[None]] = []
    door.loop.call_soon_threadsafe(lambda: task.append(door.loop.create_task(_settle(coroutine, outcome))))
    try:
        return outcome.result()
    except KeyboardInterrupt:
        # Cancelling the future would count as done at once, while the task still closes the run.
        door.loop.call_soon_threadsafe(lambda: task[0].cancel())  # noqa: PLW0108  # filled by then, not yet here
        wait([outcome])
        raise


async def _settle(coroutine: Coroutine[Any, Any, T], outcome: Future[T]) -> None:
    try:
        outcome.set_result(await coroutine)
    except BaseException as error:  # noqa: BLE001  # raised where the call was made
        outcome.set_exception(error)


serves_a_thread: ContextVar[bool] = ContextVar("alpineagents_serves_a_thread", default=False)
"""Whether what runs here is waited for in a worker thread: a place among those may not be waited for then."""


def run_in_portal(
    portal: BlockingPortal, function: Callable[[], Coroutine[Any, Any, T]], *, called: str, instead: str
) -> T:
    """
    Run a coroutine in the event loop of a portal and wait for it, in a thread.

    Raises:
        CancelledError: what the portal serves was cancelled, or has ended.
        SyncInsideLoopError: an event loop runs in this thread.
    """
    from concurrent.futures import CancelledError, Future

    async def settle() -> Future[T]:
        # Nothing is raised in the portal, which what is no Exception would end.
        outcome: Future[T] = Future()
        serves_a_thread.set(True)
        try:
            outcome.set_result(await function())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # raised where the call was made
            outcome.set_exception(error)
        return outcome

    if in_async_code():
        raise SyncInsideLoopError(called, instead)
    try:
        settled = portal.call(settle)
    except RuntimeError as error:
        raise CancelledError("the call that this run serves has ended") from error
    return settled.result()


def close_at_exit(give_back: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have what was opened on the background loop closed when the process ends; elsewhere, do nothing."""
    import asyncio

    if _door is not None and asyncio.get_running_loop() is _door.loop:
        _door.at_exit.append(give_back)
