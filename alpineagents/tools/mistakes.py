"""What was wrong with a model's arguments, told so that the model can mend it in its next call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError
from pydantic_core import ErrorDetails

from alpineagents.errors import ToolInputError

MAX_TEXT = 2000
"""Characters that a message about wrong arguments may have; it stays in the context for good."""

_MAX_LINES = 10
_MAX_VALUE = 80
_MAX_NAMES = 600


def shorten(text: str, limit: int) -> str:
    """
    Cut a text at a number of characters, with a mark where it was cut.

    Example:
        >>> shorten("summit", 4)
        'sum…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def listed(names: Iterable[str], limit: int = _MAX_NAMES) -> str:
    """
    Name things, as many as fit.

    Example:
        >>> listed(["a", "b"]), listed(["north", "south", "west"], 8)
        ('a, b', 'north and 2 more')
    """
    everything = list(names)
    shown, length = 0, 0
    for name in everything:
        length += len(name) + 2
        if length > limit + 2 and shown:
            break
        shown += 1
    more = len(everything) - shown
    return shorten(", ".join(everything[:shown]), limit) + (f" and {more} more" if more else "")


def nearest(name: str, names: Iterable[str]) -> str:
    """
    Suggest the name that was meant, or nothing.

    Example:
        >>> nearest("reed_file", ["read_file", "list"])
        " Did you mean 'read_file'?"
    """
    import difflib

    close = difflib.get_close_matches(name[:200], list(names), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def mistakes(
    tool_name: str, error: ValidationError, args: Mapping[str, Any], schema: Mapping[str, JsonValue]
) -> ToolInputError:
    """Write pydantic's findings for a model: which argument, what it should be, what came."""
    tail = takes(tool_name, schema)
    body = shorten(findings(error, args, schema), MAX_TEXT - len(tail) - len(tool_name) - 60)
    return ToolInputError(f"{tool_name} was not run, its arguments are wrong:\n{body}\n{tail}")


def findings(error: ValidationError, value: Any, schema: Mapping[str, JsonValue]) -> str:
    """Write pydantic's findings about a value, a line each: where, what it should be, what came."""
    found = error.errors(include_url=False, include_context=True, include_input=True)
    names = _names(schema)
    lines = [f"- {_line(detail, value, names)}" for detail in found[:_MAX_LINES]]
    if len(found) > _MAX_LINES:
        lines.append(f"- and {len(found) - _MAX_LINES} more")
    return "\n".join(lines)


def takes(tool_name: str, schema: Mapping[str, JsonValue]) -> str:
    """Say which arguments there are, in a sentence."""
    names = _names(schema)
    return f"{tool_name} takes: {listed(names.values())}." if names else f"{tool_name} takes no arguments."


def _names(schema: Mapping[str, JsonValue]) -> dict[str, str]:
    properties, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        return {}
    return {
        name: f"{name} ({_kind(member)}{', required' if name in required else ''})"
        for name, member in properties.items()
    }


def _kind(member: JsonValue) -> str:
    if not isinstance(member, dict):
        return "any"
    if "enum" in member and isinstance(member["enum"], list):
        return shorten(" | ".join(json.dumps(value, ensure_ascii=False) for value in member["enum"]), _MAX_VALUE)
    if "const" in member:
        return json.dumps(member["const"], ensure_ascii=False)
    if isinstance(member.get("type"), str):
        return str(member["type"])
    if "$ref" in member:
        return "object"
    choices = member.get("anyOf") or member.get("oneOf")
    return " or ".join(dict.fromkeys(_kind(choice) for choice in choices)) if isinstance(choices, list) else "any"


def _line(detail: ErrorDetails, args: Mapping[str, Any], names: Mapping[str, str]) -> str:
    where = _where(detail, args)
    kind = detail["type"]
    if kind == "missing":
        return f"{where} is missing"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        last = str(detail["loc"][-1])
        return f"{where}: there is no such argument.{nearest(last, names) if len(detail['loc']) == 1 else ''}"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should", "should", 1) if message.startswith("Input should") else message
    if kind == "string_unicode":
        message = "should be text, without lone surrogates (halves of a UTF-16 pair)"
    return f"{where} {shorten(message, 300)}, got {_shown(detail['input'])}"


def _where(detail: ErrorDetails, args: Any) -> str:
    """Write a path as it stands in the arguments; what pydantic adds for the members of a union is left out."""
    path, value, last = "", args, len(detail["loc"]) - 1
    for index, step in enumerate(detail["loc"]):
        if isinstance(step, int) and isinstance(value, list) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, Mapping) and step in value:
            path, value = _joined(path, step), value[step]
        elif index == last and detail["type"] == "missing":
            path = _joined(path, step)
    return shorten(path, 200) or "the arguments"


def _joined(path: str, step: object) -> str:
    return f"{path}.{step}" if path else str(step)


def _shown(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = repr(value)
    return shorten(text, _MAX_VALUE)
