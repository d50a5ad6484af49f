"""Type hints and docstrings as JSON Schema; a model's JSON as Python values."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict

from alpineagents.errors import ToolDefinitionError, ToolInputError
from alpineagents.tools import as_tool, tool

if TYPE_CHECKING:
    from alpineagents.tools import ToolContext


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    """A place."""

    x: int
    y: int = 0


class Route(BaseModel):
    """A way."""

    title: str
    stops: list[Point] = []


class Filter(TypedDict):
    """What to look for."""

    word: str
    limit: NotRequired[int]


class Node(BaseModel):
    """A tree."""

    title: str
    children: list[Node] = []


class Cat(BaseModel):
    """A cat."""

    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    """A dog."""

    kind: Literal["dog"]
    bark: str


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def schema(function: Callable[..., Any]) -> dict[str, Any]:
    """Describe what a function takes."""
    return as_tool(function).spec.parameters


def of(function: Callable[..., Any], name: str = "value") -> dict[str, Any]:
    """Describe one parameter."""
    described: dict[str, Any] = schema(function)["properties"][name]
    return described


def read(function: Callable[..., Any], **args: Any) -> dict[str, object]:
    """Read a model's arguments."""
    return as_tool(function).validate(args)


def refusal(function: Callable[..., Any], **args: Any) -> str:
    """Return what a model is told of wrong arguments."""
    with pytest.raises(ToolInputError) as refused:
        as_tool(function).validate(args)
    return str(refused.value)


# ------------------------------------------------------------------------------------------------ schema


def test_a_schema_is_an_object_that_allows_nothing_else() -> None:
    """Required parameters are those without a default, and no others are allowed."""

    def search(word: str, limit: int = 10) -> None: ...

    assert schema(search) == {
        "type": "object",
        "properties": {"word": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
        "required": ["word"],
        "additionalProperties": False,
    }


def test_no_parameters_are_an_empty_object() -> None:
    """Providers demand `properties` even then."""

    def now() -> None: ...

    assert schema(now) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_nested_types_stand_where_they_are_used() -> None:
    """No references, no titles of pydantic's; a field that is called title stays."""

    def go(value: Route) -> None: ...

    told = of(go)

    assert told["properties"]["title"] == {"type": "string"}
    assert told["properties"]["stops"]["items"]["properties"]["x"] == {"type": "integer"}
    assert "$" not in json.dumps(schema(go))
    assert "title" not in told


def test_a_type_that_holds_itself_keeps_its_reference() -> None:
    """It could not be written out; the reference must lead somewhere."""

    def grow(value: Node) -> None: ...

    told = schema(grow)

    assert told["properties"]["value"] == {"$ref": "#/$defs/Node"}
    assert told["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_a_schema_does_not_grow_without_bound() -> None:
    """Types that are used twice at each of many levels are not written out two to the power of levels times."""
    level: Any = Point
    for number in range(30):
        level = type(f"Level{number}", (BaseModel,), {"__annotations__": {"a": level, "b": level}})
    namespace = {"level": level}
    exec("def deep(value: level) -> None: ...", namespace)

    told = schema(namespace["deep"])

    assert len(json.dumps(told)) < 10_000
    assert len(told["$defs"]) == 31


def test_choices_are_told() -> None:
    """Of Literal and Enum the model is told the values."""

    def paint(value: Colour, mode: Literal["fast", "fine"]) -> None: ...

    assert of(paint)["enum"] == ["red", "blue"]
    assert of(paint, "mode")["enum"] == ["fast", "fine"]


def test_a_discriminated_union_leaves_no_dangling_mapping() -> None:
    """Its mapping would point to definitions that are gone."""

    def feed(value: Pet) -> None: ...

    assert list(of(feed)) == ["oneOf"]


def test_a_default_that_is_no_json_is_left_out() -> None:
    """NaN in a schema is no JSON to a provider; nor does a strange default warn."""
    nothing = object()

    def wait(value: float = float("nan"), other: str | None = nothing) -> None: ...

    assert "default" not in of(wait)
    assert "default" not in of(wait, "other")


GOOGLE = """
    Find.

    More.

    Args:
        word: what to
            look for

    Raises:
        ValueError: never
"""
NUMPY = """
    Find.

    More.

    Parameters
    ----------
    word : str
        what to
        look for

    Raises
    ------
    ValueError
        never
"""
SPHINX = """
    Find.

    More.

    :param word: what to
        look for
    :raises ValueError: never
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_describe_tool_and_parameters(docstring: str) -> None:
    """In three styles; what is said of parameters and errors is not said twice."""

    def find(word: str) -> None: ...

    find.__doc__ = docstring

    assert of(find, "word")["description"] == "what to look for"
    assert as_tool(find).description == "Find.\n\nMore."


def test_a_docstring_tells_what_is_returned() -> None:
    """A model can plan with it."""

    def find(word: str) -> str:
        """
        Find.

        Returns:
            The page's number.
        """
        return word

    assert as_tool(find).description == "Find.\n\nReturns: The page's number."


def test_a_docstring_without_sections_stays_as_it_is() -> None:
    """Colons and at-signs in a text are no headings."""

    def send(to: str) -> None:
        """Send: a mail.

        Note: @all reaches everybody.
          - even abroad
        """

    assert as_tool(send).description == "Send: a mail.\n\nNote: @all reaches everybody.\n  - even abroad"


def test_a_field_goes_before_a_note_before_the_docstring() -> None:
    """The description nearest to the type wins."""

    def find(
        a: Annotated[str, "note", Field(description="field")], b: Annotated[str, "note"], c: str, d: str = Field("x")
    ) -> None:
        """
        Find.

        Args:
            a: docstring
            b: docstring
            c: docstring
            d: docstring
        """

    assert [of(find, name)["description"] for name in "abcd"] == ["field", "note", "docstring", "docstring"]


def test_limits_of_a_field_are_told_and_held() -> None:
    """What the schema says is what is checked."""

    def take(value: Annotated[int, Field(ge=1, le=5)]) -> None: ...

    assert (of(take)["minimum"], of(take)["maximum"]) == (1, 5)
    assert "less than or equal to 5, got 9" in refusal(take, value=9)


@pytest.mark.parametrize("name", ["model_config", "schema", "json", "copy", "_hidden", "validate", "self_", "arg_0"])
def test_any_name_of_a_parameter_will_do(name: str) -> None:
    """None collides with a name of pydantic's."""
    namespace: dict[str, Any] = {}
    exec(f"def take({name}: int, arg_1: str = 'x') -> None: ...", namespace)

    assert read(namespace["take"], **{name: 1}) == {name: 1}


@pytest.mark.parametrize(
    "hint", ["ToolContext", "ToolContext | None", "Optional[ToolContext]", "Annotated[ToolContext, 'x']"]
)
def test_a_context_is_found_however_it_is_written(hint: str) -> None:
    """Even where its import stands under TYPE_CHECKING, as here."""

    def run(word: str, *, context: Any = None) -> None: ...

    run.__annotations__["context"] = hint

    assert list(schema(run)["properties"]) == ["word"]
    assert as_tool(run).arguments.signature.context == "context"


def test_hints_may_use_names_of_the_function_around() -> None:
    """With postponed annotations too, for functions and for methods of local classes."""

    class Local(BaseModel):
        number: int

    class Holder:
        @tool
        def method(self, value: Local) -> int:
            return value.number

    def function(value: Local) -> int:
        return value.number

    assert of(function)["properties"] == {"number": {"type": "integer"}}
    assert Holder().method.validate({"value": {"number": 1}}) == {"value": Local(number=1)}


def test_a_decorated_function_is_read_through_its_wrapper() -> None:
    """With functools.wraps the hints are those of the function within."""

    def plain(value: Point) -> None: ...

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)

    assert of(wrapper)["type"] == "object"


# ------------------------------------------------------------------------------------------------ refused


def untyped(path, lines: int) -> None:
    """Lack a hint."""


def many(*paths: str) -> None:
    """Take many."""


def named(**options: str) -> None:
    """Take any."""


def strange(handle: threading_lock) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Use a name that is not there."""


def called(back: Callable[[], None]) -> None:
    """Take what JSON has not."""


def opened(value: int, place: pytest.MonkeyPatch) -> None:
    """Take an object."""


def twice(a: ToolContext, b: ToolContext) -> None:
    """Take two."""


@pytest.mark.parametrize(
    "function, said",
    [
        (untyped, ["'path'", "def untyped(…, path: str, …)"]),
        (many, ["*paths", "paths: list[str]"]),
        (named, ["**options", "options: dict[str, str]"]),
        (strange, ["'handle'", "threading_lock", "TYPE_CHECKING"]),
        (called, ["'back'", "back: str"]),
        (opened, ["'place'", "MonkeyPatch", "place: str"]),
        (twice, ["'a' and 'b'", "a: ToolContext"]),
    ],
)
def test_a_function_that_no_model_can_be_told_of_is_refused(function: Callable[..., Any], said: list[str]) -> None:
    """The error names tool and parameter and shows the line to write."""
    with pytest.raises(ToolDefinitionError) as refused:
        tool(function)

    message = str(refused.value)
    assert f"tool {function.__name__!r}" in message
    assert [part for part in said if part not in message] == []
    assert "errors.pydantic.dev" not in message


# ------------------------------------------------------------------------------------------------ values


def everything(
    when: datetime,
    day: date,
    span: timedelta,
    key: UUID,
    path: Path,
    raw: bytes,
    price: Decimal,
    colour: Colour,
    point: Point,
    route: Route,
    query: Filter,
    pair: tuple[int, str],
    unique: set[int],
    table: dict[int, float],
    maybe: Optional[bool] = None,  # noqa: UP045  (the old way to write it must work too)
) -> None:
    """Take all kinds."""


POINTS = st.builds(Point, st.integers(), st.integers())
# pydantic keeps a text as UTF-8; a Path cannot hold NUL.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.fixed_dictionaries(
    {
        "when": st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9000, 1, 1)),  # noqa: DTZ001  # a time without a zone is a value too
        "day": st.dates(min_value=date(1, 1, 1)),
        "span": st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=9999)),
        "key": st.uuids(),
        "path": st.from_regex(r"\A[a-z]{1,9}(/[a-z]{1,9}){0,3}\Z").map(Path),
        "raw": TEXTS.map(str.encode),
        "price": st.decimals(allow_nan=False, allow_infinity=False),
        "colour": st.sampled_from(Colour),
        "point": POINTS,
        "route": st.builds(Route, title=TEXTS, stops=st.lists(POINTS, max_size=3)),
        "query": st.fixed_dictionaries({"word": TEXTS}, optional={"limit": st.integers()}),
        "pair": st.tuples(st.integers(), TEXTS),
        "unique": st.sets(st.integers()),
        "table": st.dictionaries(st.integers(), st.floats(allow_nan=False, allow_infinity=False)),
    },
    optional={"maybe": st.none() | st.booleans()},
)


@given(VALUES)
def test_a_value_survives_the_way_through_json(values: dict[str, object]) -> None:
    """What a value is written as is read as that value again, and what was left out stays out."""
    assert as_tool(everything).validate(to_jsonable_python(values)) == values


def test_arguments_are_read_as_json() -> None:
    """A strict date is a string in JSON; read as Python it would be refused."""

    def take(value: Annotated[date, Field(strict=True)]) -> None: ...

    assert read(take, value="2026-01-02") == {"value": date(2026, 1, 2)}


def test_what_is_left_out_is_left_to_the_function() -> None:
    """A default is the function's own object, never a copy."""
    nothing: list[int] = []

    def take(value: list[int] = nothing) -> None: ...

    assert read(take) == {}


def test_a_default_in_a_field_counts() -> None:
    """The function itself would get the Field, so the value is filled in."""

    def take(a: int = Field(3, ge=1), b: Annotated[list[int], Field(default_factory=list)] = Field()) -> None: ...  # noqa: B008  # as pydantic has it

    assert read(take, b=[1]) == {"a": 3, "b": [1]}


def test_an_alias_is_the_name_for_the_model_only() -> None:
    """So can a model say "from"."""

    def move(from_: Annotated[str, Field(alias="from")]) -> None: ...

    assert read(move, **{"from": "a"}) == {"from_": "a"}


def test_a_lone_surrogate_reaches_the_tool() -> None:
    """A broken file name must come whole; pydantic's JSON reader would refuse it."""

    def take(value: dict[str, Any], path: str) -> None: ...

    assert read(take, value={"a": "\ud800"}, path="\ud800") == {"value": {"a": "\ud800"}, "path": "\ud800"}


def test_a_lone_surrogate_in_a_text_with_limits_is_told() -> None:
    """pydantic counts and matches in UTF-8, which has none."""

    def take(value: Annotated[str, Field(min_length=1)]) -> None: ...

    assert "lone surrogates" in refusal(take, value="\ud800")


# ------------------------------------------------------------------------------------------------ mistakes


def visit(route: Route, colour: Colour = Colour.RED, pet: Pet | None = None, number: int | list[int] = 0) -> None:
    """Go there."""


@pytest.mark.parametrize(
    "args, said",
    [
        ({}, "- route is missing"),
        ({"route": {"title": "a"}, "color": "red"}, "- color: there is no such argument. Did you mean 'colour'?"),
        ({"route": {"title": 5}}, "- route.title should be a valid string, got 5"),
        ({"route": {"title": "a", "stops": [{"x": 1}, {}]}}, "- route.stops[1].x is missing"),
        ({"route": {"title": "a"}, "colour": "green"}, "- colour should be 'red' or 'blue', got \"green\""),
        ({"route": {"title": "a"}, "pet": {"kind": "cat", "lives": "x"}}, "- pet.lives should be a valid integer"),
        ({"route": {"title": "a"}, "number": [1, "x"]}, "- number[1] should be a valid integer"),
    ],
)
def test_a_mistake_is_told_where_it_is(args: dict[str, Any], said: str) -> None:
    """As a path into the arguments, with what was expected and what came."""
    assert said in refusal(visit, **args)


def test_a_mistake_names_the_arguments_there_are() -> None:
    """The next call can be right without a look at the schema."""
    told = refusal(visit)

    assert told.endswith(
        'visit takes: route (object, required), colour ("red" | "blue"), pet (object or null), '
        "number (integer or array)."
    )
    assert "pydantic" not in told


def test_a_tool_without_arguments_says_so() -> None:
    """There is nothing to list."""

    def now() -> None: ...

    assert refusal(now, zone="utc").endswith("now takes no arguments.")


def test_a_renamed_tool_uses_its_new_name() -> None:
    """The model knows no other."""
    with pytest.raises(ToolInputError, match=r"^go was not run"):
        as_tool(visit).copy(name="go").validate({})


def even(number: int) -> int:
    """Check."""
    if number % 2:
        raise ValueError("must be even")
    return number


def test_a_validator_speaks_in_its_own_words() -> None:
    """What the user's check says is what the model reads."""

    def take(value: Annotated[int, AfterValidator(even)]) -> None: ...

    assert "- value must be even, got 3" in refusal(take, value=3)


@given(st.dictionaries(st.text(), st.recursive(st.text() | st.integers(), st.lists)))
def test_any_mistake_is_told_in_bounds(args: dict[str, Any]) -> None:
    """Whatever a model sends, what it is told is short, as it stays in the context."""
    with pytest.raises(ToolInputError) as refused:
        as_tool(everything).validate(args)

    assert 0 < len(str(refused.value)) <= 2000


def test_huge_mistakes_are_cut() -> None:
    """Neither a long value, nor long names, nor many mistakes make a long message."""
    args = {f"{number}" * 500: "x" * 10_000 for number in range(100)}

    told = refusal(visit, **args)

    assert len(told) <= 2000
    assert "and 91 more" in told or "…" in told
    assert "visit takes: route" in told
