"""
What may be stored: JSON values, copied and checked where they enter.

A value that came back from a database as another value (a tuple as a list, a Decimal as a float, NaN as nothing)
would make the State in memory differ from the one that another process loads. So such a value is refused at the
border, with the path to it. What is handed out for reading refuses change, which would be lost.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NoReturn

from pydantic import GetPydanticSchema, JsonValue
from pydantic_core import core_schema

from alpineagents.errors import ConfigError, ValueNotStorableError

MAX_DEPTH = 200
"""How deep lists and objects may be nested; every JSON reader has such a limit, this one is below all of them."""

# str(int) and int(str) refuse more than 4,300 digits by default, so such a number could be written by one process and
# not be read by another. 10**4299 is the first number that has as many.
_TOO_MANY_DIGITS: int = 10**4299


def storable(value: object, path: str) -> JsonValue:
    """
    Return a copy of a JSON value, made of plain dicts, lists, strings, numbers, booleans and None.

    Args:
        value: what a caller handed in.
        path: how to name it in an error, such as `extra_data`.

    Raises:
        ValueNotStorableError: it holds something that JSON cannot give back as it was; `path` says where.

    Example:
        >>> storable({"a": [1, 2]}, "extra_data")
        {'a': [1, 2]}
        >>> storable({"at": {1, 2}}, "extra_data")
        Traceback (most recent call last):
        ...
        alpineagents.errors.ValueNotStorableError: extra_data['at'] is a set, which JSON has not: use a list
    """
    return _copy(value, path, 0)


def _copy(value: object, path: str, depth: int) -> JsonValue:
    # Exact types only: an IntEnum or a str subclass would come back as a plain int or str.
    kind = type(value)
    if value is None or kind is bool:
        return value  # type: ignore[return-value]  # a bool
    if isinstance(value, str) and kind is str:
        return whole_text(value)
    if isinstance(value, int) and kind is int:
        if not -_TOO_MANY_DIGITS < value < _TOO_MANY_DIGITS:
            raise ValueNotStorableError(path, "is an integer of more than 4,299 digits: store it as a string in hex")
        return value
    if isinstance(value, float) and kind is float:
        if not math.isfinite(value):
            raise ValueNotStorableError(path, f"is {value!r}, which JSON has not: use None or a string")
        return value
    if depth >= MAX_DEPTH:
        raise ValueNotStorableError(path, f"is nested more than {MAX_DEPTH} deep, or holds itself")
    if isinstance(value, dict) and kind in (dict, _ReadOnlyDict):
        return {_key(key, path): _copy(item, f"{path}[{key!r}]", depth + 1) for key, item in value.items()}
    if isinstance(value, list) and kind in (list, _ReadOnlyList):
        return [_copy(item, f"{path}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise ValueNotStorableError(path, f"is a {kind.__name__}, which JSON has not: use {_instead(value)}")


def read_only(value: JsonValue) -> JsonValue:
    """
    Return a copy of a JSON value that refuses change, in all its depth; a copy of that is a plain value again.

    Example:
        >>> data = read_only({"todo": ["a"]})
        >>> data
        {'todo': ['a']}
        >>> data["todo"].append("b")
        Traceback (most recent call last):
        ...
        alpineagents.errors.ConfigError: ...
    """
    if isinstance(value, dict):
        return _ReadOnlyDict({key: read_only(item) for key, item in value.items()})
    if isinstance(value, list):
        return _ReadOnlyList(map(read_only, value))
    return value


def _refuse(*_args: Any, **_named: Any) -> NoReturn:
    raise ConfigError(
        "extra_data is changed in a block, which records the change: "
        "with state.edit_extra_data() as data: data['key'] = 'value'"
    )


class _ReadOnlyDict(dict[str, JsonValue]):
    """A dict, so that `json`, `==` and pydantic take it for one."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[str, JsonValue]:
        return dict(self)

    def __reduce__(self) -> tuple[type, tuple[dict[str, JsonValue]]]:
        # `copy.deepcopy` goes this way too.
        return dict, (dict(self),)


class _ReadOnlyList(list[JsonValue]):
    """A list, as above."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __copy__(self) -> list[JsonValue]:
        return list(self)

    def __reduce__(self) -> tuple[type, tuple[list[JsonValue]]]:
        return list, (list(self),)


def _key(key: object, path: str) -> str:
    if isinstance(key, str) and type(key) is str:
        return whole_text(key)
    raise ValueNotStorableError(
        f"{path}[{key!r}]", f"has a key of type {type(key).__name__}: JSON objects have string keys"
    )


def whole_text(text: str) -> str:
    """
    Return a text as JSON gives it back: two surrogates that make one character are that character.

    Example:
        >>> whole_text("\\ud83d\\ude00"), whole_text("lone \\ud800") == "lone \\ud800"
        ('😀', True)
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _instead(value: object) -> str:
    name = type(value).__name__
    return {
        "tuple": "a list",
        "set": "a list",
        "frozenset": "a list",
        "Decimal": "str(value)",
        "datetime": "value.isoformat()",
        "date": "value.isoformat()",
        "UUID": "str(value)",
        "bytes": "base64.b64encode(value).decode()",
    }.get(name, _instead_of_object(value))


def _instead_of_object(value: object) -> str:
    if hasattr(value, "model_dump"):
        return 'value.model_dump(mode="json")'
    if hasattr(value, "__dataclass_fields__"):
        return "dataclasses.asdict(value)"
    if isinstance(value, (int, str, float)):
        return "value.value" if hasattr(value, "value") else f"{type(value).__mro__[-2].__name__}(value)"
    return "a dict, a list, a string or a number"


def _check(value: Any, info: core_schema.ValidationInfo) -> Any:
    return storable(value, info.field_name or "value")


_JSON_SCHEMA = core_schema.with_info_plain_validator_function(_check)

Json = Annotated[JsonValue, GetPydanticSchema(lambda _type, _handler: _JSON_SCHEMA)]
"""Any JSON value, checked and copied where it enters; lone surrogates and NUL are kept as they are."""

JsonObject = Annotated[
    dict[str, JsonValue],
    GetPydanticSchema(
        lambda _type, _handler: core_schema.chain_schema(
            [
                core_schema.json_or_python_schema(
                    json_schema=core_schema.dict_schema(), python_schema=core_schema.is_instance_schema(dict)
                ),
                _JSON_SCHEMA,
            ]
        )
    ),
]
"""A JSON object, checked and copied where it enters."""

Text = Annotated[
    str,
    GetPydanticSchema(
        # pydantic's own str refuses lone surrogates, which tools and terminals do hand out.
        lambda _type, _handler: core_schema.json_or_python_schema(
            json_schema=core_schema.str_schema(strict=True),
            python_schema=core_schema.no_info_after_validator_function(whole_text, core_schema.is_instance_schema(str)),
        )
    ),
]
"""A string as it is, lone surrogates and NUL included."""


def sendable(text: str) -> str:
    """
    Return a text as any API takes it: each lone surrogate, which UTF-8 has not, becomes U+FFFD.

    Example:
        >>> sendable("broken \\ud800 text")
        'broken � text'
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
