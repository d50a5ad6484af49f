"""
Replies in the Chat Completions format, made of the chunks of a stream.

    {"choices": [{"delta": {...}, "finish_reason": ...}], "usage": ...} … ──ReplyReader──> Reply

Written from the OpenAI API reference ("The chat completion chunk object", 2025). Other servers of the format leave
things out or send them in their own way; what is known of that stands beside the line that copes with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pydantic import JsonValue

from alpineagents.messages import Message, RawBlock, Reply, TextBlock, ToolCall
from alpineagents.models.base import Delta, Emit
from alpineagents.models.reading import count, json_object, storable_object, tool_call, written
from alpineagents.usage import Usage
from alpineagents.values import sendable

Wire = dict[str, Any]

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def from_wire(chunks: Iterable[Wire], *, emit: Emit | None = None, provider: str = "") -> Reply:
    """
    Return the reply that the chunks of a stream make.

    Example:
        >>> from_wire([{"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}]).message.text
        'Hi'
    """
    reader = ReplyReader(emit, provider=provider)
    for chunk in chunks:
        reader.read(chunk)
    return reader.reply()


class _Call:
    """A tool call that is still arriving."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    @property
    def is_whole(self) -> bool:
        return json_object("".join(self.pieces)) is not None

    def take(self, call_id: str, name: str, arguments: str) -> None:
        # Some servers repeat id and name in each piece. A name in pieces is whole before the arguments begin.
        self.id = self.id or call_id
        if name != self.name and not any(self.pieces):
            self.name += name
        self.pieces.append(arguments)

    def finish(self, position: int) -> ToolCall:
        return tool_call(self.id or f"call_{position}", self.name, "".join(self.pieces))


class _Thinking:
    """
    Reasoning that is still arriving, kept under the names that the server gave it, to be sent back under them.

    `reasoning_content` came with DeepSeek; OpenRouter and later releases of vLLM call it `reasoning`, and OpenRouter
    adds `reasoning_details`, pieces of blocks with their signatures.
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._details: list[dict[str, JsonValue]] = []

    def __bool__(self) -> bool:
        return bool(self._texts or self._details)

    def take(self, delta: dict[str, JsonValue]) -> str:
        """Take in what a delta has of it, and return what a person may read."""
        details = delta.get("reasoning_details")
        for piece in details if isinstance(details, list) else []:
            if (detail := storable_object(piece)) is not None:
                self._take_detail(detail)
        for name in ("reasoning_content", "reasoning"):
            if text := _plain(delta.get(name)):
                # Servers that send both say the same in them.
                self._texts.setdefault(name, []).append(text)
                return text
        return ""

    def _take_detail(self, piece: dict[str, JsonValue]) -> None:
        last = self._details[-1] if self._details else {}
        if any(last.get(name) != piece.get(name) for name in ("type", "index")) or not last:
            self._details.append(piece)
            return
        for name, value in piece.items():
            before = last.get(name)
            if name in ("text", "summary", "data") and isinstance(before, str) and isinstance(value, str):
                last[name] = before + value
            elif value is not None:
                last[name] = value

    def block(self, provider: str) -> RawBlock:
        if self._details:
            return RawBlock(provider=provider, data={"reasoning_details": list(self._details)})
        return RawBlock(provider=provider, data={name: sendable("".join(text)) for name, text in self._texts.items()})


class ReplyReader:
    """
    Makes a Reply of the chunks of one stream.

    Args:
        emit: called with each part of the reply as it arrives.
        provider: who gets the reasoning back with the next request; "" keeps none.
    """

    def __init__(self, emit: Emit | None = None, *, provider: str = "") -> None:
        self._emit = emit
        self._provider = provider
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._finish_reason: str | None = None
        self._refused = False
        self._thinking = _Thinking()
        self._is_done = False
        self._usage: Wire = {}
        self._model = ""

    @property
    def started(self) -> bool:
        """Whether a part of the reply has come."""
        return bool(self._texts or self._calls or self._thinking)

    @property
    def ended(self) -> bool:
        """Whether the reply is over; only the usage may follow."""
        return self._is_done or self._finish_reason is not None

    @property
    def over(self) -> bool:
        """Whether nothing that counts can follow."""
        return self._is_done or (self._finish_reason is not None and bool(self._usage))

    @property
    def complete(self) -> bool:
        """Whether it is a whole reply: a reason for its end came, or else the end mark after something was said."""
        if self._finish_reason is not None:
            return self._finish_reason != "error"  # OpenRouter's, where the provider behind it broke off.
        return self._is_done and bool(self._texts or self._calls)

    @property
    def usage(self) -> Usage | None:
        """What the request took, as the last count says."""
        return _usage(self._usage) if self._usage else None

    @property
    def counted(self) -> bool:
        """Whether that is all of it; some servers count in each chunk what came so far."""
        return self._finish_reason is not None

    def done(self) -> None:
        """Take in the end mark `[DONE]`."""
        self._is_done = True

    def read(self, data: dict[str, JsonValue]) -> None:
        """Take in one chunk, and pass over what in it is not of the format."""
        if isinstance(usage := data.get("usage"), dict):
            # Each counts all that came before it, where a server sends several.
            self._usage = usage
        if isinstance(model := data.get("model"), str):
            self._model = model
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict) or choice.get("index") not in (0, None):
            return
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._read_delta(delta)
        if isinstance(reason := choice.get("finish_reason"), str) and reason:
            self._finish_reason = reason

    def reply(self, *, model: str = "") -> Reply:
        """
        Return what was said, once the reply is complete.

        Args:
            model: who replied, where the server does not say.
        """
        text = sendable("".join(self._texts))
        calls = [call.finish(position) for position, call in enumerate(self._calls, 1)]
        reason = self._finish_reason or "stop"
        if reason == "stop" and calls:
            reason = "tool_calls"
        thought = (self._thinking.block(self._provider),) if self._thinking and self._provider else ()
        said = (TextBlock(text=text),) if text else ()
        return Reply(
            message=Message(role="assistant", content=(*thought, *said, *calls)),
            usage=_usage(self._usage),
            stop_reason="refusal" if self._refused else _STOP_REASONS.get(reason, reason),
            model=self._model or model,
        )

    def _read_delta(self, delta: dict[str, JsonValue]) -> None:
        if thought := self._thinking.take(delta):
            self._show(Delta(kind="thinking", text=sendable(thought)))
        refusal = _plain(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        text = _plain(delta.get("content")) + refusal
        if text:
            self._texts.append(text)
            self._show(Delta(text=sendable(text)))
        pieces = delta.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict):
                self._read_call(piece)

    def _show(self, delta: Delta) -> None:
        if self._emit is not None:
            self._emit(delta)

    def _read_call(self, piece: dict[str, JsonValue]) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        index = piece.get("index")
        call_id = str(piece.get("id") or "")
        name = _plain(function.get("name"))
        arguments = written(function.get("arguments"))
        call = self._call_of(index, call_id, name)
        if (
            call is None
            or (call.id and call_id and call.id != call_id)
            or (name and arguments.strip() and call.is_whole)
        ):
            # Gemini's and others' compatible servers give each of several calls the index 0, or one id to all of them.
            call = _Call()
            self._calls.append(call)
        if isinstance(index, int):
            self._at_index[index] = call
        call.take(call_id, name, arguments)
        position = self._calls.index(call)
        self._show(
            Delta(kind="tool_args", text=sendable(arguments), call_index=position, tool_name=sendable(call.name))
        )

    def _call_of(self, index: object, call_id: str, name: str) -> _Call | None:
        if isinstance(index, int):
            return self._at_index.get(index)
        if call_id:
            return next((call for call in reversed(self._calls) if call.id == call_id), None)
        last = self._calls[-1] if self._calls else None
        return last if not name or (last is not None and last.name == name and not last.is_whole) else None


def _plain(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        # Mistral sends parts.
        texts = [part.get("text") for part in value if isinstance(part, dict)]
        return "".join(text for text in texts if isinstance(text, str))
    return ""


def _usage(wire: Wire) -> Usage:
    cost = _told_cost(wire)
    read, details = count(wire, "prompt_tokens"), wire.get("prompt_tokens_details")
    return Usage(
        input_tokens=read,
        # xAI and Gemini's compatible server leave the reasoning out of the completion, and count it in the total.
        output_tokens=max(count(wire, "completion_tokens"), count(wire, "total_tokens") - read),
        # DeepSeek's own name for it.
        cache_read_tokens=count(details, "cached_tokens") or count(wire, "prompt_cache_hit_tokens"),
        cache_write_tokens=count(details, "cache_write_tokens"),
        reasoning_tokens=count(wire.get("completion_tokens_details"), "reasoning_tokens"),
        requests=1,
        cost_usd=cost or 0.0,
        unpriced_requests=1 if cost is None else 0,
    )


def _told_cost(wire: Wire) -> float | None:
    # OpenRouter says what it took, in US dollars; with a key of one's own at who is behind it, that is its fee only.
    cost = wire.get("cost")
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not 0 <= cost < math.inf or wire.get("is_byok"):
        return None
    return float(cost)
