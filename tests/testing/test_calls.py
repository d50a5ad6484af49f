"""What the kit says of a run, for the asserts of a test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from alpineagents import (
    Agent,
    Allow,
    ConfigError,
    Deny,
    MemoryStore,
    Message,
    RateLimitError,
    State,
    Store,
    ToolError,
    tool,
)
from alpineagents.testing import FakeHuman, FakeModel, calls, tool_call, transcript


@tool
def look(at: str = "") -> str:
    """Look."""
    if at == "night":
        raise ToolError("too dark")
    return f"seen {at}"


@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay an amount."""
    return f"paid {amount}"


def went(model: FakeModel, **settings: Any) -> Callable[[Store], Awaitable[State]]:
    async def go(store: Store) -> State:
        state = State(id="s", messages=[Message.user("Go")])
        await Agent(model, tools=[look, pay], store=store, **settings).run(state)
        return state

    return go


async def test_calls_are_compared_by_name_and_arguments() -> None:
    """In the order asked; one in another order, with other arguments, or left out is another list."""
    model = FakeModel([[tool_call("look", at="dawn"), tool_call("look", at="noon")], tool_call("look"), "done"])
    state = await went(model)(MemoryStore())

    assert calls(state) == [tool_call("look", at="dawn"), tool_call("look", at="noon"), tool_call("look")]
    assert [tool_call("look", at="dawn"), tool_call("look", at="noon"), tool_call("look")] == calls(state)
    assert calls(state) != [tool_call("look", at="noon"), tool_call("look", at="dawn"), tool_call("look")]
    assert calls(state) != [tool_call("look", at="dawn"), tool_call("look", at="noon")]
    assert tool_call("look", at="dusk") not in calls(state)
    assert calls(state).count(tool_call("look")) == 1
    assert len({*calls(state), *calls(state)}) == 3


async def test_each_way_a_call_ends_is_told() -> None:
    """With what the model read of it."""
    model = FakeModel(
        [
            [tool_call("look", at="dawn"), tool_call("look", at="night"), tool_call("look", up=1), tool_call("climb")],
            [tool_call("pay", amount=1), tool_call("pay", amount=2)],
            "done",
        ]
    )
    human = FakeHuman([Deny("too much"), Allow(args={"amount": 20})])
    state = await went(model, human=human)(MemoryStore())

    assert [call.outcome for call in calls(state)] == ["ok", "error", "input_error", "input_error", "denied", "ok"]
    assert [call.result for call in calls(state)][:2] == ["seen dawn", "too dark"]
    assert calls(state)[-1] == tool_call("pay", amount=20)


async def test_a_call_without_a_result_waits_or_is_open() -> None:
    """A person is asked, has decided, or nobody is asked; a loaded State says the same."""
    store = MemoryStore()
    state = await went(FakeModel([[tool_call("pay", amount=1), tool_call("look")]]))(store)
    assert [call.outcome for call in calls(state)] == ["waiting", "ok"]
    assert calls(await store.load("s")) == calls(state)

    await store.approve("s", calls(state)[0].id, by="Ada")
    assert [call.outcome for call in calls(await store.load("s"))] == ["open", "ok"]

    unmade = State(messages=[Message.user("Go"), Message(role="assistant", content=(tool_call("look"),))])
    assert [call.outcome for call in calls(unmade)] == ["open"]


async def test_calls_that_were_brought_in_have_their_results_too() -> None:
    """Messages of another program count like those of a run."""
    call = tool_call("look")
    result = {"type": "tool_result", "call_id": call.id, "content": ({"type": "text", "text": "seen"},)}
    answer = Message.model_validate({"role": "user", "content": [result]})
    brought = [Message(role="assistant", content=(call,)), answer]

    (called,) = calls(State(messages=[Message.user("Go"), *brought]))

    assert (called.outcome, called.result) == ("ok", "seen")


async def test_a_failed_assert_shows_what_to_write() -> None:
    """The calls that were made, as the test would have them."""
    state = await went(FakeModel([tool_call("pay", amount=3)], name="m"))(MemoryStore())

    with pytest.raises(AssertionError, match=r"<tool_call\('pay', amount=3\) waiting>"):
        assert calls(state) == [tool_call("pay", amount=4)]


async def test_a_transcript_is_what_a_model_was_asked() -> None:
    """Each text, call and result a line; the State has the reply, too."""
    model = FakeModel([["Let me see.", tool_call("look", at="dawn")], "It is dawn."])
    state = await went(model)(MemoryStore())

    asked = ["[user] Go", "[assistant] Let me see.", '[assistant calls look] {"at": "dawn"}', "[result: ok] seen dawn"]
    assert transcript(model.requests[1]) == asked
    assert transcript(state) == transcript(state.snapshot()) == [*asked, "[assistant] It is dawn."]


async def test_a_transcript_is_there_after_a_failure() -> None:
    """What was asked is known although nobody answered."""
    model = FakeModel([RateLimitError("slow down")])
    with pytest.raises(RateLimitError):
        await went(model)(MemoryStore())

    assert transcript(model.requests[-1]) == ["[user] Go"]


def test_what_says_nothing_of_a_run_is_refused() -> None:
    """With the line to write."""
    model: Any = FakeModel([])
    with pytest.raises(ConfigError, match=r"calls\(await store\.load\(id\)\)"):
        calls(model)
    with pytest.raises(ConfigError, match=r"transcript\(model\.requests\[-1\]\)"):
        transcript(model)


async def test_a_state_that_was_loaded_by_its_tail_has_the_calls_of_the_tail() -> None:
    """Those before it are not there to be told."""
    store = MemoryStore()
    model = FakeModel([tool_call("look", at="dawn"), "seen", tool_call("look", at="noon"), "done"])
    agent = Agent(model, tools=[look], store=store)
    await agent.run("Go", id="s")
    state = await store.load("s")
    state.compact("It has dawned.")
    await store.save(state)
    await agent.resume("s", "And then?")

    tail = await store.load("s", tail=True)

    assert calls(tail) == [tool_call("look", at="noon")]
    assert [call.outcome for call in calls(tail)] == ["ok"]
    assert transcript(tail) == transcript(await store.load("s"))
