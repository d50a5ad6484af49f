"""One tool call: its arguments are checked, the tool is entered, and what comes out is told to the model."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import CancelledError
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
from anyio.from_thread import BlockingPortal

from alpineagents.errors import ToolError
from alpineagents.messages import Image, TextBlock, ToolCall
from alpineagents.tools.base import Tool
from alpineagents.tools.content import to_content
from alpineagents.tools.context import ToolContext
from alpineagents.tools.mistakes import listed, nearest, shorten, takes
from alpineagents.tools.outcome import ToolResult, failed, going_up, message_of, returned, told, unexpected
from alpineagents.tools.places import Place
from alpineagents.tools.threads import in_thread

log = logging.getLogger("alpineagents")

_MAX_SHOWN = 200
"""Characters of a value that a tool yields on its way that are shown."""


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
        return told("input_error", f"there is no tool named {shown}.{nearest(call.name, names)} {there}")
    if call.invalid_json is not None:
        return told(
            "input_error",
            f"{tool.name} was not run, its arguments are not a JSON object: {shorten(call.invalid_json, 300)}\n"
            f"{takes(tool.name, tool.spec.parameters)}",
        )
    try:
        return tool.validate(call.args)
    except ToolError as error:
        return told("input_error", message_of(error))
    except Exception as error:  # noqa: BLE001  (validators are the tool author's code, as the tool is)
        return unexpected(tool.name, error)


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
    if not await place.take(math.inf if tool.timeout is None else tool.timeout):
        return told(
            "error",
            f"{tool.name} was not run: its places are all taken by calls that were given up and still run.",
        )
    try:
        if tool.timeout is None:
            return await _enter(tool, context, arguments, place, late)
        with anyio.move_on_after(tool.timeout):
            return await _enter(tool, context, arguments, place, late)
    finally:
        place.leave()
    return told("error", f"{tool.name} took longer than the {tool.timeout:g} seconds that it may take{_left(tool)}.")


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
    try:
        if inspect.isasyncgenfunction(tool.function):
            return returned(tool.name, await _last_of(_bound(tool, arguments, context)(), context))
        if tool.is_async:
            return returned(tool.name, await _bound(tool, arguments, context)())
        if tool.arguments.signature.context is None:
            settled = await _watched(tool, context, arguments, place, late)
        else:
            # Runs that the tool starts from its thread belong to this task, so they are cancelled with the call.
            async with BlockingPortal() as portal:
                settled = await _watched(tool, replace(context, portal=portal), arguments, place, late)
        if isinstance(settled, ToolResult):
            return settled
        if isinstance(settled, _Raised):
            raise settled.error
        # A plain function that gives a coroutine, as some decorators make of an async one.
        return returned(tool.name, await settled.rest)
    except BaseException as raised:
        result = failed(tool, raised)
        if result is not None:
            return result
        upward = going_up(raised)
        if upward is raised:
            raise
    # Out here, for in there Python would give it the group that holds it as its context: a circle.
    raise upward


def _bound(tool: Tool, arguments: Mapping[str, object], context: ToolContext) -> Callable[[], Any]:
    places, names = tool.arguments.bind(arguments, context)
    return partial(tool.function, *places, **names)


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
    tool: Tool, context: ToolContext, arguments: Mapping[str, object], place: Place, late: Late | None
) -> _Settled:
    """Run a sync tool in a thread; where that is left behind, say what came of it when it has ended after all."""
    token = anyio.lowlevel.current_token()
    entered = _bound(tool, arguments, context)
    if inspect.isgeneratorfunction(tool.function):
        entered = partial(_last, entered, context)

    def watched() -> _Settled:
        if not place.thread_begins():
            return _Raised(RuntimeError("nobody waits for this call any more"))
        began = time.monotonic()
        settled = _settle(tool.name, entered)
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
                    # One that a run of its own took along has nothing to tell.
                    if late is not None and not _is_called_off(settled):
                        anyio.from_thread.run(_tell_late, tool, settled, seconds, late, token=token)
                finally:
                    anyio.from_thread.run_sync(place.free, token=token)
        return settled

    return await in_thread(watched)


def _ending(settled: _Settled) -> str:
    # Not the result itself: what a tool returns may be secret, and a log is read by others.
    return f"it raised {type(settled.error).__name__}" if isinstance(settled, _Raised) else "it returned"


def _is_called_off(settled: _Settled) -> bool:
    return isinstance(settled, _Raised) and isinstance(settled.error, CancelledError)


async def _tell_late(tool: Tool, settled: _Settled, seconds: float, late: Late) -> None:
    if isinstance(settled, _Unfinished):
        if inspect.iscoroutine(settled.rest):
            settled.rest.close()
        settled = told("error", f"{tool.name} gave something to await, which nobody awaited any more")
    elif isinstance(settled, _Raised):
        kind = type(settled.error).__name__
        settled = failed(tool, settled.error) or told("error", f"{tool.name} raised {kind}, which ends a program")
    # Where the event loop ends meanwhile, the line in the log is all; only the thread waits here.
    with suppress(anyio.get_cancelled_exc_class()):
        await late(settled, seconds)


def _text(content: Iterable[TextBlock | Image]) -> str:
    return " ".join(block.text if isinstance(block, TextBlock) else f"[{block.media_type}]" for block in content)


def _settle(tool_name: str, entered: Callable[[], Any]) -> _Settled:
    """Run a sync tool to its end, in its thread. What it raises is handed over: a future cannot carry StopIteration."""
    try:
        value = entered()
    except BaseException as error:  # noqa: BLE001  (raised again where the tool is awaited)
        return _Raised(error)
    return _Unfinished(value) if inspect.isawaitable(value) else returned(tool_name, value)
