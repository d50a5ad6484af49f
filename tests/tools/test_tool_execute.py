"""One tool call, on both event loops: checked, entered, and told."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from pydantic import AfterValidator

from alpineagents.errors import ToolError, ToolInputError, ValueNotStorableError
from alpineagents.messages import Image, TextBlock, ToolCall
from alpineagents.state import State
from alpineagents.tools import ToolContext, ToolResult, as_tool, check, execute, tool

pytestmark = pytest.mark.anyio

CONTEXT = ToolContext("s", "r", "c", "t", 1, "s/c", State(id="s"))
WHERE: contextvars.ContextVar[str] = contextvars.ContextVar("WHERE", default="nowhere")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both event loops."""
    return str(request.param)


def call(name: str = "t", /, **args: Any) -> ToolCall:
    """Ask for a tool."""
    return ToolCall(id="c", name=name, args=args)


async def run(function: Callable[..., Any], **args: Any) -> ToolResult:
    """Run a function as a tool."""
    return await execute(as_tool(function), call(**args), CONTEXT)


def text(result: ToolResult | dict[str, object]) -> str:
    """Return what the model reads."""
    assert isinstance(result, ToolResult)
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))


@tool
def read_file(path: str, lines: int = 5) -> str:
    """Read a file."""
    return f"{path}:{lines}"


def raising(error: BaseException, *, sync: bool) -> Callable[..., Any]:
    """Make a tool that raises."""

    def sync_tool() -> None:
        raise error

    async def async_tool() -> None:
        raise error

    return sync_tool if sync else async_tool


both = pytest.mark.parametrize("sync", [True, False], ids=["sync", "async"])


# ------------------------------------------------------------------------------------------------ check


def test_check_gives_the_values_for_the_function() -> None:
    """So the caller can record the start only of what will start."""
    assert check(read_file, call(path="a", lines="3")) == {"path": "a", "lines": 3}


def test_an_unknown_tool_is_told_with_the_nearest_name() -> None:
    """The model sees what there is."""
    result = check(None, call("reed_file"), ["write_file", "read_file"])

    assert isinstance(result, ToolResult)
    assert (result.outcome, result.error) == ("input_error", None)
    assert text(result) == (
        "there is no tool named 'reed_file'. Did you mean 'read_file'? The tools are: read_file, write_file."
    )


def test_an_unknown_tool_among_none_or_very_many_is_told_briefly() -> None:
    """Neither no tools nor a thousand make a bad text."""
    many = text(check(None, call("x" * 10_000), [f"tool_{number}" for number in range(1000)]))

    assert text(check(None, call("x"))).endswith("There are no tools.")
    assert len(many) < 1000
    assert "more." in many


def test_broken_json_is_shown_to_the_model() -> None:
    """With the arguments that there are, so that it can write them anew."""
    result = check(read_file, ToolCall(id="c", name="t", invalid_json='{"path": "a'))

    assert isinstance(result, ToolResult)
    assert result.outcome == "input_error"
    assert '{"path": "a\n' in text(result)
    assert "read_file takes: path (string, required), lines (integer)." in text(result)


def test_wrong_arguments_are_an_input_error() -> None:
    """The tool is not entered."""
    result = check(read_file, call(lines=1))

    assert isinstance(result, ToolResult)
    assert (result.outcome, result.error) == ("input_error", None)
    assert "path is missing" in text(result)


def test_a_failing_validator_is_the_tools_failure() -> None:
    """A bug in a check is raised by the caller once it is recorded, not swallowed as the model's mistake."""
    failure = KeyError("bug")

    def bug(_value: int) -> int:
        raise failure

    def take(value: Annotated[int, AfterValidator(bug)]) -> None: ...

    result = check(tool(take), call(value=1))

    assert isinstance(result, ToolResult)
    assert (result.outcome, result.error) == ("error", failure)


def test_a_validator_may_raise_a_tool_error() -> None:
    """Then its text is what the model reads."""

    def no(_value: int) -> int:
        raise ToolError("not today")

    def take(value: Annotated[int, AfterValidator(no)]) -> None: ...

    assert check(tool(take), call(value=1)) == ToolResult("input_error", (TextBlock(text="not today"),))


# ------------------------------------------------------------------------------------------------ run


async def test_a_sync_tool_runs_in_a_thread() -> None:
    """It may block: the event loop goes on."""

    def where() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert text(await run(where)) == "false"


async def test_an_async_tool_runs_in_the_loop() -> None:
    """It is awaited where the caller is."""

    async def where() -> bool:
        await anyio.lowlevel.checkpoint()
        return threading.current_thread() is threading.main_thread()

    assert text(await run(where)) == "true"


@both
async def test_context_variables_reach_the_tool(sync: bool) -> None:
    """Tracing and web frameworks keep what they know there."""

    def sync_tool() -> str:
        return WHERE.get()

    async def async_tool() -> str:
        return WHERE.get()

    WHERE.set("on the ridge")

    assert text(await run(sync_tool if sync else async_tool)) == "on the ridge"


async def test_a_thread_can_call_back_into_the_loop() -> None:
    """A sync tool may use async code of the caller's loop."""

    async def answer() -> str:
        return "from the loop"

    def ask() -> str:
        return anyio.from_thread.run(answer)

    assert text(await run(ask)) == "from the loop"


async def test_the_context_is_injected() -> None:
    """Beside the model's arguments, by place or by name."""

    def by_name(word: str, context: ToolContext) -> str:
        return word + context.idempotency_key

    def by_place(context: ToolContext, word: str = "x", /, *, end: str) -> str:
        return context.idempotency_key + word + end

    assert text(await run(by_name, word="a")) == "as/c"
    assert text(await run(by_place, end="!")) == "s/cx!"
    assert text(await run(by_place, word="a", end="!")) == "s/ca!"


async def test_a_method_runs_on_its_object() -> None:
    """The tool of an object knows its object."""

    class Notes:
        folder = "n"

        @tool
        async def read(self, name: str) -> str:
            return f"{self.folder}/{name}"

    assert text(await execute(Notes().read, call(name="a"), CONTEXT)) == "n/a"


async def test_checked_arguments_are_not_checked_again() -> None:
    """What check gave is handed on; a validator runs once a call."""
    result = await execute(read_file, call(), CONTEXT, {"path": "checked"})

    assert text(result) == "checked:5"


async def test_without_checked_arguments_the_call_is_checked() -> None:
    """Wrong arguments never enter a tool."""
    assert (await execute(read_file, call(), CONTEXT)).outcome == "input_error"


async def test_a_coroutine_from_a_plain_function_is_awaited() -> None:
    """Decorators without care make a plain function of an async one."""

    async def inner() -> str:
        return "awaited"

    def outer() -> Awaitable[str]:
        return inner()

    assert text(await run(outer)) == "awaited"


async def test_images_are_content() -> None:
    """A tool may show."""
    picture = Image.from_bytes(b"GIF89a", "image/gif")

    def look() -> list[object]:
        return ["a picture:", picture]

    assert (await run(look)).content == (TextBlock(text="a picture:"), picture)


@both
async def test_a_result_without_text_is_an_error_after_the_fact(sync: bool) -> None:
    """The model learns that the tool did run; the caller gets the error to raise."""

    def sync_tool() -> object:
        return object()

    async def async_tool() -> object:
        return object()

    result = await run(sync_tool if sync else async_tool)

    assert result.outcome == "error"
    assert "did run" in text(result)
    assert isinstance(result.error, ValueNotStorableError)


# ------------------------------------------------------------------------------------------------ raised


@both
@pytest.mark.parametrize(
    "error, outcome, said",
    [
        (ToolError("no such file"), "error", "no such file"),
        (ToolInputError("not a date"), "input_error", "not a date"),
        (ToolError(), "error", "failed and did not say why"),
        (ExceptionGroup("two", [ToolError("a"), ExceptionGroup("in", [ToolError("b")])]), "error", "a\nb"),
        (ExceptionGroup("two", [ToolInputError("a"), ToolInputError("b")]), "input_error", "a\nb"),
        (ExceptionGroup("two", [ToolInputError("a"), ToolError("b")]), "error", "a\nb"),
    ],
    ids=["error", "input", "silent", "group", "input-group", "mixed-group"],
)
async def test_a_tool_error_is_told_and_the_run_goes_on(error: Exception, outcome: str, said: str, sync: bool) -> None:
    """Also where it comes out of the tool's own task group."""
    result = await run(raising(error, sync=sync))

    assert (result.outcome, result.error) == (outcome, None)
    assert text(result).endswith(said)


@both
@pytest.mark.parametrize(
    "error, said",
    [
        (KeyError("lost"), "KeyError: 'lost'"),
        (ExceptionGroup("g", [ToolError("a"), ValueError("b")]), "ToolError: a; ValueError: b"),
        (ValueNotStorableError("extra_data", "is odd"), "ValueNotStorableError: extra_data is odd"),
    ],
    ids=["plain", "group", "own"],
)
async def test_any_other_exception_is_told_and_handed_to_the_caller(error: Exception, said: str, sync: bool) -> None:
    """Type and message, no traceback; the very exception, for the caller to raise."""
    result = await run(raising(error, sync=sync))

    assert (result.outcome, text(result)) == ("error", f"{'sync' if sync else 'async'}_tool failed: {said}")
    assert result.error is error


@both
async def test_a_long_message_is_cut(sync: bool) -> None:
    """It stays in the context for good."""
    assert len(text(await run(raising(RuntimeError("x" * 100_000), sync=sync)))) < 2100


async def test_an_exception_without_a_message_of_its_own_is_told() -> None:
    """Even one whose __str__ fails."""

    class Mute(Exception):  # noqa: N818  (the name is what is tested)
        def __str__(self) -> str:
            raise ValueError

    assert text(await run(raising(Mute(), sync=False))) == "async_tool failed: Mute: (its message cannot be read)"


@both
async def test_stop_iteration_can_be_raised_by_the_caller(sync: bool) -> None:
    """In a coroutine Python forbids it, so the caller gets an error that it can raise."""
    result = await run(raising(StopIteration(), sync=sync))

    assert result.outcome == "error"
    assert isinstance(result.error, RuntimeError)
    assert isinstance(result.error.__cause__, StopIteration)


@both
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
async def test_what_ends_a_program_goes_up(error: type[BaseException], sync: bool) -> None:
    """A tool that calls sys.exit() means it."""
    with pytest.raises(error):
        await run(raising(error(), sync=sync))


async def test_what_ends_a_program_goes_up_out_of_a_group() -> None:
    """Beside a ToolError too."""
    with pytest.raises(BaseExceptionGroup):
        await run(raising(BaseExceptionGroup("g", [ToolError("a"), SystemExit()]), sync=False))


# ------------------------------------------------------------------------------------------------ cancelled


async def test_cancelling_an_async_tool_goes_up() -> None:
    """The tool is stopped, and nothing is returned in its place."""
    reached: list[str] = []

    async def wait() -> None:
        try:
            await anyio.sleep(math.inf)
        finally:
            reached.append("stopped")

    with anyio.move_on_after(0.01) as scope:
        await run(wait)
        reached.append("returned")

    assert scope.cancelled_caught
    assert reached == ["stopped"]


async def test_cancelling_a_sync_tool_does_not_wait_for_its_thread() -> None:
    """The thread is left behind; it ends when it will."""
    entered, leave, left = threading.Event(), threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        leave.wait(60)
        left.set()

    async with anyio.create_task_group() as group:
        group.start_soon(run, block)
        assert await anyio.to_thread.run_sync(entered.wait, 60)
        group.cancel_scope.cancel()

    assert not left.is_set()
    leave.set()
    assert await anyio.to_thread.run_sync(left.wait, 60)


async def test_cancelling_during_a_tools_own_group_goes_up() -> None:
    """Also where one of its tasks fails on the way out."""

    async def fail_late() -> None:
        try:
            await anyio.sleep(math.inf)
        finally:
            raise ToolError("late")

    async def group_tool() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(fail_late)
            group.start_soon(anyio.sleep, math.inf)

    with anyio.move_on_after(0.01) as scope:
        await run(group_tool)
        await anyio.lowlevel.checkpoint()

    assert scope.cancelled_caught


async def test_a_tool_may_cancel_its_own_scope() -> None:
    """A timeout within is the tool's own affair."""

    async def patient() -> str:
        with anyio.move_on_after(0):
            await anyio.sleep(math.inf)
        return "gave up"

    assert text(await run(patient)) == "gave up"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@both
async def test_a_stray_cancellation_is_the_tools_failure(sync: bool) -> None:
    """A tool whose inner task was cancelled must not end the run without a word."""
    result = await run(raising(asyncio.CancelledError(), sync=sync))

    assert result.outcome == "error"
    assert isinstance(result.error, RuntimeError)
    assert "the run was not cancelled" in text(result)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_cancelling_the_task_itself_goes_up() -> None:
    """As Ctrl+C and a web server do it, without a scope of anyio's."""
    entered = asyncio.Event()

    async def wait() -> None:
        entered.set()
        await asyncio.sleep(math.inf)

    task = asyncio.create_task(run(wait))
    await entered.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_timeout_of_asyncio_goes_up() -> None:
    """The caller may use asyncio's own."""

    async def wait() -> None:
        await asyncio.sleep(math.inf)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await run(wait)


async def test_calls_run_side_by_side() -> None:
    """Two sync tools that wait for each other both end."""
    meet = threading.Barrier(2, timeout=60)

    def wait() -> str:
        meet.wait()
        return "met"

    results: list[str] = []

    async def one() -> None:
        results.append(text(await run(wait)))

    async with anyio.create_task_group() as group:
        group.start_soon(one)
        group.start_soon(one)

    assert results == ["met", "met"]


# ------------------------------------------------------------------------------------------------ timeouts


@pytest.fixture
def gate() -> threading.Event:
    """Holds a thread until it is set."""
    return threading.Event()


async def test_an_async_tool_that_takes_too_long_is_stopped() -> None:
    """The model is told so, and that a part of its effect may be there."""
    ended: list[str] = []

    @tool(timeout=0.01)
    async def slow() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("cleaned up")

    result = await execute(slow, call(), CONTEXT)

    assert (result.outcome, result.error, ended) == ("error", None, ["cleaned up"])
    assert text(result).startswith("slow took longer than the 0.01 seconds that it may take. It was stopped")


async def test_a_sync_tool_that_takes_too_long_is_left_behind(
    gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """Its thread cannot be stopped, so the model is told that it may still run, and the log when it has ended."""

    @tool(timeout=0.01)
    def slow() -> str:
        gate.wait(20)
        return "late"

    result = await execute(slow, call(), CONTEXT)
    assert (result.outcome, result.error) == ("error", None)
    assert "It may still be running." in text(result)
    assert caplog.records == []
    gate.set()

    with anyio.fail_after(20):
        while not caplog.records:
            await anyio.sleep(0.001)
    assert "tool slow ended after" in caplog.records[0].getMessage()


async def test_a_tool_that_is_in_time_is_as_without_a_timeout(caplog: pytest.LogCaptureFixture) -> None:
    """Sync and async, also where it raises."""

    @tool(timeout=20)
    def quick() -> str:
        return "done"

    @tool(timeout=20)
    async def failing() -> None:
        raise ToolError("no such file")

    assert text(await execute(quick, call(), CONTEXT)) == "done"
    assert text(await execute(failing, call(), CONTEXT)) == "no such file"
    assert caplog.records == []


async def test_a_cancellation_is_no_timeout() -> None:
    """It goes up, and no result is made of it."""

    @tool(timeout=20)
    async def slow() -> None:
        await anyio.sleep_forever()

    results: list[ToolResult] = []
    with anyio.move_on_after(0.01) as scope:
        results.append(await execute(slow, call(), CONTEXT))

    assert scope.cancelled_caught
    assert results == []


async def test_a_timeout_of_the_tools_own_is_an_error_of_the_tool() -> None:
    """It is raised out of the run like any other, not told as that of the tool."""

    @tool(timeout=20)
    async def impatient() -> None:
        with anyio.fail_after(0.001):
            await anyio.sleep_forever()

    assert isinstance((await execute(impatient, call(), CONTEXT)).error, TimeoutError)


@pytest.mark.parametrize("timeout", [0, -1, "1", True, math.inf, math.nan])
def test_a_timeout_that_is_none_is_refused(timeout: Any) -> None:
    """With the line to write."""
    from alpineagents import ToolDefinitionError

    with pytest.raises(ToolDefinitionError, match=r"@tool\(timeout=30\)"):
        tool(timeout=timeout)(read_file.function)
    with pytest.raises(ToolDefinitionError, match=r"@tool\(timeout=30\)"):
        read_file.copy(timeout=timeout)
    assert read_file.copy(timeout=3).timeout == 3
