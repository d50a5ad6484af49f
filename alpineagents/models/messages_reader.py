"""
Replies in the Messages format, made of the events of their streams.

    message_start, (content_block_start, content_block_delta …) …, message_delta, message_stop ──> Reply

Written from Anthropic's API reference ("Streaming Messages", 2026-11). Kinds of events, deltas and blocks that are not
known are passed over or kept as they are, since the API may add some at any time.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, Literal

from pydantic import JsonValue

from alpineagents.errors import ProviderError
from alpineagents.messages import Block, Message, RawBlock, Reply, TextBlock, ToolCall
from alpineagents.models.base import Delta, Emit
from alpineagents.models.messages_wire import PROVIDER, Wire
from alpineagents.models.reading import count, json_object, tool_call
from alpineagents.usage import Usage
from alpineagents.values import sendable

# The field of a block that each kind of delta adds to. A signature comes whole.
_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}


class _Growing:
    """A block that is still arriving."""

    def __init__(self, data: Wire) -> None:
        self.data = data
        self.pieces: dict[str, list[str]] = defaultdict(list)
        self.citations: list[JsonValue] = []

    @property
    def type(self) -> str:
        return str(self.data.get("type"))

    @property
    def name(self) -> str:
        return sendable(str(self.data.get("name") or ""))

    def wire(self) -> Wire:
        """Return the block as it is sent back."""
        data = dict(self.data)
        for field, pieces in self.pieces.items():
            if field == "input":
                raw = "".join(pieces)
                data["input"] = json_object(raw) or {}
            else:
                data[field] = str(data.get(field) or "") + "".join(pieces)
        if self.citations:
            given = data.get("citations")
            data["citations"] = (given if isinstance(given, list) else []) + self.citations
        return data

    def block(self, position: int) -> Block | None:
        """Return the block as the history keeps it."""
        data = self.wire()
        if self.type == "text":
            # Citations stay behind: what they point at is kept, and goes back with the blocks of the search.
            text = sendable(str(data.get("text") or ""))
            return TextBlock(text=text) if text else None
        if self.type == "tool_use":
            return self._call(position)
        return RawBlock(provider=PROVIDER, data=data)

    def _call(self, position: int) -> ToolCall:
        given = self.data.get("input")
        # Other servers of the format send the arguments whole, with the start of the block.
        written = "".join(self.pieces["input"]) or (json.dumps(given) if given else "")
        return tool_call(str(self.data.get("id") or f"call_{position}"), self.name, written)


class MessageReader:
    """
    Makes a Reply of the events of one stream.

    Args:
        emit: called with each part of the reply as it arrives.

    Attributes:
        began: whether the first event has come, which says what the API has read.
        stop_reason: why the model stopped, as the API has it.
    """

    def __init__(self, emit: Emit | None = None) -> None:
        self._emit = emit
        self._blocks: dict[int, _Growing] = {}
        self._usage: Wire = {}
        self._model = ""
        self.began = False
        self._started = False
        self._stopped = False
        self._explanation = ""
        self.stop_reason = ""

    @property
    def started(self) -> bool:
        """Whether a part of the reply has come."""
        return self._started

    @property
    def ended(self) -> bool:
        """Whether the reply is over."""
        return self._stopped

    @property
    def over(self) -> bool:
        """Whether nothing that counts can follow."""
        return self._stopped

    @property
    def complete(self) -> bool:
        """Whether it is a whole reply: `message_stop` came."""
        return self.began and self._stopped

    def done(self) -> None:
        """Take in the end mark of another format, which ends nothing here."""

    def read(self, data: dict[str, JsonValue]) -> None:
        """
        Take in one event.

        Raises:
            ProviderError: it belongs to no part of the reply that has begun.
        """
        kind = data.get("type")
        if kind == "message_start":
            message = _object(data.get("message"))
            self.began = True
            self._model = str(message.get("model") or "")
            self._count(message.get("usage"))
        elif kind == "content_block_start":
            self._begin(data)
        elif kind == "content_block_delta":
            self._grow(data)
        elif kind == "message_delta":
            delta = _object(data.get("delta"))
            self.stop_reason = str(delta.get("stop_reason") or "") or self.stop_reason
            self._explanation = str(_object(delta.get("stop_details")).get("explanation") or "")
            self._count(data.get("usage"))
        elif kind == "message_stop":
            self._end()

    @property
    def usage(self) -> Usage | None:
        """What the request took so far; the first event says what was read."""
        return _usage(self._usage) if self._usage else None

    @property
    def counted(self) -> bool:
        """Whether that is all of it: what was written is counted at the end."""
        return bool(self.stop_reason)

    def wires(self) -> list[Wire]:
        """Return what was said as the API wrote it, to be sent back after a pause."""
        return [block.wire() for _, block in sorted(self._blocks.items())]

    def reply(self, *, model: str = "") -> Reply:
        """
        Return what was said, once the reply is complete.

        Args:
            model: who replied, where the server does not say.
        """
        made = [block.block(position) for position, (_, block) in enumerate(sorted(self._blocks.items()), 1)]
        content = tuple(block for block in made if block is not None)
        if self._explanation and not any(isinstance(block, TextBlock) for block in content):
            content += (TextBlock(text=sendable(self._explanation)),)
        has_calls = any(isinstance(block, ToolCall) for block in content)
        return Reply(
            message=Message(role="assistant", content=content),
            usage=_usage(self._usage),
            stop_reason=self.stop_reason or ("tool_use" if has_calls else "end_turn"),
            model=sendable(self._model) or model,
        )

    def _begin(self, data: Wire) -> None:
        index, given = data.get("index"), data.get("content_block")
        if not isinstance(index, int) or not isinstance(given, dict) or index in self._blocks:
            raise _malformed("the start of a block", data)
        block = self._blocks[index] = _Growing(dict(given))
        if block.type == "text":
            self._show("text", str(given.get("text") or ""))
        elif block.type == "thinking":
            self._show("thinking", str(given.get("thinking") or ""))
        else:
            self._started = True
        if block.type == "tool_use":
            self._show_args(index, "")

    def _grow(self, data: Wire) -> None:
        index, delta = data.get("index"), data.get("delta")
        block = self._blocks.get(index) if isinstance(index, int) else None
        if block is None or not isinstance(delta, dict):
            raise _malformed("a part of a block that has not begun", data)
        kind = delta.get("type")
        if kind == "input_json_delta":
            self._take(block, "input", delta.get("partial_json"), data)
        elif isinstance(kind, str) and kind in _FIELDS:
            field = _FIELDS[kind]
            self._take(block, field, delta.get(field), data)
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))

    def _take(self, block: _Growing, field: str, piece: object, data: Wire) -> None:
        if not isinstance(piece, str):
            raise _malformed("a part of a block without its text", data)
        block.pieces[field].append(piece)
        self._started = True
        if field == "text":
            self._show("text", piece)
        elif field == "thinking":
            self._show("thinking", piece)
        elif piece and block.type == "tool_use":
            self._show_args(int(data["index"]), piece)

    def _end(self) -> None:
        self._stopped = True
        if self._explanation and not any(block.type == "text" for block in self._blocks.values()):
            self._show("text", self._explanation)

    def _show(self, kind: Literal["text", "thinking"], text: str) -> None:
        if not text:
            return
        self._started = True
        if self._emit is not None:
            self._emit(Delta(kind=kind, text=sendable(text)))

    def _show_args(self, index: int, text: str) -> None:
        if self._emit is not None:
            before = sum(block.type == "tool_use" for other, block in self._blocks.items() if other < index)
            name = self._blocks[index].name
            self._emit(Delta(kind="tool_args", text=sendable(text), call_index=before, tool_name=name))

    def _count(self, usage: object) -> None:
        # Each count is of the whole reply so far, and one that is left out has not changed.
        self._usage |= {name: value for name, value in _object(usage).items() if value is not None}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _malformed(what: str, event: Wire) -> ProviderError:
    kind, index = event.get("type"), event.get("index")
    # Not the server's own words, in which a key may stand.
    index = index if isinstance(index, int) else f"a {type(index).__name__}"
    return ProviderError(
        f"the model's server sent {what} ({kind}, index {index}), which is not the Messages format. "
        "Check base_url: a proxy on the way may change the stream"
    )


def _usage(wire: Wire) -> Usage:
    read, written = count(wire, "cache_read_input_tokens"), count(wire, "cache_creation_input_tokens")
    return Usage(
        input_tokens=count(wire, "input_tokens") + read + written,
        output_tokens=count(wire, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        cache_write_1h_tokens=min(count(_object(wire.get("cache_creation")), "ephemeral_1h_input_tokens"), written),
        reasoning_tokens=count(_object(wire.get("output_tokens_details")), "thinking_tokens"),
        requests=1,
        unpriced_requests=1,
    )
