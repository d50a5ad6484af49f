"""State: what its methods do, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alpineagents import (
    ConfigError,
    EventOrderError,
    Message,
    State,
    StateIdError,
    StoppedByCancel,
    StoppedByFinish,
    StoppedByLimit,
    TextBlock,
    ToolCall,
    ToolResultBlock,
)
from alpineagents.events import (
    AgentInfo,
    ApprovalRequested,
    CancelRequested,
    ContextChanged,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from alpineagents.fold import fold
from alpineagents.state import CLEARED


def says(*content: Any) -> Message:
    return Message(role="assistant", content=content)


def calls(*ids: str) -> Message:
    return says(*(ToolCall(id=call_id, name="look") for call_id in ids))


def results(*ids: str) -> Message:
    content = tuple(ToolResultBlock(call_id=call_id, content=(TextBlock(text="seen"),)) for call_id in ids)
    return Message(role="user", content=content)


def running(*messages: Message) -> State:
    state = State(id="s", messages=messages or [Message.user("hello")])
    state.run_id = "r"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    return state


def asked() -> State:
    state = running()
    state.record(ModelRequested, model="m")
    return state


def in_turn(*ids: str) -> State:
    state = asked()
    state.record(ModelReplied, message=calls(*ids))
    return state


def test_a_new_state_is_empty() -> None:
    """It has an id of its own and no history."""
    state, other = State(), State()

    assert (state.revision, list(state.history), list(state.messages), state.extra_data) == (0, [], [], {})
    assert (state.answer, state.stopped, state.status, state.finished) == (None, None, "ready", False)
    assert state.id != other.id


@pytest.mark.parametrize("id", ["", "a b", "a/b", "é", "a\n", "x" * 129, 7, b"a", "a.b"])
def test_an_id_that_cannot_be_is_refused(id: Any) -> None:
    """The error shows one that can."""
    with pytest.raises(StateIdError, match=r'State\(id="order-1042"\)'):
        State(id=id)


@pytest.mark.parametrize("messages", ["hello", Message.user("hello")])
def test_messages_are_a_list(messages: Any) -> None:
    """A text would be a list of letters."""
    with pytest.raises(ConfigError, match=r"messages=\[Message\.user"):
        State(messages=messages)


@pytest.mark.parametrize("message", ["hello", None, {"role": "user"}])
def test_only_a_message_can_be_added(message: Any) -> None:
    """The error shows how to make one, and nothing was added."""
    state = State()

    with pytest.raises(ConfigError, match=r"Message\.user"):
        state.add_message(message)

    assert state.revision == 0


def named(state: State) -> State:
    state.run_id = "r"
    return state


def started(state: State) -> State:
    named(state).record(RunStarted, agent=AgentInfo(model="m"))
    return state


def tool_started(*ids: str) -> State:
    state = in_turn(*ids)
    state.record(ToolStarted, call_id=ids[0])
    return state


def tool_denied(*ids: str) -> State:
    state = in_turn(*ids)
    state.record(ToolFinished, call_id=ids[0], outcome="denied")
    return state


def approval_asked(call_id: str) -> State:
    state = in_turn(call_id)
    state.record(ApprovalRequested, call_id=call_id, digest="d")
    return state


def asked_again() -> State:
    state = in_turn("c")
    state.record(ToolFinished, call_id="c", outcome="denied")
    state.record(ModelRequested, model="m")
    return state


def taken_over() -> State:
    state = running()
    state.run_id = "r2"
    state.record(RunStarted)
    state.run_id = "r"
    return state


REFUSED: dict[str, tuple[Callable[[], State], Callable[[State], object], str]] = {
    "a result without its call": (State, lambda s: s.add_message(results("c")), "message_added"),
    "a result of another call": (
        lambda: State(messages=[calls("c")]),
        lambda s: s.add_message(results("d")),
        "message_added",
    ),
    "results in another order": (
        lambda: State(messages=[calls("c", "d")]),
        lambda s: s.add_message(results("d", "c")),
        "message_added",
    ),
    "a part of the results": (
        lambda: State(messages=[calls("c", "d")]),
        lambda s: s.add_message(results("c")),
        "message_added",
    ),
    "one result twice": (
        lambda: State(messages=[calls("c")]),
        lambda s: s.add_message(results("c", "c")),
        "message_added",
    ),
    "a reply while calls are open": (
        lambda: State(messages=[calls("c")]),
        lambda s: s.add_message(says(TextBlock(text="done"))),
        "message_added",
    ),
    "results in a reply": (
        lambda: State(messages=[calls("c")]),
        lambda s: s.add_message(says(ToolResultBlock(call_id="c"))),
        "message_added",
    ),
    "a call of a user": (
        State,
        lambda s: s.add_message(Message(role="user", content=(ToolCall(id="c", name="t"),))),
        "message_added",
    ),
    "a reply while the model is asked": (asked, lambda s: s.add_message(says(TextBlock(text="x"))), "message_added"),
    "finish while the model is asked": (asked, lambda s: s.finish("done"), "finished"),
    "compact in a turn": (lambda: in_turn("c"), lambda s: s.compact("short"), "context_changed"),
    "compact while the model is asked": (asked, lambda s: s.compact("short"), "context_changed"),
    "clear in a turn": (lambda: in_turn("c"), lambda s: s.clear_tool_results(), "context_changed"),
    "restore in a turn": (lambda: in_turn("c"), lambda s: s.restore(State().snapshot()), "context_changed"),
    "restore of an open turn": (
        lambda: State(messages=[Message.user("hello")]),
        lambda s: s.restore(in_turn("c").snapshot()),
        "context_changed",
    ),
    "a request out of a run": (
        lambda: State(messages=[Message.user("hello")]),
        lambda s: s.record(ModelRequested, model="m"),
        "model_requested",
    ),
    "a request without a message": (
        lambda: started(State()),
        lambda s: s.record(ModelRequested, model="m"),
        "model_requested",
    ),
    "a request in a turn": (lambda: in_turn("c"), lambda s: s.record(ModelRequested, model="m"), "model_requested"),
    "a second request": (asked, lambda s: s.record(ModelRequested, model="m"), "model_requested"),
    "a reply that nobody asked for": (running, lambda s: s.record(ModelReplied, message=calls("c")), "model_replied"),
    "a reply of a user": (
        asked,
        lambda s: s.record(ModelReplied, message=Message.user("hello")),
        "model_replied",
    ),
    "a call id used before": (
        asked_again,
        lambda s: s.record(ModelReplied, message=calls("c")),
        "model_replied",
    ),
    "a call id twice in a reply": (asked, lambda s: s.record(ModelReplied, message=calls("c", "c")), "model_replied"),
    "a failure that nobody asked for": (running, lambda s: s.record(ModelFailed, outcome="failed"), "model_failed"),
    "a start of no call": (lambda: in_turn("c"), lambda s: s.record(ToolStarted, call_id="d"), "tool_started"),
    "a second start that says it is the first": (
        lambda: tool_started("c"),
        lambda s: s.record(ToolStarted, call_id="c"),
        "tool_started",
    ),
    "a start that waits for approval": (
        lambda: approval_asked("c"),
        lambda s: s.record(ToolStarted, call_id="c"),
        "tool_started",
    ),
    "a success without a start": (
        lambda: in_turn("c"),
        lambda s: s.record(ToolFinished, call_id="c", outcome="ok"),
        "tool_finished",
    ),
    "never run, though it was started": (
        lambda: tool_started("c"),
        lambda s: s.record(ToolFinished, call_id="c", outcome="cancelled"),
        "tool_finished",
    ),
    "a second result": (
        lambda: tool_denied("c", "d"),
        lambda s: s.record(ToolFinished, call_id="c", outcome="denied"),
        "tool_finished",
    ),
    "an approval asked twice": (
        lambda: approval_asked("c"),
        lambda s: s.record(ApprovalRequested, call_id="c", digest="d"),
        "approval_requested",
    ),
    "a stop while the model is asked": (
        asked,
        lambda s: s.record(RunStopped, stopped=StoppedByLimit(turns=1)),
        "run_stopped",
    ),
    "a stop out of a run": (
        lambda: State(messages=[Message.user("hello")]),
        lambda s: s.record(RunStopped, stopped=StoppedByLimit(turns=1)),
        "run_stopped",
    ),
    "a run without a name": (
        State,
        lambda s: s.record(RunStarted, agent=AgentInfo(model="m")),
        "run_started",
    ),
    "a first run without its Agent": (lambda: named(State()), lambda s: s.record(RunStarted), "run_started"),
    "an Event of a run that was taken over from": (
        taken_over,
        lambda s: s.record(ModelRequested, model="m"),
        "model_requested",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_follow_is_refused(case: str) -> None:
    """The error names State, kind and revision, and nothing has changed."""
    make, do, kind = REFUSED[case]
    state = make()
    before, history = state.snapshot(), state.history

    with pytest.raises(EventOrderError) as refused:
        do(state)

    assert (refused.value.state_id, refused.value.kind, refused.value.revision) == (state.id, kind, state.revision + 1)
    assert state.snapshot() is before
    assert state.history is history


def test_a_message_in_a_turn_waits() -> None:
    """It is in the history at once and enters the context after the results."""
    state = in_turn("c", "d")
    state.add_message(Message.user("hurry"))

    assert [message.role for message in state.messages] == ["user", "assistant"]
    for call_id in ("d", "c"):
        state.record(ToolFinished, call_id=call_id, outcome="denied")

    assert [message.text for message in state.messages if message.is_plain] == ["hello", "hurry"]
    assert [result.call_id for result in state.messages[2].tool_results] == ["c", "d"]
    assert state.messages[-1].text == "hurry"


def test_a_message_while_the_model_is_asked_waits_for_its_reply() -> None:
    """The model has not seen it."""
    state = asked()
    state.add_message(Message.user("hurry"))
    state.record(ModelReplied, message=says(TextBlock(text="hi")))

    assert [message.text for message in state.messages] == ["hello", "hi", "hurry"]
    assert state.answer is None


def test_pending_calls_are_those_without_a_result() -> None:
    """In the order asked."""
    state = in_turn("c", "d", "e")
    state.record(ToolFinished, call_id="d", outcome="denied")

    assert [call.id for call in state.pending_calls] == ["c", "e"]


def test_repeated_ids_of_an_imported_reply_are_made_unique() -> None:
    """Over turns and within one reply; the model's other ids stay as they are."""
    state = State(messages=[calls("c", "c", "d")])
    first = [call.id for call in state.pending_calls]
    state.add_message(results(*first))

    state.add_message(calls("c", "e"))

    second = [call.id for call in state.pending_calls]
    assert (first[0], first[2], second[1]) == ("c", "d", "e")
    assert len({*first, *second}) == 5


def test_the_answer_is_the_models_last_word() -> None:
    """Until something else comes in."""
    state = State(messages=[Message.user("hello"), says(TextBlock(text="hi"))])
    assert state.answer == "hi"

    state.add_message(Message.user("and?"))

    assert state.answer is None


def test_the_answer_is_what_finish_was_given() -> None:
    """Before the model's last word."""
    state = State(messages=[Message.user("hello"), says(TextBlock(text="hi"))])

    state.finish({"n": 1})

    assert (state.answer, state.finished, state.status) == ({"n": 1}, True, "finished")
    assert state.stopped == StoppedByFinish(answer={"n": 1})


def test_a_message_opens_a_finished_state_again() -> None:
    """It waits for an answer then."""
    state = State(messages=[Message.user("hello")])
    state.finish("done")

    state.add_message(Message.user("and now?"))

    assert (state.finished, state.status, state.answer) == (False, "ready", None)


def test_finish_in_a_run_ends_with_the_run() -> None:
    """The turn goes on to its end first."""
    state = in_turn("c")
    state.finish("done")

    assert (state.status, state.finished, state.stopped) == ("running", True, None)


def test_usage_and_turns_are_summed() -> None:
    """Failed requests too."""
    from alpineagents import Usage

    state = asked()
    state.record(ModelFailed, outcome="failed", usage=Usage(input_tokens=5, requests=1))
    state.record(ModelRequested, model="m")
    state.record(ModelReplied, message=calls("c"), usage=Usage(input_tokens=7, output_tokens=2, requests=1))

    assert state.usage == Usage(input_tokens=12, output_tokens=2, requests=2)
    assert state.turn == 1


def test_an_edit_that_fails_changes_nothing() -> None:
    """All of it or nothing."""
    state = State(extra_data={"order": 1042})
    before = state.snapshot()

    def edit() -> None:
        with state.edit_extra_data() as data:
            data["order"] = 1043
            raise KeyError("order")

    with pytest.raises(KeyError):
        edit()
    assert state.snapshot() is before


def test_an_edit_that_changes_nothing_is_no_event() -> None:
    """To look is not to write."""
    state = State(extra_data={"order": 1042})

    with state.edit_extra_data() as data:
        data["order"] = 1042

    assert state.revision == 1


def test_an_edit_inside_an_edit_is_refused() -> None:
    """The outer one would undo the inner one without a word."""
    from alpineagents import StateConflictError

    state = State(extra_data={"a": 1})

    def edit() -> None:
        with state.edit_extra_data() as outer:
            outer["a"] = 2
            with state.edit_extra_data() as inner:
                inner["a"] = 3

    with pytest.raises(StateConflictError, match=r"'/a' was changed by another.* nest"):
        edit()
    assert state.extra_data == {"a": 3}


@pytest.mark.parametrize(
    "before, mine, theirs, both",
    [
        ({}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        ({"log": [1]}, {"log": [1, 2]}, {"log": [1, 3]}, {"log": [1, 3, 2]}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 1, "y": 2}}, {"a": {"x": 2, "y": 2}}),
        ({"a": 1, "b": 1}, {"b": 1}, {"a": 1, "b": 2}, {"b": 2}),
        ({"n": 1}, {"n": 2}, {"n": 2}, "/n"),
        ({"a": {"x": 1}}, {"a": 5}, {"a": {"x": 2}}, "/a/x"),
        ({"log": [1, 2]}, {"log": [2]}, {"log": [1, 2, 3]}, "/log"),
        ({"log": [1, 2]}, {"log": [1, 5]}, {"log": [2]}, "/log"),
        ({"log": []}, {"log": [1]}, {}, "/log"),
        ({"ab": 1, "a": 1}, {"ab": 2, "a": 1}, {"ab": 1, "a": 2}, {"ab": 2, "a": 2}),
    ],
)
def test_edits_at_once_keep_what_both_change(before: Any, mine: Any, theirs: Any, both: Any) -> None:
    """In different places, or at the end of one list; in the same place the later one changes nothing."""
    from alpineagents import StateConflictError

    state = State(extra_data=before)
    first, second = state.edit_extra_data(), state.edit_extra_data()
    data, others = first.__enter__(), second.__enter__()
    data.clear()
    data.update(mine)
    others.clear()
    others.update(theirs)
    second.__exit__(None, None, None)

    if isinstance(both, str):
        with pytest.raises(StateConflictError, match=both):
            first.__exit__(None, None, None)
        assert state.extra_data == theirs
    else:
        first.__exit__(None, None, None)
        assert state.extra_data == both


async def test_an_edit_is_the_same_with_async_with() -> None:
    """All of it or nothing."""
    state = State()

    async with state.edit_extra_data() as data:
        data["a"] = 1
    with pytest.raises(KeyError):
        async with state.edit_extra_data() as data:
            data["a"] = 2
            raise KeyError("a")

    assert state.extra_data == {"a": 1}


@pytest.mark.parametrize(
    "change, path",
    [
        ({"a": {"b": [1, {2}]}}, r"extra_data\['a'\]\['b'\]\[1\]"),
        ({"a": float("nan")}, r"extra_data\['a'\]"),
        ({1: "a"}, r"extra_data\[1\]"),
    ],
)
def test_an_edit_that_json_has_not_names_the_place(change: Any, path: str) -> None:
    """And changes nothing."""
    from alpineagents import ValueNotStorableError

    state = State(extra_data={"kept": True})

    def edit() -> None:
        with state.edit_extra_data() as data:
            data.update(change)

    with pytest.raises(ValueNotStorableError, match=path):
        edit()
    assert (state.extra_data, state.revision) == ({"kept": True}, 1)


def test_an_event_of_an_edit_holds_the_change_only() -> None:
    """A long list does not travel with each item that is added to it."""
    from alpineagents.stores.codec import encode

    state = State(extra_data={"log": ["x" * 100] * 1000})

    with state.edit_extra_data() as data:
        data["log"].append("new")

    assert len(encode(state.history[-1]).payload) < 100


def test_compact_puts_a_summary_in_the_place_of_the_context() -> None:
    """The history keeps what it was."""
    state = State(messages=[Message.user("hello"), says(TextBlock(text="hi"))])

    state.compact("They greeted each other.")

    assert [(message.text, message.is_notice) for message in state.messages] == [("They greeted each other.", True)]
    assert len(state.history) == 3


def conversation(turns: int) -> State:
    state = State(messages=[Message.user("hello")])
    for number in range(turns):
        state.add_message(calls(f"c{number}"))
        state.add_message(results(f"c{number}"))
    return state


def texts_of_results(state: State) -> list[str]:
    return [result.text for message in state.messages for result in message.tool_results]


@pytest.mark.parametrize("keep, cleared", [(0, 3), (1, 2), (2, 1), (3, 0), (4, 0), (5, 0), (100, 0)])
def test_clear_tool_results_keeps_the_last_ones(keep: int, cleared: int) -> None:
    """As many as are asked for, all of them where there are no more."""
    state = conversation(3)

    state.clear_tool_results(keep=keep)

    assert texts_of_results(state) == [CLEARED] * cleared + ["seen"] * (3 - cleared)


@pytest.mark.parametrize("change", [State.clear_tool_results, lambda state: state.compact("a summary")])
def test_the_context_of_an_open_turn_stays_and_the_error_says_what_closes_it(change: Callable[[State], None]) -> None:
    """The tools, unless a call waits for a person: then there is nothing that they could be used for."""
    with pytest.raises(EventOrderError, match=r"the calls \['a', 'b'\] have no result yet: await agent\.use_tools"):
        change(in_turn("a", "b"))

    with pytest.raises(EventOrderError, match=r"store\.approve\('s', 'c', by=…\), then await agent\.resume\('s'\)"):
        change(approval_asked("c"))


def test_restore_goes_back_and_keeps_the_history() -> None:
    """Context and extra data are those of the snapshot."""
    state = State(messages=[Message.user("hello")], extra_data={"a": 1})
    earlier = state.snapshot()
    state.add_message(says(TextBlock(text="wrong way")))
    with state.edit_extra_data() as data:
        data["a"] = 2

    state.restore(earlier)

    assert [message.text for message in state.messages] == ["hello"]
    assert state.extra_data == {"a": 1}
    assert state.revision == 5


def test_a_restore_within_a_turn_says_what_to_do() -> None:
    """Here or in the snapshot: which calls are open, and the fork that can go on from there."""
    state = State(id="s", messages=[Message.user("hello")])
    between, within = state.snapshot(), in_turn("c").snapshot()
    with pytest.raises(EventOrderError, match=r"in the snapshot, the calls \['c'\] .* store\.fork\('s', new_id, 4\)"):
        state.restore(within)

    state.add_message(calls("d"))
    with pytest.raises(EventOrderError, match=r"here, the calls \['d'\] .* store\.fork\('s', new_id, 1\)"):
        state.restore(between)


def test_a_snapshot_taken_while_the_model_was_asked_can_be_restored() -> None:
    """Its context is whole, and a message that waited for the reply is in it."""
    state = asked()
    state.add_message(Message.user("and?"))
    within = state.snapshot()
    state.record(ModelReplied, message=says(TextBlock(text="done")))

    state.restore(within)

    assert [message.text for message in state.messages] == ["hello", "and?"]


@pytest.mark.parametrize("snapshot", [None, 1, State()])
def test_only_a_snapshot_can_be_restored(snapshot: Any) -> None:
    """The error shows how to take one."""
    with pytest.raises(ConfigError, match=r"state\.snapshot\(\)"):
        State().restore(snapshot)


def test_a_message_of_another_is_not_lost_behind_the_summary_that_it_waited_for() -> None:
    """It waits for the first change of the context, which is the reply, and a second one keeps it."""
    state = asked()
    state.mark_saved(state.revision)
    state.record(ContextChanged, reason="compact", messages=(Message.notice("short"),))
    state.compact("shorter")

    state.take_in([MessageAdded(revision=4, at=state.history[-1].at, message=Message.user("and?"))])

    assert [message.text for message in state.messages] == ["shorter", "and?"]


def test_a_fork_has_the_history_and_an_id_of_its_own() -> None:
    """And says where it comes from."""
    state = State(id="origin", messages=[Message.user("hello")], namespace="tenant-a")

    fork = state.fork(id="fork")

    assert (fork.id, fork.namespace, fork.parent_id) == ("fork", "tenant-a", "origin")
    assert fork.snapshot() == state.snapshot()
    assert fork.unsaved == tuple(state.history)


def test_a_diff_says_what_changed() -> None:
    """Messages that went and came, the patch of the extra data, and what it took."""
    from alpineagents import Usage

    state = State(messages=[Message.user("hello")], extra_data={"log": ["a"]})
    before = state.snapshot()
    started(state)
    state.record(ModelRequested, model="m")
    state.record(ModelReplied, message=says(TextBlock(text="hi")), usage=Usage(output_tokens=2, requests=1))
    with state.edit_extra_data() as data:
        data["log"].append("b")

    change = before.diff(state.snapshot())

    assert ([m.text for m in change.added], change.removed) == (["hi"], ())
    assert [(step.op, step.path, step.value) for step in change.extra_data] == [("add", "/log/-", "b")]
    assert change.usage == Usage(output_tokens=2, requests=1)


def test_a_diff_the_other_way_takes_it_back() -> None:
    """What was added is removed, and usage is below 0."""
    state = conversation(3)
    before = state.snapshot()
    state.clear_tool_results(keep=1)

    change, back = before.diff(state.snapshot()), state.snapshot().diff(before)

    assert (change.added, change.removed) == (back.removed, back.added)
    assert [m.tool_results[0].text for m in change.added if m.tool_results] == [CLEARED] * 2
    assert (change.usage - change.usage).requests == 0


def test_equal_snapshots_do_not_differ() -> None:
    """However many messages are the same."""
    state = State(messages=[Message.user("same")] * 3)
    before = state.snapshot()

    assert before.diff(before) == state.fork().snapshot().diff(before)
    assert (before.diff(before).added, before.diff(before).extra_data) == ((), ())
    state.add_message(Message.user("same"))
    assert len(before.diff(state.snapshot()).added) == 1


def test_a_run_that_could_not_begin_leaves_no_trace() -> None:
    """What was unsaved before it stays unsaved, and is not lost."""
    state = State(messages=[Message.user("hello")])
    before = state.snapshot()
    started(state)

    state.drop_unsaved("r")

    assert state.snapshot() == before
    assert [event.kind for event in state.history] == ["message_added"]


def test_a_run_that_could_not_begin_leaves_no_trace_on_a_fork() -> None:
    """A fork has never been saved, so all that it has is unsaved."""
    fork = State(messages=[Message.user("hello")]).fork()
    before = fork.snapshot()
    started(fork)

    fork.drop_unsaved("r")

    assert fork.snapshot() == before
    assert fork.revision == len(fork.history) == 1


def test_the_repr_says_what_one_looks_for() -> None:
    """Id, revision, status, and how much is not saved."""
    state = State(id="s", messages=[Message.user("hello")])

    assert repr(state) == "<State 's' revision=1 status=ready turn=0 unsaved=1>"
    assert repr(state.snapshot()) == "<StateSnapshot revision=1 status=ready turn=0 messages=1 pending_calls=0>"


def test_a_request_to_stop_stands_until_it_is_served() -> None:
    """By the end of a run, or until something is said; runs that die meanwhile take nothing from it."""
    state = State(messages=[Message.user("Go")])
    state.record(CancelRequested, by="nobody heard")
    assert state.snapshot().unserved_cancel_by is None

    state.run_id = "one"
    state.record(RunStarted, agent=AgentInfo(model="m"))
    state.run_id = None
    state.record(CancelRequested, by="Ada")
    state.run_id = "two"
    state.record(RunStarted)
    value = state.snapshot()
    assert (value.cancelled_by, value.unserved_cancel_by) == (None, "Ada")

    state.record(RunStopped, stopped=StoppedByCancel(by="Ada"))
    spoken = fold(value, [MessageAdded(revision=6, at=state.history[-1].at, message=Message.user("No"))])
    assert (state.snapshot().unserved_cancel_by, spoken.unserved_cancel_by) == (None, None)
