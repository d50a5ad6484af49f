"""The `tool` decorator, and what it makes of a function."""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Concatenate, Generic, Literal, Protocol, cast, overload

from typing_extensions import ParamSpec, TypeVar, Unpack

from alpineagents.errors import ToolDefinitionError
from alpineagents.messages import ToolSpec
from alpineagents.tools.contradictions import FLAGS, ToolSettings, refuse_contradictions
from alpineagents.tools.docstring import read_docstring
from alpineagents.tools.hints import UNSAFE, Hint, HintFunction, functions_of, said_of, settled
from alpineagents.tools.mistakes import nearest
from alpineagents.tools.places import Places
from alpineagents.tools.schema import Arguments, describe_arguments
from alpineagents.tools.signature import read_signature, takes_self

P = ParamSpec("P", default=...)
P2 = ParamSpec("P2")
R = TypeVar("R", default=Any)
R_co = TypeVar("R_co", default=Any, covariant=True)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_RESULT_BYTES = 100_000
"""How long a result may be unless a tool says otherwise: some 25,000 tokens."""

OnError = Mapping[type[Exception], str | Callable[[Any], str]]
"""What a model is told of an exception of a type: a text, or a function of the exception that gives one."""

_COPIED = ("__module__", "__name__", "__qualname__", "__doc__")


@dataclass(frozen=True, repr=False)
class Tool(Generic[P, R_co]):
    """
    A function that a model may call; `tool` makes it.

    Calling it calls the function, with nothing in between, so tests need no agent. Taken from an object
    (`files.read`) it belongs to that object, as a method does.

    Attributes:
        name: as the model knows it.
        description: what the model is told of it; from the docstring.
        function: the function or bound method itself.
        is_async: whether it is awaited; any other tool runs in a worker thread.
        read_only: it changes nothing, so it may run again after a crash.
        destructive: it may remove or overwrite what was there.
        idempotent: a second run with the same arguments changes nothing more, so it may run again after a crash.
        open_world: it reaches out of the program, such as to the web.
        parallel: it may run at the same time as other tools of one turn.
        transaction: its effect and its result are saved together, or neither is.
        needs_approval: a person is asked before each call.
        timeout: seconds that a call may take; None for any time.
        max_result_bytes: how long a result the model reads as a whole, in UTF-8; None for any length.
        places: bounds how many calls are made at the same time; None for any number.
        on_error: what a model is told of exceptions, by type.
        spec: what a model is told.
        arguments: the parameters, and how a model's arguments become Python values.
        binding: whether the function waits for an object, for a class, or for nothing.
        is_subagent: whether it is an Agent, which works on each call in a State of its own.
        per_call: the hints that depend on the call; `for_call` settles them, and until then the unsafe value stands.
    """

    name: str
    description: str
    function: Callable[P, R_co]
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool
    parallel: bool
    transaction: bool
    needs_approval: bool
    binding: Literal["object", "class", "nothing"]
    arguments: Arguments = field(compare=False)
    timeout: float | None = None
    max_result_bytes: int | None = MAX_RESULT_BYTES
    places: Places | None = None
    on_error: OnError = field(default_factory=dict, compare=False)
    is_subagent: bool = False
    per_call: Mapping[str, HintFunction] = field(default_factory=dict, compare=False)
    spec: ToolSpec = field(init=False, compare=False)
    is_async: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        refuse_contradictions(self)
        spec = ToolSpec(name=self.name, description=self.description, parameters=self.arguments.schema)
        made = {"spec": spec, "is_async": _is_async(self.function), "__wrapped__": self.function}
        copied = {name: getattr(self.function, name, None) for name in _COPIED}
        for name, value in (made | copied).items():
            object.__setattr__(self, name, value)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function itself: nothing is checked, recorded or put in a thread."""
        return self.function(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type) -> Tool[P, R_co]: ...
    @overload
    def __get__(
        self: Tool[Concatenate[Any, P2], R_co], instance: object, owner: type | None = None
    ) -> Tool[P2, R_co]: ...
    def __get__(self, instance: object, owner: type | None = None) -> Tool[Any, Any]:
        if self.binding == "nothing" or (self.binding == "object" and instance is None):
            return self
        holder = (owner or type(instance)) if self.binding == "class" else instance
        bound = types.MethodType(self.function, holder)
        return dataclasses.replace(self, function=bound, binding="nothing")

    def validate(self, args: Mapping[str, Any]) -> dict[str, object]:
        """
        Turn a model's arguments into the values that the function takes.

        Raises:
            ToolInputError: the arguments do not fit; the message is written for the model.

        Example:
            >>> @tool
            ... def add(a: int, b: int = 1) -> int:
            ...     return a + b
            >>> add.validate({"a": "2"})
            {'a': 2}
        """
        return self.arguments.validate(args)

    def for_call(self, args: Mapping[str, Any]) -> Tool[P, R_co]:
        """
        Return the tool with the hints that hold for a call; a function that fails, or args that do not fit, are unsafe.

        Args:
            args: the arguments as the model wrote them.

        Example:
            >>> @tool(read_only=lambda args: args["method"] == "GET")
            ... def fetch(url: str, method: str = "GET") -> str:
            ...     return url
            >>> fetch.for_call({"url": "a"}).read_only, fetch.for_call({"url": "a", "method": "PUT"}).read_only
            (True, False)
        """
        if not self.per_call:
            return self
        try:
            values: dict[str, object] | None = self.arguments.with_defaults(self.validate(args))
        except Exception:  # noqa: BLE001  (validators are the tool author's code)
            values = None
        hints: dict[str, Any] = settled(self.name, self.per_call, values)
        return dataclasses.replace(self, **hints)

    def copy(self, **settings: Unpack[ToolSettings]) -> Tool[P, R_co]:
        """
        Return the same tool under another name, or with other settings.

        So can two objects of one class give their tools to one agent. The copies of a tool with `max_concurrency` share
        its places, unless they are given their own.

        Args:
            settings: any that `tool` takes.

        Raises:
            ToolDefinitionError: no model takes this name, or a setting cannot work.

        Example:
            >>> @tool
            ... def read(path: str) -> str:
            ...     return path
            >>> read.copy(name="read_notes", needs_approval=True)
            Tool(read_notes(path), needs_approval=True)
        """
        changes: dict[str, Any] = {**settings}
        for key in changes.keys() - ToolSettings.__annotations__.keys():
            raise TypeError(f"copy() takes no {key!r}.{nearest(key, ToolSettings.__annotations__)}")
        for key in ("name", "description"):
            if changes.get(key, "") is None:
                del changes[key]
        name = self.name
        if "name" in changes:
            name = _checked(changes["name"], self.function)
            changes["arguments"] = dataclasses.replace(self.arguments, tool_name=name)
        if "max_concurrency" in changes:
            count = changes.pop("max_concurrency")
            changes["places"] = None if count is None else Places(name, count)
        if changes.get("on_error", {}) is None:
            changes["on_error"] = {}
        flags: dict[str, Hint] = {flag: getattr(self, flag) for flag in FLAGS} | said_of(self.per_call)
        flags |= {flag: changes[flag] for flag in FLAGS if flag in changes}
        return dataclasses.replace(self, **{**changes, **_hinted(name, flags)})

    def __repr__(self) -> str:
        said = {flag: getattr(self, flag) for flag in FLAGS}
        said |= {hint: _name_of(value) if callable(value) else value for hint, value in said_of(self.per_call).items()}
        flags = [f"{flag}={value}" for flag, value in said.items() if value != (flag == "parallel")]
        names = ", ".join(cast("dict[str, Any]", self.arguments.schema["properties"]))
        return f"Tool({', '.join([f'{self.name}({names})', *flags])})"


class _Decorator(Protocol):
    def __call__(self, function: Callable[P2, R], /) -> Tool[P2, R]: ...


@overload
def tool(function: Callable[P2, R], /, **settings: Unpack[ToolSettings]) -> Tool[P2, R]: ...
@overload
def tool(**settings: Unpack[ToolSettings]) -> _Decorator: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    read_only: Hint = False,
    destructive: Hint = False,
    idempotent: Hint = False,
    open_world: Hint = False,
    parallel: bool = True,
    transaction: bool = False,
    needs_approval: bool = False,
    timeout: float | None = None,
    max_result_bytes: int | None = MAX_RESULT_BYTES,
    max_concurrency: int | None = None,
    on_error: OnError | None = None,
    name: str | None = None,
    description: str | None = None,
) -> Any:
    """
    Make a tool of a function or method, sync or async.

    Its type hints say what a model may give, its docstring what it does and what each parameter means. Without a
    docstring the model has names and types to go by, which is enough for many a tool.

    Args:
        function: what to make a tool of.
        read_only: it changes nothing. This and the next three may be a function of the arguments by name, which says
            what holds for one call; where it fails, the call counts as one that changes, destroys and reaches out.
        destructive: it may remove or overwrite what was there.
        idempotent: a second run with the same arguments changes nothing more.
        open_world: it reaches out of the program.
        parallel: it may run at the same time as other tools.
        transaction: its effect and its result are saved together; for async functions only.
        needs_approval: a person is asked before each call.
        timeout: seconds that a call may take; then the model is told that it took too long, and the run goes on.
        max_result_bytes: how long a result the model reads as a whole; of a longer one it reads the ends, and the whole
            is kept aside. None for any length.
        max_concurrency: how many calls may be made at the same time in one event loop, of all runs together; None for
            any number. The time that a call waits for its place does not count for its `timeout`.
        on_error: what the model is told of an exception of a type, as a text or a function of the exception; the run
            goes on. The first type that fits counts.
        name: as the model knows it, instead of the function's own.
        description: instead of what the docstring says.

    Raises:
        ToolDefinitionError: a model cannot be told how to call it; the message shows the line to write.

    Example:
        >>> @tool(read_only=True)
        ... def height(mountain: str, unit: str = "m") -> str:
        ...     "Say how high a mountain is."
        ...     return f"{mountain}: 4478 {unit}"
        >>> height
        Tool(height(mountain, unit), read_only=True)
        >>> height("Matterhorn")
        'Matterhorn: 4478 m'
    """
    values = (read_only, destructive, idempotent, open_world, parallel, transaction, needs_approval)
    flags = dict(zip(FLAGS, values, strict=True))

    def decorate(decorated: object) -> Tool[..., Any]:
        made = _make(decorated, flags, name, description)
        return made.copy(
            timeout=timeout, max_result_bytes=max_result_bytes, max_concurrency=max_concurrency, on_error=on_error
        )

    return decorate if function is None else decorate(function)


def _make(value: object, flags: Mapping[str, Hint], name: str | None, description: str | None) -> Tool[..., Any]:
    binding: Literal["object", "class", "nothing"] | None = None
    if isinstance(value, (staticmethod, classmethod)):
        binding = "class" if isinstance(value, classmethod) else "nothing"
        value = value.__func__
    function = _function(value)
    if binding is None:
        binding = "object" if takes_self(function) else "nothing"
    used = _checked(function.__name__ if name is None else name, function)
    signature = read_signature(function, used, drop_first=binding != "nothing")
    described = read_docstring(function.__doc__, [parameter.name for parameter in signature.parameters])
    return Tool(
        name=used,
        description=described.text if description is None else description,
        function=function,
        binding=binding,
        arguments=describe_arguments(used, signature, described),
        **_hinted(used, flags),
    )


def _hinted(name: str, flags: Mapping[str, Hint]) -> dict[str, Any]:
    """Return the flags as a Tool has them: of one that depends on the call the unsafe value, and the function."""
    functions = functions_of(name, flags)
    return {flag: UNSAFE[flag] if flag in functions else value for flag, value in flags.items()} | {
        "per_call": functions
    }


def _function(value: object) -> Callable[..., Any]:
    if isinstance(value, Tool):
        raise ToolDefinitionError(f"{value!r} is a tool already. For another name: {value.name}.copy(name=…)")
    if not isinstance(value, (types.FunctionType, types.MethodType)):
        raise ToolDefinitionError(
            f"a tool is a function or a method, not {kind_of(value)}. Write one around it:\n"
            "@tool\ndef look_up(word: str) -> str: ..."
        )
    return value


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _checked(name: object, function: Callable[..., Any]) -> str:
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    where = getattr(function, "__qualname__", repr(function))
    raise ToolDefinitionError(
        f"{name!r} cannot be the name of a tool ({where}): models take 1 to 64 letters (a-z, A-Z), digits, '_' "
        "and '-'. Give it one: @tool(name=\"look_up\")"
    )


def _name_of(function: object) -> str:
    return getattr(function, "__qualname__", type(function).__qualname__).rpartition(".")[2]


def kind_of(value: object) -> str:
    """Name what was given where a tool is due, for an error."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"
