"""Whatever JSON a server sends, reading it never fails in a way of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alpineagents.messages import Message, Request
from alpineagents.models import chat_reply, chat_wire, responses_reply, responses_wire
from alpineagents.models.base import Delta, Emitted

# No deadline: a busy machine is no bug.
SEARCH = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from(["\ud800", "{", "{}"])
CHAT_NAMES = [
    *["choices", "delta", "message", "content", "refusal", "reasoning", "reasoning_content", "reasoning_details"],
    *["tool_calls", "index", "id", "function", "name", "arguments", "finish_reason", "type", "text", "signature"],
    *["usage", "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "cost", "model"],
]
RESPONSES_NAMES = [
    *["item", "output_index", "delta", "response", "output", "usage", "input_tokens", "input_tokens_details"],
    *["incomplete_details", "reason", "content", "call_id", "id", "name", "arguments", "encrypted_content", "summary"],
    *["phase", "status", "model", "text", "refusal"],
]
KINDS = [
    *["response.created", "response.output_item.added", "response.output_item.done", "response.output_text.delta"],
    *["response.refusal.delta", "response.reasoning_text.delta", "response.function_call_arguments.delta"],
    *["response.completed", "response.incomplete"],
    *["message", "function_call", "reasoning", "output_text", "refusal", "web_search_call"],
]


def objects(names: list[str], kinds: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects that have names of the format in places where they may not belong."""
    values = st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(names), inner, max_size=5),
        max_leaves=12,
    )
    fields = st.dictionaries(st.sampled_from(names), values, max_size=6)
    return st.builds(lambda fields, kind: fields if kind is None else {**fields, "type": kind}, fields, kinds)


def chat_chunks() -> st.SearchStrategy[dict[str, Any]]:
    """Return chunks, some of which are deep enough to reach the calls."""
    inner = objects(CHAT_NAMES, st.none())
    calls = st.builds(
        lambda call, function: {"choices": [{"delta": {"tool_calls": [{**call, "function": function}]}}]}, inner, inner
    )
    return inner | calls | st.builds(lambda delta: {"choices": [{"delta": delta}]}, inner)


def events() -> st.SearchStrategy[dict[str, Any]]:
    """Return events of the Responses API, some of which hold an item."""
    kinds = st.sampled_from(KINDS)
    inner = objects(RESPONSES_NAMES, kinds)
    return inner | st.builds(lambda event, item: {**event, "item": item, "response": {"output": [item]}}, inner, inner)


def check(reader: Any, read: list[Any], shown: list[Emitted], wire: Any) -> None:
    """Read all of it; what comes out is a reply that can be sent back."""
    for data in read:
        reader.read(data)
    reply = reader.reply(model="asked")

    assert all(isinstance(item, Delta) for item in shown)
    assert reply.usage.requests == 1
    sent = wire.to_wire(Request(messages=(Message.user("?"), reply.message)), provider="p")
    assert sent
    assert Message.model_validate(json.loads(json.dumps(reply.message.model_dump()))) == reply.message


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@SEARCH
@given(st.lists(chat_chunks(), max_size=5))
def test_any_chunks_make_a_reply(anyio_backend: str, chunks: list[dict[str, Any]]) -> None:
    """In Chat Completions."""
    shown: list[Emitted] = []
    check(chat_reply.ReplyReader(shown.append, provider="p"), chunks, shown, chat_wire)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@SEARCH
@given(st.lists(events(), max_size=5))
def test_any_events_make_a_reply(anyio_backend: str, read: list[dict[str, Any]]) -> None:
    """In the Responses API."""
    shown: list[Emitted] = []
    check(responses_reply.ReplyReader(shown.append, provider="p"), read, shown, responses_wire)
