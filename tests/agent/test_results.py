"""What tools give to a run: results in time, late ones, and how far they have come."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from alpineagents import (
    Agent,
    ConfigError,
    Image,
    Message,
    Progress,
    Request,
    SQLStore,
    State,
    Store,
    ToolContext,
    ToolDefinitionError,
    ToolError,
    read_result,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import Items, check_closed, outcomes, results, wait_for_a_place


@tool
async def climb(context: ToolContext) -> str:
    """Climb."""
    for step in range(3):
        context.report(step, total=3, message="up")
        await anyio.lowlevel.checkpoint()
    return "there"


@tool
def climb_in_a_thread(context: ToolContext) -> str:
    """Climb."""
    context.report(0.5)
    return "there"


async def test_a_call_that_takes_too_long_does_not_end_the_run(store: Store) -> None:
    """Its siblings keep their results, and the model goes on."""

    @tool(timeout=0.01)
    async def slow() -> None:
        """Wait."""
        await anyio.sleep_forever()

    model = FakeModel([[tool_call("slow"), tool_call("climb")], "done"])
    state = State(id="s", messages=[Message.user("Go")])

    assert await Agent(model, tools=[slow, climb], store=store).run(state) == "done"

    assert outcomes(state) == {"slow": "error", "climb": "ok"}
    assert "took longer than" in results(state)[0]
    await check_closed(store, state)


async def test_progress_is_an_item_of_the_stream(store: Store) -> None:
    """Between the start of the call and its result, and not stored."""
    calls = [tool_call("climb"), tool_call("climb_in_a_thread")]
    agent = Agent(FakeModel([calls, "done"]), tools=[climb, climb_in_a_thread], store=store)

    async with agent.stream("Go", id="s") as items:
        seen = [item async for item in items]

    shown = [item for item in seen if isinstance(item, Progress)]
    ups = [item for item in shown if item.tool_name == "climb"]
    assert [(item.call_id, item.progress, item.total, item.message) for item in ups] == [
        (calls[0].id, done, 3.0, "up") for done in (0.0, 1.0, 2.0)
    ]
    assert [(item.progress, item.total) for item in shown if item.tool_name == "climb_in_a_thread"] == [(0.5, None)]
    kinds = [item.kind for item in seen]
    assert kinds.index("tool_started") < kinds.index("progress") < len(kinds) - 1 - kinds[::-1].index("tool_finished")
    await check_closed(store, await store.load("s"))


async def test_progress_is_told_to_a_reporter() -> None:
    """As every item is."""
    items = Items()

    await Agent(FakeModel([tool_call("climb"), "done"]), tools=[climb], reporter=items).run("Go")

    assert sum(isinstance(item, Progress) for item in items.items) == 3


async def test_progress_after_the_end_of_a_run_goes_nowhere(store: Store) -> None:
    """A thread that was left behind may still report."""
    gate = threading.Event()
    failures: list[BaseException] = []

    @tool(timeout=0.01, max_concurrency=1)
    def slow(context: ToolContext) -> None:
        """Wait."""
        gate.wait(20)
        try:
            context.report(1)
        except BaseException as error:  # noqa: BLE001  # looked at by the test
            failures.append(error)

    items = Items()
    agent = Agent(FakeModel([tool_call("slow"), "done"]), tools=[slow], store=store, reporter=items)
    assert await agent.run("Go") == "done"
    gate.set()
    await wait_for_a_place(slow)

    assert failures == []
    assert not any(isinstance(item, Progress) for item in items.items)


@pytest.mark.parametrize("report", [("1",), (1, "2"), (float("nan"),), (1, 2, 3), (None,)])
def test_what_is_no_progress_is_refused(report: Any) -> None:
    """With the line to write, also where nobody looks."""
    context = ToolContext("s", "r", "c", "t", 1, "s-c", State(id="s"))

    with pytest.raises(ConfigError, match=r"context\.report\(3, total=10"):
        context.report(*report)


def test_a_context_without_a_run_reports_nowhere() -> None:
    """So a tool can be tested by itself."""
    ToolContext("s", "r", "c", "t", 1, "s-c", State(id="s")).report(1, total=2)


# ------------------------------------------------------------------------------------------------ long results

WHOLE = "".join(f"line {n}: größer\n" for n in range(12_000))


@tool(read_only=True)
async def read_log() -> str:
    """Read the log."""
    return WHOLE


def reading(request: Request) -> Any:
    """Read the result to its end, as the model is told to."""
    read = [result.text for message in request.messages for result in message.tool_results]
    if not read:
        return tool_call("read_log")
    told = re.search(r"read_result\(result='(\w+)', start=(\d+)\)", read[0])
    assert told is not None
    begin = re.match(r"\[bytes \d+ to (\d+) of (\d+)\]", read[-1])
    if begin is not None and begin[1] == begin[2]:
        return "read"
    return tool_call("read_result", result=told[1], start=int(begin[1] if begin else told[2]), length=10_000_000)


async def test_of_a_long_result_the_model_reads_the_ends_and_then_the_rest(store: Store) -> None:
    """The whole is kept aside, under the name that it is told, and read in parts that are not too long."""
    agent = Agent(FakeModel(reading), tools=[read_log, read_result], store=store)

    assert await agent.run("Go", id="s") == "read"

    state = await store.load("s")
    first, *parts = results(state)
    assert first.startswith("line 0:")
    assert first.endswith("line 11999: größer\n")
    assert all(len(each.encode()) < 101_000 and "left out" not in each for each in parts)
    read = first.partition("\n[…")[0] + "".join(part.partition("\n")[2] for part in parts)
    assert read == WHOLE
    await check_closed(store, state)


async def test_the_whole_of_a_long_result_is_kept_before_the_model_hears_of_it(store: Store) -> None:
    """Its bytes are those that the tool returned, also after the process is another one."""
    await Agent(FakeModel([tool_call("read_log"), "done"]), tools=[read_log], store=store).run("Go", id="s")

    (shown,) = results(await store.load("s"))
    name = re.search(r"The whole is kept as (\w{64})", shown)

    assert name is not None
    assert await store.read_blob("s", name[1]) == WHOLE.encode()


async def test_without_a_store_the_model_is_told_to_ask_for_less() -> None:
    """Nothing is promised that is not there."""
    state = State(messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("read_log"), "done"]), tools=[read_log, read_result]).run(state)

    assert "bytes left out. Ask for less of it" in results(state)[0]


@pytest.mark.parametrize("limit", [None, 5_000_000])
async def test_a_tool_may_have_another_limit(limit: int | None) -> None:
    """Or none."""
    state = State(messages=[Message.user("Go")])
    whole = tool(max_result_bytes=limit)(read_log.function)

    await Agent(FakeModel([tool_call("read_log"), "done"]), tools=[whole]).run(state)

    assert results(state) == [WHOLE]


async def test_images_of_a_long_result_stay(store: Store) -> None:
    """Only texts are cut."""
    image = Image.from_bytes(b"GIF89a", "image/gif")

    @tool(max_result_bytes=10)
    async def shoot() -> Any:
        """Take a picture."""
        return ["x" * 100, image]

    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("shoot"), "done"]), tools=[shoot], store=store).run(state)

    (result,) = [each for message in state.messages for each in message.tool_results]
    assert result.content[0] == image
    assert result.text.startswith("xxxxxx\n[… 90 of 100 bytes left out.")


async def test_a_long_error_is_cut_as_well(store: Store) -> None:
    """It is the tool's word, too."""

    @tool
    async def fail() -> None:
        """Fail."""
        raise ToolError("x" * 1_000_000)

    state = State(id="s", messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("fail"), "done"]), tools=[fail], store=store).run(state)

    assert len(results(state)[0]) < 101_000


@pytest.mark.asyncio_only
async def test_a_long_result_of_a_transaction_is_kept(tmp_path: Path) -> None:
    """Once it is committed; another connection would wait for it for ever before."""

    @tool(transaction=True)
    async def export(context: ToolContext) -> str:
        """Export."""
        return WHOLE

    async with SQLStore(str(tmp_path / "agents.db")) as store:
        agent = Agent(FakeModel([tool_call("export"), "done"]), tools=[export], store=store)
        await agent.run("Go", id="s")

        name = re.search(r"kept as (\w{64})", results(await store.load("s"))[0])
        assert name is not None
        assert await store.read_blob("s", name[1]) == WHOLE.encode()


async def test_a_fork_made_in_memory_reads_what_its_origin_kept(store: Store) -> None:
    """Where it was made before the result was read on."""
    agent = Agent(FakeModel([tool_call("read_log"), "done"]), tools=[read_log, read_result], store=store)
    await agent.run("Go", id="s")
    fork = (await store.load("s")).fork(id="f")
    name = re.search(r"result='(\w{64})'", results(fork)[0])
    assert name is not None
    fork.add_message(Message.user("Read on"))

    await agent.copy(model=FakeModel([tool_call("read_result", result=name[1], length=9), "read"])).run(fork)

    assert results(fork)[1].endswith("\nline 0: g")


@pytest.mark.parametrize("how", ["save", "run"])
async def test_a_fork_made_in_memory_has_what_it_names(how: str, store: Store) -> None:
    """Of its own once it is saved, over several forks, and only what its history names: its origins may go."""
    agent = Agent(FakeModel([tool_call("read_log"), "done"]), tools=[read_log, read_result], store=store)
    await agent.run("Go", id="s")
    other = await store.write_blob("s", b"not in the history")
    [name] = [each for each in await store.blobs("s") if each != other]
    fork = (await store.load("s")).fork(id="f").fork(id="g")
    fork.add_message(Message.user("Go on"))

    if how == "save":
        await store.save(fork)
    else:
        await agent.copy(model=FakeModel(["done"])).run(fork)
    await store.delete("s")

    assert await store.blobs("g") == [name]
    assert await store.read_blob("g", name) == (await read_log()).encode()


async def test_a_result_that_is_not_kept_is_told() -> None:
    """The run goes on."""
    state = State(messages=[Message.user("Go")])

    await Agent(FakeModel([tool_call("read_result", result="0" * 64), "done"]), tools=[read_result]).run(state)

    assert outcomes(state) == {"read_result": "error"}
    assert "is kept" in results(state)[0]


@pytest.mark.parametrize("limit", [0, -1, 1.5, "1", True])
def test_a_limit_that_is_none_is_refused(limit: Any) -> None:
    """With the line to write."""
    with pytest.raises(ToolDefinitionError, match=r"@tool\(max_result_bytes=100_000\)"):
        tool(max_result_bytes=limit)(read_log.function)


# ------------------------------------------------------------------------------------------------ kinds of results


@dataclass
class Peak:
    name: str
    height: int


class Tour(BaseModel):
    peaks: list[Peak]


@pytest.mark.parametrize(
    "value, reads",
    [
        ("text", "text"),
        (None, "done"),
        (Peak("Dom", 4545), '{"name": "Dom", "height": 4545}'),
        (Tour(peaks=[Peak("Dom", 4545)]), '{"peaks": [{"name": "Dom", "height": 4545}]}'),
        ([Peak("Dom", 4545), None], '[{"name": "Dom", "height": 4545}, null]'),
        ([], "[]"),
    ],
)
async def test_whatever_a_tool_returns_the_model_reads_it(value: Any, reads: str, store: Store) -> None:
    """And so does whoever loads the State."""

    @tool
    async def give() -> Any:
        """Give it."""
        return value

    await Agent(FakeModel([tool_call("give"), "done"]), tools=[give], store=store).run("Go", id="s")

    assert results(await store.load("s")) == [reads]
