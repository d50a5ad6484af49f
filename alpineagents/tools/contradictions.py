"""The settings of a tool, and what they must not be."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from alpineagents.errors import ToolDefinitionError
from alpineagents.tools.hints import Hint

if TYPE_CHECKING:
    from alpineagents.tools.base import OnError, Tool

FLAGS = ("read_only", "destructive", "idempotent", "open_world", "parallel", "transaction", "needs_approval")


class ToolSettings(TypedDict, total=False):
    """What `tool` takes and `Tool.copy` changes."""

    name: str | None
    description: str | None
    read_only: Hint
    destructive: Hint
    idempotent: Hint
    open_world: Hint
    parallel: bool
    transaction: bool
    needs_approval: bool
    timeout: float | None
    max_result_bytes: int | None
    max_concurrency: int | None
    on_error: OnError | None


def refuse_contradictions(made: Tool[Any, Any]) -> None:
    """
    Check the settings of a tool.

    Raises:
        ToolDefinitionError: one cannot work, or two contradict each other; the message shows the line to write.
    """
    if not isinstance(made.description, str):
        raise ToolDefinitionError(f'the description of tool {made.name!r} is a text: tool(description="Read a file.")')
    if made.timeout is not None and (type(made.timeout) not in (int, float) or not 0 < made.timeout < math.inf):
        raise ToolDefinitionError(
            f"timeout={made.timeout!r} of tool {made.name!r} is not a number of seconds: @tool(timeout=30)"
        )
    limit = made.max_result_bytes
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ToolDefinitionError(
            f"max_result_bytes={limit!r} of tool {made.name!r} is not a number of bytes: "
            "@tool(max_result_bytes=100_000)"
        )
    if not isinstance(made.on_error, Mapping) or not all(
        isinstance(kind, type) and issubclass(kind, Exception) and (isinstance(told, str) or callable(told))
        for kind, told in made.on_error.items()
    ):
        raise ToolDefinitionError(
            f"on_error of tool {made.name!r} is a dict of types of exceptions, each with a text or a function: "
            '@tool(on_error={KeyError: "there is no such key", OSError: str})'
        )
    if made.read_only and made.destructive:
        raise ToolDefinitionError(
            f"tool {made.name!r} cannot be both read_only and destructive. Keep one: @tool(destructive=True)"
        )
    if made.transaction and not inspect.iscoroutinefunction(made.function):
        raise ToolDefinitionError(
            f"tool {made.name!r} has transaction=True, so it shares a connection with the event loop: "
            f"async def {made.function.__name__}(…)"
        )
