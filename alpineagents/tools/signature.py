"""A function's parameters with their type hints resolved, or a refusal that shows what to write."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Annotated, Any, get_args, get_origin

from alpineagents.errors import ToolDefinitionError
from alpineagents.tools.context import ToolContext


@dataclass(frozen=True, slots=True)
class Parameter:
    """
    One parameter that a model fills in.

    Attributes:
        name: as the function calls it.
        hint: its type, `Annotated` included.
        default: its default, or `inspect.Parameter.empty`.
        positional_only: whether it stands before a `/`.
    """

    name: str
    hint: Any
    default: Any
    positional_only: bool


@dataclass(frozen=True, slots=True)
class Signature:
    """
    What a function takes.

    Attributes:
        parameters: what the model fills in.
        order: every parameter by name, the injected one included, those before a `/` first.
        positional: how many stand before a `/`.
        context: the name of the parameter that gets the ToolContext, or None.
    """

    parameters: tuple[Parameter, ...]
    order: tuple[str, ...]
    positional: int
    context: str | None


def takes_self(function: Callable[..., Any]) -> bool:
    """
    Say whether a function is a method that was taken from its class, not from an object.

    When a decorator runs there is no class yet, so the qualified name tells. A static method looks the same there,
    but for its first parameter, which has a type hint.
    """
    if not isinstance(function, types.FunctionType):
        return False
    outer = function.__qualname__.rpartition(".")[0]
    if not outer or outer.endswith("<locals>"):
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    return first.name in ("self", "cls") or first.annotation is first.empty


def read_signature(function: Callable[..., Any], name: str, *, drop_first: bool) -> Signature:
    """
    Read what a function takes.

    Args:
        function: a function or a bound method.
        name: the tool's name, for errors.
        drop_first: whether the first parameter is `self`.

    Raises:
        ToolDefinitionError: a parameter has no type hint, or one that cannot be resolved; or the function takes
            `*args`, `**kwargs` or two ToolContexts.
    """
    given = list(inspect.signature(function).parameters.values())[1 if drop_first else 0 :]
    scope = _Scope(function)
    parameters: list[Parameter] = []
    contexts: list[str] = []
    for parameter in given:
        _refuse_untellable(parameter, function, name)
        hint = scope.resolve(parameter, name)
        if is_context(hint):
            contexts.append(parameter.name)
        else:
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            parameters.append(Parameter(parameter.name, hint, parameter.default, positional))
    if len(contexts) > 1:
        raise ToolDefinitionError(
            f"tool {name!r} has two ToolContext parameters, {contexts[0]!r} and {contexts[1]!r}; they would be the "
            f"same. Keep one: {_line(function, f'{contexts[0]}: ToolContext')}"
        )
    count = sum(parameter.kind is parameter.POSITIONAL_ONLY for parameter in given)
    order = tuple(parameter.name for parameter in given)
    return Signature(tuple(parameters), order, count, contexts[0] if contexts else None)


def is_context(hint: Any) -> bool:
    """Say whether a hint is ToolContext, also as `ToolContext | None` or inside `Annotated`."""
    if get_origin(hint) is Annotated:
        return is_context(get_args(hint)[0])
    if get_origin(hint) in (typing.Union, types.UnionType):
        members = [member for member in get_args(hint) if member is not type(None)]
        return len(members) == 1 and is_context(members[0])
    return isinstance(hint, type) and issubclass(hint, ToolContext)


def _refuse_untellable(parameter: inspect.Parameter, function: Callable[..., Any], name: str) -> None:
    wraps = " (If a decorator gave the function this signature, use functools.wraps in it.)"
    if parameter.kind is parameter.VAR_POSITIONAL:
        line = _line(function, f"{parameter.name}: list[str]")
        raise ToolDefinitionError(
            f"tool {name!r} takes *{parameter.name}, but a model gives arguments by name. Take a list: {line}{wraps}"
        )
    if parameter.kind is parameter.VAR_KEYWORD:
        line = _line(function, f"{parameter.name}: dict[str, str]")
        raise ToolDefinitionError(
            f"tool {name!r} takes **{parameter.name}, so nobody can tell a model which arguments there are. "
            f"Take a dict: {line}{wraps}"
        )
    if parameter.annotation is parameter.empty:
        raise ToolDefinitionError(
            f"parameter {parameter.name!r} of tool {name!r} has no type hint, so a model cannot know what to give. "
            f"Write its type: {_line(function, f'{parameter.name}: str')}"
        )


def _line(function: Callable[..., Any], part: str) -> str:
    start = "async def" if inspect.iscoroutinefunction(function) else "def"
    called = getattr(function, "__name__", "tool")
    return f"{start} {called if called.isidentifier() else 'tool'}(…, {part}, …)"


class _Scope:
    """The names that a function's type hints may use."""

    def __init__(self, function: Callable[..., Any]) -> None:
        plain = inspect.unwrap(function)
        plain = getattr(plain, "__func__", plain)
        names: Mapping[str, Any] = getattr(plain, "__globals__", {})
        # An import under TYPE_CHECKING is gone when the program runs; for this name it is clear what was meant.
        self.outer: dict[str, Any] = {"ToolContext": ToolContext} | dict(names)
        self.inner = _enclosing(plain, names)

    def resolve(self, parameter: inspect.Parameter, tool_name: str) -> Any:
        holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
        try:
            return typing.get_type_hints(holder, self.outer, self.inner, include_extras=True)[parameter.name]
        except (NameError, AttributeError, SyntaxError, TypeError) as error:
            raise ToolDefinitionError(
                f"the type hint {parameter.annotation!r} of parameter {parameter.name!r} of tool {tool_name!r} cannot "
                f"be resolved: {error}. Its names must be there when the program runs: import them at the top of the "
                "module, not under `if TYPE_CHECKING:`"
            ) from error


def _enclosing(function: Callable[..., Any], outer: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the names of the functions and classes around a definition, as far as these still run."""
    around = [part for part in function.__qualname__.split(".")[:-1] if part != "<locals>"]
    frame: FrameType | None = sys._getframe(1)
    scopes: list[dict[str, Any]] = []
    while frame is not None and around:
        if frame.f_code.co_name == around[-1] and frame.f_globals is outer:
            scopes.append(dict(frame.f_locals))
            around.pop()
        frame = frame.f_back
    return {name: value for scope in reversed(scopes) for name, value in scope.items()}
