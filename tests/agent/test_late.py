"""Calls that were given up: what their threads come to in the end is in the log of the State."""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable

import anyio
import anyio.to_thread
import pytest

from alpineagents import (
    Agent,
    FileStore,
    MemoryStore,
    Message,
    MessageAdded,
    RunStarted,
    State,
    StateInfo,
    Store,
    StoreUnavailableError,
    ToolError,
    tool,
)
from alpineagents.stores.header import StateKey
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import PATIENCE_SECONDS, Place, Watcher, complaints, kinds, of, results, wait_for_a_place, watch
from tests.agent.processes import run


class Slow:
    """A sync tool that is inside until it is let go, and what came of it."""

    def __init__(self, gives: object = "up there") -> None:
        self.gives = gives
        self.gate, self.inside = threading.Event(), threading.Event()

    @tool(max_concurrency=1)
    def climb(self) -> object:
        """Climb."""
        self.inside.set()
        assert self.gate.wait(PATIENCE_SECONDS)
        if isinstance(self.gives, BaseException):
            raise self.gives
        return self.gives

    async def end(self) -> None:
        """Let it end, and wait until its place is free: then all is told."""
        self.gate.set()
        await wait_for_a_place(self.climb)


async def cancelled_in(slow: Slow, go: Callable[[], Awaitable[object]]) -> None:
    """Run until the tool is inside, and cancel the run."""
    async with anyio.create_task_group() as group:
        group.start_soon(go)
        await anyio.to_thread.run_sync(slow.inside.wait)
        group.cancel_scope.cancel()


async def test_no_run_waits_for_ever_for_a_place_of_a_call_that_was_given_up() -> None:
    """As long as its own timeout, and the model is told; one whose place is free in time is made."""
    slow = Slow()
    await cancelled_in(slow, lambda: Agent(FakeModel([tool_call("climb")]), tools=[slow.climb]).run("Go"))
    hasty = slow.climb.copy(name="hasty", timeout=0.01)
    patient = slow.climb.copy(name="patient", timeout=PATIENCE_SECONDS)
    told, made = State(messages=[Message.user("Go")]), State(messages=[Message.user("Go")])

    with anyio.fail_after(PATIENCE_SECONDS):
        assert await Agent(FakeModel([[tool_call("hasty")] * 3, "done"]), tools=[hasty]).run(told) == "done"
        async with anyio.create_task_group() as group:
            group.start_soon(Agent(FakeModel([tool_call("patient"), "done"]), tools=[patient]).run, made)
            await slow.end()

    text = "hasty was not run: its places are all taken by calls that were given up and still run."
    assert results(told) == [text] * 3
    assert results(made) == ["up there"]


def late(state: State) -> list[Message]:
    """Return the late results in the history."""
    return [event.message for event in of(state, MessageAdded) if event.message.late_call]


async def test_what_comes_after_the_run_is_in_the_log_of_the_state(store: Store) -> None:
    """Named by its call; the State stays cancelled, and the model reads it at the next turn."""
    slow = Slow()
    agent = Agent(FakeModel([tool_call("climb"), "I see."]), tools=[slow.climb], store=store)

    await cancelled_in(slow, lambda: agent.run("Go", id="s"))
    before = await store.load("s")
    await slow.end()

    state = await store.load("s")
    [message] = late(state)
    call_id = before.messages[1].tool_calls[0].id
    assert (message.late_call, message.is_notice) == (call_id, True)
    assert f"The call {call_id} of climb ended after all (ok), after " in message.text
    assert message.text.endswith("seconds:\nup there")
    assert (state.status, state.stopped, state.revision) == ("cancelled", before.stopped, before.revision + 1)
    assert (await store.info("s")).status == "cancelled"
    assert await store.list(status="ready") == []
    assert await agent.resume("s", "And?") == "I see."
    assert [each.text for each in (await store.load("s")).messages[3:]] == [message.text, "And?", "I see."]
    assert complaints((await store.load("s")).messages) == []


async def test_a_state_that_nobody_saves_gets_it_in_memory() -> None:
    """The object that the run was given has it."""
    slow = Slow()
    state = State(messages=[Message.user("Go")])

    await cancelled_in(slow, lambda: Agent(FakeModel([tool_call("climb")]), tools=[slow.climb]).run(state))
    await slow.end()

    assert [message.text.partition("\n")[2] for message in late(state)] == ["up there"]
    assert state.status == "cancelled"


def test_it_comes_on_trio_too(tmp_path: object) -> None:
    """Where a thread that was left behind is served outside all tasks."""
    slow = Slow()
    store = FileStore(str(tmp_path))
    agent = Agent(FakeModel([tool_call("climb")]), tools=[slow.climb], store=store)

    async def main() -> list[Message]:
        await cancelled_in(slow, lambda: agent.run("Go", id="s"))
        seen = (await store.info("s")).revision
        slow.gate.set()
        async with store.watch("s", after=seen) as events:
            async for _event in events:
                break
        return late(await store.load("s"))

    assert [message.text.partition("\n")[2] for message in anyio.run(main, backend="trio")] == ["up there"]


async def test_an_answer_stands_although_a_result_comes_late(store: Store) -> None:
    """A State that has stopped owes no answer because of it; one that is finished stays so."""
    slow = Slow()
    climb = slow.climb.copy(timeout=0.01)
    agent = Agent(FakeModel([tool_call("climb"), "Too long."]), tools=[climb], store=store)

    assert await agent.run("Go", id="s") == "Too long."
    await slow.end()

    state = await store.load("s")
    assert len(late(state)) == 1
    assert (state.answer, state.status) == ("Too long.", "stopped")
    assert [await agent.resume("s") for _ in range(2)] == ["Too long."] * 2  # the model is prepared for no other reply
    state.finish("the end")
    state.add_message(late(state)[0])
    assert (state.answer, state.status, state.finished) == ("the end", "finished", True)


@pytest.mark.parametrize(
    "raised, told",
    [
        (ToolError("it is closed"), "(error), "),
        (ValueError("odd"), "climb failed: ValueError: odd"),
        (SystemExit(3), "climb raised SystemExit, which ends a program"),
    ],
)
async def test_what_a_tool_raises_late_is_told_as_a_result(raised: BaseException, told: str) -> None:
    """With its outcome, and raised nowhere: nobody waits for it."""
    slow = Slow(gives=raised)
    state = State(messages=[Message.user("Go")])

    await cancelled_in(slow, lambda: Agent(FakeModel([tool_call("climb")]), tools=[slow.climb]).run(state))
    await slow.end()

    [message] = late(state)
    assert told in message.text
    assert "(error)" in message.text


async def test_a_long_one_is_cut_as_every_result_is(store: Store) -> None:
    """The whole is kept aside under the State."""
    slow = Slow(gives="x" * 200_000)
    agent = Agent(FakeModel([tool_call("climb")]), tools=[slow.climb], store=store)

    await cancelled_in(slow, lambda: agent.run("Go", id="s"))
    await slow.end()

    [message] = late(await store.load("s"))
    assert len(message.text) < 101_000
    name = message.text.partition("The whole is kept as ")[2][:64]
    assert await store.read_blob("s", name) == b"x" * 200_000


async def test_a_stream_that_is_open_shows_it() -> None:
    """As an Event, with the next one that the run saves."""
    slow, ended = Slow(), anyio.Event()
    climb = slow.climb.copy(timeout=0.01)

    @tool
    async def wait() -> str:
        """Wait."""
        await slow.end()
        ended.set()
        return "waited"

    model = FakeModel([tool_call("climb"), tool_call("wait"), "done"])
    async with Agent(model, tools=[climb, wait], store=MemoryStore()).stream("Go") as items:
        seen = [item async for item in items]

    added = [item for item in seen if isinstance(item, MessageAdded) and item.message.late_call]
    assert ended.is_set()
    assert len(added) == 1
    assert any(message.late_call for message in model.requests[-1].messages)


class Refusing(Watcher):
    """A store that is away once it is told so."""

    away = False

    async def info(self, land: Callable[[], Awaitable[StateInfo]]) -> StateInfo:
        if self.away:
            raise StoreUnavailableError("the database is away")
        return await land()


async def test_what_the_store_refuses_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is raised where nobody waits, and the place of the call is free again."""
    slow, refusing = Slow(), Refusing()
    store = watch(MemoryStore(), refusing)
    climb = slow.climb.copy(timeout=0.01)
    await Agent(FakeModel([tool_call("climb"), "done"]), tools=[climb], store=store).run("Go", id="s")
    refusing.away = True

    await slow.end()

    assert "of State s could not be saved: the database is away" in caplog.text
    refusing.away = False
    assert kinds(await store.load("s"))[-1] == "run_stopped"


async def test_a_state_made_again_gets_nothing_of_the_one_before(caplog: pytest.LogCaptureFixture) -> None:
    """It bears the same id, and is another State."""
    slow, store = Slow(), MemoryStore()
    agent = Agent(FakeModel([tool_call("climb")]), tools=[slow.climb], store=store)
    await cancelled_in(slow, lambda: agent.run("Go", id="s"))
    await store.delete("s")
    await store.save(State(id="s", messages=[Message.user("Another one")]))

    await slow.end()

    assert (await store.info(StateKey("", "s"))).revision == 1
    assert "State s was deleted and made again" in caplog.text


def test_where_the_event_loop_has_ended_a_line_in_the_log_is_left(caplog: pytest.LogCaptureFixture) -> None:
    """The thread ends without a word otherwise, and nothing is raised in it."""
    slow, store = Slow(), MemoryStore()
    agent = Agent(FakeModel([tool_call("climb")]), tools=[slow.climb], store=store)
    anyio.run(cancelled_in, slow, lambda: agent.run("Go", id="s"))

    logged = threading.Event()
    handler = logging.Handler()
    handler.emit = lambda record: logged.set()  # type: ignore[method-assign]
    handler.addFilter(logging.Filter("alpineagents"))
    # Behind the one of caplog, which has the line then.
    logging.getLogger().addHandler(handler)
    slow.gate.set()
    assert logged.wait(PATIENCE_SECONDS)
    logging.getLogger().removeHandler(handler)

    assert "climb ended after" in caplog.text
    assert "of State s, it returned" in caplog.text


async def test_a_cancel_request_is_not_outdone_by_a_late_result(store: Store) -> None:
    """Only what people and programs say since counts for more than the request to stop."""
    state = State(id="s", messages=[Message.user("Go")])
    state.run_id = "dead"
    state.record(RunStarted, agent=Agent(FakeModel([])).describe())
    await store.save(state)
    await store.cancel("s", by="Ada")

    await store.post("s", Message.notice("up there").model_copy(update={"late_call": "c"}))
    assert (await store.load("s")).snapshot().unserved_cancel_by == "Ada"

    await store.post("s", Message.user("Go on"))
    assert (await store.load("s")).snapshot().unserved_cancel_by is None


@pytest.mark.parametrize("how", ["hanging", "interrupted"])
async def test_a_process_with_a_late_tool_ends_or_lives_on(how: str, shared: Place) -> None:
    """A store that hangs does not hold up its exit; behind Ctrl+C, a process that lives on keeps the result."""
    ended = run("late.py", shared.target or "", how, seconds=20)

    assert (ended.returncode, ended.stdout.splitlines()) == (0, [how]), ended.stderr
    async with shared.open() as store:
        state = await store.load("s")
    assert [message.text.partition("\n")[2] for message in late(state)] == ([] if how == "hanging" else ["up there"])
