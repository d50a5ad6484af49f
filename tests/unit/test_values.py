"""What may be stored, and how the rest is refused: with its path, at every door."""

from __future__ import annotations

import copy
import dataclasses
import decimal
import enum
import json
import math
import pickle
import uuid
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, JsonValue, TypeAdapter
from pydantic_core import to_jsonable_python

from alpineagents import ConfigError, Message, RawBlock, State, ToolCall, ValueNotStorableError
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
            data["bad"] = NOT_JSON[kind]
    with pytest.raises(ValueNotStorableError):
        state.finish(NOT_JSON[kind])

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
    state = State(extra_data=mine)

    mine["todo"].append("b")

    assert state.extra_data == {"todo": ["a"]}


CHANGES: dict[str, Callable[[Any], object]] = {
    "set": lambda data: data.__setitem__("todo", 1),
    "delete": lambda data: data.__delitem__("todo"),
    "or": lambda data: data.__ior__({"todo": 1}),
    "update": lambda data: data.update(todo=1),
    "setdefault": lambda data: data.setdefault("new", 1),
    "pop": lambda data: data.pop("todo"),
    "popitem": lambda data: data.popitem(),
    "clear": lambda data: data.clear(),
    "set in it": lambda data: data["order"]["items"][0].__setitem__("price", 1),
    "list set": lambda data: data["todo"].__setitem__(0, 1),
    "list slice": lambda data: data["todo"].__setitem__(slice(0, 0), [1]),
    "list delete": lambda data: data["todo"].__delitem__(0),
    "list add": lambda data: data["todo"].__iadd__([1]),
    "list multiply": lambda data: data["todo"].__imul__(2),
    "append": lambda data: data["todo"].append("b"),
    "extend": lambda data: data["todo"].extend("b"),
    "insert": lambda data: data["todo"].insert(0, "b"),
    "list pop": lambda data: data["todo"].pop(),
    "remove": lambda data: data["todo"].remove("a"),
    "list clear": lambda data: data["todo"].clear(),
    "sort": lambda data: data["todo"].sort(),
    "reverse": lambda data: data["todo"].reverse(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_extra_data_that_was_read_refuses_change(change: Callable[[Any], object]) -> None:
    """It would be lost; the error shows the block that records it. That of a snapshot likewise."""
    plain: dict[str, Any] = {"todo": ["a"], "order": {"items": [{"price": 4}]}}
    state = State(extra_data=plain)

    for data in (state.extra_data, state.snapshot().extra_data):
        with pytest.raises(ConfigError, match=r"with state\.edit_extra_data\(\) as data"):
            change(data)
        assert data == plain
    assert state.extra_data == plain


def test_extra_data_that_was_read_is_json_like_any_other() -> None:
    """For `json`, pydantic, `isinstance` and `==`."""
    plain: dict[str, Any] = {"b": [1, {"c": None}], "a": {"d": "e"}}
    data = State(extra_data=plain).extra_data

    assert json.dumps(data) == json.dumps(plain)
    assert json.dumps(data, indent=1) == json.dumps(plain, indent=1)
    assert (data, repr(data)) == (plain, repr(plain))
    assert isinstance(data, dict)
    assert isinstance(data["b"], list)
    assert TypeAdapter(dict[str, JsonValue]).validate_python(data, strict=True) == plain
    assert to_jsonable_python(data) == plain


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data)), lambda data: storable(data, "data")]
)
def test_a_copy_of_extra_data_is_plain_in_all_its_depth(copied: Callable[[Any], Any]) -> None:
    """And so is what a State takes in of it; one that is shallow is plain on top."""
    plain: dict[str, Any] = {"b": [1, {"c": None}], "a": {"d": "e"}}
    data: Any = State(extra_data=plain).extra_data

    again = copied(data)
    again["b"][1]["c"] = again["a"]["d"] = 2

    assert (again["b"], data) == ([1, {"c": 2}], plain)
    for shallow in (dict(data), data.copy(), copy.copy(data), data | {}):
        assert type(shallow) is dict
    for top in (list(data["b"]), data["b"].copy(), copy.copy(data["b"]), data["b"][:], data["b"] + []):
        assert type(top) is list


def test_extra_data_goes_from_one_state_into_another() -> None:
    """Whole or in parts; in the block it can be changed there."""
    one = State(extra_data={"todo": ["a"]})
    other = State(extra_data=one.extra_data)
    with other.edit_extra_data() as data:
        data["todo"].append("b")
        data["theirs"] = one.extra_data["todo"]

    assert other.extra_data == {"todo": ["a", "b"], "theirs": ["a"]}
    other.finish(one.extra_data)
    assert other.answer == {"todo": ["a"]}


def test_an_answer_that_was_read_is_a_copy() -> None:
    """What the caller does to the answer does not reach the State."""
    state = State()
    state.finish({"peaks": ["Eiger"]})

    state.answer["peaks"].append("Mönch")

    assert state.answer == {"peaks": ["Eiger"]}


@pytest.mark.parametrize("value", [[("a", 1)], ["ab"], "a", 1])
def test_extra_data_must_be_a_dict(value: object) -> None:
    """Anything else is refused by name; it is not made into a dict."""
    with pytest.raises((ValueNotStorableError, ValueError), match="extra_data"):
        State(extra_data=value)


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
