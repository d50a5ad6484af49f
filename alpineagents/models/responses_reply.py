"""
Replies in the format of OpenAI's Responses API, made of the events of a stream.

    {"type": "response.output_item.done", "item": {...}} … {"type": "response.completed", ...} ──ReplyReader──> Reply

Written from the OpenAI API reference ("Streaming events" of the Responses API, 2025) and the types of the package
`openai` 3.57.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from alpineagents.messages import Block, Message, RawBlock, Reply, TextBlock, ToolCall
from alpineagents.models.base import Delta, Emit
from alpineagents.models.reading import count, storable_object, tool_call, written
from alpineagents.usage import Usage
from alpineagents.values import sendable

Wire = dict[str, Any]

_TEXT_EVENTS = ("response.output_text.delta", "response.refusal.delta")
_THINKING_EVENTS = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
_LAST_EVENTS = ("response.completed", "response.incomplete")
_STOP_REASONS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


class ReplyReader:
    """
    Makes a Reply of the events of one stream.

    Args:
        emit: called with each part of the reply as it arrives.
        provider: who gets the reasoning back with the next request.
    """

    def __init__(self, emit: Emit | None = None, *, provider: str = "") -> None:
        self._emit = emit
        self._provider = provider
        self._texts: list[str] = []
        self._items: dict[int, Wire] = {}
        self._calls: dict[int, tuple[int, str]] = {}
        self._started = False
        self._response: Wire | None = None
        self._usage: JsonValue = None
        self._model = ""

    @property
    def started(self) -> bool:
        """Whether a part of the reply has come."""
        return self._started

    @property
    def ended(self) -> bool:
        """Whether the last event has come."""
        return self._response is not None

    @property
    def over(self) -> bool:
        """Whether nothing that counts can follow."""
        return self._response is not None

    @property
    def complete(self) -> bool:
        """Whether it is a whole reply; only the last event says so."""
        return self._response is not None

    @property
    def usage(self) -> Usage | None:
        """What the request took; the last event says it, also one that says what went wrong."""
        return _usage(self._usage) if self._usage else None

    @property
    def counted(self) -> bool:
        """Whether that is all of it."""
        return True

    def done(self) -> None:
        """Take in an end mark, which this format does not need."""

    def read(self, data: dict[str, JsonValue]) -> None:
        """Take in one event, and pass over those that say nothing new."""
        kind = data.get("type")
        index = data.get("output_index")
        place = index if isinstance(index, int) else 0
        if kind in _TEXT_EVENTS:
            text = self._delta(data)
            self._texts.append(text)
            self._show(Delta(text=sendable(text)))
        elif kind in _THINKING_EVENTS:
            self._show(Delta(kind="thinking", text=sendable(self._delta(data))))
        elif kind == "response.function_call_arguments.delta":
            self._show_call(place, self._delta(data))
        elif kind in ("response.output_item.added", "response.output_item.done"):
            self._read_item(place, data.get("item"), is_done=kind == "response.output_item.done")
        elif kind in _LAST_EVENTS or kind in ("response.created", "response.failed"):
            response = data.get("response")
            response = response if isinstance(response, dict) else {}
            self._model = str(response.get("model") or self._model)
            self._usage = response.get("usage") or self._usage
            if kind in _LAST_EVENTS:
                self._response = response

    def reply(self, *, model: str = "") -> Reply:
        """
        Return what was said, once the reply is complete.

        Args:
            model: who replied, where the server does not say.
        """
        response = self._response or {}
        items = [item for _, item in sorted(self._items.items())]
        output = response.get("output")
        if not items and isinstance(output, list):
            items = [item for item in output if isinstance(item, dict)]
        blocks = [block for item in items for block in self._blocks(item)]
        if not items and self._texts:
            blocks = [TextBlock(text=sendable("".join(self._texts)))]
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        if isinstance(reason, str):
            stop_reason = _STOP_REASONS.get(reason, reason)
        elif any(_refusals(item) for item in items):
            stop_reason = "refusal"
        else:
            stop_reason = "tool_use" if any(isinstance(block, ToolCall) for block in blocks) else "end_turn"
        return Reply(
            message=Message(role="assistant", content=tuple(blocks)),
            usage=_usage(self._usage),
            stop_reason=stop_reason,
            model=self._model or model,
        )

    def _read_item(self, place: int, item: JsonValue, *, is_done: bool) -> None:
        if not isinstance(item, dict):
            return
        self._started = True
        if item.get("type") == "function_call" and place not in self._calls:
            self._calls[place] = (len(self._calls), sendable(str(item.get("name") or "")))
            self._show_call(place, "")
        if is_done:
            self._items[place] = item

    def _blocks(self, item: Wire) -> list[Block]:
        kind = item.get("type")
        if kind == "message":
            text = sendable("".join(_texts(item)))
            phase = item.get("phase")
            raw = [RawBlock(provider=self._provider, data={"phase": phase})] if isinstance(phase, str) else []
            return [*raw, TextBlock(text=text)] if text else []
        if kind == "function_call":
            call_id = str(item.get("call_id") or item.get("id") or f"call_{len(self._calls)}")
            return [tool_call(call_id, str(item.get("name") or ""), written(item.get("arguments")))]
        if kind == "reasoning" and not (item.get("encrypted_content") or item.get("content")):
            return []  # The server keeps nothing, so it would not know it again.
        # `status` is for reading only; servers refuse some of its values.
        kept = storable_object({name: value for name, value in item.items() if name != "status" and value is not None})
        return [RawBlock(provider=self._provider, data=kept)] if kept else []

    def _show_call(self, place: int, arguments: str) -> None:
        call_index, name = self._calls.get(place, (None, ""))
        self._show(Delta(kind="tool_args", text=sendable(arguments), call_index=call_index, tool_name=name))

    def _show(self, delta: Delta) -> None:
        self._started = True
        if self._emit is not None:
            self._emit(delta)

    @staticmethod
    def _delta(data: dict[str, JsonValue]) -> str:
        delta = data.get("delta")
        return delta if isinstance(delta, str) else ""


def _texts(item: Wire) -> list[str]:
    parts = item.get("content")
    found = [part.get("text") or part.get("refusal") for part in parts or [] if isinstance(part, dict)]
    return [text for text in found if isinstance(text, str)]


def _refusals(item: Wire) -> bool:
    parts = item.get("content") if item.get("type") == "message" else None
    return any(isinstance(part, dict) and part.get("type") == "refusal" for part in parts or [])


def _usage(wire: JsonValue) -> Usage:
    details = wire.get("input_tokens_details") if isinstance(wire, dict) else None
    thought = wire.get("output_tokens_details") if isinstance(wire, dict) else None
    return Usage(
        input_tokens=count(wire, "input_tokens"),
        output_tokens=count(wire, "output_tokens"),
        cache_read_tokens=count(details, "cached_tokens"),
        cache_write_tokens=count(details, "cache_write_tokens"),
        reasoning_tokens=count(thought, "reasoning_tokens"),
        requests=1,
        unpriced_requests=1,
    )
