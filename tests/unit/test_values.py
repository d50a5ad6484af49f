"""What may be stored, and how the rest is refused: with its path, at every door."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import math
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from alpineagents import Message, RawBlock, State, ToolCall, ValueNotStorableError
from alpineagents.testing import tool_call
from alpineagents.values import MAX_DEPTH, sendable, storable


class Level(enum.IntEnum):
    HIGH = 3


class Color(enum.StrEnum):
    RED = "red"


class Peak(enum.Enum):
    EIGER = 3967


@dataclasses.dataclass
class Point:
    x: int = 1


class Model(BaseModel):
    x: int = 1


class Words(str):
    __slots__ = ()


class Metres(float):
    pass


NOT_JSON: dict[str, object] = {
    "Decimal": decimal.Decimal("1.10"),
    "datetime": datetime(2026, 1, 1, tzinfo=UTC),
    "date": date(2026, 1, 1),
    "timedelta": timedelta(seconds=1),
    "UUID": uuid.UUID(int=1),
    "Enum": Peak.EIGER,
    "IntEnum": Level.HIGH,
    "StrEnum": Color.RED,
    "bytes": b"\x00",
    "bytearray": bytearray(b"\x00"),
    "dataclass": Point(),
    "model": Model(),
    "set": {1},
    "frozenset": frozenset({1}),
    "tuple": (1, 2),
    "NaN": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "4,300 digits": 10**4299,
    "minus 4,300 digits": -(10**4299),
    "complex": 1j,
    "Path": Path("a"),
    "object": object(),
    "function": len,
    "str subclass": Words("words"),
    "float subclass": Metres(1.0),
    "dict subclass": OrderedDict(a=1),
    "generator": (item for item in ()),
}


def edited(value: Any) -> State:
    state = State()
    with state.edit_extra_data() as data:
        data["v"] = [value]
    return state


DOORS: dict[str, tuple[Callable[[Any], object], str]] = {
    "State(extra_data=)": (lambda value: State(extra_data={"v": [value]}), "extra_data['v'][0]"),
    "edit_extra_data": (edited, "extra_data['v'][0]"),
    "finish": (lambda value: State().finish({"v": [value]}), "answer['v'][0]"),
    "ToolCall": (lambda value: ToolCall(id="c", name="t", args={"v": [value]}), "args['v'][0]"),
    "tool_call": (lambda value: tool_call("t", v=[value]), "v[0]"),
    "RawBlock": (lambda value: RawBlock(provider="p", data={"v": [value]}), "data['v'][0]"),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", NOT_JSON)
def test_what_json_has_not_is_refused_where_it_enters(kind: str, door: str) -> None:
    """The error names the path to the value, whichever way it came."""
    enter, path = DOORS[door]

    with pytest.raises(ValueNotStorableError) as refused:
        enter(NOT_JSON[kind])

    assert refused.value.path == path
    assert str(refused.value).startswith(path)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200, 10**4299 - 1, True, 0.5, "\0\ud800", None, {}, []])
def test_what_json_has_is_taken(door: str, value: object) -> None:
    """Integers beyond 64 bits too, and any text."""
    enter, _ = DOORS[door]

    enter(value)


@pytest.mark.parametrize("kind", NOT_JSON)
def test_a_refused_value_leaves_the_state_as_it_was(kind: str) -> None:
    """Neither the extra data nor the history has anything of it."""
    state = State(extra_data={"order": 1042})
    before = state.snapshot()

    with pytest.raises(ValueNotStorableError):
        with state.edit_extra_data() as data:
            data["order"] = 1043
            data["bad"] = NOT_JSON[kind]  # type: ignore[assignment]
    with pytest.raises(ValueNotStorableError):
        state.finish(NOT_JSON[kind])  # type: ignore[arg-type]

    assert state.snapshot() is before
    assert state.revision == 1


def test_the_error_says_what_to_write_instead() -> None:
    """Each kind that people store by mistake has its own advice."""
    advice = {}
    for kind in ("Decimal", "datetime", "UUID", "bytes", "set", "tuple", "model", "dataclass", "IntEnum"):
        with pytest.raises(ValueNotStorableError) as refused:
            storable(NOT_JSON[kind], "v")
        advice[kind] = str(refused.value).rpartition(": use ")[2]

    assert advice == {
        "Decimal": "str(value)",
        "datetime": "value.isoformat()",
        "UUID": "str(value)",
        "bytes": "base64.b64encode(value).decode()",
        "set": "a list",
        "tuple": "a list",
        "model": 'value.model_dump(mode="json")',
        "dataclass": "dataclasses.asdict(value)",
        "IntEnum": "value.value",
    }


@pytest.mark.parametrize("key", [1, None, True, 1.5, ("a",), Color.RED, Words("a")])
def test_keys_must_be_plain_strings(key: object) -> None:
    """JSON would make a string of any other key, and two keys could become one."""
    with pytest.raises(ValueNotStorableError, match="string keys") as refused:
        storable({"outer": {key: 1}}, "extra_data")

    assert refused.value.path == f"extra_data['outer'][{key!r}]"


def test_a_list_that_holds_itself_is_refused() -> None:
    """The copy ends with an error, not with a recursion."""
    knot: list[Any] = []
    knot.append(knot)

    with pytest.raises(ValueNotStorableError, match="holds itself"):
        storable(knot, "extra_data")


def test_a_dict_that_holds_itself_is_refused() -> None:
    """The copy ends with an error, not with a recursion."""
    knot: dict[str, Any] = {}
    knot["again"] = knot

    with pytest.raises(ValueNotStorableError, match="holds itself"):
        storable(knot, "extra_data")


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"deeper": value}
    return value


def test_nesting_ends_at_its_limit() -> None:
    """The limit itself is taken, one more is refused."""
    assert storable(nested(MAX_DEPTH), "v") == nested(MAX_DEPTH)
    with pytest.raises(ValueNotStorableError, match="nested more than"):
        storable(nested(MAX_DEPTH + 1), "v")


def test_a_stored_value_is_a_copy() -> None:
    """What the caller does to his own value afterwards does not reach the State."""
    mine = {"todo": ["a"]}
    state = State(extra_data=mine)  # type: ignore[arg-type]

    mine["todo"].append("b")

    assert state.extra_data == {"todo": ["a"]}


def test_extra_data_that_was_read_is_a_copy() -> None:
    """Only `edit_extra_data` changes the State."""
    state = State(extra_data={"todo": ["a"]})

    state.extra_data["todo"].append("b")  # type: ignore[union-attr]

    assert state.extra_data == {"todo": ["a"]}


def test_an_answer_that_was_read_is_a_copy() -> None:
    """What the caller does to the answer does not reach the State."""
    state = State()
    state.finish({"peaks": ["Eiger"]})

    state.answer["peaks"].append("Mönch")  # type: ignore[call-overload,index,union-attr]

    assert state.answer == {"peaks": ["Eiger"]}


@pytest.mark.parametrize("value", [[("a", 1)], ["ab"], "a", 1])
def test_extra_data_must_be_a_dict(value: object) -> None:
    """Anything else is refused by name; it is not made into a dict."""
    with pytest.raises((ValueNotStorableError, ValueError), match="extra_data"):
        State(extra_data=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text, sent",
    [
        ("plain", "plain"),
        ("a\0b", "a\0b"),
        ("Grüezi 😀", "Grüezi 😀"),
        ("a\ud800b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\udfff", "\N{REPLACEMENT CHARACTER}"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_sendable_replaces_lone_surrogates_only(text: str, sent: str) -> None:
    """What UTF-8 has not is replaced, all else stays."""
    assert sendable(text) == sent


def test_two_halves_of_a_surrogate_pair_are_taken_as_one_character() -> None:
    """Every JSON reader makes one character of them, so the State holds one from the beginning."""
    state = State(messages=[Message.user("\ud83d\ude00")], extra_data={"\ud83d\ude00": "\ud83d\ude00"})

    assert state.messages[0].text == "😀"
    assert state.extra_data == {"😀": "😀"}
