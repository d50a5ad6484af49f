"""What a tool says of itself, for all of its calls or for each one by its arguments."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from alpineagents.errors import ToolDefinitionError

log = logging.getLogger("alpineagents")

HintFunction = Callable[[Mapping[str, Any]], bool]
"""Says what holds for a call: a function of its arguments by name, as the tool gets them, defaults included."""

Hint = bool | HintFunction

UNSAFE: Mapping[str, bool] = {"read_only": False, "destructive": True, "idempotent": False, "open_world": True}
"""Each hint, with the value that nobody is lulled by; it counts where a function cannot tell."""


def functions_of(tool_name: str, flags: Mapping[str, Hint]) -> dict[str, HintFunction]:
    """
    Return the hints that depend on the call.

    Raises:
        ToolDefinitionError: one is neither a bool nor a function of the arguments, or cannot depend on them.
    """
    functions: dict[str, HintFunction] = {}
    for name, value in flags.items():
        if isinstance(value, bool):
            continue
        if name not in UNSAFE or not callable(value) or not _takes_one(value):
            kinds = "True, False or a sync function of the arguments" if name in UNSAFE else "True or False"
            example = "read_only=lambda args: args['method'] == 'GET'" if name in UNSAFE else f"{name}=True"
            raise ToolDefinitionError(f"{name}={value!r:.80} of tool {tool_name!r} is not {kinds}: @tool({example})")
        functions[name] = value
    if "read_only" in functions and flags.get("destructive") is True:
        functions["destructive"] = partial(_changes, functions["read_only"])
    return functions


def _changes(changes_nothing: HintFunction, args: Mapping[str, Any]) -> bool:
    return not changes_nothing(args)


def said_of(functions: Mapping[str, HintFunction]) -> dict[str, Hint]:
    """Return what a tool said of itself, where `functions_of` made these functions of it."""
    return {
        name: True if isinstance(function, partial) and function.func is _changes else function
        for name, function in functions.items()
    }


def _takes_one(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:
        pass  # a builtin that does not tell its parameters
    return not inspect.iscoroutinefunction(function)


def settled(
    tool_name: str, functions: Mapping[str, HintFunction], values: Mapping[str, object] | None
) -> dict[str, bool]:
    """
    Return what holds for one call, of the hints that depend on it.

    Args:
        values: the arguments of the call; None where they do not fit, so that nothing can be told of it.
    """
    hints = {name: UNSAFE[name] for name in functions}
    if values is not None:
        hints = {name: _told(tool_name, name, function, values) for name, function in functions.items()}
    if hints.get("read_only") and hints.get("destructive"):
        log.warning("tool %s says of one call that it is read_only and destructive; it counts as the latter", tool_name)
        hints["read_only"] = False
    return hints


def _told(tool_name: str, name: str, function: HintFunction, values: Mapping[str, object]) -> bool:
    try:
        told = function(values)
    except Exception:
        log.exception("%s of tool %s failed; it counts as %s for this call", name, tool_name, UNSAFE[name])
        return UNSAFE[name]
    if not isinstance(told, bool):
        log.warning(
            "%s of tool %s gave a %s, where True or False is due; it counts as %s for this call",
            *(name, tool_name, type(told).__name__, UNSAFE[name]),
        )
        return UNSAFE[name]
    return told
