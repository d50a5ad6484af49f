"""Laws of the fold, for every history that callers and runs can make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import event as note
from hypothesis import strategies as st

from alpineagents import EventOrderError, State
from alpineagents.checkpoint import start_at, start_of
from alpineagents.events import KINDS, ApprovalDecided, CancelRequested, ContextChanged, Event, MessageAdded, is_inbox
from alpineagents.fold import apply, fold
from alpineagents.messages import Message
from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.codec import decode, encode
from tests.properties import values
from tests.properties.driver import Draw, Driver, drivers, dump
from tests.properties.provider import complaints

AT = datetime(2026, 1, 1, tzinfo=UTC)


@given(drivers(), st.data())
def test_a_fold_in_two_parts_equals_the_fold_at_once(driver: Driver, data: st.DataObject) -> None:
    """Where a replay stops and goes on makes no difference."""
    history = driver.state.history
    cut = data.draw(st.integers(0, len(history)))

    in_two = fold(fold(StateSnapshot(), history[:cut]), history[cut:])

    assert in_two == fold(StateSnapshot(), history) == driver.state.snapshot()


@given(drivers())
def test_a_replay_gives_the_value_of_every_revision(driver: Driver) -> None:
    """Event by Event, the value is the one that the State had in memory."""
    replayed = [StateSnapshot()]
    for event in driver.state.history:
        replayed.append(apply(replayed[-1], event))

    assert replayed == driver.snapshots


@given(drivers())
def test_a_history_can_be_begun_at_each_change_of_its_context(driver: Driver) -> None:
    """What is folded from there on is at each revision the value that the whole history gives, field by field."""
    history = driver.state.history
    changes = [event for event in history if isinstance(event, ContextChanged)]
    for change in changes:
        value = start_at(decode(encode(change)))
        assert value is not None
        for event in history[change.revision - 1 :]:
            value = apply(value, event)
            assert value == driver.snapshots[event.revision]
            assert dump(value) == driver.dumps[event.revision]
    note(f"changes of the context: {min(3, len(changes))}")


@given(drivers())
def test_revisions_count_up_from_one(driver: Driver) -> None:
    """A history has no gaps."""
    assert [event.revision for event in driver.state.history] == list(range(1, driver.state.revision + 1))


@given(drivers())
def test_each_call_is_followed_by_one_result_in_the_order_asked(driver: Driver) -> None:
    """At every revision at which a model may be asked, a provider accepts the messages."""
    for value in driver.snapshots:
        note(f"calls in context: {min(3, sum(len(message.tool_calls) for message in value.messages))}")
        if value.pending_calls:
            # No model can be asked now. The open turn is the last message, and what stands before is whole.
            assert complaints(value.messages[:-1]) == []
            assert value.messages[-1].tool_calls == tuple(call.call for call in value.calls.values())
        else:
            assert complaints(value.messages) == []


@given(drivers())
def test_a_message_that_waits_enters_after_the_turn(driver: Driver) -> None:
    """Messages wait only while a turn is open, and none is lost by it."""
    for value in driver.snapshots:
        if not value.pending_calls and not value.requesting:
            assert value.queued == ()


@given(drivers())
def test_a_late_result_changes_nothing_but_the_context(driver: Driver) -> None:
    """No State becomes ready, owes an answer or is unfinished because a thread has ended; its message is there."""
    for before, after in driver.late_results:
        note(f"late in a State that is {before.status}")
        changed = {name for name, value in dump(after).items() if value != dump(before)[name]}
        assert changed <= {"revision", "messages", "queued", "first_message", "created_at"}
        assert after.finished == before.finished
        assert after.messages[-1].late_call or after.queued[-1].late_call


@given(drivers())
def test_snapshots_never_change(driver: Driver) -> None:
    """What was taken at a revision is the same after all that followed."""
    assert [dump(value) for value in driver.snapshots] == driver.dumps


@given(drivers(), st.data())
def test_a_fork_and_its_origin_do_not_touch_each_other(driver: Driver, data: st.DataObject) -> None:
    """Both go on from the same value, each its own way, and neither sees the other."""
    fork = driver.state.fork()
    fork.run_id = driver.state.run_id
    mine, its = Driver(data.draw, driver.state), Driver(data.draw, fork)

    for _ in range(data.draw(st.integers(0, 6))):
        data.draw(st.sampled_from([mine, its])).step()

    for each in (mine, its):
        assert fold(StateSnapshot(), each.state.history) == each.state.snapshot()
        assert [dump(value) for value in each.snapshots] == each.dumps


@st.composite
def any_event(draw: Draw, state: State) -> Event:
    """An Event of the next revision, likely one that cannot stand there."""
    known = [call.id for call in state.pending_calls] + ["a", "b"]
    event = draw(values.events)
    change: dict[str, Any] = {
        "revision": state.revision + draw(st.sampled_from([1, 1, 1, 1, 0, 2])),
        "run_id": draw(st.sampled_from([state.run_id, state.run_id, None, "another run"])),
    }
    if "call_id" in type(event).model_fields:
        change["call_id"] = draw(st.sampled_from(known))
    if "attempt" in type(event).model_fields:
        change["attempt"] = draw(st.integers(1, 3))
    return event.model_copy(update=change)


@given(drivers(max_steps=15), st.data())
def test_a_refused_event_changes_nothing(driver: Driver, data: st.DataObject) -> None:
    """The value is as it was, and the error names kind and revision."""
    event = data.draw(any_event(driver.state))
    before = driver.state.snapshot()

    try:
        apply(before, event, state_id="driven")
    except EventOrderError as refused:
        assert (refused.state_id, refused.kind, refused.revision) == ("driven", event.kind, event.revision)
        note(f"refused {event.kind}")
    assert dump(before) == driver.dumps[-1]


@given(drivers(max_steps=15), st.data())
def test_whatever_the_fold_takes_a_provider_takes(driver: Driver, data: st.DataObject) -> None:
    """No Event, however strange, is folded into messages that no provider accepts."""
    state = driver.state
    for _ in range(3):
        event = data.draw(any_event(state).filter(lambda each: not isinstance(each, ContextChanged)))
        fields = {name: getattr(event, name) for name in type(event).model_fields if name not in NOT_FIELDS}
        try:
            state.record(KINDS[event.kind], **fields)
        except EventOrderError:
            continue

    value = state.snapshot()
    assert complaints(value.messages[:-1] if value.pending_calls else value.messages) == []


NOT_FIELDS = ("kind", "version", "revision", "at", "run_id")


@given(
    drivers(max_steps=15),
    st.lists(st.sampled_from(["message", "notice", "late", "decision", "cancel"]), max_size=4),
)
def test_inbox_events_are_never_refused(driver: Driver, posts: list[str]) -> None:
    """Whoever posts has not read the history, so anything may be posted at any moment."""
    value = driver.state.snapshot()

    for post in posts:
        event = inbox_event(post, value.revision + 1)
        assert is_inbox(event)
        value = apply(value, event)

    assert value.revision == driver.state.revision + len(posts)


def inbox_event(post: str, revision: int, words: str = "posted") -> Event:
    columns: dict[str, Any] = {"revision": revision, "at": AT + timedelta(seconds=revision)}
    if post == "message":
        return MessageAdded(message=Message.user(words), **columns)
    if post == "notice":
        return MessageAdded(message=Message.notice(words), **columns)
    if post == "late":
        return MessageAdded(message=Message.notice(words).model_copy(update={"late_call": "a"}), **columns)
    if post == "decision":
        return ApprovalDecided(call_id="a", approved=True, by="someone", **columns)
    return CancelRequested(by="someone", **columns)


def words_of(value: StateSnapshot) -> list[str]:
    return sorted(message.text for message in (*value.messages, *value.queued))


@given(drivers(), st.data())
def test_take_in_loses_nothing(driver: Driver, data: st.DataObject) -> None:
    """Every Event of both writers is in the history, every message in the context, each in its own order."""
    state = driver.state
    saved = data.draw(st.integers(0, state.revision))
    state.mark_saved(saved)
    posts = data.draw(st.lists(st.sampled_from(["message", "notice", "late", "decision", "cancel"]), max_size=4))
    events = [inbox_event(post, saved + 1 + place, f"posted {place}") for place, post in enumerate(posts)]
    before, words, unsaved = state.snapshot(), words_of(state.snapshot()), state.unsaved

    try:
        state.take_in(events)
    except EventOrderError:
        # A call was started unsaved after an approval that the other writer gave before: nothing is taken in.
        assert state.snapshot() == before
        assert state.unsaved == unsaved
        return

    assert list(state.history[saved : saved + len(events)]) == events
    assert [event.kind for event in state.unsaved] == [event.kind for event in unsaved]
    assert [event.revision for event in state.history] == list(range(1, state.revision + 1))
    newcomers = [event.message.text for event in events if isinstance(event, MessageAdded)]
    restored = any(isinstance(event, ContextChanged) for event in unsaved)
    assert words_of(state.snapshot()) == sorted([*words, *newcomers]), restored
    assert fold(StateSnapshot(), state.history) == state.snapshot()
    if changes := [event for event in state.history if isinstance(event, ContextChanged)]:
        begin = start_of(state.history[changes[-1].revision - 1 :])
        assert fold(begin, state.history[begin.revision :]) == state.snapshot()
    entered = [message.text for message in (*state.messages, *state.snapshot().queued)]
    assert [text for text in entered if text in newcomers] == newcomers


@given(drivers(), st.data())
def test_a_save_in_the_middle_keeps_the_value(driver: Driver, data: st.DataObject) -> None:
    """What a store says it has changes what is unsaved, and nothing else."""
    state = driver.state
    value = state.snapshot()

    for revision in sorted(data.draw(st.lists(st.integers(0, state.revision), max_size=4))):
        state.mark_saved(revision)
        assert (state.saved_revision, len(state.unsaved)) == (revision, state.revision - revision)

    assert state.snapshot() == value


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_happen(kind: str) -> None:
    """The histories of these tests hold Events of every kind, so no law is void for one."""
    find(
        drivers(),
        lambda driver: any(event.kind == kind for event in driver.state.history),
        settings=settings(max_examples=300, database=None, phases=[Phase.generate]),
    )
