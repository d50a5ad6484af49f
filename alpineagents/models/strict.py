"""
JSON Schemas as strict modes take them, which hold a model to a schema while it writes.

What a mode has no keyword for becomes a part of the description, so that the model reads it; whoever asked checks the
answer against the schema that was meant. Written from the guides to structured outputs of OpenAI (2025) and Anthropic
(2026).
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

Wire = dict[str, Any]

_SHARED = frozenset({"type", "enum", "const", "title", "description", "properties", "required", "additionalProperties"})
_SHARED |= {"items", "anyOf", "$defs", "$ref"}
# They say what no description can: a schema with one of them cannot be held.
_UNHELD = frozenset({"not", "if", "then", "else", "dependentRequired", "dependentSchemas", "prefixItems", "contains"})
_UNHELD |= {"patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems"}
_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


@dataclasses.dataclass(frozen=True)
class Mode:
    """
    What a strict mode takes.

    Attributes:
        keywords: those that it knows.
        formats: of strings.
        requires_all: whether each property has to be required; an optional one may then be null.
        recurses: whether a schema may refer to itself.
    """

    keywords: frozenset[str]
    formats: frozenset[str]
    requires_all: bool
    recurses: bool


OPENAI = Mode(
    # Bounds of numbers and of the length of lists are taken, those of strings and objects are not.
    keywords=_SHARED
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "pattern"},
    formats=_FORMATS,
    requires_all=True,
    recurses=True,
)
CLAUDE = Mode(keywords=_SHARED, formats=_FORMATS | {"uri"}, requires_all=False, recurses=False)


class _UnheldError(Exception):
    """The schema has what no strict mode can hold."""


def strict(schema: Wire, mode: Mode) -> Wire | None:
    """
    Return a schema as a strict mode takes it, or None where it has what none can hold, such as a dict of any names.

    Example:
        >>> strict({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}, CLAUDE)["properties"]
        {'n': {'type': 'integer', 'description': '{minimum: 1}'}}
    """
    try:
        held = _node(schema, mode)
    except (_UnheldError, RecursionError):
        return None
    return held if held.get("type") == "object" else None


def _node(schema: object, mode: Mode) -> Wire:
    if not isinstance(schema, dict) or schema.keys() & _UNHELD:
        raise _UnheldError
    if "$ref" in schema:
        if not mode.recurses:
            raise _UnheldError
        return {"$ref": schema["$ref"]} | _definitions(schema, mode)
    schema = _plain(schema)
    if not schema.keys() & {"type", "anyOf", "enum", "const"}:
        raise _UnheldError  # Anything at all.
    held: Wire = {}
    told: Wire = {}
    for name, value in schema.items():
        if _takes(name, value, mode):
            held[name] = [_node(item, mode) for item in value] if name == "anyOf" else value
        elif value is not None:
            told[name] = value
    types = schema.get("type")
    if "array" in (types if isinstance(types, list) else [types]):
        held["items"] = _node(schema.get("items"), mode)
    if "object" in (types if isinstance(types, list) else [types]):
        held |= _object(schema, mode)
    if told:
        notes = "{" + ", ".join(f"{name}: {_written(value)}" for name, value in told.items()) + "}"
        held["description"] = f"{held['description']}\n\n{notes}" if held.get("description") else notes
    return held | _definitions(schema, mode)


def _plain(schema: Wire) -> Wire:
    """Return a schema with other words for the same: no `allOf` of one, no `oneOf`."""
    whole = schema.get("allOf")
    if whole is not None:
        if not isinstance(whole, list) or len(whole) != 1 or not isinstance(whole[0], dict) or "$ref" in whole[0]:
            raise _UnheldError
        schema = {**whole[0], **{name: value for name, value in schema.items() if name != "allOf"}}
    if "oneOf" in schema:
        if "anyOf" in schema:
            raise _UnheldError
        # Which of them is said by a field of each, where pydantic has made them.
        renamed = {"anyOf" if name == "oneOf" else name: value for name, value in schema.items()}
        schema = {name: value for name, value in renamed.items() if name != "discriminator"}
    return schema


def _takes(name: str, value: object, mode: Mode) -> bool:
    if name == "format":
        return value in mode.formats
    if name == "minItems" and value in (0, 1):
        return True
    return name in mode.keywords


def _object(schema: Wire, mode: Mode) -> Wire:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    if not isinstance(properties, dict) or isinstance(others, dict) or (not properties and others is not False):
        raise _UnheldError  # A dict: its names are for the model to choose.
    required = schema.get("required", [])
    held = {name: _node(value, mode) for name, value in properties.items()}
    if mode.requires_all:
        held = {name: value if name in required else _nullable(value) for name, value in held.items()}
        required = list(held)
    closed: Wire = {"properties": held, "additionalProperties": False}
    return closed | ({"required": required} if required or "required" in schema else {})


def _nullable(schema: Wire) -> Wire:
    options = schema.get("anyOf")
    if schema.get("type") == "null" or (isinstance(options, list) and {"type": "null"} in options):
        return schema
    if isinstance(options, list):
        return {**schema, "anyOf": [*options, {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]}


def _definitions(schema: Wire, mode: Mode) -> Wire:
    definitions = schema.get("$defs")
    if not isinstance(definitions, dict):
        return {}
    return {"$defs": {name: _node(value, mode) for name, value in definitions.items()}}


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
