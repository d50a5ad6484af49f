"""
Subagents: a run that serves a call of another run, in a State of its own.

The id of such a child follows from its parent's and from the call, so a call that is made again finds the child that
an earlier attempt began and goes on with it. What the child took is counted at the parent with the call's result: a
call has one, so it is counted once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import logging
import weakref
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import anyio
from pydantic import JsonValue

from alpineagents import clock
from alpineagents.errors import (
    AlpineAgentsError,
    ConfigError,
    StateBusyError,
    StateNotFoundError,
    ToolDefinitionError,
    ToolError,
    ToolInputError,
)
from alpineagents.events import MessageAdded, RunStarted, RunStopped, ToolFinished, ToolStarted
from alpineagents.messages import Message
from alpineagents.permissions import Allow, Ask, Deny, ToolRequest, Verdict
from alpineagents.repair import Step, closing_calls, may_run_again
from alpineagents.state import State
from alpineagents.stopped import StoppedByCancel, StoppedByPermission, StoppedByUntil, WaitingForApproval
from alpineagents.stores.base import Store
from alpineagents.stores.header import Lease
from alpineagents.tools import Tool, ToolContext, check, tool
from alpineagents.usage import Usage

if TYPE_CHECKING:
    from alpineagents.agent import Agent
    from alpineagents.human import Human
    from alpineagents.runner import Run

log = logging.getLogger("alpineagents")

ID_LENGTH = 100
"""How much of the parent's id stands in a child's: that of a child's child fits, too."""

_in_memory: weakref.WeakKeyDictionary[State, dict[str, State]] = weakref.WeakKeyDictionary()
"""The children of States that no store has."""

Execute = Callable[[State, "Caller"], Awaitable[None]]
"""Runs an Agent on a child."""


def child_id(state_id: str, call_id: str, place: int = 0) -> str:
    """
    Return the id of the State that serves a call.

    Args:
        place: 0 for an Agent in `tools=`; for the runs that a tool starts, which of them it is.

    Example:
        >>> child_id("report", "call_1")
        'report-dcad483a2072735b'
    """
    digest = hashlib.sha256("\0".join((state_id, call_id, str(place))).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{state_id[:ID_LENGTH]}-{digest[:16]}"


class ChildWaitsError(BaseException):
    """
    Leaves a tool whose call cannot end before a person has decided about a call of a child.

    It is no Exception, so that what a tool catches does not hold it up.
    """

    def __init__(self, calls: dict[str, tuple[str, ...]]) -> None:
        self.calls = calls
        super().__init__(f"waiting for approval in {', '.join(calls)}")


def waiting_in(error: BaseException) -> dict[str, tuple[str, ...]] | None:
    """Return which calls of which States a tool waits for, if that is all that it raised."""
    if isinstance(error, ChildWaitsError):
        return error.calls
    if not isinstance(error, BaseExceptionGroup):
        return None
    parts = [waiting_in(part) for part in error.exceptions]
    found = [part for part in parts if part is not None]
    return {state_id: calls for part in found for state_id, calls in part.items()} if len(found) == len(parts) else None


@dataclass(eq=False, slots=True)
class Caller:
    """
    A call that is being made, as the runs that serve it know it.

    Attributes:
        run: the run that makes it.
        agent: whose tool it is.
        children: the States that serve it, in the order in which they were begun, also by earlier attempts.
        waiting: what it waits for: calls by the id of their State; empty unless it does.
        heard: whether something of that was decided meanwhile.
    """

    run: Run
    agent: Agent[Any]
    tool: Tool | None
    call_id: str
    children: dict[str, State] = field(default_factory=dict)
    waiting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    heard: bool = False
    _taken: set[str] = field(default_factory=set)
    _finding: anyio.Lock = field(default_factory=anyio.Lock)

    def begin(self) -> Caller:
        """Begin another attempt."""
        self.waiting, self.heard = {}, False
        self._taken.clear()
        return self

    @property
    def usage(self) -> Usage:
        """What the children took, children of theirs included."""
        return reduce(add, (child.usage for child in self.children.values()), Usage())

    async def load(self) -> Caller:
        """Find what earlier attempts began."""
        for place in itertools.count():
            name = child_id(self.run.state.id, self.call_id, place)
            if (found := await self._read(name)) is None:
                return self
            self.children[name] = found
        raise AssertionError("unreachable")

    async def child_for(self, agent: Agent[Any], message: Message) -> State:
        """Return the State that an earlier attempt began with this message, as it is now, or a new one."""
        async with self._finding:
            for name, child in self.children.items():
                if name not in self._taken and _first_message(child) == message and _is_of(child, agent):
                    self._taken.add(name)
                    self.children[name] = await self._read(name) or child
                    return self.children[name]
            parent = self.run.state
            name = child_id(parent.id, self.call_id, len(self.children))
            child = State(id=name, namespace=parent.namespace, messages=[message])
            child.parent_id = parent.id
            self.children[name] = child
            self._taken.add(name)
            if self.run.store is None:
                _in_memory.setdefault(parent, {})[name] = child
            return child

    async def again(self, child: State) -> State:
        """Return a child as it is now."""
        self.children[child.id] = await self._read(child.id) or child
        return self.children[child.id]

    async def _read(self, name: str) -> State | None:
        if self.run.store is None:
            return _in_memory.get(self.run.state, {}).get(name)
        try:
            return await self.run.store.load(name)
        except StateNotFoundError:
            return None


def _first_message(child: State) -> Message | None:
    return next((event.message for event in child.history if isinstance(event, MessageAdded)), None)


def _is_of(child: State, agent: Agent[Any]) -> bool:
    known = child.snapshot().agent
    return known is None or known.name == agent.name


def callers_above(caller: Caller | None) -> Iterator[Caller]:
    """Return the call that a run serves, the one that this call's run serves, and so on."""
    while caller is not None:
        yield caller
        caller = caller.run.caller


# ------------------------------------------------------------------------------------------------ run a child


def subagent_tool(agent: Agent[Any], execute: Execute) -> Tool:
    """
    Return an Agent as a tool that takes a prompt and gives back the answer.

    Raises:
        ToolDefinitionError: the Agent has no name.
    """
    if not agent.name:
        raise ToolDefinitionError(
            f"{agent!r} has no name that a model could call it by: "
            'Agent(model, name="researcher", description="Looks things up.")'
        )

    async def ask(prompt: str, context: ToolContext) -> JsonValue:
        if not prompt.strip():
            raise ToolInputError("the prompt is empty: say what is to be done")
        child = await run_child(agent, Message.user(prompt), context, execute)
        if child.answer is None:
            raise ToolError(f"{agent.name} has no answer: {child.stopped}")
        return child.answer

    made = tool(ask, name=agent.name, description=agent.description or "", idempotent=True)
    return dataclasses.replace(made, is_subagent=True)


async def run_child(agent: Agent[Any], message: Message, context: ToolContext, execute: Execute) -> State:
    """
    Run an Agent for a call, or go on where an earlier attempt at it stopped.

    Args:
        execute: runs the Agent on a State.

    Returns:
        The child, whose run is over.

    Raises:
        ConfigError: the tool may not be run again, so it could not go on after a crash or an approval.
        ChildWaitsError: a person has to decide about a call first.
        Exception: what the run raised.
    """
    caller = context.caller
    if caller is None:
        raise ConfigError("this ToolContext is of no run: leave context= out, or have a run make the call")
    _check(caller, agent)
    async with caller.run.subagents:
        child = await caller.child_for(agent, message)
        while not _is_over(child):
            try:
                await execute(child, caller)
            except StateBusyError:
                # The process that ran it died and its lease is not over, or somebody runs it by itself.
                await anyio.sleep(min(1.0, caller.run.lease / 4))
                child = await caller.again(child)
            else:
                break
    if isinstance(child.stopped, WaitingForApproval):
        below = child.stopped.children
        own = tuple(call.call.id for call in child.snapshot().calls.values() if call.waits)
        raise ChildWaitsError({**below, child.id: own} if own else {**below})
    return child


def _check(caller: Caller, agent: Agent[Any]) -> None:
    made = caller.tool
    if made is None or made.transaction or not may_run_again(made):
        name = caller.call_id if made is None else made.name
        raise ConfigError(
            f"{name!r} runs an Agent, so it is called again after a crash and once a person has decided, to go on "
            "where that stopped. Say that it may be: @tool(idempotent=True), which is no transaction tool"
        )
    store = caller.run.store
    needing = [each.name for each in agent.tools.values() if each.transaction]
    if needing and (store is None or not store.has_transactions):
        raise ConfigError(
            f"{needing[0]!r} is a transaction tool, so the Agent that calls {agent.name!r} needs a SQLStore"
        )


def _is_over(child: State) -> bool:
    """Tell whether the child has come to its end, so that only its parent does not know it yet."""
    stopped = child.stopped
    if child.pending_calls or child.status not in ("stopped", "finished", "cancelled"):
        return False
    if isinstance(stopped, StoppedByCancel):
        return bool(stopped.by)  # a request, and not the end of the process
    return not isinstance(stopped, StoppedByUntil) or child.answer is not None


# ------------------------------------------------------------------------------------------------ what a parent records


def with_children(callers: dict[str, Caller], steps: Iterable[Step]) -> Iterator[Step]:
    """Return the steps, with what the children of each call took in its result."""
    for kind, fields in steps:
        caller = callers.get(fields.get("call_id", ""))
        if caller is None:
            yield kind, fields
        elif kind is ToolStarted and caller.tool is not None and caller.tool.is_subagent:
            yield kind, {**fields, "child_id": child_id(caller.run.state.id, caller.call_id)}
        elif kind is ToolFinished and caller.children:
            yield kind, {**fields, "children": tuple(caller.children), "usage": caller.usage}
        else:
            yield kind, fields


async def close_waiting(caller: Caller) -> None:
    """Close the children that wait for a person although their call has its result: nobody would go on."""
    call = caller.run.state.snapshot().calls.get(caller.call_id)
    if call is not None and call.result is None:
        return
    for child in caller.children.values():
        stopped = child.stopped
        if isinstance(stopped, WaitingForApproval):
            for name in (*stopped.children, child.id):
                try:
                    await _close(caller.run.store, child if name == child.id else None, name)
                except AlpineAgentsError as error:
                    log.warning("State %s still waits, which nobody needs any more: %s", name, error)


async def _close(store: Store | None, child: State | None, name: str) -> None:
    if store is not None:
        child = await store.load(name)
    if child is None or not isinstance(child.stopped, WaitingForApproval):
        return
    child.run_id = run_id = clock.new_id()
    try:
        child.record(RunStarted)
        for kind, fields in closing_calls(child.snapshot(), "the call that it served has ended"):
            child.record(kind, **fields)
        child.record(RunStopped, stopped=StoppedByCancel())
    finally:
        child.run_id = None
    if store is not None:
        await store.save_with(child, Lease(run_id, 0.0))


# ------------------------------------------------------------------------------------------------ what binds a child


async def bound(verdict: Verdict, request: ToolRequest, caller: Caller | None) -> Verdict:
    """
    Return what counts where the rules of those above have their say, too: all must allow, and a denial wins.

    Args:
        verdict: what the child's own rules say.
        caller: the call that the child serves; None where it serves none.
    """
    passed: list[Run] = []
    for above in callers_above(caller):
        passed.append(above.run)
        rules, mine = above.agent.permissions, verdict.decision
        if rules is None or isinstance(mine, Deny):
            continue
        theirs = await rules.decide(_as_edited(request, mine))
        if isinstance(theirs.decision, Deny):
            verdict = theirs
            if theirs.decision.stop:
                for run in passed:
                    run.stopped = run.stopped or StoppedByPermission(call=request.call, reason=theirs.decision.reason)
        elif any(_edits(each) for each in (mine, theirs.decision)) and Ask in {type(mine), type(theirs.decision)}:
            # A person would be shown arguments that are not the ones of the call.
            reason = "one rule changes the arguments and another one asks a person, which cannot both be"
            verdict = Verdict(Deny(reason), f"{verdict.by} and {theirs.by}")
        elif isinstance(mine, Allow) and (isinstance(theirs.decision, Ask) or _edits(theirs.decision)):
            verdict = theirs
    return verdict


def _edits(decision: object) -> bool:
    return isinstance(decision, Allow) and decision.args is not None


def _as_edited(request: ToolRequest, decision: object) -> ToolRequest:
    if not isinstance(decision, Allow) or decision.args is None:
        return request
    call = request.call.model_copy(update={"args": decision.args})
    values = check(request.tool, call)
    if not isinstance(values, dict):
        return request
    return dataclasses.replace(request, call=call, tool=request.tool.for_call(call.args), values=values)


def person(agent: Agent[Any], caller: Caller | None) -> Human | None:
    """Return the person at hand: the Agent's own, else that of the one above."""
    people = (agent.human, *(each.agent.human for each in callers_above(caller)))
    return next((human for human in people if human is not None), None)
