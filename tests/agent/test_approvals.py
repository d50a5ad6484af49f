"""Calls that wait for a person: decided call by call, from any process, and made once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    ApprovalError,
    EventOrderError,
    Message,
    State,
    StateError,
    StoppedByCancel,
    StoppedByUntil,
    Store,
    ToolCall,
    WaitingForApproval,
    tool,
)
from alpineagents.testing import FakeHuman, FakeModel, tool_call
from tests.agent.parts import at_once, check_closed, complaints, kinds, outcomes, results, wait_for

paid: list[int] = []
Another = Callable[[], Store]


@pytest.fixture(autouse=True)
def nothing_paid() -> None:
    paid.clear()


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount}"


@tool(name="refund", needs_approval=True)
async def refund(amount: int) -> str:
    """Pay an amount back."""
    paid.append(-amount)
    return f"refunded {amount}"


def waiting_calls(state: State) -> list[ToolCall]:
    assert isinstance(state.stopped, WaitingForApproval)
    return [call for call in state.pending_calls if call.id in state.stopped.call_ids]


async def waiting(store: Store, *calls: ToolCall) -> State:
    """Return a State whose calls wait, as another process loads it."""
    agent = Agent(FakeModel([list(calls)]), tools=[pay, refund], store=store)
    assert await agent.run("Pay", id="s") is None
    return await store.load("s")


def next_agent(store: Store, *replies: str) -> Agent:
    return Agent(FakeModel(list(replies or ("All done.",))), tools=[pay, refund], store=store)


async def test_a_call_that_needs_an_approval_waits(store: Store) -> None:
    """It is not made, the run ends, and the State is listed as waiting."""
    state = await waiting(store, tool_call("pay", amount=5))

    assert [call.args for call in waiting_calls(state)] == [{"amount": 5}]
    assert paid == []
    assert [info.id for info in await store.list(status="waiting")] == ["s"]
    assert (await store.info("s")).lease_until is None


async def test_a_state_that_waits_goes_on_waiting(store: Store) -> None:
    """A run before the decision asks no model, and the question is not asked twice."""
    await waiting(store, tool_call("pay", amount=5))
    model = FakeModel(["never"])

    assert await Agent(model, tools=[pay, refund], store=store).resume("s") is None

    state = await store.load("s")
    assert (model.requests, kinds(state).count("approval_requested"), state.status) == ([], 1, "waiting")


async def test_any_process_may_approve_and_go_on(store: Store, another: Another) -> None:
    """The call is made once, and the model sees its result."""
    (call,) = waiting_calls(await waiting(store, tool_call("pay", amount=5)))
    await another().approve("s", call.id, by="Ada")

    assert await next_agent(another()).resume("s") == "All done."

    state = await store.load("s")
    assert (paid, results(state)) == ([5], ["paid 5"])
    await check_closed(store, state)


async def test_a_denied_call_is_not_made_and_the_model_is_told_why(store: Store, another: Another) -> None:
    """In the words of who decided."""
    (call,) = waiting_calls(await waiting(store, tool_call("pay", amount=82_000)))
    await another().deny("s", call.id, by="Ada", reason="too much")

    assert await next_agent(another(), "I see.").resume("s") == "I see."

    state = await store.load("s")
    assert (paid, outcomes(state)) == ([], {"pay": "denied"})
    assert "Ada" in results(state)[0]
    assert "too much" in results(state)[0]


async def test_parallel_calls_are_decided_one_by_one(store: Store) -> None:
    """One approved and one denied: each result is that of its own call."""
    first, second = waiting_calls(await waiting(store, tool_call("pay", amount=1), tool_call("pay", amount=2)))
    await store.deny("s", first.id, by="Ada", reason="no")
    await store.approve("s", second.id, by="Ada")

    await next_agent(store).resume("s")

    state = await store.load("s")
    assert paid == [2]
    assert [result.outcome for result in state.messages[2].tool_results] == ["denied", "ok"]
    assert complaints(state.messages) == []


async def test_a_call_without_a_decision_goes_on_waiting_beside_one_that_has_it(store: Store) -> None:
    """The approved one is made; the turn stays open."""
    first, second = waiting_calls(await waiting(store, tool_call("pay", amount=1), tool_call("refund", amount=2)))
    await store.approve("s", first.id, by="Ada")
    model = FakeModel(["never"])

    await Agent(model, tools=[pay, refund], store=store).resume("s")

    state = await store.load("s")
    assert paid == [1]
    assert state.stopped == WaitingForApproval(call_ids=(second.id,))
    assert model.requests == []


async def test_calls_that_need_no_approval_are_made_meanwhile(store: Store) -> None:
    """They do not wait for their siblings."""

    @tool(read_only=True)
    async def look() -> str:
        """Look."""
        return "seen"

    agent = Agent(FakeModel([[tool_call("pay", amount=1), tool_call("look")]]), tools=[pay, look], store=store)

    await agent.run("Pay", id="s")

    assert outcomes(await store.load("s")) == {"look": "ok"}


async def test_of_two_runs_after_an_approval_one_makes_the_call(store: Store, another: Another) -> None:
    """The other is refused; the call is made once."""
    (call,) = waiting_calls(await waiting(store, tool_call("pay", amount=5)))
    await store.approve("s", call.id, by="Ada")
    stores = [another(), another()]

    ends = await at_once(*[next_agent(each).resume("s") for each in stores])

    answers = [end for end in ends if end == "All done."]
    assert paid == [5]
    assert answers, ends
    assert all(end == "All done." or isinstance(end, StateError) for end in ends)
    assert (await store.load("s")).answer == "All done."


async def test_an_approval_that_comes_while_a_sibling_runs_is_taken_in(store: Store, another: Another) -> None:
    """The run goes on with it: nobody has to start another."""
    entered, approved = anyio.Event(), anyio.Event()

    @tool
    async def slow() -> str:
        """Wait."""
        entered.set()
        await wait_for(approved)
        return "slow"

    model = FakeModel([[tool_call("slow"), tool_call("pay", amount=5)], "All done."])
    agent = Agent(model, tools=[slow, pay], store=store)
    other = another()

    async def approve() -> None:
        await wait_for(entered)
        (call,) = [call for call in (await other.load("s")).pending_calls if call.name == "pay"]
        await other.approve("s", call.id, by="Ada")
        approved.set()

    answer, _ = await at_once(agent.run("Pay", id="s"), approve())

    assert (answer, paid) == ("All done.", [5])
    assert (await store.load("s")).stopped == StoppedByUntil(name="waiting_for_user")


async def test_a_message_while_a_call_waits_enters_after_the_turn(store: Store, another: Another) -> None:
    """In an order that a provider accepts."""
    (call,) = waiting_calls(await waiting(store, tool_call("pay", amount=5)))
    await another().post("s", Message.user("Hurry up"))
    await another().approve("s", call.id, by="Ada")

    await next_agent(store).resume("s")

    state = await store.load("s")
    assert [message.text for message in state.messages] == ["Pay", "", "", "Hurry up", "All done."]
    assert complaints(state.messages) == []


async def test_a_state_that_waits_can_be_asked_to_stop(store: Store) -> None:
    """The next run takes the question back; a decision that came after the request counts for more."""
    for id in ("stopped", "decided"):
        await Agent(FakeModel([tool_call("pay", amount=5)]), tools=[pay], store=store).run("Pay", id=id)
        await store.cancel(id, by="Ada")
    (call,) = (await store.load("decided")).pending_calls
    await store.approve("decided", call.id, by="Bob")
    agent = Agent(FakeModel(["Paid."]), tools=[pay], store=store)

    assert [await agent.resume("stopped"), await agent.resume("decided")] == [None, "Paid."]

    assert (await store.load("stopped")).stopped == StoppedByCancel(by="Ada")
    assert outcomes(await store.load("stopped")) == {"pay": "cancelled"}
    assert (await store.approvals(), paid) == ([], [5])


@pytest.mark.asyncio_only
async def test_a_cancelled_state_no_longer_waits(store: Store) -> None:
    """A run that is cancelled while a call waits closes it; an approval that comes later is refused."""
    entered = anyio.Event()

    @tool
    async def slow() -> str:
        """Wait."""
        entered.set()
        await anyio.sleep_forever()
        return "never"

    model = FakeModel([[tool_call("slow"), tool_call("pay", amount=5)], "All done."])
    agent = Agent(model, tools=[slow, pay], store=store)
    task = asyncio.create_task(agent.run("Pay", id="s"))
    await wait_for(entered)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    state = await store.load("s")
    assert outcomes(state) == {"slow": "interrupted", "pay": "cancelled"}
    (call,) = [call for call in state.messages[1].tool_calls if call.name == "pay"]

    with pytest.raises(ApprovalError, match=r"it has ended \(cancelled\)"):
        await store.approve("s", call.id, by="Ada")
    await agent.resume("s")

    assert paid == []


@pytest.mark.parametrize("on_unknown", ["report", "retry", "ask"])
async def test_an_approved_call_is_checked_against_its_arguments_again(on_unknown: str, store: Store) -> None:
    """Arguments that no longer fit the tool are told to the model, whatever was approved."""
    (call,) = waiting_calls(await waiting(store, tool_call("pay", amount=5)))
    await store.approve("s", call.id, by="Ada")

    @tool(name="pay", needs_approval=True)
    async def pay_by_name(amount: int, name: str) -> str:
        """Pay an amount to someone."""
        paid.append(amount)
        return "paid"

    agent = Agent(FakeModel(["I see."]), tools=[pay_by_name, refund], store=store, on_unknown=on_unknown)
    with pytest.warns(UserWarning, match="changed pay"):
        await agent.resume("s")

    assert (paid, outcomes(await store.load("s"))) == ([], {"pay": "input_error"})


@pytest.mark.parametrize("step", ["think", "ask", "compact"])
async def test_a_step_that_is_refused_leaves_the_question(step: str, store: Store) -> None:
    """It changes nothing: the call waits as before, is listed, and is made once it is approved."""
    state = await waiting(store, tool_call("pay", amount=5))
    agent = next_agent(store)
    steps = {"think": agent.think, "ask": lambda state: agent.ask(state, "Why?"), "compact": agent.compact}

    with pytest.raises(EventOrderError, match=r"await store\.approve\('s', '.*', by=…\)"):
        await steps[step](state)

    assert (await store.load("s")).snapshot() == state.snapshot()
    (pending,) = await store.approvals()
    await store.approve("s", pending.call_id, by="Ada")
    assert (await agent.resume("s"), paid) == ("All done.", [5])


@pytest.mark.parametrize("answers", [["Monday"], [OSError("gone")]], ids=["answered", "failed"])
async def test_another_question_leaves_the_one_that_waits(answers: list[Any], store: Store) -> None:
    """A person who is asked something else, with an answer or without, finds the call still waiting."""
    state = await waiting(store, tool_call("pay", amount=5))
    agent = next_agent(store)

    with suppress(OSError):
        await agent.copy(human=FakeHuman(answers=answers)).ask_human(state, "When?")

    assert (state.status, (await store.info("s")).status) == ("waiting", "waiting")
    (pending,) = await store.approvals()
    await store.approve("s", pending.call_id, by="Ada")
    assert (await store.info("s")).status == "ready"
    assert (await agent.resume("s"), paid) == ("All done.", [5])
