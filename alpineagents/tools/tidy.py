"""JSON Schema as a model reads it best: without titles, and with what is defined elsewhere put in its place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind

_MAX_INLINED = 100
"""How often definitions are copied into place; past that the references stay, or a schema could grow exponentially."""

_REF = "#/$defs/"
_NAMED = ("properties", "patternProperties", "dependentSchemas")
_DATA = ("const", "enum", "examples", "required")


class QuietGenerator(GenerateJsonSchema):
    """pydantic's own, without warnings of what JSON Schema cannot tell, such as a default that is no JSON."""

    ignored_warning_kinds: set[JsonSchemaWarningKind] = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  (so declared in pydantic)


def tidy(schema: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return a schema without titles, its definitions inlined where they do not hold themselves.

    Example:
        >>> tidy({"title": "A", "$defs": {"P": {"title": "P", "type": "string"}}, "items": {"$ref": "#/$defs/P"}})
        {'items': {'type': 'string'}}
    """
    definitions = schema.get("$defs", {})
    body = {key: value for key, value in schema.items() if key != "$defs"}
    walker = _Walker(definitions, _recursive(definitions))
    tidied: dict[str, Any] = walker.walk(body)
    if walker.inlined > _MAX_INLINED:
        walker = _Walker(definitions, set(definitions))
        tidied = walker.walk(body)
    kept: dict[str, Any] = {}
    while missing := walker.referred - set(kept):
        kept |= {name: walker.walk(definitions[name]) for name in sorted(missing)}
    return tidied | ({"$defs": kept} if kept else {})


class _Walker:
    def __init__(self, definitions: Mapping[str, Any], keep: set[str]) -> None:
        self.definitions, self.keep = definitions, keep
        self.referred: set[str] = set()
        self.inlined = 0

    def walk(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self.walk(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        return self._referred(schema) | {
            key: self._member(key, value) for key, value in schema.items() if not self._is_noise(key, value)
        }

    def _referred(self, schema: dict[str, Any]) -> dict[str, Any]:
        name = _name(schema)
        if name is None:
            return {}
        if name in self.keep:
            self.referred.add(name)
            return {"$ref": _REF + name}
        self.inlined += 1
        if self.inlined > _MAX_INLINED:
            return {}
        copied: dict[str, Any] = self.walk(self.definitions[name])
        return copied

    def _member(self, key: str, value: Any) -> Any:
        if key in _NAMED and isinstance(value, dict):
            # Here the keys are names that a user chose, "title" among them.
            return {name: self.walk(member) for name, member in value.items()}
        return value if key in _DATA or key == "default" else self.walk(value)

    @staticmethod
    def _is_noise(key: str, value: Any) -> bool:
        # A discriminator is of OpenAPI, not of JSON Schema, and points to the definitions.
        if key in ("title", "discriminator", "$ref"):
            return key != "$ref" or (isinstance(value, str) and value.startswith(_REF))
        return key == "default" and not _is_json(value)


def _name(schema: dict[str, Any]) -> str | None:
    reference = schema.get("$ref")
    return reference.removeprefix(_REF) if isinstance(reference, str) and reference.startswith(_REF) else None


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, TypeError):
        return False
    return True


def _recursive(definitions: Mapping[str, Any]) -> set[str]:
    """Name the definitions that hold themselves, directly or through others."""
    edges = {name: _mentioned(schema) & set(definitions) for name, schema in definitions.items()}
    return {name for name in definitions if name in _reachable(name, edges)}


def _reachable(start: str, edges: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    todo = list(edges[start])
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo.extend(edges[name])
    return seen


def _mentioned(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*(_mentioned(item) for item in schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    here = {name} if (name := _name(schema)) is not None else set()
    return here.union(*(_mentioned(value) for value in schema.values())) if schema else here
