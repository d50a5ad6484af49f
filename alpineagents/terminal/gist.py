"""Pure: an Event → the line that says what happened."""

from __future__ import annotations

import json

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
from alpineagents.messages import Image, Message, TextBlock, ToolCall

ARGUMENT_LENGTH = 60


class Gists:
    """
    Says what Events are about, in the order of a history: a result names its call only by an id.

    Example:
        >>> Gists().of(CancelRequested(revision=3, at="2025-01-01T00:00:00Z", by="ann"))
        'by ann'
    """

    def __init__(self) -> None:
        self._calls: dict[str, ToolCall] = {}

    def call(self, call_id: str) -> str:
        """Return a call as code shows it, or its id where the call is not known."""
        return call_text(self._calls[call_id]) if call_id in self._calls else call_id

    def forget(self, call_id: str) -> None:
        """Drop a call that nothing will name any more."""
        self._calls.pop(call_id, None)

    def of(self, event: Event) -> str:
        """Return what the Event says, in a line that may be long."""
        match event:
            case RunStarted():
                return (
                    "the same agent" if event.agent is None else f"{event.agent.name or 'agent'}, {event.agent.model}"
                )
            case MessageAdded() | ModelReplied():
                self._calls.update((call.id, call) for call in event.message.tool_calls)
                return _message(event.message)
            case ModelRequested():
                return event.model
            case ModelFailed():
                return ": ".join(part for part in (event.outcome, event.error, event.message) if part)
            case ContextChanged():
                return f"{event.reason}: {len(event.messages)} message(s) now"
            case DataChanged():
                return f"{len(event.patch)} change(s) of extra_data"
            case RunStopped():
                return str(event.stopped)
            case Finished():
                return _json(event.answer)
            case Asked():
                return f"{event.of}: {event.question} → {_json(event.answer)}"
            case _:
                return self._of_call(event)

    def _of_call(self, event: Event) -> str:
        match event:
            case ToolStarted():
                again = f", attempt {event.attempt}" if event.attempt > 1 else ""
                return self.call(event.call_id) + again
            case ToolFinished():
                return f"{self.call(event.call_id)} → {event.outcome}: {_content(event.content)}"
            case ApprovalRequested():
                return f"{self.call(event.call_id)}: {event.question}"
            case ApprovalDecided():
                verdict = "approved" if event.approved else "denied"
                changed = "" if event.args is None else f" with {_json(event.args)}"
                said = f": {event.note}" if event.note else ""
                return f"{self.call(event.call_id)} {verdict}{changed} by {event.by}{said}"
            case CancelRequested():
                return f"by {event.by or 'someone'}" + (f": {event.reason}" if event.reason else "")
        return ""


def call_text(call: ToolCall) -> str:
    """
    Return a call as code shows it, its arguments cut.

    Example:
        >>> call_text(ToolCall(id="c1", name="read", args={"path": "a.txt"}))
        'read(path="a.txt")'
    """
    args = (f"{name}={_cut(_json(value))}" for name, value in call.args.items())
    return f"{call.name}({', '.join(args)})"


def _message(message: Message) -> str:
    parts = [message.text] if message.text.strip() else []
    parts += [f"[{block.media_type}]" for block in message.content if isinstance(block, Image)]
    parts += [f"→ {call_text(call)}" for call in message.tool_calls]
    return " ".join(parts)


def _content(content: tuple[TextBlock | Image, ...]) -> str:
    return " ".join(block.text if isinstance(block, TextBlock) else f"[{block.media_type}]" for block in content)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _cut(text: str) -> str:
    return text if len(text) <= ARGUMENT_LENGTH else text[: ARGUMENT_LENGTH - 1] + "…"
