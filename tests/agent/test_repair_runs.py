"""A State as a dead process left it, at each of its revisions: the next run says what it knows and goes on."""

from __future__ import annotations

import pytest

from alpineagents import (
    Agent,
    ApprovalRequested,
    Message,
    ModelFailed,
    ModelReplied,
    Request,
    State,
    StoppedByCancel,
    Store,
    ToolContext,
    ToolFinished,
    ToolStarted,
    WaitingForApproval,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, complaints, kinds, of, outcomes, results

entered: list[tuple[str, int, str]] = []


@pytest.fixture(autouse=True)
def nothing_entered() -> None:
    entered.clear()


def enter(context: ToolContext) -> None:
    entered.append((context.tool_name, context.attempt, context.idempotency_key))


@tool
async def pay(context: ToolContext) -> str:
    """Pay."""
    enter(context)
    return "paid"


@tool(read_only=True)
async def look(context: ToolContext) -> str:
    """Look."""
    enter(context)
    return "seen"


@tool(idempotent=True)
async def put(context: ToolContext) -> str:
    """Put."""
    enter(context)
    return "put"


TOOLS = [pay, look, put]
CALLS = 3


def respond(request: Request) -> object:
    asked = any(message.tool_calls for message in request.messages)
    return "done" if asked else [tool_call("pay"), tool_call("look"), tool_call("put")]


def agent_on(store: Store, **settings: object) -> Agent:
    return Agent(FakeModel(respond), tools=TOOLS, store=store, **settings)


async def left_at(store: Store, revision: int) -> State:
    """Return a State that a process left at a revision, as another loads it."""
    if not await store.exists("whole"):
        await agent_on(store).run("Go", id="whole")
        entered.clear()
    left = (await store.load("whole", revision)).fork(id=f"left{revision}")
    left.parent_id = None  # it stands for the State itself, whose calls are its own
    await store.save(left)
    return await store.load(left.id)


async def left_in_tools(store: Store) -> State:
    """Return a State whose calls were started and have no results."""
    await agent_on(store).run("Go", id="whole")
    entered.clear()
    last = of(await store.load("whole"), ToolStarted)[-1]
    return await left_at(store, last.revision)


async def test_each_revision_is_carried_on_to_the_same_end(store: Store) -> None:
    """Whatever was the last Event that was saved."""
    await agent_on(store).run("Go", id="whole")
    revisions = (await store.load("whole")).revision

    for revision in range(1, revisions + 1):
        state = await left_at(store, revision)
        before = tuple(state.history)
        assert await agent_on(store).run(state) == "done"
        assert tuple(state.history[:revision]) == before
        assert complaints(state.messages) == []
        assert list(outcomes(state)) != []
        await check_closed(store, state)


async def test_loading_repairs_nothing(store: Store) -> None:
    """A State that is looked at stays as it was left."""
    state = await left_in_tools(store)

    again = await store.load(state.id)

    assert again.snapshot() == state.snapshot()
    assert again.revision == state.revision
    assert len(again.pending_calls) == CALLS


async def test_a_request_without_a_reply_is_recorded_as_failed_and_asked_again(store: Store) -> None:
    """So that a person can see why it was asked twice."""
    state = await left_at(store, 3)
    assert kinds(state)[-1] == "model_requested"

    await agent_on(store).run(state)

    (failed,) = of(state, ModelFailed)
    assert failed.outcome == "interrupted"
    assert kinds(state)[3:6] == ["run_started", "model_failed", "model_requested"]


async def test_calls_that_were_not_started_run_now(store: Store) -> None:
    """They certainly did not run."""
    state = await left_at(store, 4)
    assert kinds(state)[-1] == "model_replied"

    await agent_on(store).run(state)

    assert sorted((name, attempt) for name, attempt, _ in entered) == [("look", 1), ("pay", 1), ("put", 1)]
    assert set(outcomes(state).values()) == {"ok"}


async def test_only_what_may_run_twice_runs_again(store: Store) -> None:
    """With the same key; of any other call the model is told that its outcome is unknown."""
    state = await left_in_tools(store)
    ids = {call.name: call.id for call in state.pending_calls}

    await agent_on(store).run(state)

    assert sorted((name, attempt) for name, attempt, _ in entered) == [("look", 2), ("put", 2)]
    assert {key for _, _, key in entered} == {f"{state.id}-{ids['look']}", f"{state.id}-{ids['put']}"}
    assert outcomes(state) == {"pay": "unknown", "look": "ok", "put": "ok"}
    assert "outcome of this call is unknown" in results(state)[0]


async def test_the_key_of_a_call_is_the_same_over_all_its_attempts(store: Store) -> None:
    """Two processes die in it, the third ends it."""
    state = await left_in_tools(store)
    await agent_on(store).run(state)
    first = {name: key for name, _, key in entered}
    second_start = [event for event in of(state, ToolStarted) if event.attempt == 2][-1]
    left = await store.load(state.id, second_start.revision)
    entered.clear()

    await agent_on(store).copy(store=None).run(left)

    assert {name: key for name, _, key in entered} == first
    assert {attempt for _, attempt, _ in entered} == {3}


async def test_on_unknown_retry_makes_the_call_again(store: Store) -> None:
    """With the next attempt and the same key."""
    state = await left_in_tools(store)

    await agent_on(store, on_unknown="retry").run(state)

    assert ("pay", 2) in [(name, attempt) for name, attempt, _ in entered]
    assert set(outcomes(state).values()) == {"ok"}
    await check_closed(store, state)


async def test_on_unknown_ask_waits_for_a_person(store: Store) -> None:
    """The others run; the question names the doubt."""
    state = await left_in_tools(store)

    assert await agent_on(store, on_unknown="ask").run(state) is None

    assert sorted(name for name, _, _ in entered) == ["look", "put"]
    assert isinstance(state.stopped, WaitingForApproval)
    (asked,) = of(state, ApprovalRequested)
    assert "unknown whether pay ran" in asked.question


@pytest.mark.parametrize("approved", [True, False])
async def test_what_a_person_decides_about_an_unknown_outcome_is_done(approved: bool, store: Store) -> None:
    """Made again if they say so, else told to the model as refused."""
    state = await left_in_tools(store)
    agent = agent_on(store, on_unknown="ask")
    await agent.run(state)
    (call,) = state.pending_calls
    if approved:
        await store.approve(state.id, call.id, by="Ada")
    else:
        await store.deny(state.id, call.id, by="Ada", reason="it ran")

    assert await agent.resume(state.id) == "done"

    assert ("pay" in [name for name, _, _ in entered]) == approved
    assert outcomes(await store.load(state.id))["pay"] == ("ok" if approved else "denied")


async def test_a_tool_that_is_gone_is_told_as_unknown(store: Store) -> None:
    """Nobody can say whether it may run twice, and it cannot run."""
    state = await left_in_tools(store)
    agent = Agent(FakeModel(respond), store=store)

    with pytest.warns(UserWarning, match="removed look, pay, put"):
        assert await agent.run(state) == "done"

    assert set(outcomes(state).values()) == {"unknown"}


async def test_a_message_that_came_while_the_process_was_dead_is_answered(store: Store) -> None:
    """It enters after the turn that was left open."""
    state = await left_in_tools(store)
    await store.post(state.id, Message.user("Are you there?"))

    await agent_on(store).resume(state.id)

    loaded = await store.load(state.id)
    assert [message.text for message in loaded.messages if message.is_plain] == ["Go", "Are you there?"]
    assert complaints(loaded.messages) == []
    assert loaded.messages[-1].role == "assistant"


async def test_a_dead_run_that_was_asked_to_stop_is_not_carried_on(store: Store) -> None:
    """The next run closes what it left and stops, with no model asked and no tool entered."""
    state = await left_in_tools(store)
    await store.cancel(state.id, by="Ada")
    model = FakeModel(["never"])

    assert await Agent(model, tools=TOOLS, store=store).resume(state.id) is None

    loaded = await store.load(state.id)
    assert (loaded.stopped, loaded.status) == (StoppedByCancel(by="Ada"), "cancelled")
    assert (model.requests, entered) == ([], [])
    await check_closed(store, loaded)


async def test_what_is_said_after_a_request_to_stop_is_answered(store: Store) -> None:
    """Whoever speaks to a State that was asked to stop wants it to go on."""
    state = await left_in_tools(store)
    await store.cancel(state.id, by="Ada")

    assert await agent_on(store).resume(state.id, "Go on, please") == "done"

    assert not isinstance((await store.load(state.id)).stopped, StoppedByCancel)


async def test_results_of_a_dead_run_and_of_the_next_enter_together(store: Store) -> None:
    """In the order asked, though one was saved by the first process and the others by the second."""
    await agent_on(store).run("Go", id="whole")
    whole = await store.load("whole")
    (first, *_) = of(whole, ToolFinished)
    entered.clear()

    state = await left_at(store, first.revision)
    await agent_on(store).run(state)

    (reply, *_) = of(state, ModelReplied)
    asked = [call.id for call in reply.message.tool_calls]
    assert [result.call_id for result in state.messages[2].tool_results] == asked
    assert first.call_id not in {key.removeprefix(f"{state.id}-") for _, _, key in entered}
