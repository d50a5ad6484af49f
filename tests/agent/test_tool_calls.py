"""Tools in runs: what the model is told, what ends the run, and what runs beside what."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from alpineagents import (
    Agent,
    Message,
    Reply,
    Request,
    State,
    StoppedByError,
    Store,
    ToolCall,
    ToolContext,
    ToolError,
    ToolInputError,
    ValueNotStorableError,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import PATIENCE_SECONDS, check_closed, complaints, kinds, outcomes, results, wait_for


@tool
async def fine() -> str:
    """Work."""
    return "fine"


@tool
async def refuse() -> str:
    """Refuse."""
    raise ToolError("no file named 'notes.txt'")


@tool
async def blame(n: int) -> str:
    """Find fault with the arguments."""
    raise ToolInputError("n must be even")


@tool
async def broken() -> str:
    """Break."""
    raise RuntimeError("the rope broke")


NOT_JSON = ToolCall(id="c1", name="fine", invalid_json='{"a": ')


@pytest.mark.parametrize(
    "call, outcome, told, is_started",
    [
        (tool_call("refuse"), "error", "no file named 'notes.txt'", True),
        (tool_call("blame", n=1), "input_error", "n must be even", True),
        (tool_call("nothing"), "input_error", "no tool named 'nothing'", False),
        (tool_call("blame", n="many"), "input_error", "n", False),
        (tool_call("blame"), "input_error", "n", False),
        (NOT_JSON, "input_error", "not a JSON object", False),
    ],
    ids=["ToolError", "ToolInputError", "unknown tool", "wrong type", "missing argument", "invalid JSON"],
)
async def test_the_model_is_told_and_the_run_goes_on(
    call: ToolCall, outcome: str, told: str, is_started: bool, store: Store
) -> None:
    """A failure that a model can deal with is a result like any other; siblings are not concerned."""
    model = FakeModel([[call, tool_call("fine")], "I see"])
    state = State(id="s", messages=[Message.user("Go")])
    agent = Agent(model, tools=[fine, refuse, blame], store=store)

    assert await agent.run(state) == "I see"

    first, second = model.requests[1].messages[-1].tool_results
    assert (first.outcome, second.outcome, second.text) == (outcome, "ok", "fine")
    assert told in first.text
    assert kinds(state).count("tool_started") == 1 + is_started
    await check_closed(store, state)


async def test_any_other_exception_is_recorded_and_raised(store: Store) -> None:
    """The history says what happened, and the State can be run again."""
    agent = Agent(FakeModel([tool_call("broken"), "Sorry"]), tools=[broken], store=store)
    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(RuntimeError, match="the rope broke"):
        await agent.run(state)

    assert state.stopped == StoppedByError(error="RuntimeError", message="the rope broke")
    assert "the rope broke" in results(state)[0]
    await check_closed(store, state)
    assert await agent.resume("s") == "Sorry"


async def test_siblings_of_a_call_that_raises_keep_their_results_in_order(store: Store) -> None:
    """Also the ones that finish after it, and nothing says that they were not completed."""
    raised = anyio.Event()

    @tool
    async def fail() -> str:
        """Fail first."""
        try:
            raise RuntimeError("no rope")
        finally:
            raised.set()

    @tool
    async def slow(name: str) -> str:
        """Finish after the failure."""
        await wait_for(raised)
        await anyio.wait_all_tasks_blocked()
        return name

    calls = [tool_call("slow", name="a"), tool_call("fail"), tool_call("slow", name="b")]
    model = FakeModel([calls, "Sorry"])
    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(RuntimeError, match="no rope"):
        await Agent(model, tools=[fail, slow], store=store).run(state)

    texts = results(state)
    assert (texts[0], texts[2]) == ("a", "b")
    assert "no rope" in texts[1]
    await check_closed(store, state)


async def test_calls_that_were_not_started_are_closed_as_cancelled(store: Store) -> None:
    """Behind a tool that runs alone and raises: they certainly did not run, and the model is told so."""
    alone = broken.copy(parallel=False)
    calls = [tool_call("broken"), tool_call("fine")]
    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(RuntimeError):
        await Agent(FakeModel([calls]), tools=[alone, fine], store=store).run(state)

    assert outcomes(state) == {"broken": "error", "fine": "cancelled"}
    assert "was not run" in results(state)[1]
    await check_closed(store, state)


async def test_two_calls_that_raise_are_both_told(store: Store) -> None:
    """The first is raised and names the other."""
    calls = [tool_call("broken"), tool_call("broken")]

    with pytest.raises(RuntimeError, match="the rope broke") as raised:
        await Agent(FakeModel([calls]), tools=[broken], store=store).run("Go")

    assert raised.value.__notes__ == ["and another call failed with RuntimeError: the rope broke"]


@pytest.mark.parametrize("sync", [False, True], ids=["async", "in threads"])
async def test_parallel_calls_really_overlap(sync: bool, store: Store) -> None:
    """Each waits for the others, so they end only if all run at once."""
    together = threading.Barrier(3)
    inside = 0
    all_in = anyio.Event()

    @tool(name="meet")
    def meet_in_thread() -> str:
        """Meet the others."""
        together.wait(timeout=PATIENCE_SECONDS)
        return "met"

    @tool(name="meet")
    async def meet() -> str:
        """Meet the others."""
        nonlocal inside
        inside += 1
        if inside == 3:
            all_in.set()
        await wait_for(all_in)
        return "met"

    state = State(id="s", messages=[Message.user("Go")])
    model = FakeModel([[tool_call("meet") for _ in range(3)], "done"])

    await Agent(model, tools=[meet_in_thread if sync else meet], store=store).run(state)

    assert results(state) == ["met"] * 3
    await check_closed(store, state)


async def test_a_tool_that_is_not_parallel_runs_alone(store: Store) -> None:
    """Before it the calls that were asked before are done, and those after it have not begun."""
    log: list[str] = []

    async def work(name: str) -> str:
        log.append(f"+{name}")
        await anyio.wait_all_tasks_blocked()
        log.append(f"-{name}")
        return name

    beside = tool(name="beside")(work)
    alone = tool(name="alone", parallel=False)(work)
    calls = [
        tool_call("beside", name="a"),
        tool_call("alone", name="b"),
        tool_call("alone", name="c"),
        tool_call("beside", name="d"),
    ]
    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel([calls, "done"]), tools=[beside, alone], store=store).run(state)

    assert log == ["+a", "-a", "+b", "-b", "+c", "-c", "+d", "-d"]
    assert results(state) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_results_enter_in_the_order_asked(order: tuple[int, ...], store: Store) -> None:
    """Whatever order the calls finish in."""
    turns = [anyio.Event() for _ in range(4)]
    turns[0].set()

    @tool
    async def finish(n: int) -> int:
        """Finish when it is its turn."""
        await wait_for(turns[order.index(n)])
        return n

    async def report(item: object) -> None:
        if getattr(item, "kind", "") == "tool_finished":
            next(turn for turn in turns if not turn.is_set()).set()

    model = FakeModel([[tool_call("finish", n=n) for n in range(3)], "done"])
    state = State(id="s", messages=[Message.user("Go")])

    await Agent(model, tools=[finish], store=store, reporter=report).run(state)

    finished = [event.content[0].text for event in state.history if event.kind == "tool_finished"]
    assert finished == [str(n) for n in order]
    assert results(state) == ["0", "1", "2"]


def reply(*calls: tuple[str, str]) -> Reply:
    blocks = tuple(ToolCall(id=call_id, name="echo", args={"word": word}) for call_id, word in calls)
    return Reply(message=Message(role="assistant", content=blocks), stop_reason="tool_use")


@tool
async def echo(word: str, context: ToolContext) -> str:
    """Say it again, with the id of the call."""
    return f"{word} {context.call_id}"


@pytest.mark.parametrize(
    "replies",
    [
        [reply(("c", "one")), reply(("c", "two")), reply(("c", "three"))],
        [reply(("c", "one"), ("c", "two"), ("c", "three"))],
        [reply(("c", "one"), ("c", "two")), reply(("c", "three"), ("d", "four"), ("c", "five"))],
    ],
    ids=["over turns", "in one reply", "both"],
)
async def test_call_ids_that_a_provider_repeats_are_paired_by_occurrence(replies: list[Reply], store: Store) -> None:
    """No result is swapped or dropped, and in the State each call has an id of its own."""
    words = [call.args["word"] for each in replies for call in each.message.tool_calls]
    model = FakeModel([*replies, "done"])
    state = State(id="s", messages=[Message.user("Go")])

    await Agent(model, tools=[echo], store=store).run(state)

    ids = [call.id for message in state.messages for call in message.tool_calls]
    assert results(state) == [f"{word} {call_id}" for word, call_id in zip(words, ids, strict=True)]
    assert len(set(ids)) == len(ids)
    assert all(complaints(request.messages) == [] for request in model.requests)
    await check_closed(store, state)


async def test_ids_stay_unique_in_a_state_that_was_loaded(store: Store) -> None:
    """A second process sees the ids of the first."""
    await Agent(FakeModel([reply(("c", "one")), "done"]), tools=[echo], store=store).run("Go", id="s")

    await Agent(FakeModel([reply(("c", "two")), "done"]), tools=[echo], store=store).resume("s", "Again")

    state = await store.load("s")
    assert len({call.id for message in state.messages for call in message.tool_calls}) == 2
    assert complaints(state.messages) == []


async def test_a_tool_knows_which_call_it_serves(store: Store) -> None:
    """The ids of State, run and call, its name, and the State to read."""
    seen: list[ToolContext] = []

    @tool
    def look(context: ToolContext) -> str:
        """Look."""
        seen.append(context)
        return "seen"

    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("look"), "done"]), tools=[look], store=store).run(state)

    (context,) = seen
    run_ids = {event.run_id for event in state.history if event.run_id}
    (call,) = state.messages[1].tool_calls
    assert (context.state_id, context.call_id, context.tool_name, context.attempt) == ("s", call.id, "look", 1)
    assert {context.run_id} == run_ids
    assert context.state is state
    assert context.connection is None


async def test_idempotency_keys_differ_between_calls_and_between_states(store: Store) -> None:
    """Two calls with the same arguments are two, also where a provider repeats their ids."""
    keys: list[str] = []

    @tool
    async def pay(amount: int, context: ToolContext) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    def again(request: Request) -> object:
        call = ToolCall(id="c", name="pay", args={"amount": 5})
        return "done" if request.messages[-1].tool_results else [call, call]

    agent = Agent(FakeModel(again), tools=[pay], store=store)

    await agent.run("Pay", id="s")
    await agent.run("Pay", id="t")

    assert len(set(keys)) == len(keys) == 4


@pytest.mark.asyncio_only
async def test_an_async_tool_that_is_cancelled_from_within_ends_the_run_with_an_error(store: Store) -> None:
    """What it waited for was cancelled, not the run: the run says so instead of dying without a word."""

    @tool
    async def ask() -> str:
        """Wait for something that is cancelled."""
        raise asyncio.CancelledError

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(RuntimeError, match="was not cancelled"):
        await Agent(FakeModel([tool_call("ask")]), tools=[ask], store=store).run(state)

    assert state.status == "failed"
    await check_closed(store, state)


async def test_a_result_that_has_no_text_is_recorded_and_raised(store: Store) -> None:
    """The tool ran, which the model must know; the program must be mended."""

    @tool
    async def give() -> object:
        """Give what nobody can read."""
        return object()

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(ValueNotStorableError, match="result of tool 'give'"):
        await Agent(FakeModel([tool_call("give")]), tools=[give], store=store).run(state)

    assert "did run" in results(state)[0]
    await check_closed(store, state)
