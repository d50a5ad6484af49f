"""Schemas as the strict modes of providers take them."""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Any, Literal

import anthropic
import pytest
from openai.lib._pydantic import to_strict_json_schema
from pydantic import BaseModel, Field

from alpineagents.errors import OutputError
from alpineagents.messages import Message, Request
from alpineagents.models.chat_wire import to_wire as to_chat
from alpineagents.models.responses_wire import to_wire as to_responses
from alpineagents.models.strict import CLAUDE, OPENAI, strict
from alpineagents.output import Shape

CLOSED = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}


class Grade(Enum):
    EASY = "easy"
    HARD = "hard"


class Hut(BaseModel):
    name: str
    beds: int = Field(default=8, ge=1, description="How many.")


class Rope(BaseModel):
    kind: Literal["rope"]
    metres: float


class Axe(BaseModel):
    kind: Literal["axe"]


class Tour(BaseModel):
    """A tour."""

    name: str = Field(min_length=1)
    day: date
    grade: Grade = Grade.EASY
    note: str | None = None
    hut: Hut | None = None
    gear: list[Rope | Axe] = Field(default_factory=list, max_length=5)


class Node(BaseModel):
    value: int
    next: Node | None = None


def objects(schema: Any) -> list[dict[str, Any]]:
    """Return all objects in a schema."""
    if isinstance(schema, list):
        return [found for item in schema for found in objects(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" else []
    return own + [found for item in schema.values() for found in objects(item)]


def test_openai_gets_objects_that_require_all_they_have() -> None:
    """At any depth; what is optional may be null, as the official client makes it."""
    held = strict(Shape(Tour).spec.json_schema, OPENAI)

    assert held is not None
    assert held["required"] == to_strict_json_schema(Tour)["required"]
    assert len(objects(held)) == 4
    for item in objects(held):
        assert item["required"] == list(item["properties"])
        assert item["additionalProperties"] is False
    assert held["properties"]["note"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert {"type": "null"} in held["properties"]["grade"]["anyOf"]
    assert "default" not in str(held).replace("{default: ", "")


def test_what_a_mode_has_no_keyword_for_is_told() -> None:
    """A bound and a default become words of the description, behind the author's own."""
    for mode in (OPENAI, CLAUDE):
        held = strict(Shape(Tour).spec.json_schema, mode)
        assert held is not None
        assert held["properties"]["name"] == {"type": "string", "description": "{minLength: 1}"}
    hut = strict(Shape(Hut).spec.json_schema, CLAUDE)
    assert hut is not None
    assert hut["properties"]["beds"] == {"type": "integer", "description": "How many.\n\n{default: 8, minimum: 1}"}


def test_claude_gets_the_keywords_that_the_official_client_leaves() -> None:
    """Optional properties stay optional, and each object is closed."""

    def keywords(schema: Any, found: set[str]) -> set[str]:
        for name, value in schema.items():
            found.add(name)
            members = value.values() if name in ("properties", "$defs") else value if name == "anyOf" else [value]
            for member in members:
                if isinstance(member, dict) and name not in ("const", "enum"):
                    keywords(member, found)
        return found

    held = strict(Shape(Tour).spec.json_schema, CLAUDE)

    assert held is not None
    assert held["required"] == ["name", "day"]
    assert keywords(held, set()) <= keywords(anthropic.transform_schema(Tour), set())


def test_a_recursive_shape_is_held_where_the_mode_has_references() -> None:
    """OpenAI takes a schema that refers to itself, Anthropic does not."""
    schema = Shape(Node).spec.json_schema

    assert strict(schema, OPENAI) is not None
    assert strict(schema, CLAUDE) is None


@pytest.mark.parametrize(
    "member",
    [
        {},
        {"type": "array"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"allOf": [{"type": "string"}, {"type": "string"}]},
        {"anyOf": [{"type": "object", "properties": {}}, {"type": "null"}]},
    ],
)
def test_what_no_mode_can_hold_is_a_wish(member: Any) -> None:
    """At any depth: anything at all, a dict of any names, a tuple."""
    deep = {**CLOSED, "properties": {"x": {"type": "array", "items": member}}}

    assert strict(deep, OPENAI) is strict(deep, CLAUDE) is None


def test_a_strict_schema_stays_as_it_is() -> None:
    """A property may be called like a keyword, and data are no schema."""
    named = {**CLOSED, "properties": {"default": {"enum": [{"type": "object"}]}}, "required": ["default"]}

    for mode in (OPENAI, CLAUDE):
        assert strict(CLOSED, mode) == CLOSED
        assert strict(named, mode) == named


def test_both_formats_of_openai_ask_strictly() -> None:
    """For an ordinary model, and without strictness for one that cannot be held."""
    for kind, is_held in ((Tour, True), (dict[str, int], False)):
        request = Request(messages=(Message.user("Hi"),), output=Shape(kind).spec)
        chat = to_chat(request)["response_format"]["json_schema"]
        responses = to_responses(request)["text"]["format"]
        assert chat["strict"] is responses["strict"] is is_held
        assert chat["schema"] == responses["schema"]


@pytest.mark.parametrize(
    "text, hut",
    [
        ('{"name": "Hörnli", "beds": null}', Hut(name="Hörnli")),
        ('{"name": "Hörnli", "beds": 3}', Hut(name="Hörnli", beds=3)),
    ],
)
def test_null_for_what_is_left_out_is_read_as_that(text: str, hut: Hut) -> None:
    """An optional property that may not be null takes its default; so it does within lists and unions."""
    assert Shape(Hut).read(text) == hut
    assert Shape(list[Hut | Rope]).read(f'{{"value": [{text}]}}') == [hut]


def test_null_for_what_has_to_be_there_is_refused() -> None:
    """A required property is not left out, and the model is told of the null."""
    with pytest.raises(OutputError, match="name"):
        Shape(Hut).read('{"name": null, "beds": null}')
