"""What a tool returns, as blocks that a model reads."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from alpineagents.errors import ValueNotStorableError
from alpineagents.messages import Image, TextBlock

Content = tuple[TextBlock | Image, ...]

DONE = "done"
"""What a model reads of a tool that returns None."""


def to_content(value: object, tool_name: str) -> Content:
    """
    Turn what a tool returned into blocks.

    A text stays as it is, and so does an image. A list or tuple that holds an image becomes a block for each item.
    Everything else becomes JSON; a value that is one string there (a date, a UUID, a path) stands without quotes.

    Raises:
        ValueNotStorableError: the value has no text, such as an open file. The tool has run all the same.

    Example:
        >>> to_content({"metres": 4478}, "summit")
        (TextBlock(type='text', text='{"metres": 4478}'),)
    """
    if isinstance(value, (TextBlock, Image)):
        return (value,)
    if isinstance(value, (list, tuple)) and any(isinstance(item, Image) for item in value):
        return tuple(block for item in value for block in to_content(item, tool_name))
    return (TextBlock(text=_text(value, tool_name)),)


def _text(value: object, tool_name: str) -> str:
    if value is None:
        return DONE
    try:
        plain = _plain(value)
        return plain if type(plain) is str else json.dumps(plain, ensure_ascii=False)
    except Exception as error:
        # Models and dataclasses may run code of the user's here, which may raise anything.
        raise ValueNotStorableError(
            f"result of tool {tool_name!r}",
            f"is a {type(value).__name__}, which cannot be turned into text ({_reason(error)}). The tool did run. "
            "Return a str, a number, a list, a dict, a dataclass, a pydantic model or an Image",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep, or holds itself"
    return f"{error}"[:200]


def _plain(value: Any) -> Any:
    """Copy a value into what json.dumps takes. pydantic does the leaves; it would refuse a lone surrogate in a list."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (str, bytes, bytearray)):
        return _string(value)
    if isinstance(value, BaseModel) or _is_described(value):
        return to_jsonable_python(value, bytes_mode="base64")
    for kinds, convert in _CONVERT:
        if isinstance(value, kinds):
            return convert(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Iterator):
        # pydantic would read it to its end, be it an open file or a generator that never stops.
        raise TypeError("it can be read only once: return list(value)")
    return to_jsonable_python(value)


def _string(value: str | bytes | bytearray) -> str:
    if isinstance(value, str):
        return str.__str__(value)  # of a str subclass, such as an Enum, what it holds
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii")


def _is_described(value: object) -> bool:
    # A dataclass of pydantic's has its own way to be written.
    return hasattr(type(value), "__pydantic_serializer__")


def _mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {_key(key): _plain(item) for key, item in value.items()}


def _key(key: object) -> str:
    return _string(key) if isinstance(key, (str, bytes)) else str(next(iter(to_jsonable_python({key: None}))))


def _items(value: Any) -> list[Any]:
    return [_plain(item) for item in value]


def _unordered(value: Any) -> list[Any]:
    items = _items(value)
    try:
        return sorted(items)
    except TypeError:
        # Two processes iterate one set of strings in two orders; a result must not depend on that.
        return sorted(items, key=json.dumps)


_CONVERT: tuple[tuple[tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((Mapping,), _mapping),
    ((list, tuple, deque, range), _items),
    ((set, frozenset), _unordered),
    ((PurePath,), str),
)
