"""
Answers in the format of OpenAI's Responses API, for the server of `openai_server`.

    OpenAIServer(responds(thought("Hm."), call("read", {"path": "a"})), responds(text("The ", "summit.")))
"""

from __future__ import annotations

import json
from typing import Any

from tests.servers.openai_server import Answer, Wire

USAGE: Wire = {
    "input_tokens": 12,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 1},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 17,
}

Output = tuple[Wire, list[Wire]]
"""An item when it is done, and the events between its beginning and its end."""


def response(status: str = "in_progress", **fields: Any) -> Wire:
    """Return the object that the first and the last event hold; `fields` replace others."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1764400000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "test-model-2025",
        "output": [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
        **fields,
    }


def text(*pieces: str, phase: str | None = None) -> Output:
    """Say a text in pieces."""
    part = {"type": "output_text", "text": "".join(pieces), "annotations": [], "logprobs": []}
    item: Wire = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    place = {"item_id": "msg_1", "content_index": 0}
    return item | ({"phase": phase} if phase else {}), [
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []} for piece in pieces),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
    ]


def refusal(words: str) -> Output:
    """Refuse."""
    part = {"type": "refusal", "refusal": words}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    return item, [{"type": "response.refusal.delta", "item_id": "msg_1", "content_index": 0, "delta": words}]


def thought(summary: str, *, encrypted: str | None = "gAAAA") -> Output:
    """Think, with a summary that may be shown."""
    item: Wire = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": summary}]}
    item |= {"encrypted_content": encrypted, "status": None}
    return item, [
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "summary_index": 0, "delta": summary}
    ]


def call(name: str, args: Wire, *, call_id: str = "call_1x") -> Output:
    """Ask for a tool, with the arguments in two pieces."""
    written = json.dumps(args)
    half = len(written) // 2
    item = {"id": f"fc_{call_id}", "type": "function_call", "status": "completed", "call_id": call_id}
    item |= {"name": name, "arguments": written}
    kind, place = "response.function_call_arguments", {"item_id": item["id"]}
    return item, [
        *({"type": f"{kind}.delta", **place, "delta": piece} for piece in (written[:half], written[half:])),
        {"type": f"{kind}.done", **place, "name": name, "arguments": written},
    ]


def responds(
    *outputs: Output, reason: str | None = None, usage: Wire | None = USAGE, complete: bool = True, **fields: Any
) -> Answer:
    """
    Answer with these items, one after the other.

    Args:
        reason: why the reply is cut, if it is.
        complete: whether the last event comes.
        fields: of the response in the last event.
    """
    events: list[Wire] = [{"type": "response.created", "response": response()}]
    for index, (item, between) in enumerate(outputs):
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""} if "arguments" in item else {}
        begun = item | empty | ({"status": "in_progress"} if item["type"] != "reasoning" else {})
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events += [{**event, "output_index": index} for event in between]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    if complete:
        status = "incomplete" if reason else "completed"
        details = {"incomplete_details": {"reason": reason}} if reason else {}
        output = [item for item, _ in outputs]
        last = response(status, output=output, usage=usage, **details, **fields)
        events.append({"type": f"response.{status}", "response": last})
    return streams(*events)


def streams(*events: Wire) -> Answer:
    """Answer with these events, numbered."""
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return Answer(tuple(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in numbered))


def fails(code: str, message: str = "it failed") -> Answer:
    """Answer with a response that fails in mid-stream."""
    error = {"code": code, "message": message}
    return streams(
        {"type": "response.created", "response": response()},
        {"type": "response.failed", "response": response("failed", error=error)},
    )
