"""
A server on loopback that speaks the streaming Messages format, and misbehaves on demand.

    with AnthropicServer(says("Hello"), status(529, "overloaded_error"), says("again")) as server:
        model = Anthropic("claude-test", base_url=server.base_url, api_key="key")

The shapes are those of Anthropic's API reference ("Streaming Messages", "Errors", 2026-11). How answers are given, and
what can go wrong on the wire, is that of the other server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from tests.servers.openai_server import Answer, OpenAIServer, Step, Wire

MODEL = "claude-test-20260101"
START_USAGE: Wire = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 20,
    "cache_read_input_tokens": 30,
    "cache_creation": {"ephemeral_5m_input_tokens": 20, "ephemeral_1h_input_tokens": 0},
    "output_tokens": 1,
    "service_tier": "standard",
}
END_USAGE: Wire = {"output_tokens": 15, "output_tokens_details": {"thinking_tokens": 4}}


class AnthropicServer(OpenAIServer):
    """Serves answers in order, or those of a function of the request; a request beyond the last one gets a 500."""


# ------------------------------------------------------------------------------------------------ events


def event(data: Wire | str, name: str | None = None) -> bytes:
    """Return one named SSE event."""
    text = data if isinstance(data, str) else json.dumps(data)
    name = name or (data["type"] if isinstance(data, dict) else "message_start")
    return f"event: {name}\ndata: {text}\n\n".encode()


PING = event({"type": "ping"})
STOP = event({"type": "message_stop"})


def start(usage: Wire = START_USAGE) -> bytes:
    """Return the first event."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return event({"type": "message_start", "message": message})


def end(stop_reason: str | None = "end_turn", usage: Wire = END_USAGE, **delta: Any) -> bytes:
    """Return the event that says why the model stopped, and what it took."""
    return event(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop_reason, "stop_sequence": None, **delta},
            "usage": usage,
        }
    )


def opened(index: int, block: Wire) -> bytes:
    """Return the event that begins a block."""
    return event({"type": "content_block_start", "index": index, "content_block": block})


def delta(index: int, kind: str, **fields: Any) -> bytes:
    """Return a part of a block."""
    return event({"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}})


def closed(index: int) -> bytes:
    """Return the event that ends a block."""
    return event({"type": "content_block_stop", "index": index})


def text(*pieces: str) -> Wire:
    """Return a text that comes in pieces; like all blocks here, it is unpacked by `block_events`."""
    return {"type": "text", "pieces": pieces}


def thinking(*pieces: str, signature: str = "c2ln") -> Wire:
    """Return thinking that comes in pieces, with its signature last."""
    return {"type": "thinking", "pieces": pieces, "signature": signature}


def redacted(data: str = "cmVk") -> Wire:
    """Return thinking that nobody but the API can read, which comes whole."""
    return {"type": "redacted_thinking", "data": data}


def use(name: str, args: Wire | str, *, id: str | None = None, kind: str = "tool_use") -> Wire:
    """Return a tool call; a string stands for arguments as they are written."""
    return {"type": kind, "id": id, "name": name, "args": args}


def block_events(index: int, block: Wire) -> Iterator[bytes]:
    """Return the events of one block, in pieces as the API sends them."""
    kind = block["type"]
    if kind == "text":
        yield opened(index, {"type": "text", "text": ""})
        yield from (delta(index, "text_delta", text=piece) for piece in block["pieces"])
    elif kind == "thinking":
        yield opened(index, {"type": "thinking", "thinking": "", "signature": ""})
        yield from (delta(index, "thinking_delta", thinking=piece) for piece in block["pieces"])
        yield delta(index, "signature_delta", signature=block["signature"])
    elif "args" in block:
        call_id = block["id"] or f"toolu_{index}x"
        yield opened(index, {"type": kind, "id": call_id, "name": block["name"], "input": {}})
        written = block["args"] if isinstance(block["args"], str) else json.dumps(block["args"])
        half = len(written) // 2
        yield from (
            delta(index, "input_json_delta", partial_json=part) for part in ("", written[:half], written[half:])
        )
    else:
        yield opened(index, block)
    yield closed(index)


# ------------------------------------------------------------------------------------------------ answers


def stream(*steps: bytes | Step) -> Answer:
    """Answer with these events."""
    return Answer(steps, headers={"request-id": "req_7"})


def replies(*blocks: Wire, stop_reason: str | None = None, usage: Wire = END_USAGE, **fields: Any) -> Answer:
    """Answer with blocks; `fields` go beside the stop reason."""
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    reason = stop_reason or ("tool_use" if has_calls else "end_turn")
    events = [step for index, block in enumerate(blocks) for step in block_events(index, block)]
    return stream(start(), PING, *events, end(reason, usage, **fields), STOP)


def says(*pieces: str, stop_reason: str = "end_turn") -> Answer:
    """Answer with a text in pieces."""
    return replies(text(*pieces), stop_reason=stop_reason)


def calls(*wanted: tuple[str, Wire], text: str = "") -> Answer:
    """Answer with tool calls, whose arguments come in pieces."""
    said = [{"type": "text", "pieces": (text,)}] if text else []
    return replies(*said, *(use(name, args) for name, args in wanted))


def begins(*pieces: str) -> Answer:
    """Answer with the first part of a stream; `.then(…)` says how it goes on, and by itself it just ends."""
    parts = [delta(0, "text_delta", text=piece) for piece in pieces]
    return stream(start(), opened(0, {"type": "text", "text": ""}), *parts)


def error_event(kind: str, message: str = "it failed") -> bytes:
    """Return the event that says that a stream failed."""
    return event({"type": "error", "error": {"type": kind, "message": message}})


def status(
    number: int,
    kind: str = "api_error",
    message: str = "it failed",
    *,
    headers: dict[str, str] | None = None,
    details: Wire | None = None,
) -> Answer:
    """Refuse with an error body."""
    error = {"type": kind, "message": message} | ({"details": details} if details else {})
    body = json.dumps({"type": "error", "error": error, "request_id": "req_7"}).encode()
    return Answer((body,), number, "application/json", {"request-id": "req_7", **(headers or {})})


def overloaded() -> Answer:
    """Refuse as the API does that is too busy for everyone."""
    return status(529, "overloaded_error", "Overloaded")


def context_too_long() -> Answer:
    """Refuse a request that is too long."""
    return status(400, "invalid_request_error", "prompt is too long: 210018 tokens > 200000 maximum")


def counts(tokens: Any) -> Answer:
    """Answer how many tokens a request has."""
    return Answer((json.dumps({"input_tokens": tokens}).encode(),), content_type="application/json")


def events_of(answer: Answer) -> Iterable[Wire]:
    """Return the events that a well-behaved answer sends, parsed."""
    for step in answer.steps:
        if isinstance(step, bytes):
            yield json.loads(step.decode().partition("data: ")[2])
