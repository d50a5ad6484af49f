"""The conditions that come with the library: money, time, circles."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from alpineagents import (
    Agent,
    ConfigError,
    Message,
    Reply,
    State,
    StoppedByUntil,
    Store,
    TextBlock,
    Usage,
    loop,
    out_of_time,
    repeating,
    spent_more_than,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, frozen, tool_call
from tests.agent.parts import check_closed

counter = itertools.count()


@tool(read_only=True)
async def look(at: str = "") -> str:
    """Look."""
    return f"seen {at}"


@tool
async def count() -> int:
    """Count."""
    return next(counter)


def until(*conditions: Any, limit: int = 12) -> Any:
    @loop(until=[waiting_for_user, *conditions], limit=limit)
    async def turning(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)

    return turning


def priced(cost: float, unpriced: int = 0) -> Reply:
    message = Message(role="assistant", content=(TextBlock(text="…"), tool_call("look")))
    return Reply(message=message, usage=Usage(requests=1, cost_usd=cost, unpriced_requests=unpriced))


async def test_a_state_stops_when_it_has_cost_too_much(store: Store) -> None:
    """The reason is stored and listed, and the next run does not spend more."""
    model = FakeModel(lambda request: priced(0.2))
    agent = Agent(model, tools=[look], loop=until(spent_more_than(0.5)), store=store)

    await agent.run("Go", id="s")
    await agent.resume("s")

    assert len(model.requests) == 3
    assert (await store.info("s")).stopped == StoppedByUntil(name="spent_more_than")
    await check_closed(store, await store.load("s"))


async def test_a_price_that_is_not_known_cannot_limit_what_is_spent() -> None:
    """It would never stop; it is told after the first reply."""
    model = FakeModel(lambda request: priced(0, unpriced=1))

    with pytest.raises(ConfigError, match="the price of its model is not known"):
        await Agent(model, tools=[look], loop=until(spent_more_than(0.5))).run("Go")
    assert len(model.requests) == 1


async def test_a_run_stops_when_its_time_is_over(store: Store) -> None:
    """Counted from its own begin; another run has as long again."""
    with frozen() as clock:

        def slow(request: Any) -> Any:
            clock.advance(40)
            return tool_call("look")

        model = FakeModel(slow)
        agent = Agent(model, tools=[look], loop=until(out_of_time(60)), store=store)

        await agent.run("Go", id="s")
        assert len(model.requests) == 2
        await agent.resume("s")

    assert len(model.requests) == 4
    assert (await store.info("s")).stopped == StoppedByUntil(name="out_of_time")


def calls(*names: str) -> FakeModel:
    """Reply with a call each: `count`, or `look` at the letter."""
    return FakeModel([tool_call("count") if name == "count" else tool_call("look", at=name) for name in names])


@pytest.mark.parametrize(
    "names, stops_after",
    [
        ("aaa", 3),
        ("baaa", 4),
        ("ababab", 6),
        ("cababab", 7),
        ("abcabcabc", 9),
        ("aabaab", None),
        ("abacad", None),
        (["count"] * 6, None),
    ],
)
async def test_a_model_that_goes_round_in_circles_is_stopped(names: Any, stops_after: int | None) -> None:
    """Of one turn or several; the same call with another result is none."""
    model = calls(*names)
    state = State(messages=[Message.user("Go")])

    await Agent(model, tools=[look, count], loop=until(repeating(3), limit=len(names))).run(state)

    assert len(model.requests) == (stops_after or len(names))
    assert (state.stopped == StoppedByUntil(name="repeating")) == (stops_after is not None)


async def test_a_word_in_between_ends_a_circle() -> None:
    """A person may have said what to do about it."""
    agent = Agent(calls(*"aaaa"), tools=[look], loop=until(repeating(3), limit=2))
    state = State(messages=[Message.user("Go")])
    await agent.run(state)
    state.add_message(Message.user("Look again"))

    await agent.run(state)

    assert state.turn == 4


async def test_cleared_results_make_no_circle() -> None:
    """All of them read the same."""
    state = State(messages=[Message.user("Go")])
    await Agent(FakeModel([tool_call("count")] * 3), tools=[count], loop=until(limit=3)).run(state)
    state.clear_tool_results()

    assert not repeating(3)(state)


@pytest.mark.parametrize("condition", [spent_more_than, out_of_time, repeating])
@pytest.mark.parametrize("value", [0, -1, "1", None, True, float("nan"), State()])
def test_a_limit_that_is_none_is_refused(condition: Any, value: Any) -> None:
    """With the line to write."""
    with pytest.raises(ConfigError, match=rf"until=\[waiting_for_user, {condition.__name__}\(\d"):
        condition(value)
