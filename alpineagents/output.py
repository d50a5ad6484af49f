"""The shape of an answer: a Python type as JSON Schema, and a model's text as a value of that type."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from typing import Any, Generic, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, SchemaError

from alpineagents.errors import ConfigError, OutputError, ValueNotStorableError
from alpineagents.messages import OutputSpec
from alpineagents.tools.mistakes import findings, shorten
from alpineagents.tools.tidy import QuietGenerator, tidy
from alpineagents.values import storable

T = TypeVar("T")

MAX_TEXT = 2000
"""Characters of what was wrong with an answer; the schema stands beside it as a whole."""

_FENCED = re.compile(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", re.DOTALL)
_WRAPPED = "value"
"""Providers take only objects; another value is the property of this name in one."""


class Shape(Generic[T]):
    """
    What an answer is to be.

    Args:
        kind: a pydantic model, a dataclass, or any other type that pydantic knows.

    Attributes:
        spec: as a Model is told.

    Raises:
        ConfigError: pydantic cannot describe the type as JSON.

    Example:
        >>> Shape(list[int]).read('{"value": [1, 2]}')
        [1, 2]
    """

    def __init__(self, kind: type[T]) -> None:
        try:
            self._adapter: TypeAdapter[T] = TypeAdapter(kind)
            schema = tidy(self._adapter.json_schema(schema_generator=QuietGenerator))
        except (PydanticUserError, SchemaError, TypeError, NameError) as error:
            raise ConfigError(
                f"{kind!r:.80} cannot be the shape of an answer: {str(error).splitlines()[0]} "
                "A pydantic model can: Agent(model, output=Peak), with class Peak(BaseModel): …"
            ) from error
        self._is_wrapped = schema.get("type") != "object" or "properties" not in schema
        if self._is_wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {"type": "object", "properties": {_WRAPPED: schema}, "required": [_WRAPPED], **definitions}
        name = re.sub(r"[^A-Za-z0-9_-]", "_", getattr(kind, "__name__", "answer"))[:64]
        self.spec = OutputSpec(name=name, json_schema=_closed(schema))

    @classmethod
    def of(cls, kind: type[T] | None) -> Shape[T] | None:
        """Return the shape of a type; None for free text."""
        return None if kind is None or kind is str else cls(kind)

    def read(self, text: str) -> T:
        """
        Return the value that a model wrote.

        Raises:
            OutputError: it is none; the message tells the model what to change.
        """
        fenced = _FENCED.fullmatch(text)
        try:
            value = json.loads(fenced[1] if fenced else text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"- it is not JSON: {error}", text) from None
        if self._is_wrapped and isinstance(value, dict) and value.keys() == {_WRAPPED}:
            value = value[_WRAPPED]
        return self._checked(value, text)

    def stored(self, value: T) -> JsonValue:
        """
        Return a value as JSON, as a State keeps it.

        Raises:
            OutputError: it would not come back as it is.
        """
        try:
            return storable(self._adapter.dump_python(value, mode="json", by_alias=True), "the answer")
        except (ValueNotStorableError, PydanticSerializationError) as error:
            raise self._wrong(f"- {error}", repr(value)) from None

    def restored(self, answer: JsonValue) -> T:
        """
        Return the value that a State keeps.

        Raises:
            OutputError: it keeps something else, such as what a tool has given to `state.finish`.
        """
        return self._checked(answer, json.dumps(answer, ensure_ascii=False))

    def _checked(self, value: JsonValue, text: str) -> T:
        try:
            return self._validated(value)
        except ValidationError as error:
            # Strict modes require each property, and say null for one that is left out.
            without = copy.deepcopy(value)
            if _leave_out_nulls(without, error):
                with suppress(ValidationError):
                    return self._validated(without)
            raise self._wrong(findings(error, value, self.spec.json_schema), text) from None

    def _validated(self, value: JsonValue) -> T:
        # From JSON and not from Python, so that a list may be a tuple or a set.
        return self._adapter.validate_json(json.dumps(value))

    def _wrong(self, lines: str, text: str) -> OutputError:
        return OutputError(
            f"The answer does not have the shape asked for:\n{shorten(lines, MAX_TEXT)}\n"
            "Answer again with JSON and nothing else. It has to fit this schema:\n"
            f"{json.dumps(self.spec.json_schema, ensure_ascii=False)}",
            text,
        )


def _leave_out_nulls(value: JsonValue, error: ValidationError) -> bool:
    """Take the properties out of a value that are null and may not be; tell whether there are any."""
    found = False
    for problem in error.errors(include_url=False, include_context=False):
        if problem["input"] is not None:
            continue
        inside: JsonValue = value
        for part in problem["loc"]:
            # The place also names the options of unions, which are no part of the value.
            if isinstance(inside, dict) and isinstance(part, str) and part in inside:
                if inside[part] is None:
                    del inside[part]
                    found = True
                    break
                inside = inside[part]
            elif isinstance(inside, list) and isinstance(part, int) and part < len(inside):
                inside = inside[part]
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _closed(schema: Any) -> Any:
    """Return a schema whose objects allow no other properties, unless they say so: strict modes want that."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed_member(name, value) for name, value in schema.items()}
    if "properties" in closed:
        closed.setdefault("additionalProperties", False)
    return closed


def _closed_member(name: str, value: Any) -> Any:
    if name in ("properties", "$defs"):
        return {key: _closed(member) for key, member in value.items()}
    return value if name in ("const", "enum", "default", "examples") else _closed(value)
