"""A State whose history begins at a change of its context: all that counts by revisions, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from alpineagents import ConfigError, Event, Message, State
from alpineagents.checkpoint import RULES, start_at, start_of
from alpineagents.events import (
    AgentInfo,
    CancelRequested,
    ContextChanged,
    MessageAdded,
    ModelFailed,
    ModelRequested,
    RunStarted,
)
from alpineagents.fold import fold
from alpineagents.messages import TextBlock, ToolCall
from alpineagents.snapshot import StateSnapshot


def compacted() -> State:
    """Return a State with three Events, a change of its context, and one Event more."""
    state = State(id="s", messages=[Message.user("one")], extra_data={"a": 1})
    state.run_id = "run"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.run_id = None
    state.compact("They said one.")
    state.add_message(Message.user("two"))
    return state


def tail_of(state: State) -> State:
    """Return the State as a store gives it that has read from the last change of the context on."""
    begin = max(event.revision for event in state.history if isinstance(event, ContextChanged))
    return State.from_history(state.id, state.history[begin - 1 :])


def test_the_history_says_where_it_begins() -> None:
    """Behind a revision; the value is that of the whole history, and nothing is unsaved."""
    state = compacted()

    tail = tail_of(state)

    assert (tail.history_after, tail.revision, len(tail.history)) == (3, 5, 2)
    assert tail.snapshot() == state.snapshot()
    assert (tail.saved_revision, tail.unsaved, tail.follows) == (5, (), state.history[-1].at)
    assert state.history_after == 0


def test_what_is_added_is_unsaved_until_it_is_saved() -> None:
    """Also in part: revisions count on, whatever was loaded."""
    tail = tail_of(compacted())

    tail.add_message(Message.user("three"))
    tail.add_message(Message.user("four"))
    assert [event.revision for event in tail.unsaved] == [6, 7]
    tail.mark_saved(6)

    assert [event.revision for event in tail.unsaved] == [7]
    assert tail.follows == tail.history[2].at


def test_what_a_run_takes_back_is_gone_and_the_rest_stays() -> None:
    """The Events of others that stand before it, too."""
    tail = tail_of(compacted())
    tail.add_message(Message.user("three"))
    value = tail.snapshot()
    tail.run_id = "another"
    tail.record(RunStarted)

    tail.drop_unsaved("another")

    assert tail.snapshot() == value
    assert [event.revision for event in tail.history] == [4, 5, 6]


def test_others_are_taken_in() -> None:
    """Before what is unsaved, whose revisions move."""
    tail = tail_of(compacted())
    tail.add_message(Message.user("mine"))
    theirs = MessageAdded(revision=6, at=tail.history[-1].at, message=Message.user("theirs"))

    tail.take_in([theirs])

    assert [message.text for message in tail.messages[-2:]] == ["theirs", "mine"]
    assert [event.revision for event in tail.history] == [4, 5, 6, 7]
    assert tail.saved_revision == 6


def test_a_change_of_the_context_that_moves_knows_what_it_moved_behind() -> None:
    """Its checkpoint is that of its new place, or a reader who begins there would not know what came in."""
    state = compacted()
    state.run_id = "run"
    state.mark_saved(state.revision)
    state.compact("They said one and two.")
    theirs: list[Event] = [
        CancelRequested(revision=6, at=state.history[-1].at, by="Peter"),
        MessageAdded(revision=7, at=state.history[-1].at, message=Message.user("theirs")),
    ]

    state.take_in(theirs)

    change = state.history[-1]
    start = start_at(change)
    assert start is not None
    assert (change.revision, start.revision, start.cancelled_by) == (8, 7, "Peter")
    assert fold(start, [change]) == state.snapshot() == fold(StateSnapshot(), state.history)


def test_a_fork_needs_the_whole_history() -> None:
    """It is refused, with the lines to write instead."""
    tail = tail_of(compacted())

    with pytest.raises(ConfigError, match=r"await store\.fork\('s', new_id\), or state = await store\.load\('s'\)"):
        tail.fork()


def test_no_call_id_is_used_twice() -> None:
    """Which ids there were is not known, so each call of a reply gets one of its own, as long as a provider takes."""
    reply = Message(role="assistant", content=(TextBlock(text="I look"), ToolCall(id="c" * 64, name="look")))
    state = compacted()

    taken = set()
    for _ in range(50):
        tail = tail_of(state)
        tail.add_message(reply)
        [call] = tail.pending_calls
        assert call.id.startswith("ccc")
        assert len(call.id) <= 40
        taken.add(call.id)

    assert len(taken) == 50
    assert "c" * 64 not in taken


def test_why_the_last_reply_ended_is_known_where_it_stays_in_the_context() -> None:
    """Also where the reply itself stands before the beginning."""
    reply = Message(role="assistant", content="It is")
    value = StateSnapshot(_replied=(reply, "max_tokens"))
    state = State(messages=[Message.user("one"), reply])
    state._value = fold(value, state.history)
    assert state.snapshot().stop_reason == "max_tokens"

    state.record(ContextChanged, reason="compact", messages=(Message.notice("a summary"), reply))
    tail = tail_of(state)
    assert tail.snapshot().stop_reason == "max_tokens"
    tail.add_message(Message.user("Go on"))
    assert tail.snapshot().stop_reason == ""


def test_a_reply_that_is_put_back_ended_for_no_known_reason() -> None:
    """Whoever begins behind it does not know, so nobody does: the value is the same for both."""
    reply = Message(role="assistant", content="It is")
    state = State(messages=[Message.user("one"), reply])
    state._value = dataclasses.replace(state.snapshot(), _replied=(reply, "max_tokens"))
    before = state.snapshot()
    state.compact("a summary")
    tail = tail_of(state)

    for each in (state, tail):
        each.restore(before)

    assert before.stop_reason == "max_tokens"
    assert (state.snapshot().stop_reason, tail.snapshot().stop_reason) == ("", "")


def test_a_late_result_behind_the_reply_does_not_hide_why_it_ended() -> None:
    """Whether the State was read as a whole or from a change of its context on."""
    reply = Message(role="assistant", content="It is")
    late = Message.notice("after all").model_copy(update={"late_call": "c"})
    state = State(messages=[Message.user("one"), reply, late])
    state._value = dataclasses.replace(state.snapshot(), _replied=(reply, "max_tokens"))

    state.record(ContextChanged, reason="compact", messages=(Message.notice("a summary"), reply, late))

    assert (state.snapshot().stop_reason, tail_of(state).snapshot().stop_reason) == ("max_tokens", "max_tokens")


def test_a_checkpoint_that_was_changed_counts_for_nothing() -> None:
    """Nor one of other rules, nor a change of the context without one: the whole history is to be read then."""
    [change] = [event for event in compacted().history if isinstance(event, ContextChanged)]
    checkpoint = change.checkpoint
    assert checkpoint is not None
    assert start_at(change) is not None

    for changes in ({"always_allowed": ("pay",)}, {"turn": 9}, {"seal": ""}, {"rules": RULES + 1}):
        forged = change.model_copy(update={"checkpoint": checkpoint.model_copy(update=changes)})
        assert start_at(forged) is None
        assert start_of([forged]) == StateSnapshot()
    assert start_at(change.model_copy(update={"checkpoint": None})) is None


def test_a_whole_history_needs_no_checkpoint() -> None:
    """One that begins with a change of the context is folded like any other, whatever the checkpoint says."""
    state = State()
    state.compact("imported")
    state.compact("imported again")

    assert State.from_history("s", state.history).snapshot() == state.snapshot()
    assert State.from_history("s", state.history).history_after == 0
    at = state.history[0].at
    assert state.snapshot().created_at == at
    assert tail_of(state).snapshot().created_at == at


def test_a_summary_that_moves_drops_no_message_that_has_entered() -> None:
    """One that waited for a request that failed stands in the context when the next request is for a summary."""
    state = State(id="s", messages=[Message.user("one")])
    state.run_id = "run"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.record(ModelRequested, model="m")
    state.mark_saved(3)
    state.record(ModelFailed, outcome="failed")
    state.record(ModelRequested, model="m")
    state.record(ContextChanged, reason="compact", messages=(Message.notice("They said one."),))

    state.take_in([MessageAdded(revision=4, at=state.history[0].at, message=Message.user("theirs"))])

    assert [message.text for message in state.messages] == ["They said one.", "theirs"]
