"""
The two halves of a turn: ask the model, and make the calls it asks for. Both write as they go.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from alpineagents.context import (
    BYTES_PER_TOKEN,
    QUESTION,
    SMALLEST_CHARACTERS,
    UNKNOWN_WINDOW_TOKENS,
    cut,
    split,
    summarized,
    summary_request,
    transcript,
    unanswered,
    worth_a_summary,
)
from alpineagents.errors import ContextTooLongError, ProviderError, said
from alpineagents.events import ContextChanged, ModelFailed, ModelReplied, ModelRequested, ToolFinished, ToolStarted
from alpineagents.gate import content_of, look, stopping
from alpineagents.human import consult
from alpineagents.late import record_late
from alpineagents.messages import Reply, Request
from alpineagents.models.base import Delta, Emitted, window_of
from alpineagents.models.tally import Tally
from alpineagents.repair import Step
from alpineagents.results import Limited, can_keep, is_readable, keep
from alpineagents.runner import BEATS_PER_LEASE, Run
from alpineagents.snapshot import CallState
from alpineagents.state import State
from alpineagents.subagents import waiting_in
from alpineagents.tools import Tool, ToolContext, ToolResult, execute

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection

    from alpineagents.agent import Agent


async def ask_model(agent: Agent[Any], run: Run) -> Reply:
    """
    Ask the model for the next message.

    Where the context is too long for it, a summary is put in its place, and it is asked once more.

    Raises:
        ModelError: there is no reply; that is recorded.
    """
    request = partial(next_request, agent, run.state)
    try:
        reply = await _ask(agent, run, request)
    except ContextTooLongError:
        if await compact_context(agent, run, None, keep=0) is None:
            raise
        reply = await _ask(agent, run, request)
    reply = reply.model_copy(update={"message": run.state.with_unique_ids(reply.message)})
    await run.journal.record(
        ModelReplied,
        message=reply.message,
        usage=reply.usage,
        stop_reason=reply.stop_reason,
        model=reply.model,
        by=reply.by,
        failures=reply.failures,
    )
    return reply


def next_request(agent: Agent[Any], state: State) -> Request:
    """Return what the model is asked next."""
    return Request.model_construct(
        system=agent.system,
        messages=tuple(state.messages),
        tools=tuple(tool.spec for tool in agent.tools.values()),
        output=None if agent.shape is None else agent.shape.spec,
    )


async def compact_context(agent: Agent[Any], run: Run, instructions: str | None, *, keep: int) -> str | None:
    """
    Put a summary that the model writes in the place of the context.

    Args:
        keep: how many of the last messages stay as they are.

    Returns:
        The summary; None where there is nothing that one could stand for.

    Raises:
        ModelError: there is no summary; the context is as it was.
    """
    head = split(run.state.messages, keep)[0]
    if not worth_a_summary(head):
        return None
    # Half of the window: what a character takes is a guess, and the summary needs room, too.
    size = (window_of(agent.model) or UNKNOWN_WINDOW_TOKENS) * BYTES_PER_TOKEN // 2
    while True:
        try:
            return await _summarize(agent, run, instructions, keep, size)
        except ContextTooLongError:
            # Less than what was sent, which may be less than what was allowed.
            size = min(size, sum(len(part) for message in head for part in transcript(message))) // 4
            if size < SMALLEST_CHARACTERS:
                raise


async def _summarize(agent: Agent[Any], run: Run, instructions: str | None, keep: int, max_characters: int) -> str:
    def request() -> Request:
        # Split anew: what came in before the model is asked belongs to it. What comes later waits for the reply.
        return summary_request(split(run.state.messages, keep)[0], instructions, max_characters)

    reply = await _ask(agent, run, request, aside=True)
    # One that is longer than what it was made of would fill the window again.
    summary = cut(reply.message.text.strip(), max(max_characters, len(QUESTION)))
    if not summary:
        error = ProviderError(f"model {agent.model.name!r} was asked for a summary and gave none")
        run.journal.add(ModelFailed, outcome="failed", error="ProviderError", message=str(error), usage=reply.usage)
        raise error
    head, tail = split(run.state.messages, keep)
    messages = summarized(summary, (*unanswered(head), *tail))
    told = {"usage": reply.usage, "by": reply.by, "failures": reply.failures}
    await run.journal.record(ContextChanged, reason="compact", messages=messages, **told)
    return summary


async def _ask(agent: Agent[Any], run: Run, request: Callable[[], Request], *, aside: bool = False) -> Reply:
    await run.journal.record(ModelRequested, model=agent.model.name)
    tally = Tally(partial(tell_aside, run) if aside else run.emit)
    try:
        return checked(await agent.model.respond(request(), emit=tally), agent)
    except BaseException as error:
        cancelled = isinstance(error, (anyio.get_cancelled_exc_class(), KeyboardInterrupt))
        run.journal.add(
            ModelFailed,
            outcome="cancelled" if cancelled else "failed",
            error="" if cancelled else type(error).__name__,
            message="the run was cancelled" if cancelled else said(error),
            partial="" if aside else "".join(tally.shown),
            usage=tally.spent(error),
            by=tally.by,
            failures=tally.failures,
        )
        raise


def tell_aside(run: Run, item: Emitted) -> None:
    """Hand on what a Model tells while it replies beside the conversation: its words are not the run's."""
    if not isinstance(item, Delta):
        run.emit(item)


def checked(reply: object, agent: Agent[Any]) -> Reply:
    """
    Return what a Model gave back, if it is a reply.

    Raises:
        ProviderError: it is something else.
    """
    if not isinstance(reply, Reply) or reply.message.role != "assistant" or reply.message.tool_results:
        raise ProviderError(f"model {agent.model.name!r} gave back {reply!r:.200}, where a Reply is due")
    return reply


async def make_calls(agent: Agent[Any], run: Run) -> None:
    """
    Make the open calls of the turn, in parallel where their tools allow it.

    Each result is saved as it comes. When a tool raises what is no ToolError, its siblings come to their end and keep
    their results; then the exception is raised.

    Raises:
        Exception: what a tool raised.
    """
    while True:
        passed = await look(agent, run)
        run.stopped = run.stopped or passed.stopped
        await run.record_all(stopping(run.state, passed.steps, run.stopped))
        _raise_first(passed.failures)
        if run.stopped is not None:
            return
        if await consult(agent, run):
            continue  # all that was asked is decided now: by the person, by another, or by the time
        if not passed.ready and not passed.steps:
            return
        calls = run.state.snapshot().calls
        for group in _groups(agent, [(calls[call_id], args) for call_id, args in passed.ready.items()]):
            await _make_group(agent, run, group)
        # Once more, since a decision about a call that waited may have come in meanwhile.


Ready = tuple[CallState, dict[str, object]]


def _groups(agent: Agent[Any], ready: Iterable[Ready]) -> Iterator[list[Ready]]:
    """Keep the order asked: calls that may run together do so, one that may not runs alone."""
    group: list[Ready] = []
    for item in ready:
        tool = agent.tools[item[0].call.name]
        if tool.parallel and not tool.transaction:
            group.append(item)
            continue
        if group:
            yield group
        yield [item]
        group = []
    if group:
        yield group


async def _make_group(agent: Agent[Any], run: Run, group: list[Ready]) -> None:
    for state, _ in group:
        run.calling(agent, agent.tools[state.call.name].for_call(state.call.args), state.call.id).begin()
    started: list[Step] = [(ToolStarted, {"call_id": state.call.id, "attempt": state.starts + 1}) for state, _ in group]
    await run.record_all(started)
    failures: list[BaseException] = []

    async def make(state: CallState, args: dict[str, object]) -> None:
        tool = agent.tools[state.call.name]
        try:
            if tool.transaction:
                result = await _make_in_transaction(agent, tool, run, state, args)
            else:
                result = await execute(
                    tool, state.call, _context(run, state), args, late=partial(_late, agent, tool, run, state)
                )
                shown = _limited(agent, tool, run, state, result)
                await keep(run.store, run.state, shown.whole)
                await run.record_all([_finished(state, result, shown)])
            if result.error is not None:
                failures.append(result.error)
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  # raised where the run is awaited
            if waiting := waiting_in(error):
                run.callers[state.call.id].waiting = waiting  # the call stays open
                return
            # Nothing more can be saved, or a tool ends the program: nothing more may be done. It is raised where the
            # run is awaited, since in a task of its own it would end the event loop.
            failures.append(error)
            together.cancel_scope.cancel()

    # Also for one alone: in a task of its own, a shield of the tool holds off what cancels the task of the run.
    async with anyio.create_task_group() as together:
        for state, args in group:
            together.start_soon(make, state, args)
    _raise_first(failures)


_TURN_SECONDS = 0.15
"""Who waits for SQLite's lock looks for it every 0.1 seconds, and would never find it free between two long calls."""


class _UndoneError(Exception):
    """Rolls back what a tool did whose call has no good result."""


async def _make_in_transaction(
    agent: Agent[Any], tool: Tool, run: Run, state: CallState, args: dict[str, object]
) -> ToolResult:
    results: list[ToolResult] = []
    tool, start = _soon_ended(tool, run), time.monotonic()

    async def work(connection: AsyncConnection) -> list[Step]:
        results.append(await execute(tool, state.call, _context(run, state, connection), args))
        if results[0].outcome != "ok":
            raise _UndoneError
        return [_finished(state, results[0], _limited(agent, tool, run, state, results[0]))]

    try:
        await run.journal.transact(work)
    except _UndoneError:
        await run.record_all([_finished(state, results[0], _limited(agent, tool, run, state, results[0]))])
    # Not before: another connection would wait for the transaction that waits for it.
    await keep(run.store, run.state, _limited(agent, tool, run, state, results[0]).whole)
    if run.store is not None and run.store.transaction_seconds is not None and time.monotonic() - start > _TURN_SECONDS:
        await anyio.sleep(_TURN_SECONDS)
    return results[0]


def _soon_ended(tool: Tool, run: Run) -> Tool:
    """Return a transaction tool with the time that it has where its transaction holds up other writers."""
    held = run.store.transaction_seconds if run.store is not None else None
    if held is None:
        return tool
    # The heartbeats of other runs are among these writers: one that is due now, and waits, must come in time.
    limits = (held, run.lease / BEATS_PER_LEASE, tool.timeout)
    return replace(tool, timeout=min(limit for limit in limits if limit is not None))


def _limited(agent: Agent[Any], tool: Tool, run: Run, state: CallState, result: ToolResult) -> Limited:
    readable = is_readable(list(agent.tools.values()))
    content = content_of(state, result)
    return Limited(content, tool.max_result_bytes, kept=can_keep(run.store), readable=readable)


def _finished(state: CallState, result: ToolResult, shown: Limited) -> Step:
    return ToolFinished, {"call_id": state.call.id, "outcome": result.outcome, "content": shown.content}


async def _late(agent: Agent[Any], tool: Tool, run: Run, state: CallState, result: ToolResult, seconds: float) -> None:
    await record_late(
        run.store, run.state, state.call, result.outcome, _limited(agent, tool, run, state, result), seconds
    )


def _raise_first(failures: Sequence[BaseException]) -> None:
    for other in failures[1:]:
        failures[0].add_note(f"and another call failed with {type(other).__name__}: {other}")
    if failures:
        raise failures[0]


def _context(run: Run, state: CallState, connection: AsyncConnection | None = None) -> ToolContext:
    return ToolContext(
        state_id=run.state.id,
        run_id=run.id,
        call_id=state.call.id,
        tool_name=state.call.name,
        attempt=state.starts + 1,
        idempotency_key=f"{run.state.id}-{state.call.id}",
        state=run.state,
        connection=connection,
        store=run.store,
        emit=run.reporter(),
        caller=run.callers[state.call.id],
    )
