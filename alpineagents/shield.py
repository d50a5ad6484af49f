"""
Work that must come to its end although its caller is cancelled, such as a transaction.

anyio's shield holds off the cancellation of anyio's scopes. A web server, `asyncio.timeout` and `Task.cancel` use
asyncio's own, which goes through any shield; there the work runs in a task of its own.

asyncio is imported where it runs already, so that importing the library does not import it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import sniffio

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


async def settled(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """
    Await the function to its end; a cancellation that came meanwhile goes on after it.

    The function should be short and bounded in time, since nothing can interrupt it.
    """
    if sniffio.current_async_library() != "asyncio":
        with anyio.CancelScope(shield=True):
            return await function()
    import asyncio

    loop = asyncio.get_running_loop()
    told = loop.create_future()
    task = loop.create_task(_telling(function, told))
    try:
        # Not the task itself: whoever is cancelled while awaiting one cancels it.
        await told
    except asyncio.CancelledError as error:
        if (cancelled := await held_off(error, task)) is not None:
            raise cancelled from task.exception()
    return task.result()


async def _telling(function: Callable[[], Coroutine[Any, Any, T]], told: asyncio.Future[None]) -> T:
    try:
        return await function()
    finally:
        # A callback of the task would say it one pass of the event loop later.
        _wake(told)


async def held_off(cancelled: asyncio.CancelledError, future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """
    Wait until the future is done, although a cancellation has come.

    Returns:
        The cancellation that goes on then. None where it is that of a scope, which says it again at the next point: so
        what is settled in a `finally` of a cancelled scope has its result.
    """
    # anyio says in the error which scope cancels; asyncio's own cancel says nothing.
    is_of_a_scope = bool(cancelled.args) and anyio.current_effective_deadline() == -math.inf
    held: asyncio.CancelledError | None = None if is_of_a_scope else cancelled
    with anyio.CancelScope(shield=True):
        while again := await _until_done(future):
            held = again
    return held


async def _until_done(future: asyncio.Future[Any]) -> asyncio.CancelledError | None:
    """Wait until the future is done, or the task that waits is cancelled; the future is not."""
    import asyncio

    if not future.done():
        waiter = future.get_loop().create_future()
        future.add_done_callback(partial(_wake, waiter))
        try:
            await waiter
        except asyncio.CancelledError as error:
            return error
    return None


def _wake(waiter: asyncio.Future[None], _done: asyncio.Future[Any] | None = None) -> None:
    if not waiter.done():
        waiter.set_result(None)


def in_async_code() -> bool:
    """Tell whether an event loop runs in this thread."""
    # A callback of asyncio's loop is no task, so sniffio does not see it; it would block the loop all the same.
    if asyncio := sys.modules.get("asyncio"):
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            return True
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True
