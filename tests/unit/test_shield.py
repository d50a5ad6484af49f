"""Work that comes to its end although its caller is cancelled, in every way that there is to cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from alpineagents.shield import in_async_code, settled

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


class Work:
    """Waits until it is let on, and notes how far it came."""

    def __init__(self, result: object = "result", error: BaseException | None = None) -> None:
        self.began, self.let_on = anyio.Event(), anyio.Event()
        self.result, self.error = result, error
        self.ended = False

    async def __call__(self) -> Any:
        self.began.set()
        await self.let_on.wait()
        await anyio.sleep(0)
        self.ended = True
        if self.error is not None:
            raise self.error
        return self.result


@BOTH
async def test_work_that_nobody_cancels_gives_its_result(anyio_backend: str) -> None:
    """The shield is not seen."""
    work = Work()
    work.let_on.set()

    assert await settled(work) == "result"


@BOTH
async def test_an_error_of_the_work_comes_out(anyio_backend: str) -> None:
    """As it was."""
    work = Work(error=KeyError("missing"))
    work.let_on.set()

    with pytest.raises(KeyError, match="missing"):
        await settled(work)


@BOTH
async def test_a_cancelled_scope_waits_for_the_work(anyio_backend: str) -> None:
    """The work ends, and the cancellation goes on at the next point."""
    work = Work()
    after = False

    async with anyio.create_task_group() as group:

        async def caller() -> None:
            nonlocal after
            await settled(work)
            await anyio.lowlevel.checkpoint()
            after = True

        group.start_soon(caller)
        await work.began.wait()
        group.cancel_scope.cancel()
        work.let_on.set()

    assert (work.ended, after) == (True, False)


@BOTH
async def test_a_timeout_of_anyio_waits_for_the_work(anyio_backend: str) -> None:
    """It is told when the work has ended."""
    work = Work()

    async def let_on() -> None:
        await work.began.wait()
        work.let_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(let_on)
        with pytest.raises(TimeoutError):
            with anyio.fail_after(0):
                await settled(work)
                await anyio.lowlevel.checkpoint()

    assert work.ended


async def test_work_in_the_clean_up_of_a_cancelled_scope_gives_its_result(anyio_backend: str) -> None:
    """However often it is done: what depends on the result is done too."""
    results: list[int] = []

    async def work() -> int:
        await anyio.sleep(0.01)
        return len(results)

    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            for _ in range(3):
                results.append(await settled(work))  # noqa: PERF401
    assert scope.cancelled_caught
    assert results == [0, 1, 2]


async def test_a_task_that_is_cancelled_in_a_cancelled_scope_hears_of_it() -> None:
    """The scope takes its own cancellation out, not that of the task."""
    entered = asyncio.Event()
    results: list[int] = []

    async def work() -> int:
        entered.set()
        await asyncio.sleep(0.05)
        return 1

    async def main() -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                results.append(await settled(work))
        results.append(2)
        await anyio.sleep_forever()

    task = asyncio.create_task(main())
    await entered.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 5)
    assert results == []


async def test_a_task_that_is_cancelled_waits_for_the_work() -> None:
    """asyncio's own cancel goes through any shield of anyio, so the work runs in a task of its own."""
    work = Work()
    task = asyncio.get_running_loop().create_task(settled(work))
    await work.began.wait()

    task.cancel()
    await asyncio.wait((task,), timeout=0)
    assert not task.done()
    work.let_on.set()
    await asyncio.wait((task,))

    assert work.ended
    assert task.cancelled()


async def test_a_task_that_is_cancelled_again_and_again_waits_for_the_work() -> None:
    """Impatience does not help."""
    work = Work()
    task = asyncio.get_running_loop().create_task(settled(work))
    await work.began.wait()

    for _ in range(5):
        task.cancel()
        await asyncio.sleep(0)
    assert not work.ended
    work.let_on.set()
    await asyncio.wait((task,))

    assert work.ended
    assert task.cancelled()


async def test_a_task_that_is_cancelled_before_it_begins_does_not_begin_the_work() -> None:
    """Nothing was asked of anyone yet."""
    work = Work()
    task = asyncio.get_running_loop().create_task(settled(work))

    task.cancel()
    await asyncio.wait((task,))

    assert task.cancelled()
    assert not work.began.is_set()


async def test_a_timeout_of_asyncio_waits_for_the_work() -> None:
    """And becomes its TimeoutError, as anywhere else."""
    work = Work()

    async def caller() -> None:
        async with asyncio.timeout(0):
            await settled(work)

    task = asyncio.get_running_loop().create_task(caller())
    await work.began.wait()
    await asyncio.sleep(0)
    work.let_on.set()
    await asyncio.wait((task,))

    assert work.ended
    assert isinstance(task.exception(), TimeoutError)


async def test_an_error_of_work_whose_caller_was_cancelled_is_kept_as_the_cause() -> None:
    """The cancellation goes on, and who looks finds what went wrong."""
    work = Work(error=KeyError("missing"))
    seen: list[BaseException] = []

    async def caller() -> None:
        try:
            await settled(work)
        except asyncio.CancelledError as error:
            seen.append(error)
            raise

    task = asyncio.get_running_loop().create_task(caller())
    await work.began.wait()
    task.cancel()
    await asyncio.sleep(0)
    work.let_on.set()
    await asyncio.wait((task,))

    assert task.cancelled()
    assert isinstance(seen[0].__cause__, KeyError)


@BOTH
async def test_async_code_is_known(anyio_backend: str) -> None:
    """In a loop of either kind, and not in the thread beside it."""
    assert in_async_code()
    assert not await anyio.to_thread.run_sync(in_async_code)


def test_sync_code_is_known() -> None:
    """No loop runs here."""
    assert not in_async_code()


def test_a_callback_of_the_loop_is_async_code_too() -> None:
    """It is no task, but what blocks it blocks the loop."""

    async def main() -> bool:
        seen: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: seen.set_result(in_async_code()))
        return await seen

    assert asyncio.run(main())
