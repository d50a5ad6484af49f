"""
Answers of a shape: within the conversation, and beside it. A model that misses the shape is told what was wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from alpineagents.errors import EventOrderError, OutputError
from alpineagents.events import Asked, Finished, MessageAdded
from alpineagents.messages import FailedModel, Message, Reply, TextBlock
from alpineagents.models.tally import Tally
from alpineagents.output import Shape
from alpineagents.runner import Run
from alpineagents.snapshot import last_said, still_open
from alpineagents.turn import ask_model, checked, next_request, tell_aside
from alpineagents.usage import Usage

if TYPE_CHECKING:
    from alpineagents.agent import Agent
    from alpineagents.state import State

CORRECTIONS = 3
"""How often a model is told what was wrong with its answer, before that is an error."""

_ENDS = {
    "refusal": "The model refused to answer, or a filter of its provider did",
    "max_tokens": "The answer was cut at the most tokens of a reply: let the model write more, or ask for less",
}
"""Replies that no correction mends, by their `stop_reason`."""

_NO_CALLS = "No tool can be called here. Answer from what is known."


def unread(state: State) -> bool:
    """Tell whether the model's last words stand there as an answer that nobody has read yet."""
    last = last_said(state.messages)
    return last is not None and last.role == "assistant" and not last.tool_calls and not state.finished


async def shape_answer(agent: Agent[Any], run: Run, shape: Shape[Any]) -> Reply | None:
    """
    Finish the State with the value of the model's last words, or have the model correct them.

    Returns:
        The last correction, if there was one.

    Raises:
        OutputError: the model missed the shape again and again, refused, or was cut; the last words are in it.
        ModelError: there is no reply; that is recorded.
    """
    reply: Reply | None = None
    corrections = 0
    while unread(run.state):
        try:
            answer = shape.stored(shape.read(_last_words(run.state).text))
        except OutputError as error:
            _raise_final(run.state.snapshot().stop_reason, error.text)
            if corrections == CORRECTIONS:
                raise
            corrections += 1
            await run.journal.record(MessageAdded, message=Message.notice(str(error)))
            reply = await ask_model(agent, run)
        else:
            await run.journal.record(Finished, answer=answer)
    return reply


async def ask_beside(agent: Agent[Any], run: Run, prompt: str, shape: Shape[Any] | None) -> Any:
    """
    Ask the model a question that stays out of the conversation; what it took is recorded in any case.

    Raises:
        EventOrderError: calls are open; make them first.
        OutputError: the model missed the shape again and again; the last words are in it.
        ModelError: there is no reply.
    """
    if run.state.pending_calls:
        reason = still_open(run.state.snapshot().calls.values(), run.state.id)
        raise EventOrderError(run.state.id, "asked", run.state.revision + 1, reason)
    took = _Took()
    messages = (*run.state.messages, Message.user(prompt))
    output = None if shape is None else shape.spec
    problem: OutputError | None = None
    try:
        for _ in range(CORRECTIONS + 1):
            # With the tools, since some providers refuse a history of calls without them.
            request = next_request(agent, run.state).model_copy(update={"messages": messages, "output": output})
            tally = Tally(partial(tell_aside, run))
            try:
                reply = checked(await agent.model.respond(request, emit=tally), agent)
            except BaseException as error:
                took.add(tally.spent(error), tally.by, tally.failures)
                raise
            took.add(reply.usage, reply.by, reply.failures)
            try:
                value, answer = _read(reply.message, shape)
            except OutputError as error:
                _raise_final(reply.stop_reason, error.text)
                problem = error
                said = (Message(role="assistant", content=(TextBlock(text=error.text),)),) if error.text else ()
                messages = (*messages, *said, Message.notice(str(error)))
            else:
                told, took = took.fields(), _Took()
                await run.journal.record(Asked, of="model", question=prompt, answer=answer, **told)
                return value
        assert problem is not None
        raise problem
    finally:
        if took.usage.requests:
            run.journal.add(Asked, of="model", question=prompt, **took.fields())


@dataclass
class _Took:
    """What a question took: tokens, and which Models."""

    usage: Usage = field(default_factory=Usage)
    by: str = ""
    failures: tuple[FailedModel, ...] = ()

    def add(self, usage: Usage, by: str, failures: tuple[FailedModel, ...]) -> None:
        self.usage, self.by, self.failures = self.usage + usage, by, (*self.failures, *failures)

    def fields(self) -> dict[str, Any]:
        return {"usage": self.usage, "by": self.by, "failures": self.failures}


def _last_words(state: State) -> Message:
    last = last_said(state.messages)
    assert last is not None
    return last


def _raise_final(stop_reason: str, text: str) -> None:
    if reason := _ENDS.get(stop_reason):
        raise OutputError(f"{reason} (stop_reason {stop_reason!r}): {text[:500]!r}", text) from None


def _read(message: Message, shape: Shape[Any] | None) -> tuple[Any, JsonValue]:
    if message.tool_calls:
        raise OutputError(_NO_CALLS, message.text)
    if shape is None:
        return message.text, message.text
    value = shape.read(message.text)
    return value, shape.stored(value)
