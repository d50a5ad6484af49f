"""Runs of States that were loaded from the last change of their context on."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import (
    Agent,
    Message,
    Request,
    ResumeWarning,
    State,
    StateConflictError,
    StoppedByCancel,
    Store,
    ToolContext,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.events import CancelRequested, ContextChanged, MessageAdded, ModelReplied, RunStarted
from alpineagents.messages import ToolCall
from alpineagents.stores.header import Lease
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, complaints, kinds


@tool(idempotent=True)
async def look(place: str) -> str:
    """Look."""
    return f"seen {place}"


def respond(request: Request) -> object:
    """Look at three places one after the other, and count what was seen by the summaries and the results."""
    text = request.messages[-1].text
    if "<conversation>" in text:
        return f"a summary of {text.count('seen')} sights"
    sights = sum(message.is_notice or bool(message.tool_results) for message in request.messages)
    # A provider that counts its calls anew in each reply.
    return "done" if sights > 3 else ToolCall(id="call_0", name="look", args={"place": str(sights)})


@loop(until=waiting_for_user, limit=9)
async def compacting(agent: Agent, state: State) -> None:
    """Compact in the middle of the run, while it has something to go on with."""
    await agent.think(state)
    await agent.use_tools(state)
    if state.turn in (2, 3):
        await agent.compact(state, keep=2)


def agent_on(store: Store, **settings: Any) -> Agent:
    return Agent(FakeModel(respond), tools=[look], loop=compacting, store=store, **settings)


def said(state: State) -> list[tuple[str, str, list[str]]]:
    """Return the context, but for the ids of its calls."""
    return [
        (message.role, message.text, [result.text for result in message.tool_results]) for message in state.messages
    ]


async def left_at(store: Store, revision: int, id: str) -> str:
    """Make a State that a process left at a revision."""
    state = (await store.load("whole", revision)).fork(id=id)
    state.parent_id = None
    await store.save(state)
    return id


async def test_a_dead_run_is_carried_on_to_the_same_end(store: Store) -> None:
    """At each revision: with the tail of the history as with the whole of it, Event by Event."""
    await agent_on(store).run("Go", id="whole")
    whole = await store.load("whole")
    changes = [event.revision for event in whole.history if isinstance(event, ContextChanged)]
    assert len(changes) == 2

    for revision in range(1, whole.revision):
        ends: list[State] = []
        for tail in (False, True):
            id = await left_at(store, revision, f"left-{revision}-{tail}")
            await agent_on(store).resume(id, tail=tail)
            ends.append(await store.load(id))
            await check_closed(store, ends[-1])

        with_whole, with_tail = ends
        assert kinds(with_tail) == kinds(with_whole)
        assert said(with_tail) == said(with_whole)
        assert complaints(with_tail.messages) == []
        one, other = with_whole.snapshot(), with_tail.snapshot()
        for name in ("turn", "usage", "stopped", "status", "first_message", "agent", "run_id", "answer", "extra_data"):
            assert getattr(one, name) == getattr(other, name), name
        assert (await store.load(with_tail.id, tail=True)).snapshot() == other


async def test_a_provider_that_repeats_call_ids_repeats_none_here(store: Store) -> None:
    """Not even the ids that stand before what was loaded, or the whole history could not be read any more."""
    for number in range(3):
        state = State(id="s") if not number else await store.load("s", tail=True)
        state.add_message(Message.user("Go"))
        await agent_on(store).run(state)
        state.compact("a summary")
        await store.save(state)

    history = (await store.load("s")).history
    ids = [call.id for event in history if isinstance(event, ModelReplied) for call in event.message.tool_calls]
    assert len(ids) == len(set(ids)) > 3


async def died_in(store: Store, *, asked_to_stop: bool, then_spoken_to: bool = False) -> None:
    """Save a State whose run died behind a change of its context."""
    state = State(id="s", messages=[Message.user("Go")])
    state.run_id = "dead"
    state.record(RunStarted, agent=agent_on(store).describe())
    state.run_id = None
    if asked_to_stop:
        state.record(CancelRequested, by="Ada")
    if then_spoken_to:
        state.add_message(Message.user("No, go on"))
    state.run_id = "dead"
    state.record(ContextChanged, reason="clear", messages=tuple(state.messages))
    state.run_id = None
    await store.save_with(state, Lease("dead", 0.0))


@pytest.mark.parametrize("tail", [False, True])
async def test_a_request_to_stop_that_stands_before_is_served(tail: bool, store: Store) -> None:
    """The run that it was meant for died behind a change of its context; the next one stops with no model asked."""
    await died_in(store, asked_to_stop=True)
    model = FakeModel(["never"])

    assert await agent_on(store).copy(model=model).resume("s", tail=tail) is None

    loaded = await store.load("s")
    assert (loaded.stopped, loaded.status, model.requests) == (StoppedByCancel(by="Ada"), "cancelled", [])
    assert loaded.snapshot().unserved_cancel_by is None


@pytest.mark.parametrize("tail", [False, True])
async def test_what_was_said_after_a_request_to_stop_counts_for_more(tail: bool, store: Store) -> None:
    """Though both stand before the beginning."""
    await died_in(store, asked_to_stop=True, then_spoken_to=True)

    assert await agent_on(store).resume("s", tail=tail) == "done"


async def test_what_came_in_before_is_told_once_more_by_no_run(store: Store) -> None:
    """A reader of the run gets the Events from its claim on, as with a whole history."""
    await died_in(store, asked_to_stop=False)
    state = await store.load("s", tail=True)
    await store.post("s", Message.user("And then?"))

    async with agent_on(store).stream(state) as items:
        told = [item async for item in items if hasattr(item, "revision")]

    assert [event.revision for event in told] == [*range(4, state.revision + 1)]
    assert isinstance(told[0], MessageAdded)


async def test_a_run_without_a_store_tells_what_it_has(store: Store) -> None:
    """From the end of the last run on, or from where the history begins."""
    await died_in(store, asked_to_stop=False)
    state = await store.load("s", tail=True)

    async with agent_on(store).copy(store=None).stream(state) as items:
        told = [item.revision async for item in items if hasattr(item, "revision")]

    assert told == [*range(3, state.revision + 1)]


async def test_a_message_that_comes_during_the_run_is_taken_in(store: Store) -> None:
    """Behind what is saved, and before what the run adds."""
    await died_in(store, asked_to_stop=False)

    @tool
    async def tell(context: ToolContext) -> str:
        """Tell."""
        await store.post("s", Message.user("posted"))
        return "told"

    model = FakeModel([tool_call("tell"), "heard"])
    with pytest.warns(ResumeWarning, match="tell"):
        assert await Agent(model, tools=[tell], store=store).resume("s", tail=True) == "heard"

    loaded = await store.load("s")
    assert [message.text for message in loaded.messages if message.is_plain] == ["Go", "posted"]
    await check_closed(store, loaded)


async def test_an_approval_for_good_holds(store: Store) -> None:
    """That a person has allowed every later call is known, also where they did so before the beginning."""
    made: list[str] = []

    @tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        made.append("paid")
        return "paid"

    def agent() -> Agent:
        return Agent(FakeModel([tool_call("pay"), "done"]), tools=[pay], store=store)

    await agent().run("Pay", id="s")
    [waiting] = (await store.load("s")).pending_calls
    await store.approve("s", waiting.id, by="Ada", always="state")
    await agent().copy(model=FakeModel(["done"])).resume("s", tail=True)
    state = await store.load("s")
    state.compact("They paid.")
    await store.save(state)

    assert await agent().resume("s", "Again", tail=True) == "done"

    assert made == ["paid", "paid"]


async def test_another_run_that_was_first_wins(store: Store) -> None:
    """The State in hand is an old one, however little of it was loaded."""
    await died_in(store, asked_to_stop=False)
    state = await store.load("s", tail=True)
    await agent_on(store).resume("s")

    with pytest.raises(StateConflictError):
        await agent_on(store).run(state)

    await check_closed(store, await store.load("s"))
