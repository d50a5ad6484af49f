"""A reporter gets every item in order, beside the run: it can neither slow it nor end it."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import anyio
import pytest

from alpineagents import Agent, MemoryStore, Message, State, tool
from alpineagents import reporter as reporting
from alpineagents.testing import FakeHuman, FakeModel, tool_call
from tests.agent.parts import kinds, wait_for


class Held:
    """A sync reporter that hangs at the first item until it is let go."""

    def __init__(self) -> None:
        self.entered, self.gate, self.done = threading.Event(), threading.Event(), threading.Event()
        self.kinds: list[str] = []

    def __call__(self, item: Any) -> None:
        self.entered.set()
        self.gate.wait(20)
        self.kinds.append(item.kind)
        if item.kind == "run_stopped":
            self.done.set()


class Waiting:
    """An async reporter, by its `__call__`, that waits at the first item until it is let go."""

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.kinds: list[str] = []

    async def __call__(self, item: Any) -> None:
        await self.gate.wait()
        self.kinds.append(item.kind)


async def test_a_sync_reporter_that_hangs_does_not_hold_up_the_run() -> None:
    """The run works on to its end meanwhile, and the reporter then gets all of it, in order."""
    held, state = Held(), State(messages=[Message.user("Go")])

    @tool
    def let_go() -> str:
        """Run while the reporter hangs at the first item."""
        held.entered.wait(20)
        held.gate.set()
        return "gone"

    await Agent(FakeModel([tool_call("let_go"), "done"]), tools=[let_go], reporter=held).run(state)

    assert [kind for kind in held.kinds if kind != "text"] == kinds(state)


@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_async_reporter_is_awaited_beside_the_run(wrapped: bool) -> None:
    """A function, or an object whose `__call__` is async; it has had every item when `run` returns."""
    waiting, state = Waiting(), State(messages=[Message.user("Go")])

    @tool
    async def let_go() -> str:
        """Run while the reporter waits at the first item."""
        waiting.gate.set()
        return "gone"

    reporter = functools.partial(Waiting.__call__, waiting) if wrapped else waiting
    await Agent(FakeModel([tool_call("let_go"), "done"]), tools=[let_go], reporter=reporter).run(state)

    assert [kind for kind in waiting.kinds if kind != "text"] == kinds(state)


@pytest.mark.parametrize("kind", [Held, Waiting])
async def test_the_end_of_a_run_waits_for_its_reporter_within_bounds(
    kind: type[Held] | type[Waiting], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What a reporter has not taken by then is left out, and the log says how much."""
    monkeypatch.setattr(reporting, "PATIENCE_SECONDS", 0.05)
    reporter = kind()

    assert await Agent(FakeModel(["Hi"]), reporter=reporter).run("Hello") == "Hi"

    assert "the reporter is too slow: 6 items were left out" in caplog.text
    reporter.gate.set()


@pytest.mark.parametrize("error", [RuntimeError("no screen"), SystemExit(3), TimeoutError()])
async def test_an_async_reporter_that_raises_does_not_end_the_run(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the reporter gets the items behind."""
    seen: list[str] = []

    async def broken(item: Any) -> None:
        seen.append(item.kind)
        raise error

    assert await Agent(FakeModel(["Hi"]), reporter=broken).run("Hello") == "Hi"

    assert seen == ["message_added", "run_started", "model_requested", "text", "model_replied", "run_stopped"]
    assert caplog.text.count("the reporter failed; the run goes on") == len(seen)


async def test_a_function_that_gives_a_coroutine_is_told_to_be_async(caplog: pytest.LogCaptureFixture) -> None:
    """A lambda around an async function hides that it is one; what it gives is not lost without a word."""

    async def report(item: Any) -> None:
        pytest.fail("it is not awaited in a thread")

    await Agent(FakeModel(["Hi"]), reporter=lambda item: report(item) or None).run("Hello")

    assert "async def report(item)" in caplog.text


async def test_a_run_that_fails_reports_its_end_and_raises_as_itself() -> None:
    """The error is not wrapped, whichever kind of reporter there is."""
    seen: list[str] = []

    async def report(item: Any) -> None:
        seen.append(item.kind)

    for reporter in (report, lambda item: seen.append(item.kind)):
        seen.clear()
        with pytest.raises(KeyError, match="lost"):
            await Agent(FakeModel([KeyError("lost")]), reporter=reporter).run("Hello")

        assert seen == ["message_added", "run_started", "model_requested", "model_failed", "run_stopped"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.asyncio_only
async def test_a_cancelled_run_reports_its_end(is_async: bool) -> None:
    """Whoever looks sees that it was cancelled, before the cancellation goes on."""
    asked = anyio.Event()
    seen: list[str] = []

    async def report(item: Any) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append(item.kind)

    async def stall(_request: object) -> str:
        asked.set()
        await anyio.sleep_forever()
        return ""

    reporter = report if is_async else lambda item: seen.append(item.kind)
    agent = Agent(FakeModel(stall), reporter=reporter, store=MemoryStore())
    task = asyncio.create_task(agent.run("Hello"))
    await wait_for(asked)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert seen[-2:] == ["model_failed", "run_stopped"]


async def test_what_led_up_to_a_question_is_reported_before_it_is_put() -> None:
    """So a terminal that is both shows the reply, and then asks."""
    seen: list[str] = []
    before: list[list[str]] = []

    def report(item: Any) -> None:
        seen.append(item.kind)

    @tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def decide(_request: object) -> bool:
        before.append(list(seen))
        return True

    agent = Agent(FakeModel([tool_call("pay"), "done"]), tools=[pay], reporter=report, human=FakeHuman(decide))
    await agent.run("Pay")

    assert before[0][-2:] == ["model_replied", "approval_requested"]


def test_a_reporter_works_on_trio() -> None:
    """Both kinds."""
    seen: list[str] = []

    async def report(item: Any) -> None:
        seen.append(item.kind)

    for reporter in (report, lambda item: seen.append(item.kind)):
        seen.clear()
        anyio.run(Agent(FakeModel(["Hi"]), reporter=reporter).run, "Hello", backend="trio")

        assert seen[-1] == "run_stopped"
