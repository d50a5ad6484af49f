"""
What a model reads and writes: messages made of blocks, and a request with its reply.

A message has one of two roles. What tools gave back travels in a user message, as it does at the providers.
"""

from __future__ import annotations

import base64
import binascii
import mimetypes
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetPydanticSchema,
    JsonValue,
    field_validator,
)
from pydantic_core import core_schema

from alpineagents.errors import ConfigError
from alpineagents.usage import Usage
from alpineagents.values import Json, JsonObject, Text

Role = Literal["user", "assistant"]

Outcome = Literal["ok", "error", "input_error", "denied", "cancelled", "interrupted", "unknown"]
"""
How a tool call ended: it gave a result (`ok`), it failed (`error`), its arguments were wrong or there is no such tool
(`input_error`), a person or a rule refused it (`denied`), it was never started (`cancelled`), it was stopped while it
ran (`interrupted`), or nobody knows (`unknown`).
"""


def _is_empty(text: str) -> bool:
    return not text


class _Fact(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class TextBlock(_Fact):
    """Text."""

    type: Literal["text"] = "text"
    text: Text


class Image(_Fact):
    """
    An image, held as base64.

    Attributes:
        media_type: such as `image/png`.
        data: the bytes in base64.
    """

    type: Literal["image"] = "image"
    media_type: str
    data: str = Field(repr=False)

    @field_validator("data")
    @classmethod
    def _is_base64(cls, data: str) -> str:
        try:
            binascii.a2b_base64(data, strict_mode=True)
        except ValueError as error:
            raise ValueError("is not base64; make an image with Image.from_bytes or Image.from_path") from error
        return data

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> Self:
        """
        Hold the bytes of an image file.

        Example:
            >>> Image.from_bytes(b"GIF89a", "image/gif").media_type
            'image/gif'
        """
        return cls(media_type=media_type, data=base64.b64encode(data).decode("ascii"))

    @classmethod
    def from_path(cls, path: str | Path) -> Self:
        """
        Read an image file; its ending tells the media type.

        Raises:
            ConfigError: the ending is not that of an image.
            OSError: the file cannot be read.
        """
        media_type, _ = mimetypes.guess_type(str(path))
        if media_type is None or not media_type.startswith("image/"):
            raise ConfigError(
                f"{str(path)!r} does not end like an image (.png, .jpg, .gif, .webp). If it is one: "
                f'Image.from_bytes(Path({str(path)!r}).read_bytes(), "image/png")'
            )
        return cls.from_bytes(Path(path).read_bytes(), media_type)


class ToolCall(_Fact):
    """
    A model asks for a tool.

    Attributes:
        id: unique in its State.
        name: the tool's name, as the model wrote it.
        args: the arguments by name.
        invalid_json: what the model wrote, where that is not a JSON object; `args` is empty then.
    """

    type: Literal["tool_call"] = Field(default="tool_call", repr=False)
    id: Text
    name: Text
    args: JsonObject = Field(default_factory=dict)
    invalid_json: Text | None = Field(default=None, repr=False)

    @field_validator("id")
    @classmethod
    def _is_not_empty(cls, id: str) -> str:
        if not id:
            raise ValueError("is empty; tool_call(name, …) of alpineagents.testing makes a call with an id")
        return id


class ToolResultBlock(_Fact):
    """
    What a tool call gave back.

    Attributes:
        call_id: id of the call.
        content: what the model reads.
        outcome: how the call ended.
    """

    type: Literal["tool_result"] = "tool_result"
    call_id: Text
    content: tuple[Annotated[TextBlock | Image, Field(discriminator="type")], ...] = ()
    outcome: Outcome = "ok"

    @property
    def text(self) -> str:
        """The text of the result, images left out."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def failed(self) -> bool:
        """Whether the model is to read it as an error."""
        return self.outcome != "ok"


class RawBlock(_Fact):
    """
    A block that only one provider understands, sent back to it unchanged.

    Attributes:
        provider: who made it.
        data: the block as the provider wrote it.
    """

    type: Literal["raw"] = "raw"
    provider: str
    data: Json


Block = Annotated[TextBlock | Image | ToolCall | ToolResultBlock | RawBlock, Field(discriminator="type")]


def _text_is_a_block(content: object) -> object:
    return ({"type": "text", "text": content},) if isinstance(content, str) else content


def _blocks_or_text(blocks: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    # What is stored has blocks only, and is read without a call of Python for each message.
    schema = handler(blocks)
    lenient = core_schema.no_info_before_validator_function(_text_is_a_block, schema)
    return core_schema.json_or_python_schema(json_schema=schema, python_schema=lenient)


class Message(_Fact):
    """
    One message of a conversation.

    Attributes:
        role: who speaks, `"user"` (people, code and tools) or `"assistant"` (the model).
        content: its blocks; a plain string stands for one block of text.
        is_notice: a program wrote it, not a person.
        late_call: the call whose late result it is, which asks for no answer; "" for any other message.

    Example:
        >>> Message.user("Where is the summit?").text
        'Where is the summit?'
    """

    role: Role
    content: Annotated[tuple[Block, ...], GetPydanticSchema(_blocks_or_text)]
    is_notice: bool = False
    # Not written where it says nothing, so older rows keep their bytes.
    late_call: Text = Field(default="", exclude_if=_is_empty)

    @classmethod
    def user(cls, text: str, *images: Image) -> Self:
        """
        Say something to the model.

        Args:
            text: may be empty only if there is an image.
            images: shown before the text, where models read them best.

        Raises:
            ConfigError: nothing is said.
        """
        if not isinstance(text, str):
            raise ConfigError(f"a message is a text, not a {type(text).__name__}: Message.user(str(value))")
        if not text.strip() and not images:
            raise ConfigError('a message cannot be empty: Message.user("What is in this folder?")')
        words = (TextBlock(text=text),) if text.strip() else ()
        return cls(role="user", content=(*images, *words))

    @classmethod
    def notice(cls, text: str) -> Self:
        """
        Say something to the model from a program, such as the result of a test run.

        Raises:
            ConfigError: the text is empty.
        """
        return cls.user(text).model_copy(update={"is_notice": True})

    @property
    def text(self) -> str:
        """The text of the message, all other blocks left out."""
        return "".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in the message, in the order asked."""
        return tuple(block for block in self.content if isinstance(block, ToolCall))

    @property
    def tool_results(self) -> tuple[ToolResultBlock, ...]:
        """The results in the message."""
        return tuple(block for block in self.content if isinstance(block, ToolResultBlock))

    @property
    def is_plain(self) -> bool:
        """Whether it is a user's message of text and images only, which may follow any other."""
        return self.role == "user" and all(isinstance(block, (TextBlock, Image)) for block in self.content)


class ToolSpec(_Fact):
    """
    A tool as a model is told of it.

    Attributes:
        name: letters, digits, `_` and `-`, at most 64.
        description: what it does.
        parameters: JSON Schema of an object.
    """

    name: str
    description: str
    parameters: dict[str, JsonValue]


class OutputSpec(_Fact):
    """
    The shape that an answer is to have.

    Attributes:
        name: letters, digits, `_` and `-`, at most 64.
        json_schema: JSON Schema of an object.
    """

    name: str
    json_schema: dict[str, JsonValue]


class Request(_Fact):
    """
    What a Model gets.

    Attributes:
        system: the system prompt, or None.
        messages: the context, in an order that providers accept: each call is followed by its result.
        tools: what the model may ask for.
        output: the shape of the answer; None for free text. A Model asks its provider for it where that can be asked.
    """

    system: str | None = None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    output: OutputSpec | None = None


class FailedModel(_Fact):
    """
    A Model that was asked first and failed, so that another one was asked.

    Attributes:
        name: as the Model has it.
        error: name of the exception's class.
        message: its text.
    """

    name: Text
    error: str
    message: Text = ""


class Reply(_Fact):
    """
    What a Model gives back.

    Attributes:
        message: of role `assistant`.
        usage: what it took.
        stop_reason: `end_turn`, `tool_use`, `max_tokens`, `refusal`, or the provider's own word.
        model: who replied, as the provider names it.
        by: name of the Model that replied, where it is one of several behind the one that was asked.
        failures: the Models that were asked before it.
    """

    message: Message
    usage: Usage = Usage()
    stop_reason: str = "end_turn"
    model: str = ""
    by: Text = ""
    failures: tuple[FailedModel, ...] = ()
