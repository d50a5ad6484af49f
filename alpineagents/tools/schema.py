"""A function's parameters as JSON Schema, and a model's arguments as Python values, both through pydantic."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError

from alpineagents.errors import ToolDefinitionError
from alpineagents.tools.context import ToolContext
from alpineagents.tools.docstring import Described
from alpineagents.tools.mistakes import mistakes
from alpineagents.tools.signature import Parameter, Signature
from alpineagents.tools.tidy import QuietGenerator, tidy


@dataclass(frozen=True, slots=True)
class Arguments:
    """
    What a tool takes: told to a model as JSON Schema, and read from what the model gives.

    Attributes:
        tool_name: for messages.
        schema: JSON Schema of an object.
        signature: the function's own parameters.
        model: the pydantic model that checks; its fields are `arg_0`, `arg_1` …, so that no name of a parameter can
            collide with one of pydantic's.
    """

    tool_name: str
    schema: dict[str, JsonValue]
    signature: Signature = field(repr=False)
    model: type[BaseModel] = field(repr=False)

    def validate(self, args: Mapping[str, Any]) -> dict[str, object]:
        """
        Turn a model's JSON into the values that the function takes, by the names of its parameters.

        What the model left out is left out here too, so that the function's own default counts.

        Raises:
            ToolInputError: an argument is missing, unknown or not of its type; the message tells the model which.
        """
        try:
            checked = self._read(args)
        except ValidationError as error:
            raise mistakes(self.tool_name, error, args, self.schema) from None
        values: dict[str, object] = {}
        for index, parameter in enumerate(self.signature.parameters):
            field_name = f"arg_{index}"
            if field_name in checked.model_fields_set or _has_pydantic_default(parameter):
                values[parameter.name] = getattr(checked, field_name)
        return values

    def with_defaults(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return values with the function's own defaults for what was left out."""
        return {
            parameter.name: values.get(parameter.name, parameter.default) for parameter in self.signature.parameters
        }

    def bind(self, values: Mapping[str, object], context: ToolContext) -> tuple[list[object], dict[str, object]]:
        """Put values where the function takes them, by place or by name, and the context with them."""
        given = dict(values)
        if self.signature.context is not None:
            given[self.signature.context] = context
        defaults = {parameter.name: parameter.default for parameter in self.signature.parameters}
        by_place = self.signature.order[: self.signature.positional]
        places = [given.pop(name) if name in given else defaults[name] for name in by_place]
        return places, given

    def _read(self, args: Mapping[str, Any]) -> BaseModel:
        # As JSON, because what pydantic takes from JSON is wider: a strict date may be a string there.
        text = json.dumps(args)
        if "\\ud" in text and _has_lone_surrogate(args):
            # pydantic's JSON reader refuses such a string wherever it stands, even where any value will do.
            return self.model.model_validate(dict(args))
        return self.model.model_validate_json(text)


def describe_arguments(name: str, signature: Signature, described: Described) -> Arguments:
    """
    Describe a function's parameters.

    Raises:
        ToolDefinitionError: pydantic cannot check or describe one of the types.
    """
    try:
        model = _model(name, signature.parameters, described)
        raw = model.model_json_schema(schema_generator=QuietGenerator)
    except (PydanticUserError, SchemaError, TypeError, ValueError) as error:
        raise _undescribable(name, signature.parameters, error) from error
    tidied = tidy(raw)
    tidied.pop("description", None)
    schema: dict[str, JsonValue] = {"type": "object", "properties": {}} | tidied | {"additionalProperties": False}
    return Arguments(name, schema, signature, model)


def _model(name: str, parameters: tuple[Parameter, ...], described: Described) -> type[BaseModel]:
    fields: dict[str, Any] = {
        f"arg_{index}": (
            _annotated(parameter, described.parameters.get(parameter.name)),
            ... if parameter.default is inspect.Parameter.empty else parameter.default,
        )
        for index, parameter in enumerate(parameters)
    }
    return create_model(name, __config__=ConfigDict(extra="forbid"), **fields)


def _annotated(parameter: Parameter, from_docstring: str | None) -> Any:
    """
    Add the name and a description to a type hint, unless a Field of the user's has them.

    Of several Fields the last one decides, so this one comes first. So can a model say "from" where Python needs from_.
    """
    annotated = get_origin(parameter.hint) is Annotated
    bare, *notes = get_args(parameter.hint) if annotated else (parameter.hint,)
    plain = [note for note in notes if isinstance(note, str)]
    said = plain[0] if plain else from_docstring
    named = Field(alias=parameter.name) if said is None else Field(alias=parameter.name, description=said)
    return Annotated[bare, named, *notes]


def _has_pydantic_default(parameter: Parameter) -> bool:
    if isinstance(parameter.default, FieldInfo):
        return True
    if parameter.default is not inspect.Parameter.empty or get_origin(parameter.hint) is not Annotated:
        return False
    return any(isinstance(note, FieldInfo) and not note.is_required() for note in get_args(parameter.hint)[1:])


def _undescribable(name: str, parameters: tuple[Parameter, ...], error: Exception) -> ToolDefinitionError:
    """Find which parameter it was, by trying each alone."""
    for parameter in parameters:
        try:
            _model(name, (parameter,), Described()).model_json_schema(schema_generator=QuietGenerator)
        except (PydanticUserError, SchemaError, TypeError, ValueError) as its:
            shown = getattr(parameter.hint, "__name__", None) or repr(parameter.hint)
            return ToolDefinitionError(
                f"parameter {parameter.name!r} of tool {name!r} is a {shown}, which cannot be told to a model as JSON "
                f"(pydantic: {_first_sentence(its)}). "
                f"Take what JSON has and make the {shown} inside the tool: {parameter.name}: str. Or, for several "
                "values, take a pydantic model or a dataclass"
            )
    return ToolDefinitionError(f"the parameters of tool {name!r} cannot be told to a model: {error}")


def _first_sentence(error: Exception) -> str:
    return re.split(r"\.\s|\n", str(error), maxsplit=1)[0].rstrip(".")


def _has_lone_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, Mapping):
        return any(_has_lone_surrogate(key) or _has_lone_surrogate(item) for key, item in value.items())
    return isinstance(value, list) and any(_has_lone_surrogate(item) for item in value)
