"""What tools give to a run: results in time, late ones, and how far they have come."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from alpineagents import Agent, ConfigError, Message, Progress, State, Store, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, check_closed, outcomes, results, wait_for


@tool
async def climb(context: ToolContext) -> str:
    """Climb."""
    for step in range(3):
        context.report(step, total=3, message="up")
        await anyio.lowlevel.checkpoint()
    return "there"


@tool
def climb_in_a_thread(context: ToolContext) -> str:
    """Climb."""
    context.report(0.5)
    return "there"


async def test_a_call_that_takes_too_long_does_not_end_the_run(store: Store) -> None:
    """Its siblings keep their results, and the model goes on."""

    @tool(timeout=0.01)
    async def slow() -> None:
        """Wait."""
        await anyio.sleep_forever()

    model = FakeModel([[tool_call("slow"), tool_call("climb")], "done"])
    state = State(id="s", messages=[Message.user("Go")])

    assert await Agent(model, tools=[slow, climb], store=store).run(state) == "done"

    assert outcomes(state) == {"slow": "error", "climb": "ok"}
    assert "took longer than" in results(state)[0]
    await check_closed(store, state)


async def test_progress_is_an_item_of_the_stream(store: Store) -> None:
    """Between the start of the call and its result, and not stored."""
    calls = [tool_call("climb"), tool_call("climb_in_a_thread")]
    agent = Agent(FakeModel([calls, "done"]), tools=[climb, climb_in_a_thread], store=store)

    async with agent.stream("Go", id="s") as items:
        seen = [item async for item in items]

    shown = [item for item in seen if isinstance(item, Progress)]
    ups = [item for item in shown if item.tool_name == "climb"]
    assert [(item.call_id, item.progress, item.total, item.message) for item in ups] == [
        (calls[0].id, done, 3.0, "up") for done in (0.0, 1.0, 2.0)
    ]
    assert [(item.progress, item.total) for item in shown if item.tool_name == "climb_in_a_thread"] == [(0.5, None)]
    kinds = [item.kind for item in seen]
    assert kinds.index("tool_started") < kinds.index("progress") < len(kinds) - 1 - kinds[::-1].index("tool_finished")
    await check_closed(store, await store.load("s"))


async def test_progress_is_told_to_a_reporter() -> None:
    """As every item is."""
    items = Items()

    await Agent(FakeModel([tool_call("climb"), "done"]), tools=[climb], reporter=items).run("Go")

    assert sum(isinstance(item, Progress) for item in items.items) == 3


async def test_progress_after_the_end_of_a_run_goes_nowhere(store: Store) -> None:
    """A thread that was left behind may still report."""
    gate, ended = threading.Event(), anyio.Event()
    failures: list[BaseException] = []
    token = anyio.lowlevel.current_token()

    @tool(timeout=0.01)
    def slow(context: ToolContext) -> None:
        """Wait."""
        gate.wait(20)
        try:
            context.report(1)
        except BaseException as error:  # noqa: BLE001
            failures.append(error)
        anyio.from_thread.run_sync(ended.set, token=token)

    items = Items()
    agent = Agent(FakeModel([tool_call("slow"), "done"]), tools=[slow], store=store, reporter=items)
    assert await agent.run("Go") == "done"
    gate.set()
    await wait_for(ended)

    assert failures == []
    assert not any(isinstance(item, Progress) for item in items.items)


@pytest.mark.parametrize("report", [("1",), (1, "2"), (float("nan"),), (1, 2, 3), (None,)])
def test_what_is_no_progress_is_refused(report: Any) -> None:
    """With the line to write, also where nobody looks."""
    context = ToolContext("s", "r", "c", "t", 1, "s-c", State(id="s"))

    with pytest.raises(ConfigError, match=r"context\.report\(3, total=10"):
        context.report(*report)


def test_a_context_without_a_run_reports_nowhere() -> None:
    """So a tool can be tested by itself."""
    ToolContext("s", "r", "c", "t", 1, "s-c", State(id="s")).report(1, total=2)
