"""
What a State did and what a model was asked, as plain lists for the asserts of a test.
"""

from __future__ import annotations

from typing import Literal

from alpineagents.checkpoint import start_of
from alpineagents.context import transcript as lines_of
from alpineagents.errors import ConfigError
from alpineagents.events import MessageAdded, ToolFinished
from alpineagents.fold import apply
from alpineagents.messages import Outcome, Request, ToolCall, ToolResultBlock
from alpineagents.snapshot import CallState, StateSnapshot
from alpineagents.state import State


class CalledTool(ToolCall):
    """
    A call, and what came of it. It equals the `tool_call("name", …)` of that name and these arguments.

    Attributes:
        args: as the tool got them, where a person or a rule changed them.
        outcome: how it ended; `"waiting"` while a person is asked, `"open"` before and after that.
        result: what the model read of it.
    """

    outcome: Outcome | Literal["waiting", "open"]
    result: str = ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ToolCall):
            return NotImplemented
        same = (self.name, self.args, self.invalid_json) == (other.name, other.args, other.invalid_json)
        if isinstance(other, CalledTool):
            return same and (self.outcome, self.result) == (other.outcome, other.result)
        return same

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        # Ready to be written into the test that it failed.
        call = ", ".join([repr(self.name), *(f"{name}={value!r}" for name, value in self.args.items())])
        return f"<tool_call({call}) {self.outcome}{self.result and f': {self.result[:200]!r}'}>"


def calls(state: State) -> list[CalledTool]:
    """
    Return every call that the model asked for in a State, in the order asked; of one loaded by its tail, those in it.

    Example:
        >>> from alpineagents import Agent, Message, tool
        >>> from alpineagents.testing import FakeModel, tool_call
        >>> @tool
        ... def add(a: int, b: int) -> int:
        ...     "Add two numbers."
        ...     return a + b
        >>> state = State(messages=[Message.user("What is 1 + 2?")])
        >>> Agent(FakeModel([tool_call("add", a=1, b=2), "3"]), tools=[add]).run_sync(state)
        '3'
        >>> calls(state) == [tool_call("add", a=1, b=2)]
        True
        >>> calls(state)
        [<tool_call('add', a=1, b=2) ok: '3'>]
    """
    if not isinstance(state, State):
        raise ConfigError(f"a {type(state).__name__} is not a State: calls(await store.load(id))")
    value, found = start_of(state.history), dict[str, CallState]()
    results: dict[str, ToolResultBlock] = {}
    for event in state.history:
        # Folded again, since which decisions count, and with which arguments, is the fold's to say.
        value = apply(value, event, state_id=state.id)
        found |= value.calls
        if isinstance(event, ToolFinished):
            result = ToolResultBlock(call_id=event.call_id, content=event.content, outcome=event.outcome)
            results[event.call_id] = result
        elif isinstance(event, MessageAdded):
            results |= {block.call_id: block for block in event.message.tool_results}
    return [_called(call, results.get(call_id)) for call_id, call in found.items()]


def _called(state: CallState, result: ToolResultBlock | None) -> CalledTool:
    outcome = result.outcome if result is not None else "waiting" if state.waits else "open"
    return CalledTool(**dict(state.call), outcome=outcome, result="" if result is None else result.text)


def transcript(conversation: State | StateSnapshot | Request) -> list[str]:
    """
    Return a conversation as lines, one for each text, call and result.

    Args:
        conversation: a State for its context, or a Request for what a model was asked.

    Example:
        >>> from alpineagents import Agent
        >>> from alpineagents.testing import FakeModel
        >>> model = FakeModel(["Good day."])
        >>> Agent(model).run_sync("Hello")
        'Good day.'
        >>> transcript(model.requests[-1])
        ['[user] Hello']
    """
    if not isinstance(conversation, (State, StateSnapshot, Request)):
        raise ConfigError(f"a {type(conversation).__name__} is no conversation: transcript(model.requests[-1])")
    return [line for message in conversation.messages for line in lines_of(message)]
