"""Awkward values: what is stored is what comes back, on every database and in every column."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from alpineagents import (
    Message,
    State,
    StoppedByError,
    StoppedByFinish,
    Store,
    TextBlock,
    ToolCall,
    ValueNotStorableError,
)
from alpineagents.events import (
    AgentInfo,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    RunStopped,
    ToolFinished,
)
from alpineagents.patch import same
from tests.contract.backends import saved

TEXTS = {
    "NUL": "a\0b",
    "lone high surrogate": "a\ud800b",
    "lone low surrogate": "\udfff",
    "astral": "\U0001f600\U0010ffff",
    "controls": "".join(map(chr, range(32))) + "\x7f\x85",
    "separators": "\u2028\u2029\ufeff\ufffe\uffff",
    "quotes": "'\"\\`$1 :name %s %(x)s {x} ?",
    "combining": "e\u0301 \u202e \u200d",
    "newlines": "a\r\nb\rc\n",
    "spaces": "  both sides  ",
}

VALUES: dict[str, Any] = {
    "beyond 64 bits": [2**63, -(2**63) - 1, 2**64, 10**30],
    "4,299 digits": 10**4299 - 1,
    "floats": [0.1, -0.0, 1e308, 5e-324, 1.0, 1e16],
    "1, 1.0 and true": [1, 1.0, True],
    "keys": {"": 1, "a.b": 2, "$ref": 3, "\0": 4, "\ud800": 5, "~/": 6, "__proto__": 7},
    "order of keys": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "empty": [{}, [], "", None],
    "a date as a text": "2026-01-01T00:00:00Z",
    "deep": None,
}
for _ in range(199):
    VALUES["deep"] = [VALUES["deep"]]


@pytest.mark.parametrize("kind", TEXTS)
async def test_a_text_comes_back_as_it_was(store: Store, kind: str) -> None:
    """In a message, a result, a call's arguments, the extra data and an answer."""
    text = TEXTS[kind]
    state = State(id="s", messages=[Message.user("x" + text)], extra_data={"x" + text: text})
    call = ToolCall(id="c", name=text, args={"x" + text: [text]})
    state.add_message(Message(role="assistant", content=(TextBlock(text=text), call)))
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m", system=text))
    state.record(ToolFinished, call_id="c", outcome="denied", content=(TextBlock(text=text),))
    state.finish(text)
    await store.save(state)

    loaded = await store.load("s")

    assert loaded.snapshot() == state.snapshot()
    assert loaded.messages[0].text == "x" + text
    assert loaded.messages[2].tool_results[0].text == text
    assert (loaded.extra_data, loaded.answer) == ({"x" + text: text}, text)


@pytest.mark.parametrize("kind", VALUES)
async def test_a_value_comes_back_as_it_was(store: Store, kind: str) -> None:
    """As extra data, arguments and answer, without a change of type."""
    value = VALUES[kind]
    state = State(id="s", messages=[Message.user("x")], extra_data={"v": value})
    state.add_message(Message(role="assistant", content=(ToolCall(id="c", name="t", args={"v": value}),)))
    state.finish(value)
    await store.save(state)

    loaded = await store.load("s")

    assert loaded.snapshot() == state.snapshot()
    assert same(loaded.extra_data, {"v": value})
    assert same(loaded.pending_calls[0].args, {"v": value})
    assert same(loaded.answer, value)


async def test_the_order_of_keys_is_kept(store: Store) -> None:
    """Models and people read them in the order in which they were written."""
    state = State(id="s", messages=[Message.user("x")], extra_data=VALUES["order of keys"])
    await store.save(state)

    data = (await store.load("s")).extra_data

    assert repr(data) == repr(VALUES["order of keys"])


@pytest.mark.parametrize("kind", TEXTS)
async def test_any_text_can_stand_in_a_header(store: Store, kind: str) -> None:
    """As first message, and in the summary of how a run stopped; a list shows it."""
    text = "x" + TEXTS[kind]
    state = State(id="s", messages=[Message.user(text)])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m", name="guide"))
    state.record(RunStopped, stopped=StoppedByError(error="ValueError", message=text))
    await store.save(state)

    [info] = await store.list()

    assert info.first_message == text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode(
        "utf-16", "replace"
    )
    assert info.stopped == StoppedByError(error="ValueError", message=text)


@pytest.mark.parametrize("kind", TEXTS)
async def test_any_text_can_be_posted(store: Store, kind: str) -> None:
    """Also to a State in which nothing was said yet, where it becomes the first message."""
    state = State(id="s", extra_data={"a": 1})
    await store.save(state)

    await store.post("s", Message.user("x" + TEXTS[kind]))

    assert (await store.load("s")).messages[0].text == "x" + TEXTS[kind]
    assert (await store.info("s")).first_message.startswith("x")


@pytest.mark.parametrize("kind", VALUES)
async def test_any_answer_can_stand_in_a_header(store: Store, kind: str) -> None:
    """The summary says how a run stopped, answer included."""
    state = State(id="s", messages=[Message.user("x")])
    state.finish(VALUES[kind])
    await store.save(state)

    info = await store.info("s")

    assert isinstance(info.stopped, StoppedByFinish)
    assert same(info.stopped.answer, VALUES[kind])


async def test_an_error_of_a_megabyte_is_stored(store: Store) -> None:
    """No column is too short for it."""
    text = "x" * 1_000_000
    state = State(id="s", messages=[Message.user("x")])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.record(ModelRequested, model="m")
    state.record(ModelFailed, outcome="failed", error="ValueError", message=text)
    state.record(RunStopped, stopped=StoppedByError(error="ValueError", message=text))

    await store.save(state)

    assert (await store.load("s")).snapshot() == state.snapshot()
    assert (await store.info("s")).stopped == StoppedByError(error="ValueError", message=text)


async def test_ten_megabytes_are_stored(store: Store) -> None:
    """Also where each character takes six bytes in the payload."""
    await saved(store, "ascii", "x" * 10_000_000)
    await saved(store, "other", "é" * 2_000_000)

    assert len((await store.load("ascii")).messages[0].text) == 10_000_000
    assert (await store.load("other")).messages[0].text == "é" * 2_000_000


async def test_repeated_call_ids_are_told_apart_after_loading(store: Store) -> None:
    """Which ids were used is part of what is loaded."""
    state = State(id="s", messages=[Message.user("x")])
    for number in range(3):
        loaded = state if number == 0 else await store.load("s")
        loaded.run_id = f"r{number}"
        loaded.record(RunStarted, agent=AgentInfo(model="m"))
        loaded.record(ModelRequested, model="m")
        message = loaded.with_unique_ids(Message(role="assistant", content=(ToolCall(id="call_1", name="t"),) * 2))
        loaded.record(ModelReplied, message=message)
        for call in loaded.pending_calls:
            loaded.record(ToolFinished, call_id=call.id, outcome="cancelled")
        await store.save(loaded)

    calls = [call.id for message in (await store.load("s")).messages for call in message.tool_calls]

    assert len(calls) == len(set(calls)) == 6


async def test_an_id_may_be_any_that_is_allowed(store: Store) -> None:
    """Long ones and ones that look like something else; letters of another size are another id."""
    names = ["x" * 128, "-", "_", "0", "null", "None", "--", "a", "A", uuid.uuid4().hex, "DROP-TABLE", "1e5"]
    for name in names:
        await saved(store, name, f"of {name}")

    for name in names:
        assert (await store.load(name)).messages[0].text == f"of {name}"
    assert len(await store.list()) == len(names)


async def test_a_value_that_cannot_be_stored_never_reaches_a_store(store: Store) -> None:
    """It was refused at the border; what is saved afterwards is what was there before."""
    state = State(id="s", messages=[Message.user("x")])
    for bad in ({1}, (1,), float("nan"), b"", object(), 10**4300):
        with pytest.raises(ValueNotStorableError):
            state.finish(bad)

    await store.save(state)

    assert (await store.load("s")).snapshot() == state.snapshot()
    assert state.revision == 1
