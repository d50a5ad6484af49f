"""
What stands between a call that a model asks for and its tool: arguments that fit, rules, a person's approval.

Every open call of a turn is looked at before any tool is entered. What is decided is written down first, so another
process that goes on, and a replay, need no clock and no rule to know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from alpineagents import clock
from alpineagents.approvals import EXPIRY, decision, is_over
from alpineagents.digests import digest_of, seal_of, signature_of
from alpineagents.events import ApprovalDecided, ApprovalRequested, ToolFinished
from alpineagents.messages import Image, TextBlock, ToolCall
from alpineagents.permissions import Allow, Ask, Decision, Deny, Permissions, ToolRequest, Verdict
from alpineagents.repair import Step, asking, closing_calls
from alpineagents.snapshot import CallState
from alpineagents.state import State
from alpineagents.stopped import Stopped, StoppedByPermission
from alpineagents.stores.standing import AlwaysAllowed, standing
from alpineagents.subagents import bound
from alpineagents.tools import Tool, ToolResult, check

if TYPE_CHECKING:
    from alpineagents.agent import Agent
    from alpineagents.runner import Run

BEFORE = " It was started before, by a process that ended: it may have had its effect or not."


@dataclass
class Passed:
    """
    What came of looking at the open calls of a turn.

    Attributes:
        ready: the calls to be made now, by id, with their arguments as Python values.
        steps: what is to be recorded before.
        failures: what is to be raised once that is recorded.
        stopped: the run is to end, and none of the calls is to be made.
    """

    ready: dict[str, dict[str, object]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    stopped: StoppedByPermission | None = None


async def look(agent: Agent[Any], run: Run) -> Passed:
    """Look at every open call of the turn that does not wait for a person."""
    passed = Passed()
    for call in run.state.snapshot().calls.values():
        caller = run.callers.get(call.call.id)
        if call.result is None and (caller is None or not caller.waiting or caller.heard):
            await _look_at(agent, run, call, passed)
    return passed


async def _look_at(agent: Agent[Any], run: Run, call: CallState, passed: Passed) -> None:
    if call.approval == "denied":
        passed.steps.append(denied(call, call.decided_by, call.note))
    elif call.approval == "requested":
        if is_over(call, clock.now()):
            passed.steps.append(expiry(call))
    else:
        tool = agent.tools.get(call.call.name)
        values = check(tool, call.call, list(agent.tools))
        if isinstance(values, dict) and tool is not None:
            await _ask_rules(agent.permissions, run, call, tool, values, passed)
        elif isinstance(values, ToolResult):
            # Whatever was wrong, the tool was not entered.
            outcome = {"call_id": call.call.id, "outcome": "input_error", "content": content_of(call, values)}
            passed.steps.append((ToolFinished, outcome))
            passed.failures += [values.error] if values.error is not None else []


async def _ask_rules(
    rules: Permissions | None, run: Run, call: CallState, tool: Tool, values: dict[str, object], passed: Passed
) -> None:
    request = ToolRequest(call.call, tool.for_call(call.call.args), values, run.state)
    verdict = _plain(tool) if rules is None else await rules.decide(request)
    verdict = await bound(verdict, request, run.caller)
    signature = signature_of(tool.spec)
    made = verdict.decision
    args = made.args if isinstance(made, Allow) and call.approval is None and not call.starts else None
    if args is not None and args != call.call.args:
        verdict, edited = await _edited(rules, run, call, tool, verdict, args)
        made = verdict.decision
        if isinstance(made, Allow):
            digest = digest_of(signature, args)
            passed.steps.append(_decided(call.call, digest, approved=True, by=verdict.by, args=args))
            passed.ready[call.call.id] = edited
            return
    if isinstance(made, Deny):
        digest = digest_of(signature, call.call.args)
        passed.steps.append(_decided(call.call, digest, approved=False, by=verdict.by, note=made.reason))
        passed.steps.append(denied(call, verdict.by, made.reason))
        if made.stop and passed.stopped is None:
            passed.stopped = StoppedByPermission(call=call.call, reason=made.reason)
        return
    if await _is_allowed(run, call, signature, made):
        passed.ready[call.call.id] = values
    elif call.approval is None and (found := await _standing(run, signature)) is not None:
        note = f"allowed in all States since {found.at:%Y-%m-%d %H:%M} UTC"
        digest = digest_of(signature, call.call.args)
        passed.steps.append(_decided(call.call, digest, approved=True, by=found.by, note=note))
        passed.ready[call.call.id] = values
    else:
        passed.steps.append(_asking(call, tool, made if isinstance(made, Ask) else Ask()))


async def _is_allowed(run: Run, call: CallState, signature: str, made: Decision) -> bool:
    """
    Tell whether a call needs nobody's word any more.

    One that a dead process started is looked at as any other: what was decided on it counts for the tool and the
    arguments that it was decided on, and what the rules say now counts otherwise.
    """
    decided, asked = call.decision, call.request
    if decided is None:
        return isinstance(made, Allow) or signature in run.state.snapshot().always_allowed
    if not decided.seal or decided.digest != digest_of(signature, call.call.args):
        return False
    if decided.args is None and (asked is None or asked.digest != decided.digest):
        # It answered no question: what is allowed in all States allowed this call, which may be taken back since.
        return isinstance(made, Allow) or await _standing(run, signature) is not None
    return True


async def _standing(run: Run, signature: str) -> AlwaysAllowed | None:
    return None if run.store is None else await standing(run.store, run.agent.name, signature)


async def _edited(
    rules: Permissions | None, run: Run, call: CallState, tool: Tool, verdict: Verdict, args: Mapping[str, JsonValue]
) -> tuple[Verdict, dict[str, object]]:
    """Return what the rules say of a call as one of them changed it, and its values: what they say of these counts."""
    changed = call.call.model_copy(update={"args": dict(args)})
    values = check(tool, changed, list(run.agent.tools))
    if isinstance(values, ToolResult):
        return Verdict(Deny(f"the rule changed the arguments to some that do not fit: {_text(values)}"), verdict.by), {}
    request = ToolRequest(changed, tool.for_call(args), values, run.state)
    again = await bound(_plain(tool) if rules is None else await rules.decide(request), request, run.caller)
    if isinstance(again.decision, Ask):
        # A person would be shown the model's arguments, not these.
        return Verdict(Deny("a rule changed the arguments to some that a person has to be asked about"), again.by), {}
    return (again if isinstance(again.decision, Deny) else verdict), values


def _plain(tool: Tool) -> Verdict:
    return Verdict(Ask() if tool.needs_approval else Allow(), f"tool {tool.name}")


def _asking(call: CallState, tool: Tool, wanted: Ask) -> Step:
    before = "" if call.request is None else call.request.question
    question = wanted.question or before or f"{call.call.name} is about to be called. Approve?"
    seconds = wanted.expires_in
    expires_at = None if seconds is None else clock.now() + timedelta(seconds=seconds)
    return asking(call.call, tool, question, expires_at=expires_at)


def _decided(call: ToolCall, digest: str, *, approved: bool, by: str, **more: Any) -> Step:
    said = {"call_id": call.id, "digest": digest, "approved": approved, "by": by, **more}
    return ApprovalDecided, {**said, "seal": seal_of(said)}


def expiry(call: CallState) -> Step:
    """
    Return the decision that the time to decide is over.

    It is the decision alone: where a person was faster after all, theirs stands before it, and counts.
    """
    assert call.request is not None
    note = f"nobody decided before {call.request.expires_at:%Y-%m-%d %H:%M:%S} UTC"
    return ApprovalDecided, decision(call, approved=False, by=EXPIRY, note=note)


def denied(call: CallState, by: str, note: str) -> Step:
    """Return the result of a call that was refused."""
    text = f"{by} refused this call" + (f": {note}" if note else ".") + (BEFORE if call.starts else "")
    content = content_of(call, ToolResult("denied", (TextBlock(text=text),)))
    return ToolFinished, {"call_id": call.call.id, "outcome": "denied", "content": content}


def stopping(state: State, steps: Iterable[Step], stopped: Stopped | None) -> Iterator[Step]:
    """Return the steps, and where the run is to end, behind them the results of the calls that are not made."""
    for kind, fields in steps:
        if stopped is None or kind is not ApprovalRequested:
            yield kind, fields
    if stopped is not None:
        yield from closing_calls(state.snapshot(), f"the run ends: {stopped}")


def content_of(call: CallState, result: ToolResult) -> tuple[TextBlock | Image, ...]:
    """Return what a model reads of a result; it is told where others than its own arguments were used."""
    if call.decision is None or call.decision.args is None:
        return result.content
    changed = f"[{call.decided_by} changed the arguments to {json.dumps(call.call.args)}]"
    return (TextBlock(text=changed), *result.content)


def _text(result: ToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, TextBlock))
