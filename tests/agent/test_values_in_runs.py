"""Values that tools give back and leave behind: stored as they are or refused with their path, never swallowed."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from alpineagents import Agent, Message, State, Store, ToolContext, ValueNotStorableError, tool
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, outcomes, results

pytestmark = pytest.mark.asyncio_only

Another = Callable[[], Store]


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


LONG = "0123456789abcde\n" * 6_000
"""Nearly as long as a model is shown a result whole."""
ID = uuid.UUID(int=7)


@pytest.mark.parametrize(
    "value, text",
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        ([1.5, -math.inf], "[1.5, -Infinity]"),
        (Decimal("1.10"), "1.10"),
        ({3, 1, 2}, "[1, 2, 3]"),
        ((1, 2), "[1, 2]"),
        (b"plain", "plain"),
        (b"\xff\x00", "/wA="),
        (2**80, str(2**80)),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
        (ID, str(ID)),
        (Colour.RED, "red"),
        (Point(1, 2), '{"x": 1, "y": 2}'),
        (None, "done"),
        ("", ""),
        ("a\0b", "a\0b"),
        (["\0"], '["\\u0000"]'),
        ("lone \ud800 surrogate", "lone \ud800 surrogate"),
        ("\udce4\U0001f600", "\udce4\U0001f600"),
        (LONG, LONG),
    ],
    ids=lambda value: repr(value)[:30].encode("ascii", "replace").decode() if not isinstance(value, str) else "text",
)
async def test_a_result_is_stored_as_the_model_reads_it(
    value: object, text: str, store: Store, another: Another
) -> None:
    """The same in memory and in every database, read back by another process."""

    @tool
    async def give() -> object:
        """Give a value."""
        return value

    state = State(id="s", messages=[Message.user("Go")])

    assert await Agent(FakeModel([tool_call("give"), "done"]), tools=[give], store=store).run(state) == "done"

    assert results(state) == [text]
    loaded = await another().load("s")
    assert results(loaded) == [text]
    assert loaded.snapshot() == state.snapshot()
    await check_closed(store, state)


def a_circle() -> list[object]:
    circle: list[object] = []
    circle.append(circle)
    return circle


@pytest.mark.parametrize(
    "value",
    [object(), 10**5_000, (n for n in range(3)), a_circle(), {"deep": [object()]}],
    ids=["object", "too many digits", "generator", "circle", "object inside"],
)
async def test_a_result_that_has_no_text_is_refused(value: object, store: Store) -> None:
    """Raised to the program with the tool's name; the history says that the tool did run."""

    @tool
    async def give() -> object:
        """Give a value."""
        return value

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(ValueNotStorableError, match="result of tool 'give'"):
        await Agent(FakeModel([tool_call("give")]), tools=[give], store=store).run(state)

    assert outcomes(state) == {"give": "error"}
    assert state.status == "failed"
    await check_closed(store, state)


@pytest.mark.parametrize(
    "value",
    [
        Decimal("1.10"),
        datetime(2026, 1, 2, tzinfo=UTC),
        ID,
        Colour.RED,
        b"x",
        Point(1, 2),
        {1},
        (1,),
        math.nan,
        10**5_000,
    ],
    ids=["Decimal", "datetime", "UUID", "Enum", "bytes", "dataclass", "set", "tuple", "NaN", "too many digits"],
)
async def test_data_that_json_cannot_give_back_is_refused_with_its_path(value: object, store: Store) -> None:
    """A run does not go on as if it had been saved; what was there before stays."""

    @tool
    async def keep(context: ToolContext) -> str:
        """Keep a value."""
        with context.state.edit_extra_data() as data:
            data["price"] = {"net": value}
        return "kept"

    state = State(id="s", messages=[Message.user("Go")], extra_data={"price": 1})

    with pytest.raises(ValueNotStorableError) as refused:
        await Agent(FakeModel([tool_call("keep")]), tools=[keep], store=store).run(state)

    assert refused.value.path == "extra_data['price']['net']"
    assert (await store.load("s")).extra_data == {"price": 1}
    await check_closed(store, state)


async def test_an_answer_that_json_cannot_give_back_is_refused(store: Store) -> None:
    """Where it is given, so that `run` never returns what a later load would not."""

    @tool
    async def submit(context: ToolContext) -> str:
        """Hand in."""
        context.state.finish({"sum": Decimal("1.10")})
        return "handed in"

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(ValueNotStorableError, match=r"answer\['sum'\]"):
        await Agent(FakeModel([tool_call("submit")]), tools=[submit], store=store).run(state)

    assert not state.finished
    await check_closed(store, state)


async def test_an_error_text_of_any_length_and_content_is_stored(store: Store) -> None:
    """With NUL and lone surrogates; a database that cannot store the error would hide what went wrong."""

    @tool
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("\0\ud800" + "long " * 100_000)

    state = State(id="s", messages=[Message.user("Go")])

    with pytest.raises(RuntimeError):
        await Agent(FakeModel([tool_call("fail")]), tools=[fail], store=store).run(state)

    assert outcomes(state) == {"fail": "error"}
    await check_closed(store, state)


@pytest.mark.parametrize("said", ["a\0b", "\ud800", "\N{MOUNTAIN}", "x" * 300 + "\0"])
async def test_what_people_and_models_say_is_stored_as_it_is(said: str, store: Store, another: Another) -> None:
    """In messages, replies, and what lists show of them."""
    state = State(id="s", messages=[Message.user(said)])

    assert await Agent(FakeModel([said]), store=store, system=said).run(state) == said

    loaded = await another().load("s")
    assert [message.text for message in loaded.messages] == [said, said]
    assert loaded.snapshot() == state.snapshot()
    assert [info.id for info in await another().list()] == ["s"]
