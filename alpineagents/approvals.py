"""
Approvals: which calls of a State wait for a person, and what a decision about one of them says.

A question is an `ApprovalRequested`, its answer an `ApprovalDecided`. The answer names the digest of what was asked, so
it counts for that tool with those arguments and for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from alpineagents import clock
from alpineagents.digests import digest_of, seal_of
from alpineagents.errors import AlreadyDecidedError, ApprovalError, ConfigError
from alpineagents.events import Always, ApprovalDecided, ToolFinished
from alpineagents.snapshot import CallState
from alpineagents.state import State
from alpineagents.stopped import WaitingForApproval
from alpineagents.values import JsonObject, Text, storable

EXPIRY = "expiry"
"""Who denies a call that nobody decided on in time."""


class PendingApproval(BaseModel):
    """
    A call that waits for a person.

    Attributes:
        state_id: the State it belongs to.
        parent_id: the State that this one serves a call of; None where it serves none.
        call_id: names the call in `store.approve` and `store.deny`.
        tool: the tool's name.
        args: the arguments that the tool would get.
        question: what the person is asked.
        requested_at: since when it waits.
        expires_at: from when on it counts as denied; None for never.
        digest: SHA-256 of the tool and the arguments.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    state_id: str
    namespace: str = ""
    parent_id: str | None = None
    call_id: Text
    tool: Text
    args: JsonObject
    question: Text
    requested_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    digest: str


def pending_approvals(state: State) -> list[PendingApproval]:
    """Return the calls of a State that wait for a person, in the order asked."""
    return [_pending(state, call) for call in state.snapshot().calls.values() if call.waits]


def pending_approval(state: State, call_id: str) -> PendingApproval | None:
    """Return what waits under a call's id, if it waits."""
    call = state.snapshot().calls.get(call_id)
    return _pending(state, call) if call is not None and call.waits else None


def served_state_id(state: State) -> str | None:
    """Return the id of the State that this one serves a call of; None where it serves none."""
    parent = state.snapshot().parent
    return parent.state_id if parent is not None and state.is_child else None


def _pending(state: State, call: CallState) -> PendingApproval:
    request = call.request
    assert request is not None
    return PendingApproval(
        state_id=state.id,
        namespace=state.namespace,
        parent_id=served_state_id(state),
        call_id=call.call.id,
        tool=call.call.name,
        args=call.call.args,
        question=request.question,
        requested_at=request.at,
        expires_at=request.expires_at,
        digest=request.digest,
    )


def waiting_below(state: State, call_id: str) -> str | None:
    """
    Return the State that a call belongs to for which this one waits; None where it is a call of its own, or of none.

    Raises:
        ApprovalError: several such States have a call of that id.
    """
    call = state.snapshot().calls.get(call_id)
    children = state.stopped.children if isinstance(state.stopped, WaitingForApproval) else {}
    found = [child_id for child_id, calls in children.items() if call_id in calls]
    if not found or (call is not None and call.waits):
        return None
    if len(found) > 1:
        raise several_below(state, call_id, found)
    return found[0]


def several_below(state: State, call_id: str, found: Sequence[str]) -> ApprovalError:
    """Return the error that a call is not told apart from those of other States below by its id."""
    return ApprovalError(state.id, call_id, f"several States below have such a call; name one: {', '.join(found)}")


def is_concerned(state: State, child_id: str) -> bool:
    """Tell whether a State waits for a decision in one below, or a run of it may."""
    waits = state.stopped
    return state.snapshot().run_id is not None or (isinstance(waits, WaitingForApproval) and child_id in waits.children)


def is_over(call: CallState, now: datetime) -> bool:
    """Tell whether the time to decide on a call is over."""
    expires_at = None if call.request is None else call.request.expires_at
    return expires_at is not None and expires_at <= now


def decided(
    state: State,
    call_id: str,
    *,
    approved: bool,
    by: str,
    note: str,
    args: Mapping[str, JsonValue] | None = None,
    always: Always = "",
    digest: str | None = None,
) -> dict[str, Any]:
    """
    Return the fields of the decision about a call that waits.

    Args:
        digest: of the question that was shown; None for whatever waits now.

    Raises:
        AlreadyDecidedError: somebody decided before.
        ApprovalError: there is no such call, it does not wait, or its time is over.
        ConfigError: nobody decides, or the arguments are no JSON object.
        ValueNotStorableError: an argument is not JSON.
    """
    _check_words(call_id, by, note, args, always)
    call = state.snapshot().calls.get(call_id)
    if call is None or not call.waits:
        raise _refusal(state, call_id, call)
    if is_over(call, clock.now()):
        assert call.request is not None
        assert call.request.expires_at is not None
        raise ApprovalError(
            state.id,
            call_id,
            f"the time to decide on it was over at {call.request.expires_at:%Y-%m-%d %H:%M:%S} UTC, so it counts as "
            f"denied. The next run tells the model so: await agent.resume({state.id!r})",
        )
    if digest is not None and (call.request is None or call.request.digest != digest):
        raise ApprovalError(
            state.id,
            call_id,
            "it asks for something else than what was shown: show it again. [w for w in await store.approvals() "
            f"if w.state_id == {state.id!r}]",
        )
    if always == "all" and (call.request is None or not call.request.signature):
        raise ApprovalError(state.id, call_id, "its tool was not known when it was asked: leave always='all' out")
    return decision(call, approved=approved, by=by, note=note, args=args, always=always)


def decision(
    call: CallState,
    *,
    approved: bool,
    by: str,
    note: str = "",
    args: Mapping[str, JsonValue] | None = None,
    always: Always = "",
) -> dict[str, Any]:
    """Return the fields of a decision about a call that a person was asked about, bound to what they were asked."""
    assert call.request is not None
    kept = None if args is None else storable(dict(args), "args")
    assert kept is None or isinstance(kept, dict)
    digest = call.request.digest if kept is None else digest_of(call.request.signature, kept)
    named = {"call_id": call.call.id, "digest": digest, "approved": approved, "by": by, "note": note}
    said: dict[str, Any] = {**named, "args": kept, "always": always}
    return {**said, "seal": seal_of(said)}


def _check_words(call_id: object, by: object, note: object, args: object, always: object) -> None:
    if not isinstance(by, str) or not by.strip():
        raise ConfigError(f'by={by!r} does not say who decides: await store.approve(id, call_id, by="Ada")')
    if not isinstance(call_id, str) or not isinstance(note, str):
        raise ConfigError('call_id, note and reason are texts: await store.deny(id, call_id, by="Ada", reason="no")')
    if args is not None and not isinstance(args, Mapping):
        raise ConfigError(f"args is a dict of all arguments, not a {type(args).__name__}: args={{'amount': 1}}")
    if always not in get_args(Always):
        raise ConfigError(
            f'always={always!r} is neither "state", which allows every later call of this tool in this State, '
            'nor "all", which does so in every State of the store'
        )


def _refusal(state: State, call_id: str, call: CallState | None) -> ApprovalError:
    events = [event for event in state.history if isinstance(event, ApprovalDecided) and event.call_id == call_id]
    counted = call.decision if call is not None else (events[0] if events else None)
    if counted is not None:
        return AlreadyDecidedError(state.id, call_id, approved=counted.approved, by=counted.by)
    if state.snapshot().has_call_id(call_id):
        ended = [event for event in state.history if isinstance(event, ToolFinished) and event.call_id == call_id]
        now = f"it has ended ({ended[-1].outcome})" if ended else "nobody is asked about it"
    else:
        now = "the State has no such call"
    waiting = [f"{each.call_id!r} ({each.tool})" for each in pending_approvals(state)]
    return ApprovalError(state.id, call_id, f"{now}. What waits here: {', '.join(waiting) or 'nothing'}")
