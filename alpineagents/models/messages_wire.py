"""
Requests in the Messages format, mended where the API would refuse them.

    Request ──to_wire──> {"system": [...], "tools": [...], "messages": [{"role": ..., "content": [...]}]}

Written from Anthropic's API reference ("Create a Message") and its pages on tool use, thinking, prompt caching and
errors (2026-11). Mending depends only on the messages up to the place that is mended, so that a longer conversation
begins with the same words: caches and the signatures of thinking rest on that.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any

from alpineagents.messages import (
    Image,
    Message,
    OutputSpec,
    RawBlock,
    Request,
    Role,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models.strict import CLAUDE, strict

Wire = dict[str, Any]

PROVIDER = "anthropic"
"""Who made a RawBlock of this format."""

MARKS = 4
"""How many places of a request the API takes to be marked for the cache."""
THINKING = ("thinking", "redacted_thinking")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_GO_ON = "(Go on.)"
_BEGINNING = "(The conversation begins with words of the assistant.)"
_NAME_LENGTH = 64


def to_wire(request: Request, *, cache: Wire | None = None, marks: int = MARKS, takes_prefill: bool = True) -> Wire:
    """
    Return the part of a request's body that says what the model is to read.

    Args:
        cache: the mark for what is to be cached: the tools, the system prompt, and the messages up to the last and up
            to the last but one of the user, which was the end of the request before.
        marks: how many there may be; where they are few, what saves least goes without.
        takes_prefill: whether the conversation may end with the model's own words.

    Example:
        >>> to_wire(Request(messages=(Message.user("Hello"),)))
        {'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': 'Hello'}]}]}
    """
    body: Wire = {}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.system and request.system.strip():
        body["system"] = [_text(request.system)]
    body["messages"] = _finished(_turns(request.messages), takes_prefill)
    if cache is not None:
        asked = [message["content"] for message in body["messages"] if message["role"] == "user"]
        # Best first. A mark holds all that is before it, so that of the system prompt keeps the tools too.
        parts = [*asked[-1:], body.get("system"), *asked[-2:-1], body.get("tools")]
        for part in [part for part in parts if part][: max(marks, 0)]:
            part[-1]["cache_control"] = cache
    return body


def shape_of(output: OutputSpec, *, is_held: bool) -> tuple[Wire, list[Wire]]:
    """
    Return how to ask for an answer of a shape: fields for `output_config`, or else texts for the system prompt.

    Args:
        is_held: whether the API holds this model's answers to a schema, where it takes the schema.
    """
    held = strict(output.json_schema, CLAUDE) if is_held else None
    if held is not None:
        return {"format": {"type": "json_schema", "schema": held}}, []
    schema = json.dumps(output.json_schema, ensure_ascii=False)
    return {}, [_text(f"Answer with JSON and nothing else. It has to fit this schema:\n{schema}")]


def marks_in(value: object) -> int:
    """Return how many places of a part of a body are marked for the cache."""
    if isinstance(value, list):
        return sum(map(marks_in, value))
    if not isinstance(value, dict):
        return 0
    return bool(value.get("cache_control")) + sum(map(marks_in, value.values()))


def thinking_of(messages: Iterable[Wire]) -> list[Wire]:
    """Return the thinking in messages of the format."""
    return [block for message in messages for block in message["content"] if block["type"] in THINKING]


def resumes_without_thinking(messages: Sequence[Wire]) -> bool:
    """Whether the turn that goes on began without thinking, as one that another provider's model began."""
    began: Wire | None = None
    for message in reversed(messages):
        if message["role"] == "assistant":
            began = message
        elif message["content"][0]["type"] != "tool_result":
            break
    return began is not None and began["content"][0]["type"] not in THINKING


# ------------------------------------------------------------------------------------------------ turns


def _turns(messages: Sequence[Message]) -> list[Wire]:
    """Return the messages with their blocks, each call with its result in the next one, and none of them empty."""
    groups = [(role, list(group)) for role, group in itertools.groupby(messages, key=lambda message: message.role)]
    finished_servers = {str(data["tool_use_id"]) for data in _raw(messages) if "tool_use_id" in data}
    names = _Names()
    turns: list[Wire] = []
    answered: list[_Answered] = []
    for place, (role, group) in enumerate(groups):
        following = groups[place + 1][1] if place + 1 < len(groups) else []
        if role == "assistant":
            answered = _answered(group, following, names)
            # A tool of the API's own may still run while a call is answered, or where a pause is gone on from.
            is_last = all(later != "assistant" for later, _ in groups[place + 1 :])
            may_wait = is_last and (answered or not following)
            blocks = _assistant(group, answered, None if may_wait else finished_servers)
        else:
            blocks = [_result(item) for item in answered] + _said(group)
            answered = []
        _add(turns, role, blocks)
    return turns


def _add(turns: list[Wire], role: Role, blocks: list[Wire]) -> None:
    if not blocks:
        return
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    else:
        turns.append({"role": role, "content": blocks})


def _finished(turns: list[Wire], takes_prefill: bool) -> list[Wire]:
    if turns and turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [_text(_BEGINNING)]})
    if turns and turns[-1]["role"] == "assistant":
        if takes_prefill:
            # Refused: words that end in blanks, from which the model is to go on.
            last = turns[-1]["content"][-1]
            if last["type"] == "text":
                last["text"] = last["text"].rstrip()
        else:
            turns.append({"role": "user", "content": [_text(_GO_ON)]})
    return turns


# ------------------------------------------------------------------------------------------------ calls and results


@dataclasses.dataclass(frozen=True)
class _Answered:
    """A call with its result, and the id that both are sent with."""

    call: ToolCall
    result: ToolResultBlock
    id: str


class _Names:
    """Gives each call an id of its own that the API takes: a conversation may repeat one, or bring other letters."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def of(self, call_id: str) -> str:
        wanted = _plain_name(call_id)
        name = next(
            name
            for name in itertools.chain([wanted], (f"{wanted}_{n}" for n in itertools.count(2)))
            if name not in self._taken
        )
        self._taken.add(name)
        return name


def _plain_name(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:_NAME_LENGTH] or "_"


def _answered(group: Sequence[Message], following: Sequence[Message], names: _Names) -> list[_Answered]:
    """Pair calls with the results in the messages that follow; of equal ids, the first with the first."""
    waiting: dict[str, deque[ToolResultBlock]] = defaultdict(deque)
    for message in following:
        for result in message.tool_results:
            waiting[result.call_id].append(result)
    calls = [call for message in group for call in message.tool_calls]
    return [_Answered(call, waiting[call.id].popleft(), names.of(call.id)) for call in calls if waiting[call.id]]


def _assistant(group: Sequence[Message], answered: Sequence[_Answered], servers: set[str] | None) -> list[Wire]:
    left = deque(answered)
    blocks: list[Wire] = []
    for message in group:
        own: list[Wire] = []
        is_whole = True
        for block in message.content:
            if isinstance(block, ToolCall):
                if left and left[0].call is block:
                    own.append(_call(left.popleft()))
                else:
                    is_whole = False
            elif isinstance(block, RawBlock):
                own += _known(block, servers)
            elif isinstance(block, TextBlock) and block.text.strip():
                own.append(_text(block.text))
        if not is_whole:
            # A call without a result is left out, and the thinking that led to it cannot stay without it.
            own = [block for block in own if block["type"] not in THINKING]
        blocks += own
    while blocks and blocks[-1]["type"] in THINKING:
        blocks.pop()  # Refused at the end of a message, where a reply was cut off.
    return blocks


def _raw(messages: Iterable[Message]) -> list[Wire]:
    blocks = (block for message in messages for block in message.content)
    return [
        block.data
        for block in blocks
        if isinstance(block, RawBlock) and block.provider == PROVIDER and isinstance(block.data, dict)
    ]


def _known(block: RawBlock, servers: set[str] | None) -> list[Wire]:
    if block.provider != PROVIDER or not isinstance(block.data, dict):
        return []
    data = dict(block.data)
    if data.get("type") == "thinking" and not data.get("signature"):
        return []  # It was cut off, and nothing vouches for it.
    if servers is not None and str(data.get("type")).endswith("tool_use") and data.get("id") not in servers:
        return []  # A tool of the API's own that never ended.
    return [data] if isinstance(data.get("type"), str) else []


def _call(item: _Answered) -> Wire:
    args = item.call.args if item.call.invalid_json is None else {"invalid_json": item.call.invalid_json}
    return {"type": "tool_use", "id": item.id, "name": _plain_name(item.call.name), "input": args}


def _result(item: _Answered) -> Wire:
    content = _blocks(item.result.content)
    wire: Wire = {"type": "tool_result", "tool_use_id": item.id}
    if item.result.failed:
        # An error that says nothing is refused.
        content = content or [_text(f"[{item.result.outcome}]")]
        wire["is_error"] = True
    if content:
        wire["content"] = content
    return wire


# ------------------------------------------------------------------------------------------------ blocks


def _said(group: Iterable[Message]) -> list[Wire]:
    return _blocks(block for message in group for block in message.content)


def _blocks(blocks: Iterable[object]) -> list[Wire]:
    wires: list[Wire] = []
    for block in blocks:
        if isinstance(block, TextBlock) and block.text.strip():
            wires.append(_text(block.text))
        elif isinstance(block, Image):
            wires.append(_image(block))
    return wires


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def _image(image: Image) -> Wire:
    media_type = {"image/jpg": "image/jpeg"}.get(image.media_type, image.media_type)
    if media_type not in _IMAGES:
        return _text(f"(an image of the type {image.media_type}, which this model cannot read)")
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": image.data}}


def _tool(tool: ToolSpec) -> Wire:
    wire: Wire = {"name": tool.name, "input_schema": {"type": "object", **tool.parameters}}
    return wire | ({"description": tool.description} if tool.description.strip() else {})
