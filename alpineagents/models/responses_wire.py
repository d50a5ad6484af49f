"""
Requests in the format of OpenAI's Responses API: what a model is to read.

    Request ──to_wire──> {"instructions": "...", "input": [items], "tools": [...]}

Nothing is kept at the server, so each request holds the whole conversation, with the encrypted reasoning of its
replies. A raw block is an item as the API sent it, or `{"phase": ...}`, which belongs to the text behind it.

Written from the OpenAI API reference ("Create a model response", 2025) and the types of the package `openai` 3.57.
"""

from __future__ import annotations

from typing import Any

from alpineagents.messages import Image, Message, RawBlock, Request, TextBlock, ToolCall, ToolResultBlock
from alpineagents.models.chat_wire import arguments, held, sent_id, sent_name

Wire = dict[str, Any]


def to_wire(request: Request, *, provider: str = "") -> Wire:
    """
    Return the part of a request's body that says what the model is to read.

    Args:
        provider: whose raw blocks are sent along; those of others are left out.

    Example:
        >>> to_wire(Request(messages=(Message.user("Hello"),)))["input"]
        [{'type': 'message', 'role': 'user', 'content': [{'type': 'input_text', 'text': 'Hello'}]}]
    """
    items: list[Wire] = []
    for message in request.messages:
        items += _assistant(message, provider) if message.role == "assistant" else _user(message)
    body: Wire = {"input": items}
    if request.system:
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                # Strict schemas must list every field as required, which those of plain functions do not.
                "strict": False,
            }
            for tool in request.tools
        ]
    if request.output is not None:
        shape = {"type": "json_schema", "name": request.output.name, **held(request.output.json_schema)}
        body["text"] = {"format": shape}
    return body


def _assistant(message: Message, provider: str) -> list[Wire]:
    items: list[Wire] = []
    reasoning: list[Wire] = []
    phase: Wire = {}
    for block in message.content:
        if isinstance(block, RawBlock):
            if block.provider != provider or not isinstance(block.data, dict):
                continue
            if block.data.get("type") == "reasoning":
                reasoning.append(block.data)
                continue
            if "type" not in block.data:
                phase = block.data
                continue
            item: Wire = block.data
        elif isinstance(block, TextBlock):
            item = {"type": "message", "role": "assistant", "content": block.text, **phase}
            phase = {}
        elif isinstance(block, ToolCall):
            # Without the id that the API gave the item: with it, the call is refused where its reasoning is left out.
            called = {"call_id": sent_id(block.id), "name": sent_name(block.name), "arguments": arguments(block)}
            item = {"type": "function_call", **called}
        else:
            continue
        # Reasoning is refused without the item that it led to, so it waits for one.
        items += [*reasoning, item]
        reasoning = []
    return items


def _user(message: Message) -> list[Wire]:
    items = [_result(result) for result in message.tool_results]
    said = [block for block in message.content if isinstance(block, (TextBlock, Image))]
    if said:
        items.append({"type": "message", "role": "user", "content": [_part(block) for block in said]})
    return items


def _result(result: ToolResultBlock) -> Wire:
    # The format has no field for a failure.
    mark = f"[{result.outcome}] " if result.failed else ""
    output: str | list[Wire] = f"{mark}{result.text}".rstrip() if mark else result.text
    if any(isinstance(block, Image) for block in result.content):
        output = ([_part(TextBlock(text=mark.rstrip()))] if mark else []) + [_part(block) for block in result.content]
    return {"type": "function_call_output", "call_id": sent_id(result.call_id), "output": output}


def _part(block: TextBlock | Image) -> Wire:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{block.media_type};base64,{block.data}"}
