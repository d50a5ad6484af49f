"""Loops: one turn as a function, when to stop, and the two halves of a turn by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import (
    Agent,
    ConfigError,
    EventOrderError,
    MemoryStore,
    Message,
    ModelReplied,
    ProviderError,
    State,
    StoppedByFinish,
    StoppedByLimit,
    StoppedByUntil,
    Store,
    WaitingForApproval,
    default_loop,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.stopped import Stopped
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, check_closed, kinds, results


def never(state: State) -> bool:
    return False


async def one(agent: Any) -> None: ...


async def three(a: Any, b: Any, c: Any) -> None: ...


async def named(agent: Any, *, state: Any) -> None: ...


@tool(read_only=True)
async def look() -> str:
    """Look."""
    return "seen"


async def test_a_loop_of_ones_own_is_run(store: Store) -> None:
    """It gets the Agent and the State, and takes its turns until the condition holds."""
    turns: list[tuple[Agent, State]] = []

    @loop(until=waiting_for_user, limit=5)
    async def careful(agent: Agent, state: State) -> None:
        turns.append((agent, state))
        await agent.think(state)
        if state.pending_calls:
            await agent.use_tools(state)

    agent = Agent(FakeModel([tool_call("look"), "done"]), tools=[look], loop=careful, store=store)
    state = State(id="s", messages=[Message.user("Go")])

    assert await agent.run(state) == "done"

    assert turns == [(agent, state)] * 2
    await check_closed(store, state)


async def test_conditions_may_be_several_sync_and_async() -> None:
    """The first that holds ends the run, and gives its name to the reason."""
    seen: list[int] = []

    async def two_turns(state: State) -> bool:
        seen.append(state.turn)
        return state.turn >= 2

    @loop(until=[never, two_turns, waiting_for_user], limit=9)
    async def chatter(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)

    state = State(messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("look")] * 3), tools=[look], loop=chatter).run(state)

    assert seen == [0, 1, 2]
    assert state.stopped == StoppedByUntil(name="two_turns")


async def test_a_condition_that_holds_at_once_takes_no_turn() -> None:
    """Conditions are checked before each turn."""
    model = FakeModel(["never"])

    def always(state: State) -> bool:
        return True

    @loop(until=always, limit=3)
    async def none(agent: Agent, state: State) -> None:
        await agent.think(state)

    state = State(messages=[Message.user("Go")])

    assert await Agent(model, loop=none).run(state) is None

    assert (model.requests, state.stopped) == ([], StoppedByUntil(name="always"))


async def test_the_limit_counts_the_turns_of_one_run() -> None:
    """The next run has as many again."""

    @loop(until=never, limit=2)
    async def turning(agent: Agent, state: State) -> None:
        await agent.think(state)

    agent = Agent(FakeModel(lambda request: "more"), loop=turning)
    state = State(messages=[Message.user("Go")])

    await agent.run(state)
    assert (state.turn, state.stopped) == (2, StoppedByLimit(turns=2))
    await agent.run(state)
    assert state.turn == 4


async def test_a_condition_that_holds_at_the_limit_is_the_reason() -> None:
    """An answer in the last turn is an answer."""

    @loop(until=waiting_for_user, limit=1)
    async def once(agent: Agent, state: State) -> None:
        await agent.think(state)

    state = State(messages=[Message.user("Go")])

    assert await Agent(FakeModel(["done"]), loop=once).run(state) == "done"

    assert state.stopped == StoppedByUntil(name="waiting_for_user")


async def test_a_run_after_the_limit_makes_the_open_calls_first(store: Store) -> None:
    """The calls that the limit left open are made before the model is asked again."""

    @loop(until=waiting_for_user, limit=1)
    async def think_only(agent: Agent, state: State) -> None:
        await agent.think(state)

    model = FakeModel([tool_call("look"), "done"])
    agent = Agent(model, tools=[look], loop=think_only, store=store)
    state = State(id="s", messages=[Message.user("Go")])
    assert await agent.run(state) is None
    assert (state.stopped, len(state.pending_calls)) == (StoppedByLimit(turns=1), 1)

    assert await agent.resume("s") == "done"

    assert results(await store.load("s")) == ["seen"]
    assert len(model.requests) == 2


async def test_finish_inside_a_loop_stops_after_the_turn(store: Store) -> None:
    """With the answer that it was given."""

    @loop(until=never, limit=9)
    async def graded(agent: Agent, state: State) -> None:
        reply = await agent.think(state)
        state.finish({"grade": reply.message.text})

    state = State(id="s", messages=[Message.user("Grade it")])

    assert await Agent(FakeModel(["A"]), loop=graded, store=store).run(state) == {"grade": "A"}

    assert state.stopped == StoppedByFinish(answer={"grade": "A"})
    await check_closed(store, state)


async def test_a_loop_may_add_messages_and_data(store: Store) -> None:
    """What a turn adds is saved with the next step, and at the latest at the end of the run."""

    @loop(until=never, limit=2)
    async def noted(agent: Agent, state: State) -> None:
        await agent.think(state)
        state.add_message(Message.notice("Go on"))
        with state.edit_extra_data() as data:
            data["turns"] = state.turn

    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel(["a", "b"]), loop=noted, store=store).run(state)

    assert (await store.load("s")).extra_data == {"turns": 2}
    await check_closed(store, state)


async def test_what_a_loop_raises_is_recorded_and_raised(store: Store) -> None:
    """A fault of the loop's own leaves the State whole."""

    @loop(until=never, limit=2)
    async def faulty(agent: Agent, state: State) -> None:
        await agent.think(state)
        raise ZeroDivisionError("a fault")

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(ZeroDivisionError, match="a fault"):
        await Agent(FakeModel([tool_call("look")]), tools=[look], loop=faulty, store=store).run(state)

    assert state.status == "failed"
    await check_closed(store, state)


async def test_a_condition_that_raises_is_recorded_and_raised(store: Store) -> None:
    """It is a part of the run."""

    def broken(state: State) -> bool:
        raise LookupError("no such key")

    @loop(until=broken, limit=2)
    async def turning(agent: Agent, state: State) -> None:
        await agent.think(state)

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(LookupError, match="no such key"):
        await Agent(FakeModel([]), loop=turning, store=store).run(state)

    assert state.status == "failed"
    await check_closed(store, state)


async def test_a_loop_that_forgets_the_calls_is_told_the_line_to_write() -> None:
    """A model cannot be asked while calls are open."""

    @loop(until=never, limit=5)
    async def twice(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.think(state)

    with pytest.raises(EventOrderError, match=r"await agent\.use_tools\(state\)"):
        await Agent(FakeModel([tool_call("look")] * 2), tools=[look], loop=twice).run("Go")


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"limit": 5}, "until"),
        ({"until": None, "limit": 5}, "until"),
        ({"until": [], "limit": 5}, "until"),
        ({"until": ["waiting"], "limit": 5}, "until"),
        ({"until": 3, "limit": 5}, "until"),
        ({"until": never}, "limit=None"),
        ({"until": never, "limit": 0}, "limit=0"),
        ({"until": never, "limit": -1}, "limit=-1"),
        ({"until": never, "limit": 2.0}, "limit=2.0"),
        ({"until": never, "limit": True}, "limit=True"),
    ],
)
def test_a_loop_that_cannot_work_is_refused(settings: dict[str, Any], says: str) -> None:
    """With the line to write, when it is made."""
    with pytest.raises(ConfigError, match=says) as refused:
        loop(**settings)

    assert "@loop(until=waiting_for_user, limit=50)" in str(refused.value)


@pytest.mark.parametrize("turn, signature", [(one, r"one\(agent\)"), (three, r"three\(a, b, c\)"), (named, r"named\(")])
def test_a_turn_with_other_parameters_is_refused(turn: Any, signature: str) -> None:
    """When it is decorated, and not when a run has been paid for."""
    with pytest.raises(ConfigError, match=rf"{signature}.*Write: \w+\(agent, state\)"):
        loop(until=never, limit=3)(turn)


@pytest.mark.parametrize("condition", [lambda: True, lambda a, b: True])
def test_a_condition_with_other_parameters_is_refused(condition: Any) -> None:
    """Like a turn."""
    with pytest.raises(ConfigError, match=r"Write: <lambda>\(state\)"):
        loop(until=condition, limit=3)


async def test_a_condition_that_is_to_be_called_first_is_refused() -> None:
    """A function is true, so it would end each run at once."""

    def more_than(limit: Any) -> Any:
        return lambda state: False

    @loop(until=more_than, limit=3)
    async def turning(agent: Agent, state: State) -> None:
        await agent.think(state)

    with pytest.raises(ConfigError, match=r"until=more_than\(…\)"):
        await Agent(FakeModel([]), loop=turning).run("Go")


async def test_a_loop_within_a_loop_takes_its_turns_there(store: Store) -> None:
    """It returns why it stopped, and its limit is its own each time; the run is one."""
    stops: list[Stopped] = []

    @loop(until=waiting_for_user, limit=2)
    async def inner(agent: Agent, state: State) -> None:
        await agent.think(state)
        await agent.use_tools(state)

    @loop(until=never, limit=3)
    async def outer(agent: Agent, state: State) -> None:
        stops.append(await inner(agent, state))
        state.add_message(Message.notice("Again"))

    model = FakeModel([tool_call("look"), tool_call("look"), "a", tool_call("look"), "b"])
    state = State(id="s", messages=[Message.user("Go")])

    await Agent(model, tools=[look], loop=outer, store=store).run(state)

    until = StoppedByUntil(name="waiting_for_user")
    assert stops == [StoppedByLimit(turns=2), until, until]
    assert state.stopped == StoppedByLimit(turns=3)
    assert kinds(state).count("run_started") == 1
    await check_closed(store, state)


async def test_a_loop_within_itself_counts_its_own_turns() -> None:
    """Turns within a turn are not those of the run."""
    depth = 0

    @loop(until=never, limit=2)
    async def nested(agent: Agent, state: State) -> None:
        nonlocal depth
        await agent.think(state)
        depth += 1
        if depth == 1:
            await nested(agent, state)

    state = State(messages=[Message.user("Go")])

    await Agent(FakeModel(lambda request: "more"), loop=nested).run(state)

    assert (state.turn, state.stopped) == (4, StoppedByLimit(turns=2))


async def test_an_inner_loop_of_another_agent_asks_that_one() -> None:
    """Whoever is handed to the loop takes its turns."""
    checker = Agent(FakeModel(["looks good"]))

    @loop(until=never, limit=1)
    async def outer(agent: Agent, state: State) -> None:
        await default_loop(agent, state)
        state.add_message(Message.notice("Check it"))
        await default_loop(checker, state)

    assert await Agent(FakeModel(["done"]), loop=outer).run("Go") == "looks good"


async def test_an_approval_within_an_inner_loop_ends_all_turns(store: Store) -> None:
    """What the outer loop would do next has to wait for the person, too; after the decision the call is made first."""
    after: list[str] = []

    @loop(until=waiting_for_user, limit=3)
    async def outer(agent: Agent, state: State) -> None:
        try:
            await default_loop(agent, state)
        except Exception:  # noqa: BLE001  # a turn that swallows what it gets is the point
            after.append("caught")
        after.append("went on")

    model = FakeModel([tool_call("look"), "done"])
    agent = Agent(model, tools=[look.copy(needs_approval=True)], loop=outer, store=store)
    state = State(id="s", messages=[Message.user("Go")])

    assert await agent.run(state) is None
    assert (after, state.status) == ([], "waiting")
    await store.approve("s", state.pending_calls[0].id, by="Heidi")
    assert await agent.resume("s") == "done"

    assert after == ["went on"]
    assert results(await store.load("s")) == ["seen"]


async def test_finish_within_an_inner_loop_ends_the_run_after_the_turn() -> None:
    """The outer turn comes to its end."""
    after: list[Stopped] = []

    @loop(until=never, limit=5)
    async def inner(agent: Agent, state: State) -> None:
        await agent.think(state)
        state.finish(1)

    @loop(until=never, limit=5)
    async def outer(agent: Agent, state: State) -> None:
        after.append(await inner(agent, state))

    assert await Agent(FakeModel(["a", "b"]), loop=outer).run("Go") == 1
    assert after == [StoppedByFinish(answer=1)]


async def test_a_loop_called_outside_a_run_is_a_run_of_its_own(store: Store) -> None:
    """Like the halves of a turn."""
    state = State(id="s", messages=[Message.user("Go")])

    stopped = await default_loop(Agent(FakeModel(["done"]), store=store), state)

    assert stopped == state.stopped == StoppedByUntil(name="waiting_for_user")
    await check_closed(store, state)


async def test_what_an_inner_loop_raises_is_raised() -> None:
    """And recorded, as from the outer one."""

    @loop(until=never, limit=2)
    async def faulty(agent: Agent, state: State) -> None:
        raise ZeroDivisionError("a fault")

    @loop(until=never, limit=2)
    async def outer(agent: Agent, state: State) -> None:
        await faulty(agent, state)

    state = State(messages=[Message.user("Go")])

    with pytest.raises(ZeroDivisionError):
        await Agent(FakeModel([]), loop=outer).run(state)
    assert state.status == "failed"


def test_a_bare_loop_is_refused() -> None:
    """It does not say when to stop."""

    async def turn(agent: Agent, state: State) -> None: ...

    with pytest.raises(ConfigError, match=r"@loop\(until=waiting_for_user, limit=50\)"):
        loop(turn)


def test_a_turn_that_is_not_async_is_refused() -> None:
    """With the line to write."""
    with pytest.raises(ConfigError, match=r"async def turn\(agent, state\)"):

        @loop(until=never, limit=3)
        def turn(agent: Agent, state: State) -> None: ...


async def test_think_and_use_tools_are_runs_of_their_own(store: Store) -> None:
    """Outside a loop each claims the State, does its half of the turn and gives it up."""
    agent = Agent(FakeModel([tool_call("look"), "done"]), tools=[look], store=store)
    state = State(id="s", messages=[Message.user("Go")])

    reply = await agent.think(state)
    assert [call.name for call in reply.message.tool_calls] == ["look"]
    assert (len(state.pending_calls), kinds(state)[-1]) == (1, "run_stopped")
    await agent.use_tools(state)
    assert results(state) == ["seen"]
    assert (await agent.think(state)).message.text == "done"

    assert kinds(state).count("run_started") == kinds(state).count("run_stopped") == 3
    await check_closed(store, state)


async def test_think_gives_back_what_the_state_has(store: Store) -> None:
    """The reply and the Event hold one message."""
    state = State(id="s", messages=[Message.user("Go")])

    reply = await Agent(FakeModel(["done"]), store=store).think(state)

    assert [event.message for event in state.history if isinstance(event, ModelReplied)] == [reply.message]


async def test_think_raises_what_the_model_raises(store: Store) -> None:
    """And the State is given up."""
    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(ProviderError):
        await Agent(FakeModel([ProviderError("overloaded")]), store=store).think(state)

    await check_closed(store, state)


async def test_think_outside_a_loop_is_told_to_the_reporter() -> None:
    """It is a run, and a reporter gets each item of each run."""
    items = Items()
    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel(["done"]), store=MemoryStore(), reporter=items).think(state)

    assert items.kinds == ["message_added", "run_started", "model_requested", "model_replied", "run_stopped"]


async def test_use_tools_outside_a_loop_waits_for_an_approval(store: Store) -> None:
    """The run stops, and the list shows that a person has to decide."""
    agent = Agent(FakeModel([tool_call("look")]), tools=[look.copy(needs_approval=True)], store=store)
    state = State(id="s", messages=[Message.user("Go")])
    await agent.think(state)

    await agent.use_tools(state)

    assert isinstance(state.stopped, WaitingForApproval)
    assert [info.id for info in await store.list(status="waiting")] == ["s"]
