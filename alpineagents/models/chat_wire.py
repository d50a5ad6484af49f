"""
Requests and replies in the Chat Completions format.

    Request ──to_wire──> {"messages": [...], "tools": [...]}
    {"choices": [{"delta": {...}, "finish_reason": ...}], "usage": ...} … ──from_wire──> Reply

Written from the OpenAI API reference ("Create chat completion" and "The chat completion chunk object", 2025). Other
servers of the format leave things out or send them in their own way; what is known of that stands beside the line
that copes with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic import JsonValue

from alpineagents.errors import ValueNotStorableError
from alpineagents.messages import (
    Image,
    Message,
    Reply,
    Request,
    TextBlock,
    ToolCall,
    ToolResultBlock,
)
from alpineagents.models.base import Delta, Emit
from alpineagents.usage import Usage
from alpineagents.values import sendable, storable

Wire = dict[str, Any]

_STOP_REASONS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


def to_wire(request: Request) -> Wire:
    """
    Return the part of a request's body that says what the model is to read.

    Example:
        >>> to_wire(Request(messages=(Message.user("Hello"),)))
        {'messages': [{'role': 'user', 'content': 'Hello'}]}
    """
    messages: list[Wire] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += [_assistant(message)] if message.role == "assistant" else _user(message)
    body: Wire = {"messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    return body


def from_wire(chunks: Iterable[Wire], *, emit: Emit | None = None) -> Reply:
    """
    Return the reply that the chunks of a stream make.

    Example:
        >>> from_wire([{"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}]).message.text
        'Hi'
    """
    reader = ReplyReader(emit)
    for chunk in chunks:
        reader.read(chunk)
    return reader.reply()


# ------------------------------------------------------------------------------------------------ to the server


def _assistant(message: Message) -> Wire:
    wire: Wire = {"role": "assistant", "content": message.text}
    if message.tool_calls:
        wire["content"] = message.text or None
        wire["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _arguments(call)}}
            for call in message.tool_calls
        ]
    return wire


def _arguments(call: ToolCall) -> str:
    # Servers parse the arguments of earlier calls and refuse the whole request where that fails.
    args = call.args if call.invalid_json is None else {"invalid_json": call.invalid_json}
    return json.dumps(args, ensure_ascii=False)


def _user(message: Message) -> list[Wire]:
    # All results have to stand right after the call; what a result cannot hold, an image, comes after the last one.
    results = [_result(result) for result in message.tool_results]
    shown: list[Wire] = []
    for result in message.tool_results:
        images = [block for block in result.content if isinstance(block, Image)]
        if images:
            shown += [_text(f"From the tool call {result.call_id}:"), *(_image(image) for image in images)]
    said = [block for block in message.content if isinstance(block, (TextBlock, Image))]
    if shown:
        results.append({"role": "user", "content": shown})
    if len(said) == 1 and isinstance(said[0], TextBlock):
        # Not as a list of parts: many servers take only a string.
        results.append({"role": "user", "content": said[0].text})
    elif said:
        parts = [_text(block.text) if isinstance(block, TextBlock) else _image(block) for block in said]
        results.append({"role": "user", "content": parts})
    return results


def _result(result: ToolResultBlock) -> Wire:
    text = result.text
    if len(text) == 0 and result.content:
        text = "(an image, shown in the next message)"
    if result.failed:
        # The format has no field for it.
        text = f"[{result.outcome}] {text}".rstrip()
    return {"role": "tool", "tool_call_id": result.call_id, "content": text}


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(image: Image) -> Wire:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}


# ------------------------------------------------------------------------------------------------ from the server


class _Call:
    """A tool call that is still arriving."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []

    @property
    def is_whole(self) -> bool:
        return _json_object("".join(self.pieces)) is not None

    def take(self, call_id: str, name: str, arguments: str) -> None:
        # Some servers repeat id and name in each piece, so they are not joined.
        self.id = self.id or call_id
        self.name = self.name or name
        self.pieces.append(arguments)

    def finish(self, position: int) -> ToolCall:
        raw = sendable("".join(self.pieces))
        args = _json_object(raw) if raw.strip() else {}
        return ToolCall(
            id=sendable(self.id) or f"call_{position}",
            name=sendable(self.name),
            args=args or {},
            invalid_json=raw if args is None else None,
        )


class ReplyReader:
    """
    Makes a Reply of the chunks of one stream.

    Args:
        emit: called with each part of the reply as it arrives.
    """

    def __init__(self, emit: Emit | None = None) -> None:
        self._emit = emit
        self._texts: list[str] = []
        self._calls: list[_Call] = []
        self._at_index: dict[int, _Call] = {}
        self._finish_reason: str | None = None
        self._refused = False
        self._thought = False
        self._is_done = False
        self._usage: Wire = {}
        self._model = ""

    @property
    def started(self) -> bool:
        """Whether a part of the reply has come."""
        return bool(self._texts or self._calls or self._thought)

    @property
    def ended(self) -> bool:
        """Whether the reply is over; only the usage may follow."""
        return self._is_done or self._finish_reason is not None

    @property
    def complete(self) -> bool:
        """Whether it is a whole reply: a reason for its end came, or else the end mark after something was said."""
        if self._finish_reason is not None:
            return self._finish_reason != "error"  # OpenRouter's, where the provider behind it broke off.
        return self._is_done and bool(self._texts or self._calls)

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
        return Reply(
            message=Message(role="assistant", content=((TextBlock(text=text),) if text else ()) + tuple(calls)),
            usage=_usage(self._usage),
            stop_reason="refusal" if self._refused else _STOP_REASONS.get(reason, reason),
            model=self._model or model,
        )

    def _read_delta(self, delta: dict[str, JsonValue]) -> None:
        # `reasoning_content` came with DeepSeek; OpenRouter and later releases of vLLM call it `reasoning`.
        thinking = _plain(delta.get("reasoning_content")) or _plain(delta.get("reasoning"))
        if thinking:
            self._thought = True
            self._show("thinking", thinking)
        refusal = _plain(delta.get("refusal"))
        self._refused = self._refused or bool(refusal)
        text = _plain(delta.get("content")) + refusal
        if text:
            self._texts.append(text)
            self._show("text", text)
        pieces = delta.get("tool_calls")
        for piece in pieces if isinstance(pieces, list) else []:
            if isinstance(piece, dict):
                self._read_call(piece)

    def _show(self, kind: Any, text: str) -> None:
        if self._emit is not None:
            self._emit(Delta(kind=kind, text=sendable(text)))

    def _read_call(self, piece: dict[str, JsonValue]) -> None:
        function = piece.get("function")
        if not isinstance(function, dict):
            function = {}
        index = piece.get("index")
        call_id = str(piece.get("id") or "")
        name = _plain(function.get("name"))
        given = function.get("arguments")
        # Ollama and others have sent the arguments as the object itself.
        arguments = given if isinstance(given, str) else "" if given is None else json.dumps(given)
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


def _json_object(raw: str) -> dict[str, JsonValue] | None:
    try:
        value = storable(json.loads(raw), "args")
    except (ValueError, RecursionError, ValueNotStorableError):
        return None
    return value if isinstance(value, dict) else None


def _usage(wire: Wire) -> Usage:
    def count(where: object, name: str) -> int:
        value = where.get(name) if isinstance(where, dict) else None
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0

    return Usage(
        input_tokens=count(wire, "prompt_tokens"),
        output_tokens=count(wire, "completion_tokens"),
        cache_read_tokens=count(wire.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=count(wire.get("completion_tokens_details"), "reasoning_tokens"),
        requests=1,
        unpriced_requests=1,
    )
