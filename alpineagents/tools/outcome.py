"""How a call ended: what a tool returned or raised, as a result that a model reads."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

import anyio

from alpineagents.errors import ToolError, ToolInputError, ValueNotStorableError
from alpineagents.messages import Image, Outcome, TextBlock
from alpineagents.tools.base import Tool
from alpineagents.tools.content import to_content
from alpineagents.tools.mistakes import shorten

_MAX_MESSAGE = 2000
"""Characters of an unexpected exception's message that a model is told."""


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


def returned(tool_name: str, value: object) -> ToolResult:
    """Tell what a tool returned."""
    try:
        return ToolResult("ok", to_content(value, tool_name))
    except ValueNotStorableError as error:
        text = f"{tool_name} did run, but what it returned cannot be read. Check what it did before calling it again."
        return told("error", text, error)


def failed(tool: Tool, raised: BaseException) -> ToolResult | None:
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
        return unexpected(tool_name, stray)
    try:
        failures = [_handled(tool, failure) for failure in failures]
    except Exception as broken:  # noqa: BLE001  (the tool author's code, as the tool is)
        return unexpected(tool_name, broken)
    if all(isinstance(failure, ToolError) for failure in failures):
        only_input = all(isinstance(failure, ToolInputError) for failure in failures)
        text = "\n".join(message_of(failure) or f"{tool_name} failed and did not say why" for failure in failures)
        return told("input_error" if only_input else "error", text)
    return unexpected(tool_name, _raisable(tool_name, raised), failures)


def _handled(tool: Tool, failure: Exception) -> Exception:
    """Return what `on_error` makes of an exception: a ToolError for the model, or itself."""
    if not isinstance(failure, ToolError):
        for kind, said in tool.on_error.items():
            if isinstance(failure, kind):
                return ToolError(said if isinstance(said, str) else str(said(failure)))
    return failure


def going_up(raised: BaseException) -> BaseException:
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


def unexpected(tool_name: str, error: Exception, leaves: Iterable[Exception] | None = None) -> ToolResult:
    """Tell what nobody has foreseen; it is raised once that is recorded."""
    said = "; ".join(f"{type(leaf).__name__}: {message_of(leaf)}" for leaf in leaves or (error,))
    return told("error", f"{tool_name} failed: {shorten(said, _MAX_MESSAGE)}", error)


def message_of(error: BaseException) -> str:
    """Return the text of an exception."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001  (an exception whose own __str__ fails)
        return "(its message cannot be read)"


def told(outcome: Outcome, text: str, error: Exception | None = None) -> ToolResult:
    """Return a result that is a text."""
    return ToolResult(outcome, (TextBlock(text=text),), error)
