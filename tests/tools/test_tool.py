"""The `tool` decorator: what it accepts, what it makes, what it refuses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from typing import Any

import pytest

from alpineagents.errors import ConfigError, ToolDefinitionError
from alpineagents.tools import Tool, ToolContext, as_tool, tool, toolbox


class Notes:
    """An object with tools."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    @tool(read_only=True)
    def read(self, name: str) -> str:
        """Read a note."""
        return f"{self.folder}/{name}"

    @tool
    async def write(self, name: str) -> str:
        """Write a note."""
        return f"wrote {self.folder}/{name}"

    @classmethod
    @tool
    def kind(cls, word: str) -> str:
        """Name the class."""
        return f"{cls.__name__} {word}"

    @tool
    @classmethod
    def sort(cls, word: str) -> str:
        """Name the class."""
        return f"{cls.__name__} {word}"

    @staticmethod
    @tool
    def echo(word: str) -> str:
        """Say it again."""
        return word

    @tool
    @staticmethod
    def shout(word: str) -> str:
        """Say it louder."""
        return word.upper()


class Diary(Notes):
    """A subclass, to see which class a class method gets."""


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def properties(made: Tool) -> list[str]:
    """Name the parameters that a model is told of."""
    told = made.spec.parameters["properties"]
    assert isinstance(told, dict)
    return list(told)


def test_a_bare_decorator_takes_name_and_docstring() -> None:
    """Without settings a tool is called as the function is."""
    assert (add.name, add.description) == ("add", "Add two numbers.")


def test_a_tool_is_called_like_its_function() -> None:
    """A test of a tool needs no agent: by place, by name, defaults included."""
    assert (add(2, 3), add(a=2), add(2, b=5)) == (5, 3, 7)


def test_settings_default_to_the_plain_kind_of_tool() -> None:
    """A tool of which nothing is said may change things, alone or beside others, and asks nobody."""
    flags = (add.read_only, add.destructive, add.idempotent, add.open_world, add.transaction, add.needs_approval)

    assert flags == (False,) * 6
    assert add.parallel


def test_settings_are_kept() -> None:
    """Each setting of the decorator is an attribute of the tool."""

    @tool(destructive=True, idempotent=True, open_world=True, parallel=False, transaction=True, needs_approval=True)
    async def drop() -> None: ...

    flags = (drop.destructive, drop.idempotent, drop.open_world, drop.transaction, drop.needs_approval)

    assert flags == (True,) * 5
    assert (drop.parallel, drop.read_only) == (False, False)


def test_name_and_description_can_be_given() -> None:
    """What the decorator is told goes before what the function says."""

    @tool(name="look-up", description="Find a word.")
    def find(word: str) -> str:
        """Do something else."""
        return word

    assert (find.spec.name, find.spec.description) == ("look-up", "Find a word.")


def test_no_docstring_is_an_empty_description() -> None:
    """A tool may be so plain that its name and types say all."""

    @tool
    def double(number: int) -> int:
        return number * 2

    assert double.description == ""


def test_a_tool_cannot_be_changed() -> None:
    """Settings that change under a run would make its history a lie."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        add.name = "plus"


def test_repr_tells_name_parameters_and_what_is_special() -> None:
    """A list of tools reads well in a terminal."""
    assert repr(Notes("n").read) == "Tool(read(name), read_only=True)"
    assert repr(add) == "Tool(add(a, b))"


def test_a_tool_looks_like_its_function_to_other_programs() -> None:
    """Documentation and tests find name, docstring and signature."""
    assert (add.__name__, add.__doc__) == ("add", "Add two numbers.")
    assert list(inspect.signature(add).parameters) == ["a", "b"]


def test_async_is_told_apart() -> None:
    """Only a coroutine function is awaited."""
    assert (Notes("n").write.is_async, Notes("n").read.is_async) == (True, False)


def test_a_method_belongs_to_its_object() -> None:
    """Taken from an object, the tool needs no self, and the model is not asked for one."""
    notes = Notes("summits")

    assert notes.read("a") == "summits/a"
    assert properties(notes.read) == ["name"]


def test_one_method_of_one_object_is_one_tool() -> None:
    """Taken twice it is equal and counts as one in a set; another object's is another tool."""
    notes = Notes("n")

    assert len({notes.read, notes.read}) == 1
    assert notes.read != Notes("n").read


@pytest.mark.parametrize("name", ["kind", "sort"])
def test_a_class_method_gets_the_class_it_was_taken_from(name: str) -> None:
    """In either order of the decorators, from the class or an object."""
    taken = [as_tool(getattr(Diary, name)), as_tool(getattr(Diary("d"), name))]

    assert [made("x") for made in taken] == ["Diary x", "Diary x"]
    assert [properties(made) for made in taken] == [["word"], ["word"]]


@pytest.mark.parametrize("name, said", [("echo", "hi"), ("shout", "HI")])
def test_a_static_method_gets_no_object(name: str, said: str) -> None:
    """In either order of the decorators, from the class or an object."""
    assert getattr(Notes, name)("hi") == getattr(Notes("n"), name)("hi") == said
    assert properties(as_tool(getattr(Notes("n"), name))) == ["word"]


def test_a_tool_given_to_a_class_stays_free_of_its_objects() -> None:
    """A function from outside a class gets no self by being an attribute."""

    class Holder:
        plus = add

    assert Holder().plus is add  # type: ignore[comparison-overlap]  # mypy takes it for a method


def test_a_plain_function_and_a_bound_method_become_tools() -> None:
    """An agent takes functions too."""

    class Counter:
        def count(self, step: int) -> int:
            return step

    def half(number: int) -> float:
        return number / 2

    assert (as_tool(half).name, properties(as_tool(Counter().count))) == ("half", ["step"])
    assert as_tool(add) is add


def test_a_copy_differs_in_what_was_asked_only() -> None:
    """A new name is also what the model reads when its arguments are wrong."""
    renamed = add.copy(name="plus", needs_approval=True)

    assert (renamed.name, renamed.spec.name, renamed.needs_approval, renamed(1)) == ("plus", "plus", True, 2)
    assert renamed.arguments.tool_name == "plus"
    assert (add.name, add.needs_approval) == ("add", False)


SETTINGS: dict[str, list[object]] = {
    "name": ["plus"],
    "description": ["Add.", ""],
    "read_only": [True, False],
    "destructive": [True, False],
    "idempotent": [True, False],
    "open_world": [True, False],
    "parallel": [False, True],
    "transaction": [True, False],
    "needs_approval": [True, False],
    "timeout": [2.5, None],
    "max_result_bytes": [10, None],
    "max_concurrency": [3, None],
    "on_error": [{KeyError: "no such key"}, None],
}


async def wait(seconds: int) -> int:
    """Wait."""
    return seconds


def settings_of(made: Tool) -> dict[str, object]:
    kept = {name: getattr(made, name) for name in SETTINGS.keys() - {"max_concurrency"}}
    return {**kept, "max_concurrency": made.places and made.places.count, "on_error": made.on_error or None}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_copy_takes_each_setting_that_a_tool_takes(name: str) -> None:
    """Back and forth, and all others stay; the model is told the new name and description."""
    assert SETTINGS.keys() == inspect.signature(tool).parameters.keys() - {"function"}
    made = tool(wait)
    before = settings_of(made)

    for value in SETTINGS[name]:
        made = made.copy(**{name: value})
        assert settings_of(made) == {**before, name: value}
        assert (made.spec.name, made.spec.description) == (made.name, made.description)
    assert settings_of(tool(wait)) == before


def test_a_copy_keeps_each_setting_that_a_tool_takes() -> None:
    """Whatever else it changes."""
    given = {name: values[0] for name, values in SETTINGS.items() if name not in ("read_only", "name")}
    made = tool(wait, **given)

    assert settings_of(made.copy(name="plus")) == {**given, "read_only": False, "name": "plus"}
    assert settings_of(made) == {**given, "read_only": False, "name": "wait"}


def test_copies_share_the_places_unless_they_are_given_their_own() -> None:
    """So that a bound on a server holds under each name."""
    made = tool(wait, max_concurrency=2)

    assert made.copy(name="again").places is made.places
    assert made.copy(max_concurrency=2).places is not made.places


@pytest.mark.parametrize(
    "settings, error, said",
    [
        ({"nam": "plus"}, TypeError, r"no 'nam'\. Did you mean 'name'\?"),
        ({"places": 3}, TypeError, "no 'places'"),
        ({"name": "a b"}, ToolDefinitionError, "cannot be the name"),
        ({"max_concurrency": 0}, ToolDefinitionError, "max_concurrency=4"),
        ({"max_result_bytes": 0}, ToolDefinitionError, "max_result_bytes=100_000"),
        ({"on_error": ["x"]}, ToolDefinitionError, "on_error={KeyError"),
        ({"needs_approval": "yes"}, ToolDefinitionError, "needs_approval='yes' of tool 'add' is not True or"),
        ({"transaction": True}, ToolDefinitionError, "async def add"),
    ],
)
def test_a_copy_refuses_what_a_tool_refuses(settings: Any, error: type[Exception], said: str) -> None:
    """With the same words."""
    with pytest.raises(error, match=said):
        add.copy(**settings)


def test_a_box_has_the_tools_by_name_in_order() -> None:
    """The order given is the order in which the model is told of them."""
    box = toolbox([Notes("n").read, add])

    assert list(box) == ["read", "add"]
    assert box["add"] is add


def test_two_tools_of_one_name_are_refused_and_both_named() -> None:
    """A model could not say which it wants."""

    def read(path: str) -> str:
        return path

    with pytest.raises(ToolDefinitionError, match=r"Notes\.read and .*<locals>\.read.*copy\(name="):
        toolbox([Notes("n").read, read])


@pytest.mark.parametrize("tools", [add, "add", 3, {"add": add}])
def test_a_box_of_something_else_than_a_list_is_refused(tools: Any) -> None:
    """A forgotten pair of brackets is told as that."""
    with pytest.raises(ToolDefinitionError, match=r"tools=\["):
        toolbox(tools)


def test_a_method_without_its_object_is_refused() -> None:
    """The error shows how to take it from one."""
    with pytest.raises(ToolDefinitionError, match=r"tools=\[Notes\(…\)\.read\]"):
        as_tool(Notes.read)


def lonely(number: int) -> int:
    """Return it."""
    return number


def größe() -> int:  # noqa: PLC2401  (what is tested)
    """Have a name that no model takes."""
    return 1


@pytest.mark.parametrize(
    "value, said",
    [
        (3, "not a int"),
        (Notes, "not the class Notes"),
        (len, "def look_up"),
        (functools.partial(lonely, 1), "not a partial"),
        (lambda: 1, "name="),
        (größe, "name="),
    ],
)
def test_what_cannot_be_a_tool_is_refused(value: object, said: str) -> None:
    """A clear error at once, which shows what to write."""
    with pytest.raises(ToolDefinitionError) as refused:
        as_tool(value)

    assert said in str(refused.value)
    assert isinstance(refused.value, ConfigError)


def test_a_tool_is_not_made_a_tool_again() -> None:
    """Two layers of settings would leave open which of them counts."""
    with pytest.raises(ToolDefinitionError, match=r"add\.copy\(name="):
        tool(add)


@pytest.mark.parametrize("name", ["", "a b", "a" * 65, "naïve", "a\n", "a.b"])
def test_a_name_that_no_model_takes_is_refused(name: str) -> None:
    """Every provider allows these letters, and no others."""
    with pytest.raises(ToolDefinitionError, match="1 to 64 letters"):
        tool(lonely, name=name)


@pytest.mark.parametrize("settings", [{"transaction": True}, {"read_only": True, "destructive": True}])
def test_settings_that_contradict_are_refused(settings: dict[str, bool]) -> None:
    """A sync transaction, and a destructive tool that changes nothing, cannot be."""
    with pytest.raises(ToolDefinitionError, match=r"async def lonely|both read_only and destructive"):
        tool(lonely, **settings)


def test_a_lambda_with_a_name_is_a_tool() -> None:
    """A name is all that it lacks."""
    assert tool(lambda: 1, name="one")() == 1


def test_a_context_is_only_for_the_function() -> None:
    """The model is not told of it."""

    @tool
    def who(context: ToolContext) -> str:
        return context.run_id

    assert properties(who) == []


@pytest.mark.parametrize("count", [0, -1, "2", True, 1.0])
def test_what_is_no_number_of_calls_is_refused(count: Any) -> None:
    """With the line to write."""
    with pytest.raises(ToolDefinitionError, match=r"@tool\(max_concurrency=4\)"):
        tool(max_concurrency=count)(lonely)


@pytest.mark.parametrize("handlers", [[KeyError], {"KeyError": "none"}, {KeyError: 3}, {KeyboardInterrupt: "no"}, "no"])
def test_what_handles_no_exceptions_is_refused(handlers: Any) -> None:
    """With the line to write."""
    with pytest.raises(ToolDefinitionError, match=r"@tool\(on_error=\{KeyError"):
        tool(on_error=handlers)(lonely)
