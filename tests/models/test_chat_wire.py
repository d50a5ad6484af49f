"""Requests and replies in the Chat Completions format, without a server."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from alpineagents.messages import (
    Image,
    Message,
    OutputSpec,
    RawBlock,
    Request,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models.base import Delta
from alpineagents.models.chat_reply import ReplyReader, from_wire
from alpineagents.models.chat_wire import to_wire
from alpineagents.usage import Usage
from tests.servers.openai_server import calls, chunk, chunks_of, says, usage_chunk

GIF = Image.from_bytes(b"GIF89a", "image/gif")
GIF_PART = {"type": "image_url", "image_url": {"url": "data:image/gif;base64,R0lGODlh"}}


def wired(*messages: Message, **fields: Any) -> list[Any]:
    """Return the messages of a request as they are sent."""
    messages_sent: list[Any] = to_wire(Request(messages=messages, **fields))["messages"]
    return messages_sent


def asked(*wanted: ToolCall, text: str = "") -> Message:
    """Return an assistant's message with tool calls."""
    return Message(role="assistant", content=((TextBlock(text=text),) if text else ()) + wanted)


def results(*blocks: ToolResultBlock) -> Message:
    """Return a message with results."""
    return Message(role="user", content=blocks)


def result(call_id: str, *content: str | Image, outcome: Any = "ok") -> ToolResultBlock:
    """Return one result."""
    blocks = tuple(TextBlock(text=item) if isinstance(item, str) else item for item in content)
    return ToolResultBlock(call_id=call_id, content=blocks, outcome=outcome)


def piece(arguments: Any, *, name: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk with a piece of a tool call."""
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return chunk({"tool_calls": [{"function": function, **fields}]})


# ------------------------------------------------------------------------------------------------ to the server


def test_the_system_prompt_comes_first() -> None:
    """The system prompt is a message before all others."""
    assert wired(Message.user("Hi"), system="Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_request_without_tools_has_no_field_for_them() -> None:
    """Servers refuse an empty list of tools."""
    assert "tools" not in to_wire(Request(messages=(Message.user("Hi"),)))


def test_tools_are_sent_as_functions() -> None:
    """A tool goes out with its name, description and schema."""
    schema: Any = {"type": "object", "properties": {}}

    body = to_wire(Request(messages=(), tools=(ToolSpec(name="ls", description="List files.", parameters=schema),)))

    function = {"name": "ls", "description": "List files.", "parameters": schema}
    assert body["tools"] == [{"type": "function", "function": function}]


CLOSED: Any = {
    "type": "object",
    "properties": {"metres": {"type": "number"}},
    "required": ["metres"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("schema, strict", [(CLOSED, True), ({**CLOSED, "additionalProperties": {}}, False)])
def test_the_shape_of_the_answer_is_asked_for(schema: Any, strict: bool) -> None:
    """As `response_format`; strictly, where the schema is one that can be held to strictly."""
    body = to_wire(Request(messages=(), output=OutputSpec(name="peak", json_schema=schema)))

    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "peak", "schema": schema, "strict": strict},
    }


def test_an_image_of_a_user_is_a_data_url() -> None:
    """An image stands before the text, as a data URL."""
    (message,) = wired(Message.user("What is it?", GIF))

    assert message == {"role": "user", "content": [GIF_PART, {"type": "text", "text": "What is it?"}]}


def test_results_follow_the_call_in_order_and_before_any_text() -> None:
    """Each result is a message of role tool, right after the calls, in the order given."""
    sent = wired(
        asked(ToolCall(id="a", name="f", args={"x": "é"}), ToolCall(id="b", name="g"), text="Let me look."),
        Message(role="user", content=(TextBlock(text="and?"), result("a", "one"), result("b", "two"))),
    )

    assert sent == [
        {
            "role": "assistant",
            "content": "Let me look.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": "é"}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "user", "content": "and?"},
    ]


def test_images_of_results_follow_the_last_result() -> None:
    """A result holds text only, so its image comes in a user message after all results of the turn."""
    sent = wired(results(result("a", GIF), result("b", "two")))

    assert sent == [
        {"role": "tool", "tool_call_id": "a", "content": "(an image, shown in the next message)"},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "From the tool call a:"}, GIF_PART]},
    ]


@pytest.mark.parametrize("outcome", ["error", "input_error", "denied", "cancelled", "interrupted", "unknown"])
def test_a_failed_result_says_so(outcome: str) -> None:
    """The model reads how a call ended, for which the format has no field."""
    (sent,) = wired(results(result("a", "no such file", outcome=outcome)))

    assert sent["content"] == f"[{outcome}] no such file"


def test_an_empty_result_is_sent_empty() -> None:
    """A tool that gave nothing back still has its result."""
    assert wired(results(result("a"))) == [{"role": "tool", "tool_call_id": "a", "content": ""}]


def test_arguments_that_were_no_json_are_sent_as_json() -> None:
    """Servers refuse a history whose arguments they cannot parse."""
    (sent,) = wired(asked(ToolCall(id="a", name="f", invalid_json='{"x": ')))

    assert json.loads(sent["tool_calls"][0]["function"]["arguments"]) == {"invalid_json": '{"x": '}


@pytest.mark.parametrize("call_id", ["x" * 41, "read:0", "call 1", "\ud800", "é"])
def test_ids_from_elsewhere_are_sent_as_ids_of_the_format(call_id: str) -> None:
    """A call and its result have the same id, and different ones stay different."""
    asked_for, got = wired(asked(ToolCall(id=call_id, name="f")), results(result(call_id, "x")))
    other, _ = wired(asked(ToolCall(id=call_id + "2", name="f")), results(result(call_id + "2", "x")))

    sent = asked_for["tool_calls"][0]["id"]
    assert sent == got["tool_call_id"] != other["tool_calls"][0]["id"]
    assert sent.isascii()
    assert len(sent) <= 40


@pytest.mark.parametrize("name", ["", "functions.read", "read file", "x" * 70, "読む"])
def test_a_name_that_no_tool_has_does_not_block_the_conversation(name: str) -> None:
    """What a model made up stays in the history; a server would refuse every later request with it."""
    (sent,) = wired(asked(ToolCall(id="a", name=name)))

    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", sent["tool_calls"][0]["function"]["name"])


def test_calls_without_text_have_null_content() -> None:
    """An empty text beside calls is sent as null, as the format has it."""
    (sent,) = wired(asked(ToolCall(id="a", name="f")))

    assert sent["content"] is None


def test_a_reply_is_sent_back_as_it_came() -> None:
    """What came from the server goes back to it unchanged with the next request."""
    reply = from_wire(chunks_of(calls(("read", {"path": "a b"}), ("ls", {}), text="Two things.")))

    (sent,) = wired(reply.message)

    assert sent["content"] == "Two things."
    assert [call["id"] for call in sent["tool_calls"]] == ["call_0x", "call_1x"]
    assert [call["function"] for call in sent["tool_calls"]] == [
        {"name": "read", "arguments": '{"path": "a b"}'},
        {"name": "ls", "arguments": "{}"},
    ]


# ------------------------------------------------------------------------------------------------ from the server


def test_pieces_of_text_make_one_block() -> None:
    """The text of a reply is one block, however it came."""
    reply = from_wire(chunks_of(says("The summit ", "is at ", "4,478 m.")))

    assert reply.message == Message(role="assistant", content="The summit is at 4,478 m.")
    assert (reply.stop_reason, reply.model) == ("end_turn", "test-model-2025")


def test_usage_is_read() -> None:
    """Tokens of each kind are counted, and the request, whose price is not known."""
    reply = from_wire(chunks_of(says("Hi")))

    assert reply.usage == Usage(
        input_tokens=12, output_tokens=5, cache_read_tokens=8, reasoning_tokens=2, requests=1, unpriced_requests=1
    )


@pytest.mark.parametrize("usage", [None, {}, "many", {"prompt_tokens": None, "completion_tokens": -1}])
def test_a_reply_without_usage_counts_one_request(usage: Any) -> None:
    """A server that counts nothing, or counts wrongly, gives no tokens and no error."""
    reply = from_wire([chunk({"content": "Hi"}, finish_reason="stop", usage=usage)])

    assert reply.usage == Usage(requests=1, unpriced_requests=1)


def test_the_last_usage_counts() -> None:
    """A server that counts in each chunk is not summed up."""
    reply = from_wire([chunk({"content": "Hi"}, usage={"prompt_tokens": 5}), usage_chunk({"prompt_tokens": 6})])

    assert reply.usage.input_tokens == 6


@pytest.mark.parametrize(
    "finish_reason, stop_reason",
    [
        ("stop", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("content_filter", "refusal"),
        ("eos", "eos"),
    ],
)
def test_each_finish_reason_has_its_stop_reason(finish_reason: str, stop_reason: str) -> None:
    """The reasons have the library's names; an unknown one keeps its own."""
    assert from_wire([chunk({"content": "x"}, finish_reason=finish_reason)]).stop_reason == stop_reason


def test_calls_that_end_with_stop_are_calls() -> None:
    """Ollama has said "stop" after tool calls."""
    assert from_wire([piece("{}", name="f", index=0), chunk(finish_reason="stop")]).stop_reason == "tool_use"


def test_a_refusal_is_text_and_reason() -> None:
    """What a model says as a refusal is kept, and the reason says what it is."""
    reply = from_wire([chunk({"refusal": "I will not."}), chunk(finish_reason="stop")])

    assert (reply.message.text, reply.stop_reason) == ("I will not.", "refusal")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_thinking_is_shown_and_kept_beside_the_answer(name: str) -> None:
    """Thinking is emitted as its own kind of delta, and kept under the server's name for it; it is no text."""
    shown: list[Delta] = []

    reply = from_wire(
        [chunk({name: "Hm."}), chunk({name: " Yes."}), chunk({"content": "42"})], emit=shown.append, provider="p"
    )

    assert shown == [
        Delta(kind="thinking", text="Hm."),
        Delta(kind="thinking", text=" Yes."),
        Delta(kind="text", text="42"),
    ]
    assert reply.message.text == "42"
    assert reply.message.content[0] == RawBlock(provider="p", data={name: "Hm. Yes."})


def test_thinking_that_comes_under_both_names_is_kept_once() -> None:
    """Servers that change the name send both for a while."""
    reply = from_wire([chunk({"reasoning": "Hm.", "reasoning_content": "Hm.", "content": "42"})], provider="p")

    assert reply.message.content[0] == RawBlock(provider="p", data={"reasoning_content": "Hm."})


def test_pieces_of_reasoning_details_are_put_together() -> None:
    """OpenRouter's blocks come in pieces: text is joined, and another index is another block."""

    def detail(**fields: Any) -> dict[str, Any]:
        return chunk({"reasoning": "x", "reasoning_details": [{"type": "reasoning.text", "format": "f", **fields}]})

    reply = from_wire(
        [
            detail(index=0, text="Hm", signature=None),
            detail(index=0, text=", yes."),
            detail(index=0, signature="abc"),
            detail(index=1, text="So."),
            detail(index=1, text=float("nan")),
            chunk({"content": "42"}),
        ],
        provider="p",
    )

    first = {"type": "reasoning.text", "format": "f", "index": 0, "text": "Hm, yes.", "signature": "abc"}
    second = {"type": "reasoning.text", "format": "f", "index": 1, "text": "So."}
    assert reply.message.content[0] == RawBlock(provider="p", data={"reasoning_details": [first, second]})


def test_thinking_goes_back_to_who_thought_it() -> None:
    """It is a field of the message that it led to; to another provider the message goes without it."""
    message = from_wire([chunk({"reasoning": "Hm."}), *chunks_of(calls(("ls", {})))], provider="p").message

    def sent_to(provider: str) -> dict[str, Any]:
        wire: dict[str, Any] = to_wire(Request(messages=(message,)), provider=provider)["messages"][0]
        return wire

    assert sent_to("p")["reasoning"] == "Hm."
    assert sent_to("q") == {name: value for name, value in sent_to("p").items() if name != "reasoning"}


def test_arguments_are_shown_as_they_come() -> None:
    """Each piece of a call's arguments is a delta that names the tool and the call's place in the reply."""
    shown: list[Delta] = []

    from_wire(chunks_of(calls(("read", {"path": "a"}), ("ls", {}))), emit=shown.append)

    assert {delta.kind for delta in shown} == {"tool_args"}
    assert [(delta.call_index, delta.tool_name) for delta in shown] == [(0, "read")] * 3 + [(1, "ls")] * 3
    assert "".join(delta.text for delta in shown if delta.call_index == 0) == '{"path": "a"}'


@pytest.mark.parametrize(
    "usage, counted",
    [
        ({"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 15}, Usage(input_tokens=9, output_tokens=6)),
        ({"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}, Usage(input_tokens=9, cache_read_tokens=4)),
        (
            {"prompt_tokens": 9, "prompt_tokens_details": {"cache_write_tokens": 5}},
            Usage(input_tokens=9, cache_write_tokens=5),
        ),
    ],
)
def test_usage_in_other_words_is_read(usage: dict[str, Any], counted: Usage) -> None:
    """Reasoning that only the total counts is output, and caches have several names."""
    reply = from_wire([chunk({"content": "x"}, finish_reason="stop"), usage_chunk(usage)])

    assert reply.usage == counted + Usage(requests=1, unpriced_requests=1)


@pytest.mark.parametrize(
    "noise",
    [{}, {"choices": None}, {"choices": []}, {"choices": ["?"]}, {"choices": [{}]}, {"choices": [{"delta": None}]}],
)
def test_empty_chunks_are_passed_over(noise: Any) -> None:
    """A chunk that says nothing changes nothing."""
    assert from_wire([noise, chunk({"content": "Hi"}), noise]).message.text == "Hi"


def test_a_repeated_role_is_passed_over() -> None:
    """A role in each chunk is not text."""
    chunks = [chunk({"role": "assistant", "content": text}) for text in ("a", "b")]

    assert from_wire(chunks).message.text == "ab"


def test_a_pair_of_surrogates_split_over_two_chunks_is_one_character() -> None:
    """Half a character in each of two chunks is a whole one; half of one alone is replaced."""
    reply = from_wire([chunk({"content": "\ud83c"}), chunk({"content": "\udfd4 \ud800"})])

    assert reply.message.text == "\U0001f3d4 \ufffd"


# ------------------------------------------------------------------------------------------------ tool calls


def read_calls(*chunks: dict[str, Any]) -> list[ToolCall]:
    """Return the calls that the chunks make."""
    return list(from_wire(chunks).message.tool_calls)


@pytest.mark.parametrize("arguments", ["", "  ", None, "{}", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    """A tool without parameters may be called with nothing at all."""
    (call,) = read_calls(piece(arguments, name="f", index=0, id="a"))

    assert (call.args, call.invalid_json) == ({}, None)


def test_arguments_given_as_an_object_are_taken() -> None:
    """Ollama and others have sent the object itself instead of its text."""
    assert read_calls(piece({"x": [1]}, name="f", index=0, id="a")) == [ToolCall(id="a", name="f", args={"x": [1]})]


@pytest.mark.parametrize(
    "raw",
    ['{"x": ', "[1]", '"x"', "null", '{"x": NaN}', '{"x": 1e999}', "x" * 50, '{"a":' * 300 + "1" + "}" * 300],
)
def test_arguments_that_are_no_json_object_are_kept_as_they_are(raw: str) -> None:
    """What cannot be arguments is kept, so that the model can be told."""
    (call,) = read_calls(piece(raw, name="f", index=0, id="a"))

    assert (call.args, call.invalid_json) == ({}, raw)


def test_missing_ids_are_made_up() -> None:
    """A call without an id gets one, different from its neighbour's."""
    made = read_calls(piece("{}", name="f", index=0), piece("{}", name="g", index=1, id=""))

    assert [call.id for call in made] == ["call_1", "call_2"]


def test_one_id_for_two_calls_makes_two_calls() -> None:
    """A repeated id at another index is another call; the State tells them apart."""
    made = read_calls(piece('{"x": 1}', name="f", index=0, id="a"), piece('{"x": 2}', name="f", index=1, id="a"))

    assert [(call.id, call.args) for call in made] == [("a", {"x": 1}), ("a", {"x": 2})]


@pytest.mark.parametrize("ids", [("a", "b"), ("a", "a"), ("", "")])
def test_one_index_for_two_calls_makes_two_calls(ids: tuple[str, str]) -> None:
    """Some servers give each call the index 0."""
    made = read_calls(piece('{"x": 1}', name="f", index=0, id=ids[0]), piece('{"x": 2}', name="f", index=0, id=ids[1]))

    assert [call.args for call in made] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize("repeated", [{}, {"id": "a"}, {"id": "a", "name": "f"}])
@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_pieces_of_one_call_are_joined(repeated: dict[str, str], index: dict[str, int]) -> None:
    """Id and name may come once or with each piece, and the index may be missing."""
    (call,) = read_calls(
        piece("", name="f", id="a", **index),
        *(piece(part, **repeated, **index) for part in ('{"path"', ': "x', '.md"}')),
    )

    assert call == ToolCall(id="a", name="f", args={"path": "x.md"})


def test_calls_without_index_are_told_apart() -> None:
    """Two calls in one piece each, without index and id, are two calls."""
    made = read_calls(piece('{"x": 1}', name="f"), piece('{"x": 2}', name="f"), piece("{}", name="g"))

    assert [(call.name, call.args) for call in made] == [("f", {"x": 1}), ("f", {"x": 2}), ("g", {})]


# ------------------------------------------------------------------------------------------------ when it is whole


def test_a_reply_is_complete_with_its_reason() -> None:
    """A finish reason completes a reply, also one that says nothing."""
    reader = ReplyReader()
    assert not reader.complete

    reader.read(chunk(finish_reason="stop"))

    assert reader.complete


def test_the_end_mark_completes_a_reply_that_says_something() -> None:
    """Without a finish reason, `[DONE]` is enough if something was said."""
    silent, talking = ReplyReader(), ReplyReader()
    talking.read(chunk({"content": "x"}))

    silent.done()
    talking.done()

    assert (silent.complete, talking.complete) == (False, True)


def test_a_reply_that_ends_in_error_is_not_complete() -> None:
    """OpenRouter's finish reason "error" is no end of a reply."""
    reader = ReplyReader()

    reader.read(chunk({"content": "x"}, finish_reason="error"))

    assert not reader.complete


@pytest.mark.parametrize(
    "names, whole",
    [(["loo", "k"], "look"), (["look", "look"], "look"), (["look", ""], "look")],
)
def test_a_name_may_come_in_pieces(names: list[str], whole: str) -> None:
    """Its pieces are joined; one that is repeated is not."""
    pieces = [piece("", name=names[0], index=0, id="a"), piece("{}", name=names[1], index=0)]

    (made,) = from_wire(pieces).message.tool_calls

    assert (made.name, made.args) == (whole, {})
