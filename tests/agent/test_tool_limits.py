"""What bounds a call and what becomes of it: places, handlers of exceptions, values on the way, late results."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator

import anyio
import pytest

from alpineagents import Agent, Image, MemoryStore, Message, Progress, Request, State, ToolContext, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, check_closed, outcomes, results, wait_for

PATIENCE_SECONDS = 20


def asked(*calls: object) -> FakeModel:
    """A model that makes these calls in one turn."""
    return FakeModel([list(calls), "done"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("is_async", [True, False])
def test_no_more_calls_than_places_run_at_once(backend: str, is_async: bool) -> None:
    """Of two runs together; the others wait, and all are made."""
    lock = threading.Lock()
    now: list[int] = []
    most: list[int] = []

    def enter(number: int) -> None:
        with lock:
            now.append(number)
            most.append(len(now))

    def leave(number: int) -> None:
        with lock:
            now.remove(number)

    @tool(max_concurrency=2)
    async def climb(number: int) -> int:
        """Climb."""
        enter(number)
        await anyio.sleep(0.01)
        leave(number)
        return number

    @tool(name="climb", max_concurrency=2)
    def climb_in_a_thread(number: int) -> int:
        """Climb."""
        enter(number)
        threading.Event().wait(0.01)
        leave(number)
        return number

    states = [State(messages=[Message.user("Go")]) for _ in range(2)]

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number, state in enumerate(states):
                calls = [tool_call("climb", number=10 * number + each) for each in range(5)]
                used = climb if is_async else climb_in_a_thread
                group.start_soon(Agent(asked(*calls), tools=[used]).run, state)

    anyio.run(main, backend=backend)

    assert max(most) == 2
    assert [results(state) for state in states] == [[str(10 * n + each) for each in range(5)] for n in range(2)]


async def test_waiting_for_a_place_does_not_count_for_the_timeout() -> None:
    """A call that takes less than its timeout is made, however long it waited."""
    state = State(messages=[Message.user("Go")])

    @tool(max_concurrency=1, timeout=1.0)
    async def climb() -> str:
        """Climb."""
        await anyio.sleep(0.15)
        return "up"

    await Agent(asked(*[tool_call("climb") for _ in range(8)]), tools=[climb]).run(state)

    assert results(state) == ["up"] * 8


async def test_a_thread_that_is_left_behind_keeps_its_place_and_its_result_comes_late() -> None:
    """The next call waits until it has ended; the model is told what came of it, in the run that goes on."""
    gate, ended = threading.Event(), threading.Event()
    inside: list[str] = []
    state = State(messages=[Message.user("Go")])

    @tool(max_concurrency=1, timeout=0.05)
    def slow(which: str) -> str:
        """Be slow the first time."""
        inside.append(which)
        if which == "first":
            gate.wait(PATIENCE_SECONDS)
            assert inside == ["first"]
            ended.set()
        return f"{which} is over"

    def let_go(_request: Request) -> list[object]:
        threading.Timer(0.05, gate.set).start()
        return [tool_call("patient", which="second")]

    patient = slow.copy(name="patient", timeout=PATIENCE_SECONDS)
    model = FakeModel([tool_call("slow", which="first"), let_go, "done"])
    await Agent(model, tools=[slow, patient], store=(store := MemoryStore())).run(state)

    assert ended.is_set()
    assert results(state)[1] == "second is over"
    notices = [message.text for message in state.messages if message.is_notice]
    assert len(notices) == 1
    assert "of slow ended after all (ok), after " in notices[0]
    assert notices[0].endswith("seconds:\nfirst is over")
    await check_closed(store, state)


async def test_an_exception_of_a_type_is_told_to_the_model() -> None:
    """As a text or by a function, by the first type that fits; the run goes on."""
    state = State(messages=[Message.user("Go")])
    handlers = {KeyError: "there is no such peak", OSError: lambda error: f"no file: {error.args[0]}"}

    @tool(on_error=handlers)
    def look(what: str) -> str:
        """Look."""
        raise {"key": KeyError("secret"), "file": FileNotFoundError("map")}[what]

    answer = await Agent(asked(tool_call("look", what="key"), tool_call("look", what="file")), tools=[look]).run(state)

    assert answer == "done"
    assert results(state) == ["there is no such peak", "no file: map"]
    assert outcomes(state) == {"look": "error"}


async def test_an_exception_of_another_type_is_raised() -> None:
    """And so is what a handler itself raises."""

    def stumble(_error: Exception) -> str:
        raise RuntimeError("the handler failed")

    @tool(on_error={KeyError: "none", OSError: stumble})
    def look(what: str) -> str:
        """Look."""
        raise ValueError("odd") if what == "value" else OSError("gone")

    with pytest.raises(ValueError, match="odd"):
        await Agent(asked(tool_call("look", what="value")), tools=[look]).run("Go")
    with pytest.raises(RuntimeError, match="the handler failed"):
        await Agent(asked(tool_call("look", what="file")), tools=[look]).run("Go")


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_tool_that_yields_shows_its_way_and_gives_the_last(is_async: bool) -> None:
    """Each value is an item as it comes, in order; the last is the result."""
    items, state = Items(), State(messages=[Message.user("Go")])

    @tool
    async def climb(peak: str) -> AsyncIterator[str]:
        """Climb."""
        yield "hut"
        yield f"{peak} reached"

    @tool(name="climb")
    def climb_in_a_thread(peak: str) -> Iterator[str]:
        """Climb."""
        yield "hut"
        yield f"{peak} reached"

    used = climb if is_async else climb_in_a_thread
    await Agent(asked(tool_call("climb", peak="Eiger")), tools=[used], reporter=items).run(state)

    shown = [(item.progress, item.message) for item in items.items if isinstance(item, Progress)]
    assert shown == [(1.0, "hut"), (2.0, "Eiger reached")]
    assert results(state) == ["Eiger reached"]


async def test_a_generator_may_return_its_result_or_yield_nothing() -> None:
    """What a sync one returns counts; of one that yields nothing the model reads `done`, as of None."""
    state = State(messages=[Message.user("Go")])

    @tool
    def count(to: int) -> Iterator[int]:
        """Count."""
        yield from range(to)
        return {"counted": to} if to > 1 else None

    calls = [tool_call("count", to=number) for number in (2, 1, 0)]
    await Agent(asked(*calls), tools=[count]).run(state)

    assert results(state) == ['{"counted": 2}', "0", "done"]


async def test_a_generator_that_takes_too_long_is_closed() -> None:
    """Its `finally` runs, and the model is told."""
    closed, state = anyio.Event(), State(messages=[Message.user("Go")])

    @tool(timeout=0.01)
    async def climb() -> AsyncIterator[str]:
        """Climb."""
        try:
            yield "hut"
            await anyio.sleep_forever()
        finally:
            closed.set()

    await Agent(asked(tool_call("climb")), tools=[climb]).run(state)

    await wait_for(closed)
    assert "took longer than" in results(state)[0]


async def test_a_generator_may_end_with_an_image(tmp_path: object) -> None:
    """On its way an image is shown by its kind."""
    items, state = Items(), State(messages=[Message.user("Go")])

    @tool
    async def draw(context: ToolContext) -> AsyncIterator[Image]:
        """Draw."""
        yield Image.from_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 8, "image/png")

    await Agent(asked(tool_call("draw")), tools=[draw], reporter=items).run(state)

    assert [item.message for item in items.items if isinstance(item, Progress)] == ["[image/png]"]
    assert isinstance(state.messages[2].tool_results[0].content[0], Image)
