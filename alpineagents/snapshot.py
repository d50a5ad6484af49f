"""
The value of a State at a revision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import JsonValue

from alpineagents.digests import digest_of, seal_of
from alpineagents.events import AgentInfo, ApprovalDecided, ApprovalRequested, ParentCall
from alpineagents.frozen import FrozenList, FrozenSet
from alpineagents.messages import Message, ToolCall, ToolResultBlock
from alpineagents.patch import PatchOp, diff
from alpineagents.stopped import Stopped, StoppedByFinish
from alpineagents.usage import Usage
from alpineagents.values import read_only, storable

Status = Literal["ready", "running", "waiting", "stopped", "finished", "failed", "cancelled"]
"""
What a State is doing: something waits for an answer (`ready`), a run goes on or died (`running`), a person has to
decide (`waiting`), or the last run ended: by its loop (`stopped`), by `finish`, by an exception, or by a cancel. Of a
fork in the middle of a run, which no run has taken yet, lists say `ready`.
"""


def last_said(messages: Sequence[Message]) -> Message | None:
    """Return the last message, late results of calls left out: they are there to be read, and ask for no answer."""
    return next((message for message in reversed(messages) if not message.late_call), None)


@dataclass(frozen=True, slots=True)
class CallState:
    """
    A call of the open turn.

    Attributes:
        call: what the model asked for; with other arguments where the decision changed them.
        starts: how often it was started.
        approval: `requested`, `approved` or `denied`; None where nobody asked.
        decided_by: who decided, and `note` what they said.
        request: what a person was asked last, and `decision` what was decided on the call.
        result: None while it is open.
    """

    call: ToolCall
    starts: int = 0
    approval: Literal["requested", "approved", "denied"] | None = None
    decided_by: str = ""
    note: str = ""
    result: ToolResultBlock | None = None
    request: ApprovalRequested | None = None
    decision: ApprovalDecided | None = None

    @property
    def waits(self) -> bool:
        """Whether a person has been asked and has not decided."""
        return self.approval == "requested" and self.result is None

    def takes(self, decision: ApprovalDecided, run_id: str | None) -> bool:
        """
        Tell whether a decision counts: it answers the request and names what was asked, or is one of the run itself.

        One without a digest or a seal, as earlier releases wrote them, counts as it did; the run that makes the call
        checks it.

        Args:
            run_id: the run that goes on.
        """
        if decision.seal and decision.seal != seal_of(vars(decision)):
            return False
        if not self.waits:
            return self.approval is None and decision.run_id is not None and decision.run_id == run_id
        if not decision.digest:
            return decision.args is None and not decision.always
        assert self.request is not None
        changed = decision.args is not None
        shown = digest_of(self.request.signature, decision.args or {}) if changed else self.request.digest
        return decision.digest == shown


def still_open(calls: Collection[CallState], state_id: str) -> str:
    """Say which of the calls have no result, and what gives them one: a person where one waits, else their tools."""
    ids = [each.call.id for each in calls if each.result is None]
    hint = "await agent.use_tools(state)"
    if waiting := [each.call.id for each in calls if each.waits]:
        hint = f"await store.approve({state_id!r}, {waiting[0]!r}, by=…), then await agent.resume({state_id!r})"
    return f"the calls {ids} have no result yet: {hint}"


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """
    What differs between two snapshots.

    Attributes:
        removed: messages of the context that the other has not.
        added: messages of the context that only the other has.
        extra_data: JSON Patch from one's extra data to the other's.
        usage: what the other has taken beyond; below 0 where it has taken less.
    """

    removed: tuple[Message, ...]
    added: tuple[Message, ...]
    extra_data: tuple[PatchOp, ...]
    usage: Usage


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """
    The value of a State at a revision. It never changes, and it shares its parts with the values before and after.

    Attributes:
        revision: that of the last Event folded in; 0 for a new State.
        messages: the context, as a model sees it next.
        calls: the calls of the open turn by id, in the order asked; empty while no turn is open.
        queued: messages that wait for the open turn to close.
        requesting: a model was asked and has not replied.
        turn: how many replies there were.
        usage: the sum over all requests.
        stopped: how the last run ended; None before the first, and while one goes on.
        run_id: the run that goes on, or died.
        agent: the Agent of the last run.
        cancelled_by: who asked the run that goes on to stop; None if nobody did.
        unserved_cancel_by: who asked a run to stop that is dead, or waits for a person: the next run is to serve it.
            None if nobody did, or something was said or decided since.
        always_allowed: the signatures of tools whose calls need no further approval here.
        parent: the call that this State serves; None where it serves none.
        forked_as: the id of the last fork that had a run of its own; "" where there was none.
        decided_below: calls of States that serve this one, as (State, call), decided since its last run began.
    """

    revision: int = 0
    created_at: datetime | None = None
    messages: FrozenList[Message] = field(default_factory=FrozenList)
    calls: Mapping[str, CallState] = field(default_factory=dict)
    queued: tuple[Message, ...] = ()
    requesting: bool = False
    turn: int = 0
    usage: Usage = field(default_factory=Usage)
    stopped: Stopped | None = None
    status: Status = "ready"
    run_id: str | None = None
    agent: AgentInfo | None = None
    cancelled_by: str | None = None
    unserved_cancel_by: str | None = None
    first_message: str = ""
    always_allowed: frozenset[str] = frozenset()
    parent: ParentCall | None = None
    forked_as: str = ""
    decided_below: frozenset[tuple[str, str]] = frozenset()
    _data: dict[str, JsonValue] = field(default_factory=dict)
    _finish: StoppedByFinish | None = None
    # The context is a summary and nothing was said since: it asks for no answer.
    _is_summed_up: bool = False
    _call_ids: FrozenSet[str] = field(default_factory=FrozenSet, repr=False, compare=False)
    # The last reply of a model and why it ended; whether that is still the end of the context, `stop_reason` says.
    _replied: tuple[Message, str] | None = field(default=None, repr=False, compare=False)

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the open turn that have no result, in the order asked."""
        return tuple(state.call for state in self.calls.values() if state.result is None)

    @property
    def extra_data(self) -> dict[str, JsonValue]:
        """The extra data; it refuses change, and so do the values in it."""
        data = read_only(self._data)
        assert isinstance(data, dict)
        return data

    @property
    def finished(self) -> bool:
        """Whether `finish` was called and nothing has come in since."""
        return self._finish is not None

    @property
    def answer(self) -> JsonValue:
        """What `finish` was given, else the text of the last message if the model said it; None while it owes one."""
        if self._finish is not None and self._finish.answer is not None:
            return storable(self._finish.answer, "answer")
        if self.calls or last_said(self.queued) is not None:
            return None
        last = last_said(self.messages)
        return None if last is None or last.role != "assistant" else last.text

    @property
    def stop_reason(self) -> str:
        """Why the model stopped, where its last reply ends the context; "" otherwise."""
        return self._replied[1] if self._replied and last_said(self.messages) == self._replied[0] else ""

    def diff(self, other: StateSnapshot) -> SnapshotDiff:
        """
        Return what changes from this snapshot to another, of the same State or of a fork.

        Example:
            >>> from alpineagents import Message, State
            >>> state = State(messages=[Message.user("Hello")])
            >>> before = state.snapshot()
            >>> state.add_message(Message.user("Are you there?"))
            >>> [message.text for message in before.diff(state.snapshot()).added]
            ['Are you there?']
        """
        mine, its = self.messages, other.messages
        shorter = min(len(mine), len(its))
        head = next((at for at in range(shorter) if mine[at] != its[at]), shorter)
        tail = next((at for at in range(shorter - head) if mine[-1 - at] != its[-1 - at]), shorter - head)
        return SnapshotDiff(
            removed=mine[head : len(mine) - tail],
            added=its[head : len(its) - tail],
            extra_data=tuple(diff(self._data, other._data)),
            usage=other.usage - self.usage,
        )

    def has_call_id(self, call_id: str) -> bool:
        """Tell whether a call of this State has the id, in any turn."""
        return call_id in self._call_ids

    def __repr__(self) -> str:
        return (
            f"<StateSnapshot revision={self.revision} status={self.status} turn={self.turn} "
            f"messages={len(self.messages)} pending_calls={len(self.pending_calls)}>"
        )
