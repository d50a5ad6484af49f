"""
Requests in the Chat Completions format: what a model is to read.

    Request ──to_wire──> {"messages": [...], "tools": [...]}

Written from the OpenAI API reference ("Create chat completion", 2025).
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from alpineagents.messages import Image, Message, RawBlock, Request, TextBlock, ToolCall, ToolResultBlock
from alpineagents.models.strict import OPENAI, strict

Wire = dict[str, Any]

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


def to_wire(request: Request, *, provider: str = "") -> Wire:
    """
    Return the part of a request's body that says what the model is to read.

    Args:
        provider: whose raw blocks are sent along; those of others are left out.

    Example:
        >>> to_wire(Request(messages=(Message.user("Hello"),)))
        {'messages': [{'role': 'user', 'content': 'Hello'}]}
    """
    messages: list[Wire] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        messages += [_assistant(message, provider)] if message.role == "assistant" else _user(message)
    body: Wire = {"messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    if request.output is not None:
        shape = {"name": request.output.name, **held(request.output.json_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    return body


def held(json_schema: Wire) -> Wire:
    """Return a schema as a model is held to it, or else as a wish."""
    schema = strict(json_schema, OPENAI)
    return {"schema": json_schema, "strict": False} if schema is None else {"schema": schema, "strict": True}


def _assistant(message: Message, provider: str) -> Wire:
    wire: Wire = {}
    for block in message.content:
        # Fields of the message, such as its reasoning; they go with its calls and its text, or not at all.
        if isinstance(block, RawBlock) and block.provider == provider and isinstance(block.data, dict):
            wire |= block.data
    wire |= {"role": "assistant", "content": message.text}
    if message.tool_calls:
        wire["content"] = message.text or None
        wire["tool_calls"] = [
            {
                "id": sent_id(call.id),
                "type": "function",
                "function": {"name": sent_name(call.name), "arguments": arguments(call)},
            }
            for call in message.tool_calls
        ]
    return wire


def sent_id(call_id: str) -> str:
    """
    Return a call's id as OpenAI takes it; one from elsewhere may be too long or have other characters.

    Example:
        >>> sent_id("call_1"), sent_id("read:0")
        ('call_1', 'call_2dddf05adcfc0532d64a31fd220d7f88')
    """
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{hashlib.sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


def sent_name(name: str) -> str:
    """
    Return a tool's name as OpenAI takes it: a model may have written another, which would be refused from then on.

    Example:
        >>> sent_name("functions.read"), sent_name("")
        ('functions_read', '_')
    """
    return _NOT_IN_NAMES.sub("_", name)[:64] or "_"


def arguments(call: ToolCall) -> str:
    """Return a call's arguments as JSON, also where the model wrote none."""
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
    return {"role": "tool", "tool_call_id": sent_id(result.call_id), "content": text}


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(image: Image) -> Wire:
    return {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{image.data}"}}
