"""A run that is cancelled at each moment in turn is whole at each: valid, saved, given up, and it runs again."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import anyio
import pytest

from alpineagents import Agent, FileStore, MemoryStore, Message, State, StoppedByCancel, Store, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Place, check_closed, complaints, kinds
from tests.agent.sweep import CountingLoop, CountingTasks, agent_on, connections_out

MOST = 2_000
"""A run has fewer moments; more would mean that it does not end."""
STEPS = {"memory": 1, "files": 1, "sqlite": 1, "postgres": 3}


async def check_whole(store: Store, state: State, *, cancelled: bool) -> None:
    """Check what must hold after a run, and that another may start at once and comes to the end."""
    assert connections_out(store) == 0
    if not await store.exists(state.id):
        assert cancelled
        assert kinds(state) == ["message_added"]
    else:
        await check_closed(store, state)
        assert cancelled or state.answer == "All is done."
        assert not cancelled or isinstance(state.stopped, StoppedByCancel) or state.answer == "All is done."
    assert await agent_on(store).run(state) == "All is done."
    await check_closed(store, state)


def sweep(place: Place, run_one: object) -> int:
    """Cancel at the first moment, the second and so on, until a run ends before its moment; return the last."""
    step = STEPS[place.name]

    async def main() -> int:
        async with place.open() as store:
            for moment in range(1, MOST, step):
                state = State(id=f"s{moment}", messages=[Message.user("Do it all")])
                was_cancelled = await run_one(store, state, moment)
                await check_whole(store, state, cancelled=was_cancelled)
                if not was_cancelled:
                    return moment
        raise AssertionError("the run has no end")

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(main())


async def cancel_task(store: Store, state: State, moment: int) -> bool:
    """Cancel as a web server does, and say whether there was still something to cancel."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    task = asyncio.create_task(agent_on(store).run(state))
    took: list[bool] = []
    loop.arm(moment, lambda: took.append(task.cancel()))
    await asyncio.wait([task])
    loop.disarm()
    # A cancellation that a task took is never swallowed.
    assert task.cancelled() == (took == [True])
    return task.cancelled()


async def cancel_twice(store: Store, state: State, moment: int) -> bool:
    """Cancel again at the next moment, as an impatient person does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    task = asyncio.create_task(agent_on(store).run(state))

    def first() -> None:
        task.cancel()
        loop.arm(2, task.cancel)

    loop.arm(moment, first)
    await asyncio.wait([task])
    loop.disarm()
    return task.cancelled()


async def cancel_scope(store: Store, state: State, moment: int) -> bool:
    """Cancel as `anyio.move_on_after` does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    with anyio.CancelScope() as scope:
        loop.arm(moment, scope.cancel)
        await agent_on(store).run(state)
    loop.disarm()
    return scope.cancel_called


async def leave_stream(store: Store, state: State, moment: int) -> bool:
    """Leave the block of a stream."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    left = asyncio.Event()
    loop.arm(moment, left.set)

    async def read(items: object) -> None:
        async for _ in items:
            pass
        left.set()

    async with agent_on(store).stream(state) as items:
        reading = asyncio.create_task(read(items))
        await left.wait()
    was_armed = not loop.disarm()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError, anyio.ClosedResourceError):
        await reading
    return not was_armed


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run_one", [cancel_task, cancel_twice, cancel_scope, leave_stream])
def test_a_run_cancelled_at_any_moment_is_whole(run_one: object, place: Place) -> None:
    """At the n-th iteration of the event loop, for each n until the run is over before it."""
    moments = sweep(place, run_one)

    assert moments > 20


async def cancel_summary(store: Store, state: State, moment: int) -> bool:
    """Cancel while a summary takes the place of the context."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    state.add_message(Message(role="assistant", content="No."))
    state.add_message(Message.user("Do it all"))
    summarizer = Agent(FakeModel(["They talked."]), store=store)
    task = asyncio.create_task(summarizer.compact(state, keep=0))
    loop.arm(moment, task.cancel)
    await asyncio.wait([task])
    loop.disarm()
    if await store.exists(state.id):
        assert (await store.load(state.id)).snapshot() == state.snapshot()
    assert state.messages[-1].text == "Do it all"
    await agent_on(store).run(state)
    return task.cancelled()


async def cancel_approved(store: Store, state: State, moment: int) -> bool:
    """Cancel a run that goes on behind an approval and a refusal, and go on again."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CountingLoop)
    paid: list[str] = []

    @tool(name="pay", needs_approval=True)
    async def pay_once(to: str) -> str:
        """Pay."""
        paid.append(to)
        await anyio.lowlevel.checkpoint()
        return f"paid {to}"

    asked = [tool_call("pay", to="Ada"), tool_call("pay", to="Bob")]
    model = FakeModel(lambda request: "All is done." if len(request.messages) > 1 else asked)
    agent = Agent(model, tools=[pay_once], store=store)
    await agent.run(state)
    await store.approve(state.id, state.pending_calls[0].id, by="Ada")
    await store.deny(state.id, state.pending_calls[1].id, by="Ada", reason="not him")
    loop.arm(moment, (task := asyncio.create_task(agent.resume(state.id))).cancel)
    await asyncio.wait([task])
    loop.disarm()
    before = list(paid)

    assert await agent.resume(state.id) == "All is done."

    assert paid in (before, ["Ada"])
    assert complaints((await store.load(state.id)).messages) == []
    state.take_in((await store.load(state.id)).history[state.revision :])
    return task.cancelled()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("run_one", [cancel_summary, cancel_approved])
def test_what_else_is_cancelled_at_any_moment_is_whole(run_one: object, place: Place) -> None:
    """A summary is there or not; an approved call is made once, or closed, and a refused one never made."""
    assert sweep(place, run_one) > 10


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["memory", "files"])
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_run_cancelled_at_any_moment_is_whole_on_trio(anyio_backend: str, kind: str, tmp_path: Path) -> None:
    """The same where trio counts, on the stores that run there."""
    import trio

    store: Store = MemoryStore() if kind == "memory" else FileStore(tmp_path / "agent-runs")
    for moment in range(1, MOST):
        state = State(id=f"s{moment}", messages=[Message.user("Do it all")])
        with anyio.CancelScope() as scope:
            counting = CountingTasks(moment, scope.cancel)
            trio.lowlevel.add_instrument(counting)
            await agent_on(store).run(state)
        trio.lowlevel.remove_instrument(counting)
        await check_whole(store, state, cancelled=scope.cancel_called)
        if not counting.is_done:
            break
    else:
        pytest.fail("the run has no end")

    assert moment > 20
