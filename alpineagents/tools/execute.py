"""One tool call: its arguments are checked, the tool is entered, and what comes out is told to the model."""

from __future__ import annotations

import inspect
import logging
import math
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel

from alpineagents.errors import ToolError, ToolInputError, ValueNotStorableError
from alpineagents.messages import Image, Outcome, TextBlock, ToolCall
from alpineagents.tools.base import Tool
from alpineagents.tools.content import to_content
from alpineagents.tools.context import ToolContext
from alpineagents.tools.mistakes import listed, nearest, shorten, takes
from alpineagents.tools.places import Place
from alpineagents.tools.threads import in_thread

log = logging.getLogger("alpineagents")

_MAX_MESSAGE = 2000
"""Characters of an unexpected exception's message that a model is told."""

_MAX_SHOWN = 200
"""Characters of a value that a tool yields on its way that are shown."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """
    How a call ended.

    Attributes:
        outcome: `ok`, `error` or `input_error`.
        content: what the model reads.
        error: what the caller must raise once the result is recorded; None where the run goes on.
    """

    outcome: Outcome
    content: tuple[TextBlock | Image, ...]
    error: Exception | None = field(default=None)


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """In a shell, because trio refuses a thread whose result could be awaited."""

    rest: Awaitable[Any]


_Settled = ToolResult | _Unfinished | _Raised

Late = Callable[[ToolResult, float], Awaitable[None]]
"""Is told what came of a call that nobody waited for any more, and how many seconds its tool took."""


def check(tool: Tool | None, call: ToolCall, known_names: Iterable[str] = ()) -> dict[str, object] | ToolResult:
    """
    Check a call before anything of it is recorded as started.

    Args:
        tool: the tool of that name, or None where there is none.
        call: what the model asked for.
        known_names: the tools that there are, named to a model that asks for another.

    Returns:
        The arguments as Python values, for `execute`; or the result, where the tool must not be entered.
    """
    if tool is None:
        names = sorted(known_names)
        there = f"The tools are: {listed(names)}." if names else "There are no tools."
        shown = shorten(repr(call.name), 100)
        return _told("input_error", f"there is no tool named {shown}.{nearest(call.name, names)} {there}")
    if call.invalid_json is not None:
        return _told(
            "input_error",
            f"{tool.name} was not run, its arguments are not a JSON object: {shorten(call.invalid_json, 300)}\n"
            f"{takes(tool.name, tool.spec.parameters)}",
        )
    try:
        return tool.validate(call.args)
    except ToolError as error:
        return _told("input_error", _message(error))
    except Exception as error:  # noqa: BLE001  (validators are the tool author's code, as the tool is)
        return _unexpected(tool.name, error)


async def execute(
    tool: Tool,
    call: ToolCall,
    context: ToolContext,
    arguments: Mapping[str, object] | None = None,
    *,
    late: Late | None = None,
) -> ToolResult:
    """
    Run a tool for a call.

    A sync tool runs in a worker thread, which sees the caller's context variables; when the caller is cancelled the
    thread is left to end by itself, and what came of it is told to `late`. An async tool is awaited here.

    Args:
        tool: what to run.
        call: what the model asked for.
        context: for a tool that has a ToolContext parameter.
        arguments: what `check` gave; without them the call is checked here.
        late: awaited in the event loop with what came of a sync tool that ended when nobody waited any more.

    Returns:
        The result, also of a tool that raises or takes longer than its `timeout`: only cancellation and what is no
        `Exception` (such as SystemExit) go up.
    """
    if arguments is None:
        checked = check(tool, call, (tool.name,))
        if isinstance(checked, ToolResult):
            return checked
        arguments = checked
    place = Place(tool.places)
    await place.take()
    try:
        if tool.timeout is None:
            return await _enter(tool, context, arguments, place, late)
        with anyio.move_on_after(tool.timeout):
            return await _enter(tool, context, arguments, place, late)
    finally:
        place.leave()
    return _told("error", f"{tool.name} took longer than the {tool.timeout:g} seconds that it may take{_left(tool)}.")


def _left(tool: Tool) -> str:
    """Say what is left of a call that took too long."""
    if tool.transaction:
        return " in a transaction. It was stopped, and what it did in the database was undone"
    left = "It was stopped, and may have had a part of its effect" if tool.is_async else "It may still be running"
    return f". {left}. Check what is there before you decide to repeat it"


async def _enter(
    tool: Tool,
    context: ToolContext,
    arguments: Mapping[str, object],
    place: Place,
    late: Late | None,
) -> ToolResult:
    places, names = tool.arguments.bind(arguments, context)
    entered = partial(tool.function, *places, **names)
    try:
        if inspect.isasyncgenfunction(tool.function):
            return _returned(tool.name, await _last_of(entered(), context))
        if tool.is_async:
            return _returned(tool.name, await entered())
        if inspect.isgeneratorfunction(tool.function):
            entered = partial(_last, entered, context)
        settled = await _watched(tool, partial(_settle, tool.name, entered), context, place, late)
        if isinstance(settled, ToolResult):
            return settled
        if isinstance(settled, _Raised):
            raise settled.error
        # A plain function that gives a coroutine, as some decorators make of an async one.
        return _returned(tool.name, await settled.rest)
    except BaseException as raised:
        result = _failed(tool, raised)
        if result is not None:
            return result
        going_up = _going_up(raised)
        if going_up is raised:
            raise
    # Out here, for in there Python would give it the group that holds it as its context: a circle.
    raise going_up


async def _last_of(values: AsyncGenerator[object, None], context: ToolContext) -> object:
    """Report each value that a tool yields, and return the last one."""
    last: object = None
    count = 0
    async with aclosing(values):
        async for last in values:
            count += 1
            context.report(count, message=_line(last, context))
    return last


def _last(entered: Callable[[], Generator[object, None, object]], context: ToolContext) -> object:
    """Do what `_last_of` does, for a sync tool; what it returns, if anything, counts instead."""
    values, count, last = entered(), 0, None
    with closing(values):
        while True:
            try:
                last = next(values)
            except StopIteration as end:
                return last if end.value is None else end.value
            count += 1
            context.report(count, message=_line(last, context))


def _line(value: object, context: ToolContext) -> str:
    return shorten(_text(to_content(value, context.tool_name)), _MAX_SHOWN)


async def _watched(
    tool: Tool,
    function: Callable[[], _Settled],
    context: ToolContext,
    place: Place,
    late: Late | None,
) -> _Settled:
    """Run a function in a thread; where that is left behind, say what came of it when it has ended after all."""
    token = anyio.lowlevel.current_token()

    def watched() -> _Settled:
        if not place.thread_begins():
            return _Raised(RuntimeError("nobody waits for this call any more"))
        began = time.monotonic()
        settled = function()
        if place.thread_ends():
            seconds = time.monotonic() - began
            log.warning(
                "tool %s ended after %.1f seconds, when nobody waited any more: call %s of State %s, %s",
                *(tool.name, seconds, context.call_id, context.state_id, _ending(settled)),
            )
            # No event loop is there any more, or it ended before this began.
            with suppress(anyio.RunFinishedError, CancelledError):
                # Told first: the call that waits for this place may be the last of the run.
                try:
                    if late is not None:
                        anyio.from_thread.run(_tell_late, tool, settled, seconds, late, token=token)
                finally:
                    anyio.from_thread.run_sync(place.free, token=token)
        return settled

    return await in_thread(watched)


def _ending(settled: _Settled) -> str:
    # Not the result itself: what a tool returns may be secret, and a log is read by others.
    return f"it raised {type(settled.error).__name__}" if isinstance(settled, _Raised) else "it returned"


async def _tell_late(tool: Tool, settled: _Settled, seconds: float, late: Late) -> None:
    if isinstance(settled, _Unfinished):
        if inspect.iscoroutine(settled.rest):
            settled.rest.close()
        settled = _told("error", f"{tool.name} gave something to await, which nobody awaited any more")
    elif isinstance(settled, _Raised):
        kind = type(settled.error).__name__
        settled = _failed(tool, settled.error) or _told("error", f"{tool.name} raised {kind}, which ends a program")
    # Where the event loop ends meanwhile, the line in the log is all; only the thread waits here.
    with suppress(anyio.get_cancelled_exc_class()):
        await late(settled, seconds)


def _text(content: Iterable[TextBlock | Image]) -> str:
    return " ".join(block.text if isinstance(block, TextBlock) else f"[{block.media_type}]" for block in content)


def _settle(tool_name: str, entered: Callable[[], Any]) -> _Settled:
    """Run a sync tool to its end, in its thread. What it raises is handed over: a future cannot carry StopIteration."""
    try:
        returned = entered()
    except BaseException as error:  # noqa: BLE001  (raised again where the tool is awaited)
        return _Raised(error)
    return _Unfinished(returned) if inspect.isawaitable(returned) else _returned(tool_name, returned)


def _returned(tool_name: str, value: object) -> ToolResult:
    try:
        return ToolResult("ok", to_content(value, tool_name))
    except ValueNotStorableError as error:
        text = f"{tool_name} did run, but what it returned cannot be read. Check what it did before calling it again."
        return _told("error", text, error)


def _failed(tool: Tool, raised: BaseException) -> ToolResult | None:
    """Tell what a tool raised, or None where it must go up."""
    tool_name = tool.name
    leaves = _leaves(raised)
    cancelled = anyio.get_cancelled_exc_class()
    failures = [leaf for leaf in leaves if isinstance(leaf, Exception)]
    others = [leaf for leaf in leaves if not isinstance(leaf, Exception)]
    if others and (_is_cancelled() or not all(isinstance(other, cancelled) for other in others)):
        return None
    if not failures:
        # Nobody cancelled the run; going up, this would end it without a word and leave the call open.
        stray = RuntimeError(
            f"tool {tool_name!r} raised {type(others[0]).__name__}, but the run was not cancelled: "
            "something that the tool waited for was"
        )
        stray.__cause__ = raised
        return _unexpected(tool_name, stray)
    try:
        failures = [_handled(tool, failure) for failure in failures]
    except Exception as broken:  # noqa: BLE001  (the tool author's code, as the tool is)
        return _unexpected(tool_name, broken)
    if all(isinstance(failure, ToolError) for failure in failures):
        only_input = all(isinstance(failure, ToolInputError) for failure in failures)
        text = "\n".join(_message(failure) or f"{tool_name} failed and did not say why" for failure in failures)
        return _told("input_error" if only_input else "error", text)
    return _unexpected(tool_name, _raisable(tool_name, raised), failures)


def _handled(tool: Tool, failure: Exception) -> Exception:
    """Return what `on_error` makes of an exception: a ToolError for the model, or itself."""
    if not isinstance(failure, ToolError):
        for kind, told in tool.on_error.items():
            if isinstance(failure, kind):
                return ToolError(told if isinstance(told, str) else str(told(failure)))
    return failure


def _going_up(raised: BaseException) -> BaseException:
    """
    Return the cancellation alone, where the rest of a group is what only the model was to be told.

    A cancel scope takes its cancellation out of a group and would raise that rest at whoever cancelled.
    """
    rest = [leaf for leaf in _leaves(raised) if not isinstance(leaf, ToolError)]
    return rest[0] if all(isinstance(leaf, anyio.get_cancelled_exc_class()) for leaf in rest) else raised


def _is_cancelled() -> bool:
    """Say whether somebody cancels the task that runs here, as far as the event loop knows."""
    if anyio.current_effective_deadline() == -math.inf:
        return True
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        task = asyncio.current_task()
    except RuntimeError:  # trio runs here
        return False
    return bool(task is not None and task.cancelling())


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in _leaves(part)]
    return [error]


def _raisable(tool_name: str, error: BaseException) -> Exception:
    """Return what a coroutine can raise: Python gives StopIteration another meaning there."""
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    wrapped = RuntimeError(f"tool {tool_name!r} raised {type(error).__name__}")
    wrapped.__cause__ = error
    return wrapped


def _unexpected(tool_name: str, error: Exception, leaves: Iterable[Exception] | None = None) -> ToolResult:
    said = "; ".join(f"{type(leaf).__name__}: {_message(leaf)}" for leaf in leaves or (error,))
    return _told("error", f"{tool_name} failed: {shorten(said, _MAX_MESSAGE)}", error)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (an exception whose own __str__ fails)
        return "(its message cannot be read)"


def _told(outcome: Outcome, text: str, error: Exception | None = None) -> ToolResult:
    return ToolResult(outcome, (TextBlock(text=text),), error)
