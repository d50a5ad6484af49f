"""
A run that goes on in the background while its items are read.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from pydantic import JsonValue

from alpineagents.errors import ConfigError
from alpineagents.runner import Emit, Item
from alpineagents.state import State

_READ_WITHIN = (
    "a stream is read within its block, and leaving that ends the run: "
    "async with agent.stream(…) as items, and in it: async for item in items"
)


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
        except anyio.ClosedResourceError:
            raise ConfigError(_READ_WITHIN) from None

    def __repr__(self) -> str:
        return f"<RunStream of {self.state!r}>"


class StreamBlock(AbstractAsyncContextManager[RunStream, None]):
    """
    What `agent.stream` gives: the block of an `async with`, in which the run goes on.

    Args:
        block: what begins and ends the run.
    """

    def __init__(self, block: AbstractAsyncContextManager[RunStream, bool | None]) -> None:
        self._block = block

    async def __aenter__(self) -> RunStream:
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._block.__aexit__(kind, error, trace)

    if not TYPE_CHECKING:  # which finds these out by itself, as long as there are no such methods

        def __aiter__(self) -> NoReturn:
            raise ConfigError(_READ_WITHIN)

        def __await__(self) -> NoReturn:
            raise ConfigError(
                "a stream is not awaited: async with agent.stream(…) as items. For the answer alone: "
                "answer = await agent.run(…)"
            )


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
