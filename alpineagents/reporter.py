"""
What a run tells its reporter: every item in order, beside the run, so that a slow reporter does not slow it.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import math
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from queue import SimpleQueue

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.streams.memory import MemoryObjectReceiveStream

from alpineagents.runner import Item
from alpineagents.shield import settled

log = logging.getLogger("alpineagents")

Reporter = Callable[[Item], None] | Callable[[Item], Awaitable[None]]
"""
Gets each item of each run of an Agent: an async function in the event loop, any other in a thread.

Where it has a method `run_ended`, that is called after the last item of a run, whichever way the run ended.
"""

PATIENCE_SECONDS = 5.0
"""How long a run waits at its end, and before a person is asked, for a reporter that is behind."""


class _Ended:
    """Stands behind the last item of a run."""


Put = Item | Callable[[], None] | _Ended


class Reports:
    """
    The items of one run on their way to its reporter.

    Args:
        put: takes an item, or what is to be called once the reporter has had all items before it; it returns at once.
    """

    def __init__(self, put: Callable[[Put], None]) -> None:
        self._put = put
        # Each is counted up by one thread only.
        self.handed_over, self.taken = 0, 0
        self.given_up = False

    def tell(self, item: Item) -> None:
        """Hand over an item."""
        self.handed_over += 1
        self._put(item)

    async def told(self) -> None:
        """Wait until the reporter has had what was handed over so far, but not for long."""
        done = anyio.Event()
        self._put(done.set)
        with anyio.move_on_after(PATIENCE_SECONDS):
            await done.wait()

    async def end(self) -> None:
        """Wait as `told` does, and leave out what the reporter has not taken by then."""
        self._put(_Ended())
        await self.told()
        self.given_up = True
        if left := self.handed_over - self.taken:
            log.warning("the reporter is too slow: %d items were left out at the end of the run", left)


@asynccontextmanager
async def reported(reporter: Reporter | None) -> AsyncIterator[Reports]:
    """Start handing items to a reporter; at the end of the block it has had them."""
    if reporter is None:
        yield _Nobody()
    elif is_async(reporter):
        async with _in_loop(reporter) as reports:
            yield reports
    else:
        async with _in_thread(reporter) as reports:
            yield reports


class _Nobody(Reports):
    def __init__(self) -> None:
        super().__init__(lambda _item: None)

    def tell(self, item: Item) -> None:
        pass

    async def told(self) -> None:
        pass


def is_async(reporter: Reporter) -> bool:
    """Tell whether a reporter is to be awaited."""
    return inspect.iscoroutinefunction(reporter) or inspect.iscoroutinefunction(getattr(reporter, "__call__", None))  # noqa: B004  # a method of its class, not whether there is one


@asynccontextmanager
async def _in_thread(reporter: Reporter) -> AsyncIterator[Reports]:
    # A daemon: a reporter that hangs, as at a terminal stopped by Ctrl+S, must not keep the process from ending.
    items: SimpleQueue[Put | None] = SimpleQueue()
    reports = Reports(items.put)
    token = anyio.lowlevel.current_token()

    def work() -> None:
        while (item := items.get()) is not None:
            if callable(item):
                with suppress(anyio.RunFinishedError):
                    anyio.from_thread.run_sync(item, token=token)
            elif isinstance(item, _Ended):
                _call(getattr(reporter, "run_ended", None))
            elif not reports.given_up:
                _call(reporter, item)
                reports.taken += 1

    context = contextvars.copy_context()
    threading.Thread(target=partial(context.run, work), name="alpineagents-reporter", daemon=True).start()
    try:
        yield reports
    finally:
        try:
            await settled(reports.end)
        finally:
            items.put(None)


def _call(function: Callable[..., object] | None, *item: Item) -> None:
    try:
        returned = None if function is None else function(*item)
        if inspect.iscoroutine(returned):
            returned.close()
            raise TypeError("it gave a coroutine; make it an async function: async def report(item): …")
    except BaseException:  # there is nobody above to raise it to
        log.exception("the reporter failed; the run goes on")


@asynccontextmanager
async def _in_loop(reporter: Reporter) -> AsyncIterator[Reports]:
    send, receive = anyio.create_memory_object_stream[Put](math.inf)
    reports = Reports(send.send_nowait)
    # Shielded, so that a run that is cancelled can still say so.
    scope = anyio.CancelScope(shield=True)
    failure: BaseException | None = None
    async with receive, send, anyio.create_task_group() as group:
        group.start_soon(_deliver, reporter, receive, reports, scope)
        try:
            yield reports
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # handed over: the task group would wrap it
            failure = error
        finally:
            try:
                await settled(reports.end)
            finally:
                scope.cancel()
    if failure is not None:
        raise failure


async def _deliver(
    reporter: Reporter,
    items: MemoryObjectReceiveStream[Put],
    reports: Reports,
    scope: anyio.CancelScope,
) -> None:
    with scope:
        async for item in items:
            if callable(item):
                item()
                continue
            function = getattr(reporter, "run_ended", None) if isinstance(item, _Ended) else partial(reporter, item)
            try:
                returned = None if function is None else function()
                if inspect.isawaitable(returned):
                    await returned
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException:  # it would end the event loop
                log.exception("the reporter failed; the run goes on")
            reports.taken += 0 if isinstance(item, _Ended) else 1
