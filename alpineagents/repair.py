"""
Pure: a State found open → the Events that close it.

A run that ends closes what it had open, and knows what became of it. A run that finds the State of a dead process does
not, so it says what it knows: a call that was never started certainly did not run; one that was started may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from alpineagents.digests import digest_of, signature_of
from alpineagents.events import ApprovalRequested, Event, ModelFailed, RunStopped, ToolFinished
from alpineagents.messages import TextBlock, ToolCall, ToolSpec
from alpineagents.snapshot import CallState, StateSnapshot
from alpineagents.stopped import Stopped
from alpineagents.usage import Usage

OnUnknown = Literal["report", "retry", "ask"]
Step = tuple[type[Event], dict[str, Any]]
"""A kind of Event and its fields."""

UNPRICED = Usage(requests=1, unpriced_requests=1)
"""What is known of a request that gave no reply."""

UNKNOWN = (
    "The outcome of this call is unknown: the process that ran it ended before the result was saved, so it may have "
    "had its effect or not. It was not run again. Check what is there before you decide to repeat it."
)
INTERRUPTED = (
    "This call was stopped while it ran, because {reason}. It may have had its effect or a part of it. "
    "Check what is there before you decide to repeat it."
)
CANCELLED = "This call was not run, because {reason}."


class Safety(Protocol):
    """What of a tool decides whether a call in doubt may run again, and what a person is asked about."""

    @property
    def read_only(self) -> bool: ...
    @property
    def idempotent(self) -> bool: ...
    @property
    def transaction(self) -> bool: ...
    @property
    def spec(self) -> ToolSpec: ...
    def for_call(self, args: Mapping[str, Any]) -> Safety: ...


def may_run_again(tool: Safety | None) -> bool:
    """Tell whether running a call twice has the effect of running it once, or its first run had none."""
    return tool is not None and (tool.read_only or tool.idempotent or tool.transaction)


def repairs(
    value: StateSnapshot, tools: Mapping[str, Safety], on_unknown: OnUnknown, *, forked: bool = False
) -> Iterator[Step]:
    """
    Return what a new run records about the work that a dead one left open.

    Args:
        value: the State as it was found.
        tools: the Agent's tools by name.
        on_unknown: what becomes of a started call that may not simply run again: tell the model that its outcome is
            unknown, run it again, or ask a person.
        forked: whether the calls may have been started by a run of the State that this one was forked from. Then only
            what changes nothing runs again: the effect of a call there is not undone, and its key is another one.
    """
    if value.requesting:
        text = "the process ended before the reply was saved"
        yield ModelFailed, {"outcome": "interrupted", "message": text, "usage": UNPRICED}
    for state in value.calls.values():
        decided = state.result is not None or state.approval is not None
        known = tools.get(state.call.name)
        tool = None if known is None else known.for_call(state.call.args)
        if forked and state.result is None and state.approval == "approved" and state.request is not None:
            # A person allowed one call of it, which is made there.
            yield asking(state.call, tool, state.request.question)
        again = tool is not None and tool.read_only if forked else may_run_again(tool)
        if decided or not state.starts or again:
            continue
        if on_unknown == "report":
            yield ToolFinished, _result(state.call, "unknown", UNKNOWN)
        elif on_unknown == "ask":
            question = f"It is unknown whether {state.call.name} ran before the process ended. Run it (again)?"
            yield asking(state.call, tool, question)


def asking(call: ToolCall, tool: Safety | None, question: str, *, expires_at: datetime | None = None) -> Step:
    """Return the question whether a call is to be made, bound to its tool and its arguments."""
    signature = "" if tool is None else signature_of(tool.spec)
    digest = digest_of(signature, call.args)
    bound = {"call_id": call.id, "digest": digest, "signature": signature}
    return ApprovalRequested, {**bound, "question": question, "expires_at": expires_at}


def closing(value: StateSnapshot, stopped: Stopped, reason: str) -> Iterator[Step]:
    """
    Return what a run records when it ends before its turn has.

    Args:
        stopped: how it ends.
        reason: why, to tell the model: "the run was cancelled".
    """
    if value.requesting:
        yield ModelFailed, {"outcome": "cancelled", "message": reason}
    yield from closing_calls(value, reason)
    yield RunStopped, {"stopped": stopped}


def closing_calls(value: StateSnapshot, reason: str) -> Iterator[Step]:
    """Return the results of the calls that have none and get none."""
    for state in value.calls.values():
        if state.result is None:
            yield ToolFinished, _closed(state, reason)


def _closed(state: CallState, reason: str) -> dict[str, Any]:
    if state.starts:
        return _result(state.call, "interrupted", INTERRUPTED.format(reason=reason))
    return _result(state.call, "cancelled", CANCELLED.format(reason=reason))


def _result(call: ToolCall, outcome: str, text: str) -> dict[str, Any]:
    return {"call_id": call.id, "outcome": outcome, "content": (TextBlock(text=text),)}
