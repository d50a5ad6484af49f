"""
Cancels a call at its n-th step, a step being what a task does between two awaits.

The tasks that the call makes are counted too: stores append in a task of its own, which a cancellation cannot reach.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    How a call ended.

    Attributes:
        was_cancelled: whether it went on long enough to be cancelled.
        returned: whether it returned nevertheless.
        error: what it raised other than the cancellation.
    """

    was_cancelled: bool
    returned: bool
    error: BaseException | None


async def cancelled_at(step: int, call: Callable[[], Coroutine[Any, Any, object]]) -> Outcome:
    """Await a call in a task that is cancelled natively at a step; at step 0 before it begins."""
    loop = asyncio.get_running_loop()
    left = step

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            task.cancel()

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        counted = asyncio.Task(_counted(work, count), loop=loop, **options)
        # If it is cancelled before it begins, nothing else says that the work will never be awaited.
        counted.add_done_callback(lambda _: work.close())
        return counted

    before = loop.get_task_factory()
    loop.set_task_factory(make_task)
    try:
        task = loop.create_task(call())
        if step == 0:
            task.cancel()
        await asyncio.wait([task])
    finally:
        loop.set_task_factory(before)
    error = None if task.cancelled() else task.exception()
    return Outcome(left <= 0, not task.cancelled() and error is None, error)


async def _counted(work: Coroutine[Any, Any, object], count: Callable[[], None]) -> object:
    return await _forwarded(work, count)


@types.coroutine
def _forwarded(work: Coroutine[Any, Any, object], count: Callable[[], None]) -> Generator[Any, Any, object]:
    sent: Any = None
    error: BaseException | None = None
    while True:
        count()
        try:
            awaited = work.send(sent) if error is None else work.throw(error)
        except StopIteration as done:
            return done.value
        sent = error = None
        try:
            sent = yield awaited
        except BaseException as thrown:  # noqa: BLE001  # handed on to the work
            error = thrown
