"""Messages, blocks and images: how they are made and what is refused."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from pydantic import ValidationError

from alpineagents import ConfigError, Image, Message, RawBlock, TextBlock, ToolCall, ToolResultBlock

PNG = b"\x89PNG\r\n\x1a\n"


def test_a_user_message_holds_its_text() -> None:
    """Role, text and blocks are what was said."""
    message = Message.user("Where is the summit?")

    assert (message.role, message.text, message.is_notice) == ("user", "Where is the summit?", False)
    assert message.content == (TextBlock(text="Where is the summit?"),)


def test_images_stand_before_the_text() -> None:
    """Models read them best there."""
    image = Image.from_bytes(PNG, "image/png")

    message = Message.user("What is this?", image)

    assert message.content == (image, TextBlock(text="What is this?"))


def test_an_image_alone_is_a_message() -> None:
    """No empty text stands beside it, which providers refuse."""
    image = Image.from_bytes(PNG, "image/png")

    assert Message.user("", image).content == (image,)


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
def test_an_empty_message_is_refused(text: str) -> None:
    """Every provider would refuse it, later and less clearly."""
    with pytest.raises(ConfigError, match="cannot be empty"):
        Message.user(text)
    with pytest.raises(ConfigError, match="cannot be empty"):
        Message.notice(text)


@pytest.mark.parametrize("text", [None, 1, b"bytes", ["a"]])
def test_a_message_is_a_text(text: object) -> None:
    """Another value is not made into one by guessing."""
    with pytest.raises(ConfigError, match=r"Message\.user\(str\(value\)\)"):
        Message.user(text)


def test_a_notice_says_that_a_program_wrote_it() -> None:
    """It is of the user's role, as providers know no other, and is marked."""
    notice = Message.notice("3 tests failed")

    assert (notice.role, notice.is_notice, notice.text) == ("user", True, "3 tests failed")


def test_a_string_stands_for_one_block_of_text() -> None:
    """The long form and the short one give the same message."""
    assert Message(role="user", content="Hello") == Message.user("Hello")


def test_calls_and_results_are_found_in_order() -> None:
    """Whatever stands between them."""
    calls = [ToolCall(id=call_id, name="look") for call_id in "ab"]
    message = Message(role="assistant", content=(TextBlock(text="I "), calls[0], TextBlock(text="look"), calls[1]))
    results = Message(role="user", content=tuple(ToolResultBlock(call_id=call_id) for call_id in "ab"))

    assert message.tool_calls == tuple(calls)
    assert message.text == "I look"
    assert [result.call_id for result in results.tool_results] == ["a", "b"]


@pytest.mark.parametrize(
    "block, plain",
    [
        (TextBlock(text="a"), True),
        (Image.from_bytes(PNG, "image/png"), True),
        (ToolCall(id="c", name="t"), False),
        (ToolResultBlock(call_id="c"), False),
        (RawBlock(provider="p", data=None), False),
    ],
)
def test_only_text_and_images_are_plain(block: TextBlock, plain: bool) -> None:
    """Only a plain message may follow any other."""
    assert Message(role="user", content=(block,)).is_plain is plain
    assert not Message(role="assistant", content=(block,)).is_plain


def test_messages_are_frozen() -> None:
    """A snapshot shares them, so nothing may change one."""
    message = Message.user("Hello")

    with pytest.raises(ValidationError):
        message.role = "assistant"
    with pytest.raises(ValidationError):
        message.content[0].text = "Bye"


@pytest.mark.parametrize("role", ["system", "tool", "", None])
def test_there_are_two_roles(role: str) -> None:
    """The system prompt is the Agent's, results travel in user messages."""
    with pytest.raises(ValidationError):
        Message(role=role, content="Hello")


def test_a_field_that_there_is_not_is_refused() -> None:
    """A word written wrongly is not lost in silence."""
    with pytest.raises(ValidationError):
        Message(role="user", content="Hello", notice=True)


def test_an_error_does_not_show_what_was_said() -> None:
    """A message may hold secrets, and errors end up in logs."""
    with pytest.raises(ValidationError) as refused:
        Message(role="user", content=({"type": "text", "text": 5, "secret": "hunter2"},))

    assert "hunter2" not in str(refused.value)


def test_a_call_has_an_id() -> None:
    """Its result is found by it."""
    with pytest.raises(ValidationError):
        ToolCall(id="", name="look")


def test_arguments_are_an_object() -> None:
    """They are passed by name."""
    with pytest.raises(ValidationError):
        ToolCall(id="c", name="look", args=[1])


def test_an_image_is_held_as_base64() -> None:
    """The bytes come back from it."""
    image = Image.from_bytes(PNG, "image/png")

    assert base64.b64decode(image.data) == PNG
    assert image.media_type == "image/png"


def test_the_bytes_of_an_image_are_not_in_its_repr() -> None:
    """A megabyte of base64 helps nobody in a log."""
    assert Image.from_bytes(PNG, "image/png").data not in repr(Image.from_bytes(PNG, "image/png"))


@pytest.mark.parametrize("data", ["not base64!", "abc", "ab=c", "é"])
def test_an_image_that_is_not_base64_is_refused(data: str) -> None:
    """The error says how to make one."""
    with pytest.raises(ValidationError, match=r"Image\.from_bytes"):
        Image(media_type="image/png", data=data)


@pytest.mark.parametrize("name, media_type", [("a.png", "image/png"), ("a.JPG", "image/jpeg"), ("a.gif", "image/gif")])
def test_the_ending_tells_the_media_type(tmp_path: Path, name: str, media_type: str) -> None:
    """As a path or as a string."""
    file = tmp_path / name
    file.write_bytes(PNG)

    assert Image.from_path(file) == Image.from_path(str(file)) == Image.from_bytes(PNG, media_type)


@pytest.mark.parametrize("name", ["notes.txt", "noending", "archive.png.zip"])
def test_a_file_that_does_not_end_like_an_image_is_refused(tmp_path: Path, name: str) -> None:
    """The error shows the line for the case that it is one."""
    with pytest.raises(ConfigError, match=r"Image\.from_bytes\(Path"):
        Image.from_path(tmp_path / name)


def test_an_image_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    """The system's own error says which file."""
    with pytest.raises(FileNotFoundError, match=r"missing\.png"):
        Image.from_path(tmp_path / "missing.png")


@pytest.mark.parametrize("outcome", ["error", "input_error", "denied", "cancelled", "interrupted", "unknown"])
def test_every_outcome_but_ok_is_a_failure_to_the_model(outcome: str) -> None:
    """Only `ok` has a result that the model may rely on."""
    assert ToolResultBlock(call_id="c", outcome=outcome).failed
    assert not ToolResultBlock(call_id="c").failed
