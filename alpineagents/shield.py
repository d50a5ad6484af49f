"""
Work that must come to its end although its caller is cancelled, such as a transaction.

anyio's shield holds off the cancellation of anyio's scopes. A web server, `asyncio.timeout` and `Task.cancel` use
asyncio's own, which goes through any shield; there the work runs in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import sniffio

T = TypeVar("T")


async def settled(function: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """
    Await the function to its end; a cancellation that came meanwhile goes on after it.

    The function should be short and bounded in time, since nothing can interrupt it.
    """
    with anyio.CancelScope(shield=True):
        if sniffio.current_async_library() != "asyncio":
            return await function()
        task = asyncio.get_running_loop().create_task(function())
        cancelled = await _until_done(task)
    if cancelled is not None:
        raise cancelled from task.exception()
    return task.result()


async def _until_done(task: asyncio.Task[Any]) -> asyncio.CancelledError | None:
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def in_async_code() -> bool:
    """Tell whether an event loop runs in this thread."""
    # A callback of asyncio's loop is no task, so sniffio does not see it; it would block the loop all the same.
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True
