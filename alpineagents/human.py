"""
A person at hand: asked while the run goes on, instead of ending it and waiting for them.

The same Events are written as without one, so another process can answer, and a question that was left open stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import anyio
from pydantic import JsonValue

from alpineagents import clock
from alpineagents.approvals import PendingApproval, decision, pending_approval
from alpineagents.errors import ConfigError
from alpineagents.events import ApprovalDecided, Asked
from alpineagents.gate import denied, expiry, stopping
from alpineagents.permissions import Allow, Deny
from alpineagents.repair import Step
from alpineagents.snapshot import CallState
from alpineagents.stopped import StoppedByPermission
from alpineagents.stores.standing import allow_always, check_list
from alpineagents.subagents import person

if TYPE_CHECKING:
    from alpineagents.agent import Agent
    from alpineagents.runner import Run


@runtime_checkable
class Human(Protocol):
    """
    A person who can be asked while a run goes on.

    Attributes:
        name: who they are, as the history names them.

    Example:
        >>> from alpineagents import Agent, tool
        >>> from alpineagents.testing import FakeModel, tool_call
        >>> class Guide:
        ...     name = "the guide"
        ...
        ...     async def approve(self, request):
        ...         return Allow() if request.args["amount"] < 100 else Deny("too much")
        ...
        ...     async def ask(self, question):
        ...         return "yes"
        >>> @tool(needs_approval=True)
        ... def pay(amount: int) -> str:
        ...     "Pay an amount."
        ...     return f"paid {amount}"
        >>> model = FakeModel([tool_call("pay", amount=5), "It is paid."])
        >>> Agent(model, tools=[pay], human=Guide()).run_sync("Pay 5")
        'It is paid.'
    """

    @property
    def name(self) -> str: ...

    async def approve(self, request: PendingApproval) -> Allow | Deny | bool:
        """
        Decide on a call; True is `Allow()`, False is `Deny("no")`.

        Cancelled when the run is, when the time to decide is over, and when somebody else has decided meanwhile. What
        it raises ends the run; the call goes on waiting.
        """
        ...

    async def ask(self, question: str) -> JsonValue:
        """Answer a question."""
        ...


async def consult(agent: Agent[Any], run: Run) -> bool:
    """
    Ask the person at hand about each call that waits, one after the other.

    Returns:
        Whether there was something to ask.
    """
    waiting = [call for call in run.state.snapshot().calls.values() if call.waits]
    human = person(agent, run.caller)
    if human is None or not waiting:
        return False
    for call in waiting:
        async with run.consulting:
            steps = await _approve(human, run, call)
        await run.record_all(stopping(run.state, steps, run.stopped))
        await _keep_always(run, call.call.id, steps)
        if run.stopped is not None:
            break
    return True


async def _keep_always(run: Run, call_id: str, steps: Iterable[Step]) -> None:
    if not any(kind is ApprovalDecided and fields.get("always") == "all" for kind, fields in steps):
        return
    # Somebody else may have been faster, whose decision counts then.
    counted = run.state.snapshot().calls[call_id].decision
    if counted is not None and counted.always == "all":
        assert run.store is not None
        await allow_always(run.store, run.state, counted)


async def _approve(human: Human, run: Run, call: CallState) -> list[Step]:
    request = pending_approval(run.state, call.call.id)
    if request is None:  # decided by somebody else, while another call was asked about
        return []
    seconds = None if request.expires_at is None else (request.expires_at - clock.now()).total_seconds()
    try:
        with anyio.move_on_after(seconds if seconds is None else max(0.0, seconds)) as scope:
            run.asking = (call.call.id, scope)
            await run.shown()  # what led up to the question, before the question
            answer = await human.approve(request)
            steps = _answered(answer, human.name, run, call)
            if isinstance(answer, Allow) and answer.always == "all" and run.store is not None:
                await check_list(run.store)
            return steps
    except BaseException:
        run.leaves_waiting = True
        raise
    finally:
        run.asking = None
    # Too late, or somebody else was faster: then this changes nothing.
    return [expiry(call)] if pending_approval(run.state, call.call.id) is not None else []


def _answered(answer: object, by: str, run: Run, call: CallState) -> list[Step]:
    if isinstance(answer, bool):
        answer = Allow() if answer else Deny("no")
    if isinstance(answer, Allow):
        if answer.always == "all" and run.store is None:
            raise ConfigError(
                'Allow(always="all") is kept by a store, and this Agent has none: '
                'Agent(model, store=SQLStore("agents.db")), or Allow(always="state")'
            )
        return [(ApprovalDecided, decision(call, approved=True, by=by, args=answer.args, always=answer.always))]
    if not isinstance(answer, Deny):
        raise ConfigError(
            f"{by}.approve(request) returned {answer!r:.80}, where Allow(), Deny(…), True or False is due"
        )
    said: Step = (ApprovalDecided, decision(call, approved=False, by=by, note=answer.reason))
    if not answer.stop:
        return [said]
    run.stopped = StoppedByPermission(call=call.call, reason=answer.reason)
    return [said, denied(call, by, answer.reason)]


async def ask(agent: Agent[Any], run: Run, question: str) -> Any:
    """Ask the person at hand, and record what they say."""
    if agent.human is None:
        raise ConfigError("this Agent has no person to ask: Agent(model, human=…), an object with `approve` and `ask`")
    if not isinstance(question, str) or not question.strip():
        raise ConfigError('a question is a text: await agent.ask_human(state, "Which hut?")')
    await run.shown()
    event = await run.journal.record(Asked, of="human", question=question, answer=await agent.human.ask(question))
    return event.answer
