"""Two runs of one State: one wins, the other is refused before its model is asked, and a lost run does no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from alpineagents import (
    Agent,
    Event,
    Message,
    Request,
    State,
    StateBusyError,
    StateConflictError,
    StateExistsError,
    StateInfo,
    StateNotFoundError,
    Store,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Append, Place, Watcher, at_once, check_closed, complaints, kinds, results, wait_for, watch
from tests.agent.programs.patience import when_free

Another = Callable[[], Store]
SHORT = 0.4
"""A lease that a test can outlast."""


class Held:
    """A model that answers when it is let."""

    def __init__(self, *replies: object) -> None:
        self.asked, self.let_go = anyio.Event(), anyio.Event()
        self.model = FakeModel([self._first, *replies])

    async def _first(self, request: Request) -> str:
        self.asked.set()
        await wait_for(self.let_go)
        return "Hi"


@pytest.mark.asyncio_only
async def test_two_runs_of_one_object_one_is_refused(store: Store) -> None:
    """Before its model is asked, and the first goes on unharmed."""
    state = State(id="s", messages=[Message.user("Hello")])
    held, second = Held(), FakeModel(["never"])
    first = asyncio.create_task(Agent(held.model, store=store).run(state))
    await wait_for(held.asked)

    with pytest.raises(StateBusyError, match=r"await store\.post\('s'"):
        await Agent(second, store=store).run(state)

    held.let_go.set()
    assert await first == "Hi"
    assert second.requests == []
    await check_closed(store, state)


@pytest.mark.asyncio_only
async def test_two_runs_of_two_loaded_objects_one_is_refused(store: Store, another: Another) -> None:
    """As two processes that loaded the same State."""
    await store.save(State(id="s", messages=[Message.user("Hello")]))
    held, second = Held(), FakeModel(["never"])
    first = asyncio.create_task(Agent(held.model, store=store).resume("s"))
    await wait_for(held.asked)

    with pytest.raises(StateBusyError):
        await Agent(second, store=another()).resume("s")

    held.let_go.set()
    assert await first == "Hi"
    assert second.requests == []


class Meanwhile(Watcher):
    """Lets something happen before the first append."""

    def __init__(self, happen: Callable[[], Awaitable[object]]) -> None:
        self.happen: Callable[[], Awaitable[object]] | None = happen

    async def append(self, events: Sequence[Event], land: Append) -> int:
        if (happen := self.happen) is not None:
            self.happen = None
            await happen()
        return await land()


async def test_resume_goes_on_behind_a_run_that_ended_before_it_began(place: Place) -> None:
    """It was given an id, so what it loaded too early is no concern of its caller."""
    async with place.open() as store:
        await store.save(State(id="s", messages=[Message.user("Hello")]))
        other = store if place.target is None else place.open()
        first = Agent(FakeModel(["Hi"]), store=other)
        watch(store, Meanwhile(lambda: first.resume("s")))
        model = FakeModel(["And hi to you"])

        assert await Agent(model, store=store).resume("s", "Hello from me") == "And hi to you"

        assert [message.text for message in model.requests[0].messages] == ["Hello", "Hi", "Hello from me"]
        if other is not store:
            await other.aclose()


async def test_many_runs_at_one_moment_one_wins(store: Store, another: Another) -> None:
    """All loaded the same revision; one model is asked."""
    await store.save(State(id="s", messages=[Message.user("Hello")]))
    stores = [another() for _ in range(5)]
    models = [FakeModel(["Hi"]) for _ in stores]
    states = [await each.load("s") for each in stores]
    agents = [Agent(model, store=each) for model, each in zip(models, stores, strict=True)]

    ends = await at_once(*[agent.run(state) for agent, state in zip(agents, states, strict=True)])

    assert sum(end == "Hi" for end in ends) == sum(len(model.requests) for model in models) == 1
    assert all(end == "Hi" or isinstance(end, (StateBusyError, StateConflictError)) for end in ends)
    assert kinds(await store.load("s")).count("run_started") == 1


async def test_two_new_states_of_one_id_one_wins(store: Store, another: Another) -> None:
    """The other is told that the id is taken, before its model is asked."""
    models = [FakeModel(["Hi"]), FakeModel(["Hi"])]
    runs = [
        Agent(model, store=each).run("Hello", id="s") for model, each in zip(models, [store, another()], strict=True)
    ]

    ends = await at_once(*runs)

    assert sorted(type(end).__name__ for end in ends) == [StateExistsError.__name__, "str"]
    assert sum(len(model.requests) for model in models) == 1


async def test_a_state_that_another_has_moved_on_is_refused(store: Store, another: Another) -> None:
    """Whoever loaded an older revision loads again; no model is asked."""
    await store.save(State(id="s", messages=[Message.user("Hello")]))
    old = await store.load("s")
    await Agent(FakeModel(["Hi"]), store=another()).resume("s")
    model = FakeModel(["never"])

    with pytest.raises(StateConflictError, match=r"await store\.load\('s'\)") as refused:
        await Agent(model, store=store).run(old)

    assert (refused.value.expected, refused.value.actual, model.requests) == (1, 5, [])
    assert kinds(old) == ["message_added"]


class Deaf(Watcher):
    """Its heartbeat does not get through."""

    async def renew(self, land: Callable[[], Awaitable[bool]]) -> bool:
        return True


@pytest.mark.asyncio_only
async def test_a_run_that_lost_its_state_records_nothing_more(place: Place) -> None:
    """Another took it when the lease was over; the first is told so at its next append, and its reply counts not."""
    deaf = place.open(Deaf())
    other = deaf if place.target is None else place.open()
    held = Held()
    state = State(id="s", messages=[Message.user("Hello")])
    lost = asyncio.create_task(Agent(held.model, store=deaf, lease=SHORT).run(state))
    await wait_for(held.asked)
    taker = Agent(FakeModel(["I took over"]), store=other)
    answer = await when_free(lambda: taker.resume("s"))
    before = (await other.load("s")).snapshot()

    held.let_go.set()
    with pytest.raises(StateConflictError, match="Another run has taken the State"):
        await lost

    assert answer == "I took over"
    assert (await other.load("s")).snapshot() == before
    assert before.answer == "I took over"
    await deaf.aclose()
    await other.aclose()


@pytest.mark.asyncio_only
async def test_a_run_that_lost_its_state_starts_no_tool(place: Place) -> None:
    """What it asked for is not done: the start of a tool is saved before it is entered."""
    entered: list[str] = []

    @tool
    async def pay() -> str:
        """Pay."""
        entered.append("paid")
        return "paid"

    deaf = place.open(Deaf())
    other = deaf if place.target is None else place.open()
    asked, let_go = anyio.Event(), anyio.Event()

    async def call(request: Request) -> object:
        asked.set()
        await wait_for(let_go)
        return tool_call("pay")

    agent = Agent(FakeModel(call), tools=[pay], store=deaf, lease=SHORT)
    lost = asyncio.create_task(agent.run("Hello", id="s"))
    await wait_for(asked)
    await when_free(lambda: Agent(FakeModel(["I took over"]), tools=[pay], store=other).resume("s"))
    let_go.set()

    with pytest.raises(StateConflictError):
        await lost

    assert entered == []
    await deaf.aclose()
    await other.aclose()


class Late(Watcher):
    """Its heartbeat gets through only when it is let."""

    def __init__(self) -> None:
        self.let = anyio.Event()

    async def renew(self, land: Callable[[], Awaitable[bool]]) -> bool:
        return await land() if self.let.is_set() else True


@pytest.mark.asyncio_only
async def test_a_run_that_lost_its_state_is_stopped_at_its_next_heartbeat(place: Place) -> None:
    """In the middle of a tool that would never end, and nothing of it is recorded."""
    entered, left = anyio.Event(), anyio.Event()

    @tool(read_only=True)
    async def climb() -> str:
        """Climb for ever."""
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            left.set()
        return "never"

    @tool(name="climb", read_only=True)
    async def climb_at_once() -> str:
        """Climb for ever."""
        return "on top"

    late = Late()
    store = place.open(late)
    other = store if place.target is None else place.open()
    agent = Agent(FakeModel([tool_call("climb")]), tools=[climb], store=store, lease=SHORT)
    lost = asyncio.create_task(agent.run("Go", id="s"))
    await wait_for(entered)
    taker = Agent(FakeModel(["I took over"]), tools=[climb_at_once], store=other)
    assert await when_free(lambda: taker.resume("s")) == "I took over"
    before = (await other.load("s")).snapshot()

    late.let.set()
    with pytest.raises(StateConflictError), anyio.fail_after(20):
        await lost

    assert left.is_set()
    assert (await other.load("s")).snapshot() == before
    assert results(await other.load("s")) == ["on top"]
    await store.aclose()
    await other.aclose()


@pytest.mark.asyncio_only
async def test_a_state_that_was_deleted_ends_its_run(store: Store, another: Another) -> None:
    """At the next append; nothing is written."""
    held = Held()
    run = asyncio.create_task(Agent(held.model, store=store).run("Hello", id="s"))
    await wait_for(held.asked)
    await another().delete("s")
    held.let_go.set()

    with pytest.raises(StateNotFoundError):
        await run

    assert not await store.exists("s")


@pytest.mark.asyncio_only
async def test_a_tool_outlives_the_lease(store: Store, another: Another) -> None:
    """Heartbeats hold the State, so a second run is refused for as long as the tool takes, and its result counts."""
    entered, let_go = anyio.Event(), anyio.Event()
    runs = 0

    @tool
    async def climb() -> str:
        """Climb for long."""
        nonlocal runs
        runs += 1
        entered.set()
        await wait_for(let_go)
        return "on top"

    agent = Agent(FakeModel([tool_call("climb"), "done"]), tools=[climb], store=store, lease=SHORT)
    first = asyncio.create_task(agent.run("Go", id="s"))
    await wait_for(entered)
    second, other = FakeModel(["never"]), another()
    end = anyio.current_time() + 3 * SHORT
    while anyio.current_time() < end:
        with pytest.raises(StateBusyError):
            await Agent(second, tools=[climb], store=other).resume("s")
        await anyio.sleep(SHORT / 8)
    let_go.set()

    assert await first == "done"
    assert (runs, second.requests) == (1, [])
    assert complaints((await store.load("s")).messages) == []


class SlowAcknowledgement(Watcher):
    """The acknowledgement of one append comes only after a heartbeat has looked at the store."""

    def __init__(self, kind: str) -> None:
        self.kind, self.waits = kind, False
        self.looked = anyio.Event()

    async def append(self, events: Sequence[Event], land: Append) -> int:
        landed = await land()
        if [event.kind for event in events] == [self.kind]:
            self.waits = True
            await wait_for(self.looked)
        return landed

    async def renew(self, land: Callable[[], Awaitable[bool]]) -> bool:
        kept = await land()
        if self.waits and not kept:
            self.looked.set()
        return kept

    async def info(self, land: Callable[[], Awaitable[StateInfo]]) -> StateInfo:
        info = await land()
        if self.waits:
            self.looked.set()
        return info


@pytest.mark.parametrize("kind", ["model_requested", "model_replied", "tool_started", "tool_finished", "run_stopped"])
async def test_a_heartbeat_while_an_append_is_under_way_loses_nothing(kind: str, place: Place) -> None:
    """What the heartbeat finds new in the store is the run's own."""

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    async with place.open(SlowAcknowledgement(kind)) as store:
        state = State(id="s", messages=[Message.user("Go")])
        agent = Agent(FakeModel([tool_call("look"), "done"]), tools=[look], store=store, lease=SHORT)

        assert await agent.run(state) == "done"

        await check_closed(store, state)
