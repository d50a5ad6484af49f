"""The ways in which programs give up waiting for a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from alpineagents import Agent, Message, Request, State, StoppedByCancel, Store, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, kinds, outcomes, wait_for


async def stall(request: Request) -> str:
    await anyio.sleep_forever()
    return "never"


async def with_timeout(work: Awaitable[object]) -> object:
    async with asyncio.timeout(0.3):
        return await work


async def with_wait_for(work: Awaitable[object]) -> object:
    return await asyncio.wait_for(work, 0.3)


async def with_fail_after(work: Awaitable[object]) -> object:
    with anyio.fail_after(0.3):
        return await work


@pytest.mark.parametrize("limited", [with_timeout, with_wait_for, with_fail_after])
@pytest.mark.asyncio_only
async def test_a_time_limit_ends_the_run_and_records_it(
    limited: Callable[[Awaitable[object]], Awaitable[object]], store: Store
) -> None:
    """The limit raises as it always does; the State says that the run was cancelled, and can be run again."""
    state = State(id="s", messages=[Message.user("Hello")])

    with pytest.raises(TimeoutError):
        await limited(Agent(FakeModel(stall), store=store).run(state))

    assert state.stopped == StoppedByCancel()
    await check_closed(store, state)
    assert await Agent(FakeModel(["Hi"]), store=store).resume("s") == "Hi"


async def test_moving_on_goes_on_behind_the_run(store: Store) -> None:
    """The block is left without an exception."""
    with anyio.move_on_after(0.3) as scope:
        await Agent(FakeModel(stall), store=store).run("Hello", id="s")

    assert scope.cancelled_caught
    assert (await store.load("s")).status == "cancelled"


@pytest.mark.asyncio_only
async def test_calls_are_told_apart_when_a_run_is_cancelled(store: Store) -> None:
    """One is done, one was stopped while it ran, one had not begun; each result says so to the model."""
    entered = anyio.Event()

    @tool
    async def quick() -> str:
        """Be quick."""
        return "quick"

    @tool
    async def slow() -> str:
        """Wait."""
        entered.set()
        await anyio.sleep_forever()
        return "never"

    calls = [tool_call("quick"), tool_call("slow"), tool_call("later")]
    later = quick.copy(name="later", parallel=False)
    model = FakeModel([calls, "I see"])
    agent = Agent(model, tools=[quick, slow, later], store=store)
    state = State(id="s", messages=[Message.user("Go")])
    task = asyncio.create_task(agent.run(state))
    await wait_for(entered)
    with anyio.fail_after(20):
        while "tool_finished" not in kinds(await store.load("s")):
            await anyio.lowlevel.checkpoint()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert outcomes(state) == {"quick": "ok", "slow": "interrupted", "later": "cancelled"}
    await check_closed(store, state)
    assert await agent.resume("s", "Go on") == "I see"


@pytest.mark.asyncio_only
async def test_the_partial_reply_is_kept(store: Store) -> None:
    """What a person saw of it before the run was cancelled."""
    from alpineagents import Delta

    asked = anyio.Event()

    class Slow(FakeModel):
        async def respond(self, request: Request, *, emit: object = None) -> object:
            emit(Delta(text="Once upon"))
            emit(Delta(kind="thinking", text="what time?"))
            emit(Delta(text=" a time"))
            asked.set()
            await anyio.sleep_forever()
            return None

    task = asyncio.create_task(Agent(Slow([]), store=store).run("Hello", id="s"))
    await wait_for(asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    (failed,) = [event for event in (await store.load("s")).history if event.kind == "model_failed"]
    assert (failed.outcome, failed.partial) == ("cancelled", "Once upon a time")
