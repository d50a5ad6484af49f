"""Replies in the Messages format, without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alpineagents.messages import RawBlock, Reply, TextBlock, ToolCall
from alpineagents.models.base import Delta
from alpineagents.models.messages_reader import MessageReader
from alpineagents.usage import Usage
from tests.servers.anthropic_server import (
    PING,
    STOP,
    Answer,
    begins,
    calls,
    closed,
    delta,
    end,
    event,
    events_of,
    opened,
    redacted,
    replies,
    says,
    start,
    stream,
    text,
    thinking,
    use,
)


def read(answer: Answer, shown: list[Delta] | None = None) -> Reply:
    """Return the reply of an answer."""
    reader = MessageReader(None if shown is None else shown.append)
    for data in events_of(answer):
        reader.read(data)
    assert reader.complete
    return reader.reply(model="asked")


def test_pieces_of_text_make_one_block() -> None:
    """The text of a block is one, however it came, and is shown as it comes."""
    shown: list[Delta] = []

    reply = read(says("The summit ", "is at ", "4,478 m."), shown)

    assert reply.message.content == (TextBlock(text="The summit is at 4,478 m."),)
    assert [delta.text for delta in shown] == ["The summit ", "is at ", "4,478 m."]
    assert (reply.stop_reason, reply.model) == ("end_turn", "claude-test-20260101")


def test_thinking_is_shown_and_kept_as_it_came() -> None:
    """Thinking with its signature, and thinking that nobody can read, stay in their places."""
    shown: list[Delta] = []

    reply = read(replies(thinking("Hm", "m.", signature="a+/="), redacted("x/y"), text("Yes.")), shown)

    assert reply.message.content == (
        RawBlock(provider="anthropic", data={"type": "thinking", "thinking": "Hmm.", "signature": "a+/="}),
        RawBlock(provider="anthropic", data={"type": "redacted_thinking", "data": "x/y"}),
        TextBlock(text="Yes."),
    )
    assert shown == [Delta(kind="thinking", text="Hm"), Delta(kind="thinking", text="m."), Delta(text="Yes.")]


def test_thinking_that_is_not_shown_is_kept() -> None:
    """A model that hides its thinking sends the signature alone."""
    reply = read(replies(thinking(signature="sig"), text("Yes.")))

    assert reply.message.content[0] == RawBlock(
        provider="anthropic", data={"type": "thinking", "thinking": "", "signature": "sig"}
    )


def test_parallel_calls_come_with_their_arguments() -> None:
    """Calls are put together from their pieces, which are shown with the call that they belong to."""
    shown: list[Delta] = []

    reply = read(calls(("read", {"path": "a"}), ("ls", {})), shown)

    assert reply.message.tool_calls == (
        ToolCall(id="toolu_0x", name="read", args={"path": "a"}),
        ToolCall(id="toolu_1x", name="ls"),
    )
    assert reply.stop_reason == "tool_use"
    assert {delta.kind for delta in shown} == {"tool_args"}
    of_first = [delta.text for delta in shown if (delta.call_index, delta.tool_name) == (0, "read")]
    assert json.loads("".join(of_first)) == {"path": "a"}
    assert [delta.call_index for delta in shown] == [0, 0, 0, 1, 1, 1]


def test_calls_whose_parts_are_mixed_are_told_apart() -> None:
    """A part belongs to the block of its index."""
    reply = read(
        stream(
            start(),
            opened(0, {"type": "tool_use", "id": "a", "name": "f", "input": {}}),
            opened(1, {"type": "tool_use", "id": "b", "name": "g", "input": {}}),
            delta(1, "input_json_delta", partial_json='{"y": '),
            delta(0, "input_json_delta", partial_json='{"x": 1}'),
            delta(1, "input_json_delta", partial_json="2}"),
            end("tool_use"),
            STOP,
        )
    )

    assert [(call.id, call.args) for call in reply.message.tool_calls] == [("a", {"x": 1}), ("b", {"y": 2})]


@pytest.mark.parametrize("written", ["", "  ", "{}"])
def test_no_arguments_are_an_empty_object(written: str) -> None:
    """A tool without parameters is called with an empty text."""
    (call,) = read(replies(use("f", written))).message.tool_calls

    assert (call.args, call.invalid_json) == ({}, None)


@pytest.mark.parametrize("raw", ['{"x": ', "[1]", "null", '{"x": NaN}', "x" * 50])
def test_arguments_that_are_no_json_object_are_kept_as_they_are(raw: str) -> None:
    """What cannot be arguments is kept, so that the model can be told."""
    (call,) = read(replies(use("f", raw))).message.tool_calls

    assert (call.args, call.invalid_json) == ({}, raw)


def test_arguments_that_come_whole_are_taken() -> None:
    """Other servers of the format send them with the start of the block."""
    reply = read(
        stream(start(), opened(0, {"type": "tool_use", "id": "", "name": "f", "input": {"x": 1}}), end(), STOP)
    )

    assert reply.message.tool_calls == (ToolCall(id="call_1", name="f", args={"x": 1}),)


def test_an_id_that_is_given_twice_makes_two_calls() -> None:
    """A repeated id is another call; the State tells them apart."""
    reply = read(replies(use("f", {"x": 1}, id="a"), use("f", {"x": 2}, id="a")))

    assert [(call.id, call.args) for call in reply.message.tool_calls] == [("a", {"x": 1}), ("a", {"x": 2})]


def test_tools_of_the_api_are_kept_as_they_came() -> None:
    """Their calls and results are the provider's own blocks, with their arguments put together."""
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"encrypted_content": "x"}]}

    reply = read(replies(use("web_search", {"q": "summit"}, id="s", kind="server_tool_use"), found, text("4,478 m.")))

    assert reply.message.content[:2] == (
        RawBlock(
            provider="anthropic",
            data={"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "summit"}},
        ),
        RawBlock(provider="anthropic", data=found),
    )
    assert reply.stop_reason == "end_turn"


def test_what_goes_back_after_a_pause_is_what_came() -> None:
    """Also what the history does not keep, such as where a text is from."""
    reader = MessageReader()
    cited = {"type": "web_search_result_location", "url": "http://127.0.0.1/peak"}
    for data in events_of(
        stream(
            start(),
            opened(0, {"type": "text", "text": ""}),
            delta(0, "text_delta", text="4,478 m."),
            delta(0, "citations_delta", citation=cited),
            delta(0, "unheard_delta", unheard=1),
            end("pause_turn"),
            STOP,
        )
    ):
        reader.read(data)

    assert reader.wires() == [{"type": "text", "text": "4,478 m.", "citations": [cited]}]
    assert reader.reply().message.text == "4,478 m."


@pytest.mark.parametrize(
    "reason",
    ["end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded"],
)
def test_each_stop_reason_is_kept(reason: str) -> None:
    """The library's names are the API's, and what it has beyond them keeps its own."""
    assert read(says("x", stop_reason=reason)).stop_reason == reason


@pytest.mark.parametrize("answer, reason", [(calls(("f", {})), "tool_use"), (says("x"), "end_turn")])
def test_a_missing_stop_reason_is_told_by_what_came(answer: Answer, reason: str) -> None:
    """Servers that give none have ended all the same."""
    events = [data for data in events_of(answer) if data["type"] != "message_delta"]

    assert read(stream(*map(event, events))).stop_reason == reason


def test_a_refusal_without_words_says_why() -> None:
    """The API's explanation is the text, and is shown, where the model said nothing; else its own words stand."""
    why = {"type": "refusal", "category": "cyber", "explanation": "It may harm."}
    shown: list[Delta] = []

    silent = read(replies(stop_reason="refusal", stop_details=why), shown)
    talking = read(replies(text("I will not."), stop_reason="refusal", stop_details=why))

    assert (silent.message.text, silent.stop_reason, shown) == ("It may harm.", "refusal", [Delta(text="It may harm.")])
    assert talking.message.text == "I will not."


def test_usage_is_the_last_count_of_each_kind() -> None:
    """Counts are of the whole reply; cached tokens are part of the input; what is not repeated stays."""
    first = {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 1}
    last = {"output_tokens": 9, "input_tokens": 11, "cache_read_input_tokens": None, "output_tokens_details": None}

    reply = read(stream(start(first), end(usage=last), STOP))

    assert reply.usage == Usage(
        input_tokens=61,
        output_tokens=9,
        cache_read_tokens=30,
        cache_write_tokens=20,
        requests=1,
        unpriced_requests=1,
    )


@pytest.mark.parametrize("usage", [None, "many", {"input_tokens": -1, "output_tokens": True}])
def test_a_reply_without_usage_counts_one_request(usage: Any) -> None:
    """A server that counts nothing, or wrongly, gives no tokens and no error."""
    assert read(stream(start(usage), end(usage=usage), STOP)).usage == Usage(requests=1, unpriced_requests=1)


def test_what_is_not_known_is_passed_over() -> None:
    """Pings, new kinds of events, parts and blocks may come at any time."""
    reply = read(
        stream(
            PING,
            start(),
            event({"type": "unheard", "index": 0}),
            opened(0, {"type": "unheard_block", "x": 1}),
            delta(0, "unheard_delta", y=2),
            closed(0),
            PING,
            opened(5, {"type": "text", "text": "Hi"}),
            end(),
            STOP,
        )
    )

    assert reply.message.content == (
        RawBlock(provider="anthropic", data={"type": "unheard_block", "x": 1}),
        TextBlock(text="Hi"),
    )


def test_a_reply_is_complete_with_its_last_event_only() -> None:
    """Neither a reason to stop nor the last event without the first make a whole reply."""
    reader, headless = MessageReader(), MessageReader()
    for data in events_of(begins("So").then(closed(0), end())):
        reader.read(data)
    headless.read({"type": "message_stop"})

    assert (reader.complete, reader.ended) == (False, False)
    assert not headless.complete
    reader.read({"type": "message_stop"})
    assert (reader.complete, reader.ended) == (True, True)


def test_a_pair_of_surrogates_split_over_two_parts_is_one_character() -> None:
    """Half a character in each of two parts is a whole one; half of one alone is replaced."""
    reply = read(says("\ud83c", "\udfd4 \ud800"))

    assert reply.message.text == "\U0001f3d4 \ufffd"
