"""
The pure function that computes the value of a State from Events.

The fold holds what providers demand, so that a State can be sent at every revision: each call is followed by exactly
one result, results enter the context together and in the order asked, and what arrives while a turn is open waits
until it has closed. An Event that cannot follow is refused. Inbox Events are never refused, since whoever adds one
has not read the history: a decision about a call that waits for none changes nothing.

A step costs the same at revision 10 and at revision 10,000.

The file is long since all rules of order are in it, one function a kind of Event, to be read side by side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from alpineagents import patch
from alpineagents.errors import EventOrderError
from alpineagents.events import (
    ApprovalDecided,
    ApprovalRequested,
    Asked,
    CancelRequested,
    ContextChanged,
    DataChanged,
    Event,
    Finished,
    MessageAdded,
    ModelFailed,
    ModelReplied,
    ModelRequested,
    RunStarted,
    RunStopped,
    ToolFinished,
    ToolStarted,
)
from alpineagents.frozen import FrozenList
from alpineagents.messages import Message, ToolResultBlock
from alpineagents.snapshot import CallState, StateSnapshot, Status, last_said, still_open
from alpineagents.stopped import Stopped, StoppedByCancel, StoppedByError, StoppedByFinish, WaitingForApproval

FIRST_MESSAGE_LENGTH = 200


# All at once, since every append folds: one attribute after the other takes half of a step.
_parts = attrgetter(*StateSnapshot.__slots__)


class _Draft:
    """A value while Events are folded into it; nobody but the fold sees one."""

    __slots__ = (*StateSnapshot.__slots__, "open_calls", "state_id")

    if TYPE_CHECKING:  # the slots are those of StateSnapshot, which a type checker cannot see

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, value: StateSnapshot, state_id: str) -> None:
        self.state_id = state_id
        for name, part in zip(StateSnapshot.__slots__, _parts(value), strict=True):
            setattr(self, name, part)
        self.calls = dict(value.calls)
        self.open_calls = len(_open_ids(self)) if self.calls else 0

    def freeze(self) -> StateSnapshot:
        return StateSnapshot(*_parts(self))


class _RefusedError(Exception):
    pass


def apply(value: StateSnapshot, event: Event, *, state_id: str = "") -> StateSnapshot:
    """
    Fold one Event in.

    Raises:
        EventOrderError: it cannot follow.
    """
    return fold(value, (event,), state_id=state_id)


def fold(value: StateSnapshot, events: Iterable[Event], *, state_id: str = "") -> StateSnapshot:
    """
    Fold Events in, in one pass.

    Args:
        value: what they follow; `StateSnapshot()` for a new State.
        state_id: how to name the State in an error.

    Raises:
        EventOrderError: one of them cannot follow the ones before it.

    Example:
        >>> from datetime import UTC, datetime
        >>> added = MessageAdded(revision=1, at=datetime.now(UTC), message=Message.user("Hello"))
        >>> fold(StateSnapshot(), [added]).messages[0].text
        'Hello'
    """
    draft = _Draft(value, state_id)
    for event in events:
        try:
            if event.revision != draft.revision + 1:
                raise _RefusedError(f"the State is at revision {draft.revision}")
            _STEPS[type(event)](draft, event)
        except _RefusedError as refused:
            raise EventOrderError(state_id, event.kind, event.revision, str(refused)) from None
        draft.revision = event.revision
        if draft.created_at is None:
            draft.created_at = event.at
    return draft.freeze()


def header_status(status: Status, event: Event) -> Status:
    """Return the status after an inbox Event, which depends on the status before it alone."""
    if isinstance(event, MessageAdded) and not event.message.late_call and status not in ("running", "waiting"):
        return "ready"
    return status


# ------------------------------------------------------------------------------------------------ one rule a kind


def _run_started(draft: _Draft, event: RunStarted) -> None:
    if event.run_id is None:
        raise _RefusedError("a run has a run_id")
    draft.run_id = event.run_id
    draft.status = "running"
    draft.stopped = None
    draft.cancelled_by = None
    draft.decided_below = frozenset()
    draft.parent = event.parent or draft.parent
    if event.fork:
        draft.forked_as = event.fork
        draft.always_allowed = frozenset()
    if event.agent is not None:
        draft.agent = event.agent
    elif draft.agent is None:
        raise _RefusedError("the first run says which Agent it is")


def _message_added(draft: _Draft, event: MessageAdded) -> None:
    message = event.message
    if not message.late_call:
        draft.unserved_cancel_by = None
    if message.is_plain:
        if not draft.first_message:
            draft.first_message = message.text[:FIRST_MESSAGE_LENGTH]
        if draft.open_calls or draft.requesting:
            draft.queued = (*draft.queued, message)
        else:
            draft.messages = draft.messages.adding(message)
        if not message.late_call:
            draft._finish = None
            draft._is_summed_up = False
        draft.status = header_status(draft.status, event)
        return
    if draft.requesting:
        raise _RefusedError("a model was asked and has not replied")
    if message.role == "assistant":
        if message.tool_results:
            raise _RefusedError("results stand in a user message")
        _enter_reply(draft, message)
        return
    _enter_results(draft, message)


def _enter_results(draft: _Draft, message: Message) -> None:
    if message.tool_calls:
        raise _RefusedError("calls stand in an assistant message")
    given = [block.call_id for block in message.tool_results]
    wanted = [call_id for call_id, state in draft.calls.items() if state.result is None]
    if given != wanted or len(wanted) != len(draft.calls) or any(state.starts for state in draft.calls.values()):
        raise _RefusedError(f"it has results for {given}, where the open calls are {wanted}")
    draft.messages = draft.messages.adding(message)
    _close_turn(draft)


def _model_requested(draft: _Draft, event: ModelRequested) -> None:
    _within_run(draft, event)
    if draft.requesting:
        raise _RefusedError("the model was asked already and has not replied")
    if draft.open_calls:
        raise _RefusedError(still_open(draft.calls.values(), draft.state_id))
    if not draft.messages:
        raise _RefusedError('there is no message to answer: state.add_message(Message.user("…"))')
    draft.requesting = True


def _model_replied(draft: _Draft, event: ModelReplied) -> None:
    _within_run(draft, event)
    if not draft.requesting:
        raise _RefusedError("no model was asked")
    if event.message.role != "assistant" or event.message.tool_results:
        raise _RefusedError("a reply is a message of role 'assistant' without results")
    draft.requesting = False
    draft.turn += 1
    draft.usage = draft.usage + event.usage
    draft._replied = (event.message, event.stop_reason)
    _enter_reply(draft, event.message)


def _enter_reply(draft: _Draft, message: Message) -> None:
    calls = message.tool_calls
    if draft.open_calls:
        raise _RefusedError(f"the calls {_open_ids(draft)} have no result yet")
    ids = draft._call_ids
    for call in calls:
        if call.id in ids:
            raise _RefusedError(f"the call id {call.id!r} was used before in this State")
        ids = ids.adding(call.id)
    draft._call_ids = ids
    draft._finish = None
    draft._is_summed_up = False
    draft.messages = draft.messages.adding(message)
    draft.calls = {call.id: CallState(call) for call in calls}
    draft.open_calls = len(calls)
    if not calls:
        _release_queue(draft)


def _model_failed(draft: _Draft, event: ModelFailed) -> None:
    _within_run(draft, event)
    if not draft.requesting:
        raise _RefusedError("no model was asked")
    draft.requesting = False
    draft.usage = draft.usage + event.usage
    _release_queue(draft)


def _tool_started(draft: _Draft, event: ToolStarted) -> None:
    _within_run(draft, event)
    state = _open_call(draft, event.call_id)
    if state.approval in ("requested", "denied"):
        raise _RefusedError(f"the call {event.call_id!r} is not approved")
    if event.attempt != state.starts + 1:
        raise _RefusedError(f"the call {event.call_id!r} was started {state.starts} time(s) before")
    # An approval counts for one start: what becomes of a call that died after it is decided anew.
    draft.calls[event.call_id] = dataclasses.replace(state, starts=event.attempt, approval=None)


def _tool_finished(draft: _Draft, event: ToolFinished) -> None:
    _within_run(draft, event)
    state = _open_call(draft, event.call_id)
    if event.outcome in ("ok", "error", "interrupted", "unknown") and not state.starts:
        raise _RefusedError(
            f"the call {event.call_id!r} was never started, so it cannot have ended as {event.outcome!r}"
        )
    if event.outcome == "cancelled" and state.starts:
        raise _RefusedError(f"the call {event.call_id!r} was started, so it cannot count as never run")
    result = ToolResultBlock(call_id=event.call_id, content=event.content, outcome=event.outcome)
    draft.calls[event.call_id] = dataclasses.replace(state, result=result)
    if event.children:
        draft.usage = draft.usage + event.usage
    draft.open_calls -= 1
    if not draft.open_calls:
        results = [call.result for call in draft.calls.values() if call.result is not None]
        draft.messages = draft.messages.adding(Message(role="user", content=tuple(results)))
        _close_turn(draft)


def _approval_requested(draft: _Draft, event: ApprovalRequested) -> None:
    _within_run(draft, event)
    state = _open_call(draft, event.call_id)
    if state.approval not in (None, "approved"):
        raise _RefusedError(f"the call {event.call_id!r} waits for a decision or was denied")
    # Behind an approval, it takes that back: what was approved is not what would be called now.
    draft.calls[event.call_id] = dataclasses.replace(state, approval="requested", request=event, decision=None)


def _approval_decided(draft: _Draft, event: ApprovalDecided) -> None:
    draft.unserved_cancel_by = None
    if event.child_id:
        draft.decided_below |= {(event.child_id, event.call_id)}
        _ready_if_decided(draft)
        return
    state = draft.calls.get(event.call_id)
    if state is None or state.result is not None or not state.takes(event, draft.run_id):
        return
    call = state.call
    if event.approved and event.args is not None:
        call = call.model_copy(update={"args": event.args})
    # What counts in all States is kept by the store, where it can be taken back for this State too.
    if event.approved and event.always == "state" and event.seal and state.request is not None:
        draft.always_allowed |= {state.request.signature}
    draft.calls[event.call_id] = dataclasses.replace(
        state,
        call=call,
        approval="approved" if event.approved else "denied",
        decided_by=event.by,
        note=event.note,
        decision=event,
    )
    _ready_if_decided(draft)


def _ready_if_decided(draft: _Draft) -> None:
    if draft.status != "waiting" or any(call.waits for call in draft.calls.values()):
        return
    children = draft.stopped.children if isinstance(draft.stopped, WaitingForApproval) else {}
    below = {(child_id, call_id) for child_id, calls in children.items() for call_id in calls}
    if below <= draft.decided_below:
        draft.status = "ready"


def _asked(draft: _Draft, event: Asked) -> None:
    draft.usage = draft.usage + event.usage


def _context_changed(draft: _Draft, event: ContextChanged) -> None:
    summary = event.reason == "compact" and event.run_id is not None and event.run_id == draft.run_id
    if draft.open_calls:
        raise _RefusedError(still_open(draft.calls.values(), draft.state_id))
    if draft.requesting and not summary:
        raise _RefusedError("a model was asked and has not replied: change the context behind its reply")
    _check_pairs(event.messages)
    for message in event.messages:
        for call in message.tool_calls:
            draft._call_ids = draft._call_ids.adding(call.id)
    draft.requesting = False
    draft.messages = FrozenList(event.messages)
    _release_queue(draft)
    # From this Event alone, since a reader who begins here knows no more.
    draft._is_summed_up = event.reason == "compact" and event.messages[:1] == (last_said(draft.messages),)
    if draft._replied is not None and last_said(event.messages) != draft._replied[0]:
        # Forgotten, as by a reader who begins here: a later change may put the reply back.
        draft._replied = None
    draft._finish = None
    draft.usage = draft.usage + event.usage
    if isinstance(event.extra_data, dict):
        draft._data = event.extra_data


def _check_pairs(messages: tuple[Message, ...]) -> None:
    open_ids: list[str] = []
    for message in messages:
        if [block.call_id for block in message.tool_results] != open_ids:
            raise _RefusedError(f"in its messages, the calls {open_ids} are not followed by their results")
        open_ids = [call.id for call in message.tool_calls]
    if open_ids:
        raise _RefusedError(f"in its messages, the calls {open_ids} have no results")


def _data_changed(draft: _Draft, event: DataChanged) -> None:
    try:
        data = patch.apply(draft._data, event.patch)
    except (LookupError, ValueError) as error:
        raise _RefusedError(f"its patch does not fit the extra data: {error}") from None
    if not isinstance(data, dict):
        raise _RefusedError("its patch leaves no JSON object")
    draft._data = data


def _cancel_requested(draft: _Draft, event: CancelRequested) -> None:
    if draft.run_id is not None:
        draft.cancelled_by = event.by
    if draft.run_id is not None or isinstance(draft.stopped, WaitingForApproval):
        draft.unserved_cancel_by = event.by


def _finished(draft: _Draft, event: Finished) -> None:
    if draft.requesting:
        raise _RefusedError("a model was asked and has not replied: finish after it")
    draft._finish = StoppedByFinish(answer=event.answer)
    if draft.run_id is None:
        draft.stopped = draft._finish
        draft.status = "finished"


def _run_stopped(draft: _Draft, event: RunStopped) -> None:
    _within_run(draft, event)
    if draft.requesting:
        raise _RefusedError("a model was asked and has not replied")
    draft.run_id = None
    draft.cancelled_by = draft.unserved_cancel_by = None
    draft.stopped = event.stopped
    draft.status = _status_of(event.stopped)
    # What came in with this very append waits for the next run, not for a person.
    last = last_said(draft.messages)
    came_in = last is not None and last.is_plain and not draft._is_summed_up
    if draft.status == "stopped" and not draft.open_calls and came_in:
        draft.status = "ready"
    _ready_if_decided(draft)


def _status_of(stopped: Stopped) -> Status:
    if isinstance(stopped, WaitingForApproval):
        return "waiting"
    if isinstance(stopped, StoppedByFinish):
        return "finished"
    if isinstance(stopped, StoppedByError):
        return "failed"
    return "cancelled" if isinstance(stopped, StoppedByCancel) else "stopped"


def _within_run(draft: _Draft, event: Event) -> None:
    if event.run_id is None or event.run_id != draft.run_id:
        raise _RefusedError(f"it is of run {event.run_id!r}, where {draft.run_id!r} goes on")


def _open_call(draft: _Draft, call_id: str) -> CallState:
    state = draft.calls.get(call_id)
    if state is None:
        raise _RefusedError(f"no open turn has a call {call_id!r}")
    if state.result is not None:
        raise _RefusedError(f"the call {call_id!r} has its result already")
    return state


def _open_ids(draft: _Draft) -> list[str]:
    return [call_id for call_id, state in draft.calls.items() if state.result is None]


def _close_turn(draft: _Draft) -> None:
    draft.calls = {}
    draft.open_calls = 0
    _release_queue(draft)


def _release_queue(draft: _Draft) -> None:
    if draft.queued:
        draft.messages = draft.messages.adding(*draft.queued)
        draft.queued = ()


_Step = Callable[[_Draft, Any], None]
_STEPS: dict[type[Event], _Step] = {
    RunStarted: _run_started,
    MessageAdded: _message_added,
    ModelRequested: _model_requested,
    ModelReplied: _model_replied,
    ModelFailed: _model_failed,
    ToolStarted: _tool_started,
    ToolFinished: _tool_finished,
    ApprovalRequested: _approval_requested,
    ApprovalDecided: _approval_decided,
    Asked: _asked,
    ContextChanged: _context_changed,
    DataChanged: _data_changed,
    CancelRequested: _cancel_requested,
    Finished: _finished,
    RunStopped: _run_stopped,
}
