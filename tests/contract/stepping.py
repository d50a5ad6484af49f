"""A cancellation at a chosen point: the nth time that a piece of work waits for something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class CancelAt:
    """
    Awaits a piece of work, and cancels the task that does so when it waits for the nth time.

    Attributes:
        waits: how often the work has waited for something.
    """

    def __init__(self, work: Coroutine[Any, Any, Any], at: int) -> None:
        self.work, self.at, self.waits = work, at, 0

    def __await__(self) -> Generator[Any, Any, Any]:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        steps = self.work.__await__()
        send: Callable[[Any], Any] = steps.send
        value: Any = None
        while True:
            try:
                waited_for = send(value)
            except StopIteration as done:
                return done.value
            self.waits += 1
            if self.waits == self.at:
                # Not at once: the task is only then seen to wait.
                loop.call_soon(task.cancel)
            try:
                value = yield waited_for
            except BaseException as error:  # noqa: BLE001  # handed on
                send, value = steps.throw, error
            else:
                send = steps.send


async def cancelled_at(work: Coroutine[Any, Any, Any], at: int) -> str:
    """Do the work in a task that is cancelled at its nth wait; say how it ended."""
    stepping = CancelAt(work, at)

    async def wait() -> None:
        await stepping

    outcome: list[BaseException | None] = []
    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.wait((task,))
    if task.cancelled():
        return "cancelled"
    outcome.append(task.exception())
    if outcome[0] is not None:
        raise outcome[0]
    return "cancelled too late" if stepping.waits >= at else "done"
