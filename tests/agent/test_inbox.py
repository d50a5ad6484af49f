"""What others add while a run goes on: messages are answered, and a request to cancel stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import anyio
import pytest

from alpineagents import (
    Agent,
    Message,
    Request,
    State,
    StoppedByCancel,
    Store,
    loop,
    tool,
    waiting_for_user,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, Place, Watcher, check_closed, complaints, kinds, outcomes, results, wait_for

Another = Callable[[], Store]
SHORT = 0.4


def answering(request: Request) -> object:
    """Answer the last thing that was said, after one look around."""
    last = request.messages[-1]
    if last.tool_results or not any(message.tool_calls for message in request.messages):
        return "The first answer" if last.tool_results else tool_call("look")
    return f"And: {last.text}"


@pytest.mark.parametrize("moment", ["model", "tool", "second model", "condition"])
async def test_a_message_that_comes_during_a_run_is_answered(moment: str, store: Store, another: Another) -> None:
    """Whatever goes on at that moment; both survive, in an order that a provider accepts."""
    other, posted = another(), False

    async def post(at: str) -> None:
        nonlocal posted
        if at == moment and not posted:
            posted = True
            await other.post("s", Message.user("One more thing"))

    async def respond(request: Request) -> object:
        await post("second model" if request.messages[-1].tool_results else "model")
        return answering(request)

    @tool
    async def look() -> str:
        """Look."""
        await post("tool")
        return "seen"

    async def settled(state: State) -> bool:
        if waiting_for_user(state):
            await post("condition")
            return True
        return False

    @loop(until=settled, limit=9)
    async def turning(agent: Agent, state: State) -> None:
        await agent.think(state)
        if state.pending_calls:
            await agent.use_tools(state)

    model = FakeModel(respond)
    state = State(id="s", messages=[Message.user("Look")])

    answer = await Agent(model, tools=[look], loop=turning, store=store).run(state)

    assert posted
    loaded = await store.load("s")
    said = [message.text for message in loaded.messages if message.is_plain]
    assert said == ["Look", "One more thing"]
    assert results(loaded) == ["seen"]
    assert all(complaints(request.messages) == [] for request in model.requests)
    await check_closed(store, state)
    assert any("One more thing" in message.text for message in model.requests[-1].messages)
    assert answer == loaded.messages[-1].text
    assert loaded.messages[-1].role == "assistant"


async def test_a_message_between_two_runs_is_answered_by_the_next(store: Store, another: Another) -> None:
    """It waits in the State, and the list shows that something waits."""
    agent = Agent(FakeModel(["Hi", "Later"]), store=store)
    await agent.run("Hello", id="s")
    await another().post("s", Message.user("Are you there?"))
    assert (await store.info("s")).status == "ready"

    assert await agent.resume("s") == "Later"


async def test_many_messages_during_a_run_all_survive(store: Store, another: Another) -> None:
    """In the order in which they came, and none twice."""
    other = another()
    words = [f"word {n}" for n in range(10)]

    @tool
    async def look() -> str:
        """Look."""
        for word in words:
            await other.post("s", Message.user(word))
        return "seen"

    state = State(id="s", messages=[Message.user("Look")])
    model = FakeModel([tool_call("look"), "done"])

    assert await Agent(model, tools=[look], store=store).run(state) == "done"

    assert [message.text for message in state.messages if message.is_plain] == ["Look", *words]
    await check_closed(store, state)


async def test_a_stream_shows_what_others_add(store: Store, another: Another) -> None:
    """Every Event once, in the order of the history."""
    other = another()

    @tool
    async def look() -> str:
        """Look."""
        await other.post("s", Message.user("Hurry"))
        return "seen"

    items, state = Items(), State(id="s", messages=[Message.user("Look")])
    agent = Agent(FakeModel([tool_call("look"), "done"]), tools=[look], store=store, reporter=items)

    await agent.run(state)

    assert items.kinds == kinds(state)


@pytest.mark.asyncio_only
async def test_a_cancel_request_stops_a_long_tool(store: Store, another: Another) -> None:
    """Within a heartbeat, from any process; the call is closed, and the history says who asked."""
    entered, left = anyio.Event(), anyio.Event()

    @tool
    async def climb() -> str:
        """Climb for ever."""
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()
        return "never"

    agent = Agent(FakeModel([tool_call("climb")]), tools=[climb], store=store, lease=SHORT)
    state = State(id="s", messages=[Message.user("Climb")])
    run = asyncio.create_task(agent.run(state))
    await wait_for(entered)

    await another().cancel("s", by="Ada", reason="a storm")
    with anyio.fail_after(20):
        assert await run is None

    assert left.is_set()
    assert state.stopped == StoppedByCancel(by="Ada")
    assert (state.status, outcomes(state)) == ("cancelled", {"climb": "interrupted"})
    assert "Ada asked the run to stop" in results(state)[0]
    await check_closed(store, state)


@pytest.mark.asyncio_only
async def test_a_cancel_request_stops_a_long_model_call(store: Store, another: Another) -> None:
    """Within a heartbeat; the request is recorded as failed, and the message still waits."""
    asked = anyio.Event()

    async def stall(request: Request) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    state = State(id="s", messages=[Message.user("Hello")])
    run = asyncio.create_task(Agent(FakeModel(stall), store=store, lease=SHORT).run(state))
    await wait_for(asked)

    await another().cancel("s", by="Ada")
    with anyio.fail_after(20):
        await run

    assert state.stopped == StoppedByCancel(by="Ada")
    assert kinds(state)[-3:] == ["cancel_requested", "model_failed", "run_stopped"]
    await check_closed(store, state)
    assert await Agent(FakeModel(["Hi"]), store=store).resume("s") == "Hi"


async def test_a_cancel_request_is_obeyed_at_the_next_append(store: Store, another: Another) -> None:
    """Also where no heartbeat comes before it: the model is not asked again."""
    other = another()

    @tool
    async def look() -> str:
        """Look."""
        await other.cancel("s", by="Ada")
        return "seen"

    model = FakeModel([tool_call("look"), "never"])
    state = State(id="s", messages=[Message.user("Look")])

    assert await Agent(model, tools=[look], store=store).run(state) is None

    assert len(model.requests) == 1
    assert state.stopped == StoppedByCancel(by="Ada")
    await check_closed(store, state)


async def test_a_cancel_request_for_a_state_at_rest_stops_no_later_run(store: Store, another: Another) -> None:
    """It asks the run that goes on, and none does."""
    agent = Agent(FakeModel(["Hi", "Still here"]), store=store)
    await agent.run("Hello", id="s")
    await another().cancel("s", by="Ada")

    assert await agent.resume("s", "And now?") == "Still here"


class Heartbeats(Watcher):
    """Counts them."""

    def __init__(self) -> None:
        self.count, self.enough = 0, anyio.Event()

    async def renew(self, land: object) -> bool:
        renewed: bool = await land()
        self.count += 1
        if self.count == 3:
            self.enough.set()
        return renewed


async def test_a_message_that_a_heartbeat_finds_is_taken_in_once(place: Place) -> None:
    """The next append need not read it again."""
    beats = Heartbeats()
    async with place.open(beats) as store:
        posted = anyio.Event()

        @tool
        async def climb() -> str:
            """Climb until the heart has beaten."""
            await store.post("s", Message.user("Hurry"))
            posted.set()
            await wait_for(beats.enough)
            return "on top"

        items, state = Items(), State(id="s", messages=[Message.user("Climb")])
        model = FakeModel([tool_call("climb"), "done"])

        assert await Agent(model, tools=[climb], store=store, lease=SHORT, reporter=items).run(state) == "done"

        assert [m.text for m in state.messages if m.is_plain] == ["Climb", "Hurry"]
        assert items.kinds == kinds(state)
        await check_closed(store, state)
