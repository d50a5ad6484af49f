"""Agents that sync tools run: children as those of async tools are, worked on in the event loop of the parent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    ConfigError,
    FileStore,
    MemoryStore,
    Request,
    State,
    StoppedByCancel,
    Store,
    SyncInsideLoopError,
    ToolContext,
    ToolFinished,
    WaitingForApproval,
    tool,
)
from alpineagents.subagents import child_id
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import PATIENCE_SECONDS, check_closed, kinds, of, outcomes, results, wait_for, wait_for_a_place

Work = Callable[[ToolContext], Any]


def working(work: Work, store: Store | None, **settings: Any) -> Agent:
    """Return an Agent with a sync tool that does this work."""

    @tool(idempotent=True, max_concurrency=1, **settings)
    def research(context: ToolContext) -> Any:
        """Look things up."""
        return work(context)

    return Agent(FakeModel([tool_call("research"), "done"]), tools=[research], store=store)


async def ended_in(agent: Agent) -> None:
    """Wait until the thread of the tool has ended: then its place is free."""
    await wait_for_a_place(agent.tools["research"])


def guide(*replies: Any, **settings: Any) -> Agent:
    return Agent(FakeModel(list(replies)), **{"name": "guide", **settings})


@pytest.mark.parametrize("door", ["async", "sync", "trio"])
def test_a_run_of_a_sync_tool_is_a_child(door: str, tmp_path: Path) -> None:
    """With an id that follows from the call, in the parent's store, counted there; the logs name each other."""
    store = FileStore(tmp_path / "runs")
    agent = working(lambda context: guide("4,478 m").run_sync("How high?", context=context), store)

    if door == "sync":
        assert agent.run_sync("Go", id="s") == "done"
    else:

        async def main() -> None:
            assert await agent.run("Go", id="s") == "done"

        anyio.run(main, backend="trio" if door == "trio" else "asyncio")

    state = store.load_sync("s")
    [ended] = of(state, ToolFinished)
    child = store.load_sync(ended.children[0])
    assert child.id == child_id("s", ended.call_id)
    assert (child.parent_id, child.snapshot().parent.call_id) == ("s", ended.call_id)  # type: ignore[union-attr]
    assert (results(state), state.usage.requests) == (["4,478 m"], 3)


async def test_threads_of_a_tool_run_several_at_a_time(store: Store) -> None:
    """Each is a child, and each gets its own answer."""
    meet = anyio.Event()

    async def respond(request: Request) -> str:
        if request.messages[-1].text == "alps":
            meet.set()
        with anyio.fail_after(PATIENCE_SECONDS):
            await meet.wait()
        return request.messages[-1].text.upper()

    helper = Agent(FakeModel(respond), name="helper")

    def work(context: ToolContext) -> str:
        with ThreadPoolExecutor() as pool:
            return " ".join(pool.map(lambda what: helper.run_sync(what, context=context) or "", ["lakes", "alps"]))

    await working(work, store).run("Go", id="s")

    state = await store.load("s")
    assert results(state) == ["LAKES ALPS"]
    assert len(of(state, ToolFinished)[0].children) == 2


async def test_an_approval_in_the_child_of_a_sync_tool_surfaces(store: Store) -> None:
    """The tool is left, and entered again once a person has decided; the child goes on where it stopped."""
    paid: list[int] = []

    @tool(needs_approval=True)
    def pay(amount: int) -> str:
        """Pay an amount."""
        paid.append(amount)
        return "paid"

    clerk = Agent(FakeModel([tool_call("pay", amount=5), "It is paid."]), tools=[pay], name="clerk")

    def work(context: ToolContext) -> Any:
        try:
            return clerk.run_sync("Pay", context=context)
        except Exception as error:  # noqa: BLE001
            return f"caught {type(error).__name__}"

    agent = working(work, store)
    assert await agent.run("Go", id="s") is None
    assert isinstance((await store.load("s")).stopped, WaitingForApproval)

    [waiting] = await store.approvals()
    await store.approve("s", waiting.call_id, by="Ada")

    assert await agent.resume("s") == "done"
    assert (results(await store.load("s")), paid) == (["It is paid."], [5])


@pytest.mark.parametrize("how", ["task", "timeout"])
async def test_the_end_of_the_call_reaches_the_child(how: str, store: Store) -> None:
    """Its run is cancelled with it and its log closed; the thread is told, and adds nothing to the log."""
    asked = anyio.Event()
    ends: list[BaseException] = []

    async def stall(request: Request) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    def work(context: ToolContext) -> Any:
        try:
            return Agent(FakeModel(stall), name="guide").run_sync("Go", context=context)
        except BaseException as error:
            ends.append(error)
            raise

    agent = working(work, store, timeout=0.3 if how == "timeout" else None)
    with anyio.fail_after(PATIENCE_SECONDS):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run("Go", id="s"))
            await wait_for(asked)
            if how == "task":
                group.cancel_scope.cancel()
        await ended_in(agent)

    state = await store.load("s")
    [ended] = of(state, ToolFinished)
    child = await store.load(ended.children[0])
    assert child.stopped == StoppedByCancel()
    await check_closed(store, child)
    assert outcomes(state) == {"research": "interrupted" if how == "task" else "error"}
    assert kinds(state)[-1] == "run_stopped"
    assert [type(end) for end in ends] == [CancelledError]


async def test_what_a_child_raises_is_raised_in_the_tool(store: Store) -> None:
    """As the exception that it is, which the tool may catch."""

    def work(context: ToolContext) -> str:
        with pytest.raises(ZeroDivisionError):
            guide(ZeroDivisionError("odd")).run_sync("Go", context=context)
        return "caught"

    await working(work, store).run("Go", id="s")

    assert results(await store.load("s")) == ["caught"]


async def test_sync_calls_work_in_a_sync_tool() -> None:
    """A run without `context` is a State of its own, and a store can be asked."""
    store, other = MemoryStore(), MemoryStore()

    def work(context: ToolContext) -> str:
        answer = guide("4,478 m", store=other).run_sync("How high?", id="own")
        return f"{answer} {context.store.load_sync(context.state_id).id}"  # type: ignore[union-attr]

    await working(work, store).run("Go", id="s")

    state = await store.load("s")
    assert (results(state), state.usage.requests) == (["4,478 m s"], 2)
    assert (await other.load("own")).parent_id is None


async def test_a_thread_that_outlives_its_call_starts_nothing(store: Store) -> None:
    """A child of a call that has its result would never be found again."""
    gate = threading.Event()
    ends: list[BaseException] = []

    def work(context: ToolContext) -> None:
        gate.wait(PATIENCE_SECONDS)
        try:
            guide("never").run_sync("Go", context=context)
        except CancelledError as error:
            ends.append(error)

    agent = working(work, store, timeout=0.01)
    await agent.run("Go", id="s")
    gate.set()
    await ended_in(agent)

    assert [str(end) for end in ends] == ["the call that this run serves has ended"]
    assert [info.id for info in await store.list()] == ["s"]


async def test_an_async_tool_awaits_its_runs() -> None:
    """The error shows the call to write."""

    @tool(idempotent=True)
    async def research(context: ToolContext) -> Any:
        """Look things up."""
        return guide("never").run_sync("Go", context=context)

    agent = Agent(FakeModel([tool_call("research")]), tools=[research])
    with pytest.raises(SyncInsideLoopError, match=r"await agent.run\(…, context=context\)"):
        await agent.run("Go")


def test_a_context_of_no_run_is_refused() -> None:
    """As in an async tool that is called by hand."""
    context = ToolContext("s", "r", "c", "research", 1, "s-c", State(id="s"))

    with pytest.raises(ConfigError, match="this ToolContext is of no run"):
        guide("never").run_sync("Go", context=context)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("runs", [1, 45])
def test_more_of_them_than_there_are_threads_come_to_their_end(runs: int, backend: str) -> None:
    """The tools of children need threads while those of their parents are kept by waiting, in one run or in many."""
    calls = 45 // runs

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    below = Agent(FakeModel(lambda request: tool_call("look") if len(request.messages) == 1 else "ok"), tools=[look])

    @tool(idempotent=True)
    def ask(context: ToolContext) -> Any:
        """Ask."""
        return below.copy(name="guide").run_sync("Look", context=context)

    def respond(request: Request) -> Any:
        return [tool_call("ask") for _ in range(calls)] if len(request.messages) == 1 else "done"

    async def main() -> None:
        agent = Agent(FakeModel(respond), tools=[ask])
        answers: list[object] = []

        async def run() -> None:
            answers.append(await agent.run("Go"))

        with anyio.fail_after(PATIENCE_SECONDS):
            async with anyio.create_task_group() as group:
                for _ in range(runs):
                    group.start_soon(run)
        assert answers == ["done"] * runs

    anyio.run(main, backend=backend)
