"""
A run that goes on in the background while its items are read.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic import JsonValue

from alpineagents.runner import Emit, Item
from alpineagents.state import State


class RunStream:
    """
    The items of a run; iterate over it once.

    Attributes:
        state: the State that runs.
    """

    def __init__(self, state: State, items: MemoryObjectReceiveStream[Item]) -> None:
        self.state = state
        self._items = items
        self._failure: Exception | None = None

    @property
    def answer(self) -> JsonValue:
        """The answer, once there is one."""
        return self.state.answer

    def fail(self, error: Exception) -> None:
        """Raise the error once the items have been read."""
        self._failure = error

    def raise_failure(self) -> None:
        """Raise what ended the run, unless a reader got it."""
        if (error := self._failure) is not None:
            self._failure = None
            raise error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Item:
        try:
            return await self._items.receive()
        except anyio.EndOfStream:
            self.raise_failure()
            raise StopAsyncIteration from None

    def __repr__(self) -> str:
        return f"<RunStream of {self.state!r}>"


@asynccontextmanager
async def streamed(state: State, run: Callable[[Emit], Awaitable[None]]) -> AsyncIterator[RunStream]:
    """
    Run in the background; leaving the block ends the run.

    Args:
        run: called with what takes its items.
    """
    send, receive = anyio.create_memory_object_stream[Item](math.inf)
    stream = RunStream(state, receive)
    body_error: BaseException | None = None
    async with receive, anyio.create_task_group() as group:
        group.start_soon(_feed, stream, send, run)
        try:
            yield stream
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # handed over: the task group would wrap it
            body_error = error
        group.cancel_scope.cancel()
    if body_error is not None:
        raise body_error
    stream.raise_failure()


async def _feed(stream: RunStream, send: MemoryObjectSendStream[Item], run: Callable[[Emit], Awaitable[None]]) -> None:
    with send:
        try:
            await run(send.send_nowait)
        except Exception as error:  # noqa: BLE001  # handed over to the reader
            stream.fail(error)
