"""A decision that arrives while the run still works on the same turn."""

from __future__ import annotations

from alpineagents import Agent, MemoryStore, Message, State, StoppedByUntil, ToolContext, WaitingForApproval, tool
from alpineagents.events import ApprovalDecided, RunStopped
from alpineagents.testing import FakeModel, tool_call

paid: list[int] = []


@tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount}"


async def test_a_decision_that_comes_while_siblings_run_is_acted_on_in_the_same_turn() -> None:
    """The run does not ask the model again while a call is open, and does not stop to wait for what is decided."""
    paid.clear()
    store = MemoryStore()

    @tool
    async def approve_meanwhile(context: ToolContext) -> str:
        """Stand for a person who is quick."""
        (call,) = [call for call in context.state.pending_calls if call.name == "pay"]
        await store.approve(context.state_id, call.id, by="a quick person")
        return "approved"

    model = FakeModel([[tool_call("pay", amount=5), tool_call("approve_meanwhile")], "Paid."])
    state = State(messages=[Message.user("Pay 5")])

    answer = await Agent(model, tools=[pay, approve_meanwhile], store=store).run(state)

    assert (answer, paid) == ("Paid.", [5])
    assert isinstance(state.stopped, StoppedByUntil)
    assert [result.text for result in model.requests[1].messages[-1].tool_results] == ["paid 5", "approved"]


async def test_a_decision_that_comes_with_the_end_of_the_run_leaves_the_state_ready() -> None:
    """The State does not count as waiting for a person who has decided already."""
    state = State(messages=[Message.user("Pay 5")])
    await Agent(FakeModel([tool_call("pay", amount=5)]), tools=[pay]).run(state)
    assert (state.status, isinstance(state.stopped, WaitingForApproval)) == ("waiting", True)
    (call,) = state.pending_calls
    before_the_end = State.from_history(state.id, state.history[:-1])
    end = state.history[-1]
    assert isinstance(end, RunStopped)

    before_the_end.record(ApprovalDecided, call_id=call.id, approved=True, by="someone")
    before_the_end.run_id = end.run_id
    before_the_end.record(RunStopped, stopped=end.stopped)

    assert before_the_end.status == "ready"
