"""Which JSON Schemas OpenAI's strict mode takes, written from its guide to structured outputs (2025)."""

from __future__ import annotations

from pydantic import JsonValue

_NAMED = ("properties", "$defs")
# Bounds of numbers and of the length of lists are taken, those of strings and objects are not.
_REFUSED = frozenset(
    {"allOf", "oneOf", "not", "if", "then", "else", "default", "dependentRequired", "dependentSchemas", "prefixItems"}
    | {"patternProperties", "propertyNames", "unevaluatedProperties", "unevaluatedItems", "uniqueItems", "contains"}
    | {"minContains", "maxContains", "minProperties", "maxProperties", "minLength", "maxLength"}
)


def is_strict(schema: JsonValue) -> bool:
    """
    Tell whether a server may hold a model to a schema strictly; another schema has to be sent as a wish.

    Each object has to require all its properties and allow no others.

    Example:
        >>> closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
        >>> is_strict({**closed, "required": ["a"]}), is_strict({**closed, "required": []})
        (True, False)
    """
    if isinstance(schema, list):
        return all(map(is_strict, schema))
    if not isinstance(schema, dict):
        return True
    if schema.keys() & _REFUSED:
        return False
    if schema.get("type") == "object":
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            return False
        if schema.get("additionalProperties") is not False or set(properties) != set(map(str, required)):
            return False
    return all(_is_strict_member(name, value) for name, value in schema.items())


def _is_strict_member(name: str, value: JsonValue) -> bool:
    if name in _NAMED and isinstance(value, dict):
        return all(map(is_strict, value.values()))
    return name in ("enum", "const", "required") or is_strict(value)
