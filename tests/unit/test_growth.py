"""A step costs the same early and late in a history: counted in calls, copies and bytes, not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex

import pytest

from alpineagents import Message, State, TextBlock, ToolCall
from alpineagents.events import AgentInfo, ModelReplied, ModelRequested, RunStarted, ToolFinished, ToolStarted
from alpineagents.fold import fold
from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.codec import encode

EARLY, LATE = 20, 2_000


class CountingList(list[Any]):
    """A list that counts how many of its items are looked at or copied."""

    touched = 0

    def __iter__(self) -> Any:
        CountingList.touched += len(self)
        return super().__iter__()

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        items = super().__getitem__(index)
        CountingList.touched += len(items) if isinstance(index, slice) else 1
        return items

    def extend(self, items: Iterable[Any]) -> None:
        CountingList.touched += 1
        super().extend(items)


class CountingDict(dict[Any, Any]):
    """A dict that counts how many of its items are looked at or copied by a walk over it."""

    touched = 0

    def items(self) -> Any:
        CountingDict.touched += len(self)
        return super().items()

    def __iter__(self) -> Any:
        CountingDict.touched += len(self)
        return super().__iter__()


def after(turns: int) -> State:
    """A State in a run, after so many turns with a call each."""
    state = State(id="s", messages=[Message.user("hello")])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    for number in range(turns):
        turn(state, number)
    return state


def turn(state: State, number: int) -> None:
    state.record(ModelRequested, model="m")
    call = ToolCall(id=f"c{number}", name="look")
    message = Message(role="assistant", content=(TextBlock(text="I look"), call))
    state.record(ModelReplied, message=state.with_unique_ids(message))
    state.record(ToolStarted, call_id=call.id)
    state.record(ToolFinished, call_id=call.id, outcome="ok", content=(TextBlock(text="seen"),))


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls, of Python and of C, that a piece of work makes."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def test_a_turn_makes_as_many_calls_late_as_early() -> None:
    """No step walks over the history."""
    early, late = after(EARLY), after(LATE)

    first = calls_of(lambda: turn(early, EARLY))
    last = calls_of(lambda: turn(late, LATE))

    assert last <= first * 1.1


def test_a_turn_copies_as_many_items_late_as_early() -> None:
    """Messages, history and the ids of calls grow at their end, also with a snapshot held of each revision."""
    touched = {}
    for turns in (EARLY, LATE):
        state = after(turns)
        value = state.snapshot()
        state._history._items = CountingList(state._history._items)
        value.messages._items = CountingList(value.messages._items)
        value._call_ids._order = CountingDict(value._call_ids._order)
        CountingList.touched = CountingDict.touched = 0
        held = []
        for number in range(turns, turns + 5):
            turn(state, number)
            held.append((state.snapshot(), state.history))
        touched[turns] = CountingList.touched + CountingDict.touched

    assert touched[LATE] <= touched[EARLY]
    assert touched[LATE] < 100


def test_the_counting_list_sees_a_copy() -> None:
    """The test above could not fail otherwise."""
    CountingList.touched = 0
    items = CountingList(range(1000))

    copies = [items[:10], list(items)]

    assert [len(copy) for copy in copies] == [10, 1000]
    assert CountingList.touched >= 1010


@pytest.mark.parametrize("fork_at", [1, LATE // 2])
def test_forks_do_not_make_each_other_copy_again_and_again(fork_at: int) -> None:
    """The second to grow copies once; after that both grow at their end."""
    state = after(fork_at)
    fork = state.fork()
    fork.run_id = state.run_id
    turn(state, fork_at)
    turn(fork, fork_at)
    value = fork.snapshot()
    value.messages._items = CountingList(value.messages._items)
    CountingList.touched = 0

    for number in range(fork_at + 1, fork_at + 6):
        turn(fork, number)
        turn(state, number)

    assert CountingList.touched < 100


def test_a_replay_is_linear() -> None:
    """Ten times the history takes ten times the calls."""
    short, long = after(50).history, after(500).history

    few = calls_of(lambda: fold(StateSnapshot(), short))
    many = calls_of(lambda: fold(StateSnapshot(), long))

    assert many <= few * 10.5


def test_an_event_has_as_many_bytes_late_as_early() -> None:
    """None holds the conversation so far."""
    early, late = after(EARLY), after(LATE)

    first = [len(encode(event).payload) for event in early.history[-4:]]
    last = [len(encode(event).payload) for event in late.history[-4:]]

    assert all(late <= early + 8 for early, late in zip(first, last, strict=True))


def test_saving_in_the_middle_costs_what_is_new() -> None:
    """A State that was saved after each Event computes nothing again."""
    early, late = after(EARLY), after(LATE)
    for state in (early, late):
        state.mark_saved(state.revision)

    def step(state: State) -> None:
        state.add_message(Message.user("more"))
        state.mark_saved(state.revision)

    assert calls_of(lambda: step(late)) <= calls_of(lambda: step(early)) + 2
