"""A run that is read while it goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from alpineagents import (
    Agent,
    ConfigError,
    Event,
    MemoryStore,
    Message,
    ProviderError,
    Request,
    State,
    StateExistsError,
    StoppedByCancel,
    Store,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, kinds, outcomes


async def read(agent: Agent, prompt: str | State, seen: list[str], *, id: str | None = None) -> None:
    """Read a run to its end."""
    async with agent.stream(prompt, id=id) as items:
        async for item in items:
            seen.append(item.kind)  # noqa: PERF401  # the loop may end by an exception


class Stalled:
    """A model that says some words and then never comes to an end."""

    name = "stalled"

    def __init__(self) -> None:
        self.asked, self.left = anyio.Event(), anyio.Event()

    async def respond(self, request: Request, *, emit: Any = None) -> Any:
        from alpineagents import Delta

        emit(Delta(text="Once "))
        emit(Delta(text="upon"))
        self.asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.left.set()

    async def aclose(self) -> None:
        pass


async def test_items_come_in_order_and_deltas_before_their_reply(store: Store) -> None:
    """Every Event, and between request and reply the parts of the text."""
    agent = Agent(FakeModel(["Good day to you"]), store=store)

    async with agent.stream("Hello", id="s") as items:
        got = [item async for item in items]

    assert [item.kind for item in got] == [
        *["message_added", "run_started", "model_requested"],
        *["text"] * 4,
        *["model_replied", "run_stopped"],
    ]
    assert "".join(item.text for item in got if item.kind == "text") == "Good day to you"
    assert [item.revision for item in got if item.kind != "text"] == [1, 2, 3, 4, 5]


async def test_the_stream_has_the_state_and_the_answer(store: Store) -> None:
    """Once the items are read."""
    async with Agent(FakeModel(["Hi"]), store=store).stream("Hello", id="s") as items:
        async for _ in items:
            pass
        assert (items.answer, items.state.id) == ("Hi", "s")


async def test_an_event_is_in_the_store_when_it_is_read(store: Store) -> None:
    """A reader that tells a person "saved" tells the truth."""
    async with Agent(FakeModel(["Hi"]), store=store).stream("Hello", id="s") as items:
        missing = [
            item async for item in items if item.kind != "text" and (await store.info("s")).revision < item.revision
        ]

    assert missing == []


async def test_an_event_is_told_from_the_other_items() -> None:
    """By `isinstance`, as anybody would try."""
    async with Agent(FakeModel(["Good day."])).stream("Hello") as items:
        told = [item async for item in items]

    events = [item for item in told if isinstance(item, Event)]
    assert events == list(items.state.history)
    assert 0 < len(events) < len(told)


async def test_leaving_the_block_ends_the_run_and_records_it(store: Store) -> None:
    """An agent does not go on unseen; what the person saw of the reply is in the history."""
    model = Stalled()
    async with Agent(model, store=store).stream("Hello", id="s") as items:
        async for item in items:
            if item.kind == "text" and item.text == "upon":
                break

    assert model.left.is_set()
    state = await store.load("s")
    assert state.stopped == StoppedByCancel()
    assert [event.partial for event in state.history if event.kind == "model_failed"] == ["Once upon"]
    await check_closed(store, items.state)


async def test_leaving_the_block_closes_the_calls_that_run(store: Store) -> None:
    """The tool is stopped, and its outcome says so."""
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

    agent = Agent(FakeModel([tool_call("climb")]), tools=[climb], store=store)
    async with agent.stream("Climb", id="s") as items:
        await entered.wait()

    assert left.is_set()
    assert outcomes(await store.load("s")) == {"climb": "interrupted"}
    await check_closed(store, items.state)


async def test_reading_nothing_and_leaving_ends_the_run(store: Store) -> None:
    """Whatever it had come to, the State is whole."""
    async with Agent(Stalled(), store=store).stream("Hello", id="s") as items:
        pass

    if await store.exists("s"):
        await check_closed(store, items.state)
    else:
        assert kinds(items.state) == ["message_added"]


async def test_a_run_that_was_read_to_its_end_is_not_cancelled(store: Store) -> None:
    """Leaving the block changes nothing then."""
    async with Agent(FakeModel(["Hi"]), store=store).stream("Hello", id="s") as items:
        async for _ in items:
            pass

    assert (await store.load("s")).status == "stopped"


async def test_what_a_run_raises_reaches_the_reader(store: Store) -> None:
    """As itself, after the items that came before it."""
    seen: list[str] = []

    with pytest.raises(ProviderError, match="overloaded"):
        await read(Agent(FakeModel([ProviderError("overloaded")]), store=store), "Hello", seen)

    assert seen == ["message_added", "run_started", "model_requested", "model_failed", "run_stopped"]


async def test_what_a_run_raises_is_not_lost_without_a_reader(store: Store) -> None:
    """It comes out of the block where nobody reads the items."""
    stopped = anyio.Event()

    async def report(item: Any) -> None:
        if item.kind == "run_stopped":
            stopped.set()

    agent = Agent(FakeModel([ProviderError("overloaded")]), store=store, reporter=report)

    async def look_away() -> None:
        async with agent.stream("Hello") as items:
            await stopped.wait()
            with anyio.fail_after(10):
                while items._failure is None:
                    await anyio.lowlevel.checkpoint()

    with pytest.raises(ProviderError, match="overloaded"):
        await look_away()


async def test_a_reader_that_caught_the_error_does_not_get_it_again(store: Store) -> None:
    """One error is raised once."""
    async with Agent(FakeModel([ProviderError("overloaded")]), store=store).stream("Hello") as items:
        with pytest.raises(ProviderError):
            async for _ in items:
                pass


async def test_an_exception_in_the_block_comes_out_as_itself(store: Store) -> None:
    """Not wrapped in a group, and the run is ended and recorded."""
    state = State(id="s", messages=[Message.user("Hello")])

    async def stumble() -> None:
        async with Agent(Stalled(), store=store).stream(state) as items:
            async for item in items:
                if item.kind == "text":
                    raise KeyError("lost")

    with pytest.raises(KeyError, match="lost"):
        await stumble()

    await check_closed(store, state)


async def test_a_taken_id_is_raised_to_the_reader(store: Store) -> None:
    """As `run` raises it, and no model is asked."""
    model = FakeModel(["Hi", "never"])
    agent = Agent(model, store=store)
    await agent.run("Hello", id="s")

    with pytest.raises(StateExistsError):
        await read(agent, "Hello", [], id="s")

    assert len(model.requests) == 1


async def test_a_prompt_that_says_nothing_is_refused_at_once() -> None:
    """Before the block is entered."""
    with pytest.raises(ConfigError):
        async with Agent(FakeModel([])).stream(""):
            pytest.fail("the block was entered")


async def test_a_stream_is_read_in_its_block_only() -> None:
    """Whoever forgets the block is told the line to write, and no model is asked."""
    model = FakeModel(["never"])
    stream: Any = Agent(model).stream("Hello")

    with pytest.raises(ConfigError, match=r"async with agent\.stream\(…\) as items"):
        async for _ in stream:
            pass
    with pytest.raises(ConfigError, match=r"async with agent\.stream\(…\) as items.*await agent\.run\(…\)"):
        await stream
    assert model.requests == []


async def test_a_stream_that_was_left_gives_nothing_more() -> None:
    """Its run has ended with the block, which is said."""
    async with Agent(FakeModel(["done"])).stream("Hello") as items:
        pass

    with pytest.raises(ConfigError, match=r"within its block"):
        await anext(items)


@pytest.mark.asyncio_only
async def test_cancelling_the_reader_ends_the_run(store: Store) -> None:
    """As when a client disconnects: the task that reads is cancelled, the run is recorded as cancelled."""
    model, state = Stalled(), State(id="s", messages=[Message.user("Hello")])

    task = asyncio.create_task(read(Agent(model, store=store), state, []))
    await model.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert state.stopped == StoppedByCancel()
    await check_closed(store, state)


async def test_a_tool_that_leaves_the_program_comes_out_of_a_stream_as_itself() -> None:
    """What `sys.exit` raises is not wrapped, and the run is recorded."""
    state = State(messages=[Message.user("Hello")])

    async def leave(request: Request) -> str:
        raise SystemExit(3)

    def run() -> None:
        asyncio.run(read(Agent(FakeModel(leave), store=MemoryStore()), state, []))

    with pytest.raises(SystemExit) as raised:
        await anyio.to_thread.run_sync(run)

    assert raised.value.code == 3
    assert kinds(state)[-1] == "run_stopped"
