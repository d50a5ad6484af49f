"""
What Anthropic's own client says of a request and of a server: a judge that did not write this library.

Its types are looser than the API: sequences are read lazily, and a field that it does not know is dropped. So a body is
right if it comes out of the types as it went in, and each block fits the type of a block that may be sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from anthropic.types import ContentBlockParam, MessageCountTokensParams
from anthropic.types.beta import BetaThinkingConfigParam
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from alpineagents.messages import Message, RawBlock, TextBlock, ToolCall


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _whole(value: Any) -> Any:
    """Return a value with all that is lazy in it read."""
    if isinstance(value, Mapping):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, Iterator)):
        return [_whole(item) for item in value]
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_whole(item) for item in value]


def _fits(kind: Any, value: Any) -> None:
    assert _whole(_adapter(kind).validate_python(value, strict=True)) == value


def check_request(body: Any) -> None:
    """Check that a body is a streaming request, as Anthropic's client would send it."""
    thinking = body.get("thinking", {})
    if "block_binding" in thinking:
        # A field of a beta; the beta types of the whole body know less of a tool's schema than the others.
        _fits(BetaThinkingConfigParam, thinking)
        body = {**body, "thinking": {name: value for name, value in thinking.items() if name != "block_binding"}}
    _fits(MessageCreateParamsStreaming, body)
    _check_blocks(body)


def check_count(body: Any) -> None:
    """Check that a body asks for the number of tokens."""
    _fits(MessageCountTokensParams, body)
    _check_blocks(body)


def _check_blocks(body: Any) -> None:
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(role != following for role, following in pairwise(roles))
    for message in body["messages"]:
        assert message["content"]
        for block in message["content"]:
            _fits(ContentBlockParam, block)
            assert block["type"] != "text" or block["text"].strip()
    _check_pairs(body["messages"])
    assert str(body).count("'cache_control'") <= 4


def _check_pairs(messages: list[Any]) -> None:
    """Check what the types cannot say: each call has its result first in the next message, and ids are used once."""
    used: list[str] = []
    owed: list[str] = []
    for message in messages:
        given = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        kinds = [block["type"] for block in message["content"]]
        assert given == owed
        assert kinds[: len(given)] == ["tool_result"] * len(given)
        owed = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        used += owed
        assert kinds[-1] not in ("thinking", "redacted_thinking")
    assert owed == []
    assert len(set(used)) == len(used)


def as_client_says(message: Any) -> Message:
    """Return a message of Anthropic's client as this library has it."""
    content: list[Any] = []
    for block in message.content:
        if block.type == "text":
            content.append(TextBlock(text=block.text))
        elif block.type == "tool_use":
            content.append(ToolCall(id=block.id, name=block.name, args=block.input))
        else:
            content.append(RawBlock(provider="anthropic", data=block.to_dict()))
    return Message(role="assistant", content=tuple(content))
