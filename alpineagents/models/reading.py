"""What reads a reply of any format: the readers' surface, JSON that a model wrote, numbers that a server sent."""

from __future__ import annotations

import json
from typing import Protocol

from pydantic import JsonValue

from alpineagents.errors import ValueNotStorableError
from alpineagents.messages import Reply, ToolCall
from alpineagents.usage import Usage
from alpineagents.values import sendable, storable


class EventReader(Protocol):
    """What makes a reply of the events of one answer."""

    @property
    def started(self) -> bool:
        """Whether a part of the reply has come, so that asking again would say it twice."""
        ...

    @property
    def ended(self) -> bool:
        """Whether nothing more needs to come."""
        ...

    @property
    def over(self) -> bool:
        """Whether nothing that counts can follow, not even the usage."""
        ...

    @property
    def complete(self) -> bool:
        """Whether what came is a whole reply."""
        ...

    def read(self, data: dict[str, JsonValue]) -> None:
        """Take in one event."""
        ...

    def done(self) -> None:
        """Take in the end mark."""
        ...


class ReplyReader(EventReader, Protocol):
    """The same, with the reply that it makes."""

    @property
    def usage(self) -> Usage | None:
        """What the request took, as far as the server has said so; None as long as it has said nothing."""
        ...

    @property
    def counted(self) -> bool:
        """Whether that is all of it."""
        ...

    def reply(self, *, model: str = "") -> Reply:
        """
        Return what was said, once the reply is complete.

        Args:
            model: who replied, where the server does not say.
        """
        ...


def is_keep_alive(event: dict[str, JsonValue]) -> bool:
    """
    Tell whether an event only says that the server is alive, in any format.

    Example:
        >>> is_keep_alive({"type": "ping"}), is_keep_alive({"choices": []}), is_keep_alive({"type": "message_stop"})
        (True, True, False)
    """
    if event.get("type") in ("ping", "keepalive"):
        return True
    choices = event.get("choices")
    return isinstance(choices, list) and not event.get("usage") and all(map(_says_nothing, choices))


def _says_nothing(choice: JsonValue) -> bool:
    if not isinstance(choice, dict) or choice.get("finish_reason"):
        return False
    delta = choice.get("delta")
    return not (delta and isinstance(delta, dict) and any(value for name, value in delta.items() if name != "role"))


def tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """
    Return the call that a model wrote; arguments that are no JSON object are kept as they are.

    Example:
        >>> tool_call("call_1", "read", '{"path": ').invalid_json
        '{"path": '
    """
    raw = sendable(arguments)
    args = json_object(raw) if raw.strip() else {}
    return ToolCall(
        id=sendable(call_id), name=sendable(name), args=args or {}, invalid_json=raw if args is None else None
    )


def written(arguments: object) -> str:
    """Return a call's arguments as a text; some servers send the object itself."""
    return arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)


def json_object(raw: str) -> dict[str, JsonValue] | None:
    """
    Return the JSON object that a text is, or None.

    Example:
        >>> json_object('{"path": "a"}'), json_object('{"path": NaN}')
        ({'path': 'a'}, None)
    """
    try:
        return storable_object(json.loads(raw))
    except (ValueError, RecursionError):
        return None


def storable_object(value: object) -> dict[str, JsonValue] | None:
    """Return a copy of a dict that can be stored, or None."""
    try:
        copy = storable(value, "value")
    except ValueNotStorableError:
        return None
    return copy if isinstance(copy, dict) else None


def count(where: object, name: str) -> int:
    """Return a number of tokens out of an object; 0 where there is none."""
    value = where.get(name) if isinstance(where, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
