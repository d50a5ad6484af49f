"""The tools of an Agent: whatever can be one made into one, by name."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, cast, runtime_checkable

from alpineagents.errors import ToolDefinitionError
from alpineagents.tools.base import Tool, kind_of, tool


@runtime_checkable
class CanBeTool(Protocol):
    """What is no function and can be a tool all the same: an Agent."""

    def as_tool(self) -> Tool: ...


def as_tool(value: object) -> Tool:
    """
    Return a tool as it is, and a plain function, a bound method or an Agent as a tool.

    Raises:
        ToolDefinitionError: it is something else, or a method without its object.

    Example:
        >>> def add(a: int, b: int) -> int:
        ...     return a + b
        >>> as_tool(add)
        Tool(add(a, b))
    """
    made: Tool
    if isinstance(value, CanBeTool):
        made = value.as_tool()
    elif isinstance(value, types.MethodType) and isinstance(value.__func__, Tool):
        made = value.__func__.__get__(value.__self__)  # of `@classmethod` over `@tool`
    else:
        made = value if isinstance(value, Tool) else tool()(cast("Callable[..., object]", value))
    if made.binding != "nothing":
        owner, _, method = made.function.__qualname__.rpartition(".")
        raise ToolDefinitionError(
            f"tool {made.name!r} is a method without an object. "
            f"Take it from one: tools=[{owner.split('.')[-1]}(…).{method}]"
        )
    return made


def toolbox(tools: Iterable[object]) -> dict[str, Tool]:
    """
    Return tools by name, functions among them made into tools.

    Raises:
        ToolDefinitionError: two have the same name, or one cannot be a tool.
    """
    if isinstance(tools, (Tool, str, Mapping)) or not isinstance(tools, Iterable):
        raise ToolDefinitionError(
            f"tools is a list of tools or functions, not {kind_of(tools)}: tools=[read_file, search]"
        )
    box: dict[str, Tool] = {}
    for value in tools:
        made = as_tool(value)
        if made.name in box:
            first, second = _place(box[made.name]), _place(made)
            raise ToolDefinitionError(
                f"two tools are named {made.name!r}: {first} and {second}. "
                f'Give one another name: {made.name}.copy(name="{made.name[:60]}_2")'
            )
        box[made.name] = made
    return box


def _place(made: Tool) -> str:
    function = made.function
    return f"{function.__module__}.{function.__qualname__}"
