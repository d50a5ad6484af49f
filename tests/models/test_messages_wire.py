"""Requests in the Messages format, and what is mended on the way, without a server."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from alpineagents.messages import Image, Message, RawBlock, Request, TextBlock, ToolCall, ToolResultBlock, ToolSpec
from alpineagents.models.messages_wire import to_wire
from tests.models.judge import check_request

GIF = Image.from_bytes(b"GIF89a", "image/gif")
GIF_PART = {"type": "image", "source": {"type": "base64", "media_type": "image/gif", "data": "R0lGODlh"}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "cmVk"}


def wired(*messages: Message, **options: Any) -> list[Any]:
    """Return the messages of a request as they are sent, which are always a request that the judge takes."""
    sent: list[Any] = to_wire(Request(messages=messages), **options)["messages"]
    if sent:
        check_request({"model": "claude-test", "max_tokens": 10, "stream": True, "messages": sent})
    return sent


def raw(data: Any, provider: str = "anthropic") -> RawBlock:
    """Return a block of one provider."""
    return RawBlock(provider=provider, data=data)


def said(*blocks: Any) -> Message:
    """Return an assistant's message; a string is a text."""
    return Message(role="assistant", content=tuple(_block(block) for block in blocks))


def heard(*blocks: Any) -> Message:
    """Return a user's message; a string is a text."""
    return Message(role="user", content=tuple(_block(block) for block in blocks))


def _block(block: Any) -> Any:
    return TextBlock(text=block) if isinstance(block, str) else block


def call(id: str, **args: Any) -> ToolCall:
    """Return a call."""
    return ToolCall(id=id, name="f", args=args)


def result(call_id: str, *content: Any, outcome: Any = "ok") -> ToolResultBlock:
    """Return a result; a string is a text."""
    return ToolResultBlock(call_id=call_id, content=tuple(_block(block) for block in content), outcome=outcome)


def text(words: str) -> dict[str, Any]:
    """Return a text as it is sent."""
    return {"type": "text", "text": words}


def use(id: str, **args: Any) -> dict[str, Any]:
    """Return a call as it is sent."""
    return {"type": "tool_use", "id": id, "name": "f", "input": args}


def got(id: str, words: str) -> dict[str, Any]:
    """Return a result as it is sent."""
    return {"type": "tool_result", "tool_use_id": id, "content": [text(words)]}


HI = Message.user("Hi")
HI_SENT = {"role": "user", "content": [text("Hi")]}

# ------------------------------------------------------------------------------------------------ what is sent


def test_the_system_prompt_and_tools_have_fields_of_their_own() -> None:
    """They stand beside the messages; what is not there has no field."""
    tool = ToolSpec(name="ls", description="List files.", parameters={"properties": {}})

    body = to_wire(Request(system="Be brief.", messages=(HI,), tools=(tool,)))

    assert body == {
        "tools": [{"name": "ls", "description": "List files.", "input_schema": {"type": "object", "properties": {}}}],
        "system": [text("Be brief.")],
        "messages": [HI_SENT],
    }
    assert to_wire(Request(system=" ", messages=(HI,))) == {"messages": [HI_SENT]}


def test_images_are_sent_in_messages_and_results() -> None:
    """Both hold images, as base64 with their media type."""
    sent = wired(Message.user("What is it?", GIF), said(call("a")), heard(result("a", GIF, "a picture")))

    assert sent[0]["content"] == [GIF_PART, text("What is it?")]
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "a", "content": [GIF_PART, text("a picture")]}]


def test_an_image_that_the_api_cannot_read_is_named() -> None:
    """A type that would have the conversation refused becomes a text that says so; a known misspelling is mended."""
    svg, jpg = Image.from_bytes(b"<svg/>", "image/svg+xml"), Image.from_bytes(b"x", "image/jpg")

    ((first, second),) = (message["content"] for message in wired(heard(svg, jpg)))

    assert "image/svg+xml" in first["text"]
    assert second["source"]["media_type"] == "image/jpeg"


@pytest.mark.parametrize("outcome", ["error", "input_error", "denied", "cancelled", "interrupted", "unknown"])
def test_a_failed_result_is_an_error(outcome: str) -> None:
    """Every outcome but ok is marked; one without words says at least what it was, since an empty error is refused."""
    sent = wired(
        HI, said(call("a"), call("b")), heard(result("a", "no", outcome=outcome), result("b", outcome=outcome))
    )

    first, second = sent[2]["content"]
    assert first == {**got("a", "no"), "is_error": True}
    assert second == {**got("b", f"[{outcome}]"), "is_error": True}


def test_an_empty_result_has_no_content() -> None:
    """A tool that gave nothing, or blanks, still has its result."""
    sent = wired(HI, said(call("a"), call("b")), heard(result("a"), result("b", " \n")))

    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": id} for id in ("a", "b")]


def test_arguments_that_were_no_json_are_sent_as_an_object() -> None:
    """The model sees what it wrote, in a form that the API takes."""
    bad = ToolCall(id="a", name="f", invalid_json='{"x": ')

    assert wired(HI, said(bad), heard(result("a")))[1]["content"] == [use("a", invalid_json='{"x": ')]


# ------------------------------------------------------------------------------------------------ thinking


def test_thinking_goes_back_unchanged_and_in_place() -> None:
    """Blocks of the provider's own stand where they stood, as they were."""
    sent = wired(HI, said(raw(THOUGHT), raw(REDACTED), "I look.", call("a")), heard(result("a", "x")))

    assert sent[1]["content"] == [THOUGHT, REDACTED, text("I look."), use("a")]


def test_blocks_of_another_provider_are_left_out() -> None:
    """What another model wrote for itself alone is not sent, and a message of nothing else is gone with it."""
    sent = wired(HI, said(raw({"type": "reasoning"}, "openai"), "Yes."), HI, said(raw(THOUGHT, "other")), HI)

    assert sent == [
        HI_SENT,
        {"role": "assistant", "content": [text("Yes.")]},
        {"role": "user", "content": [text("Hi")] * 2},
    ]


@pytest.mark.parametrize("data", [None, "x", [THOUGHT], {}, {"type": 7}])
def test_a_raw_block_of_no_shape_is_left_out(data: Any) -> None:
    """What is no block of the format is not sent."""
    assert wired(HI, said(raw(data), "Yes."))[1]["content"] == [text("Yes.")]


def test_thinking_that_was_cut_off_is_left_out() -> None:
    """Without its signature, or at the end of a message, it is refused."""
    unsigned = {"type": "thinking", "thinking": "Hm"}

    sent = wired(
        HI, said(raw(unsigned), raw({**unsigned, "signature": ""}), "So", raw(THOUGHT)), HI, said(raw(THOUGHT)), HI
    )

    assert sent[1]["content"] == [text("So")]
    assert len(sent) == 3


def test_a_call_without_result_is_left_out_with_its_thinking() -> None:
    """The call, and the thinking of its message, go together; words and answered calls stay."""
    sent = wired(HI, said(raw(THOUGHT), "I look.", call("a"), call("b")), heard(result("b", "x")))

    assert sent[1:] == [
        {"role": "assistant", "content": [text("I look."), use("b")]},
        {"role": "user", "content": [got("b", "x")]},
    ]


def test_a_result_without_call_is_left_out() -> None:
    """A view that lost the call loses its result, and thinking elsewhere stays."""
    sent = wired(
        HI, said(raw(THOUGHT), call("a")), heard(result("a", "x"), result("gone", "y")), heard(result("a", "z"))
    )

    assert sent[1]["content"] == [THOUGHT, use("a")]
    assert sent[2]["content"] == [got("a", "x")]


def test_a_tool_of_the_api_that_never_ended_is_left_out() -> None:
    """Except where it may still run: at the end, and while calls beside it are answered."""
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}

    ended = wired(HI, said(raw(server), raw(found), "Yes."), HI)
    broken = wired(HI, said(raw(server), "So"), HI)
    running = wired(HI, said(raw(server), call("a")), heard(result("a", "x")))
    later = wired(HI, said(raw(server), call("a")), heard(result("a", "x")), said(raw(found), "Yes."), HI)

    assert ended[1]["content"] == [server, found, text("Yes.")]
    assert broken[1]["content"] == [text("So")]
    assert running[1]["content"] == [server, use("a")]
    assert later[1]["content"] == [server, use("a")]


# ------------------------------------------------------------------------------------------------ pairing


def test_results_come_first_and_right_after_their_calls() -> None:
    """Words that came in between, also as messages of their own, stand behind the results, which are in order."""
    sent = wired(
        HI,
        said(call("a"), call("b")),
        Message.notice("A file changed."),
        heard("and?", result("b", "two"), result("a", "one")),
    )

    assert sent[2]["content"] == [got("a", "one"), got("b", "two"), text("A file changed."), text("and?")]


def test_an_id_that_is_repeated_in_later_turns_is_told_apart() -> None:
    """A provider that counts its calls from 1 in each turn: each result stays with its call, under an id of its own."""
    sent = wired(
        HI,
        said(call("a", x=1)),
        heard(result("a", "one")),
        said(call("a", x=2)),
        heard(result("a", "two")),
        said("Ok."),
        HI,
    )

    assert [sent[1]["content"], sent[2]["content"]] == [[use("a", x=1)], [got("a", "one")]]
    assert [sent[3]["content"], sent[4]["content"]] == [[use("a_2", x=2)], [got("a_2", "two")]]


def test_an_id_that_is_repeated_in_one_turn_is_told_apart() -> None:
    """The first result belongs to the first call; a call beyond the results is left out."""
    sent = wired(
        HI, said(call("a", x=1), call("a", x=2), call("a", x=3)), heard(result("a", "one"), result("a", "two"))
    )

    assert sent[1]["content"] == [use("a", x=1), use("a_2", x=2)]
    assert sent[2]["content"] == [got("a", "one"), got("a_2", "two")]


def test_ids_and_names_of_other_providers_are_spelled_as_the_api_takes_them() -> None:
    """Letters that it refuses become `_`, and two ids that come out the same stay two."""
    calls = [ToolCall(id=id, name="fs.read file", args={}) for id in ("call|1", "call:1", "x" * 70)]

    sent = wired(HI, said(*calls), heard(*(result(each.id, each.id) for each in calls)))

    assert [block["id"] for block in sent[1]["content"]] == ["call_1", "call_1_2", "x" * 64]
    assert [block["content"][0]["text"] for block in sent[2]["content"]] == ["call|1", "call:1", "x" * 70]
    assert sent[1]["content"][0]["name"] == "fs_read_file"


# ------------------------------------------------------------------------------------------------ order and blanks


def test_messages_of_one_role_are_one() -> None:
    """Two in a row are put together, with their blocks in order."""
    sent = wired(HI, Message.user("there"), said("a"), said("b"), HI)

    assert [message["content"] for message in sent] == [
        [text("Hi"), text("there")],
        [text("a"), text("b")],
        [text("Hi")],
    ]


def test_a_conversation_begins_with_the_user() -> None:
    """Where the assistant speaks first, as after a compaction, a word of the user's is put before it."""
    sent = wired(said("I begin."), HI)

    assert [message["role"] for message in sent] == ["user", "assistant", "user"]


def test_empty_texts_are_left_out() -> None:
    """Texts of blanks are refused; a message of nothing else is left out, and its neighbours come together."""
    sent = wired(heard("", "Hi", " \n"), said("\t"), heard("there"), said("", "Yes."))

    assert sent == [
        {"role": "user", "content": [text("Hi"), text("there")]},
        {"role": "assistant", "content": [text("Yes.")]},
    ]


def test_blanks_at_the_end_are_kept_but_in_words_to_go_on_from() -> None:
    """Only the last words of the assistant must not end in blanks."""
    sent = wired(heard("Hi \n"), said("So "), heard("Go on \n"), said("And so \n"))

    assert [message["content"][0]["text"] for message in sent] == ["Hi \n", "So ", "Go on \n", "And so"]


def test_a_model_that_cannot_go_on_from_its_words_is_asked_to() -> None:
    """Newer models refuse a conversation that ends with the assistant."""
    sent = wired(HI, said("So "), takes_prefill=False)

    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert sent[1]["content"] == [text("So ")]


def test_mending_a_longer_conversation_gives_the_same_beginning() -> None:
    """What was sent once stays as it was when more follows: caches and the signatures of thinking rest on that."""
    whole = [
        heard("Hi "),
        said(raw(THOUGHT), call("a"), call("a")),
        heard("and?", result("a", "one"), result("a", outcome="denied")),
        said(raw(THOUGHT), call("a")),
        heard(result("a", GIF)),
        said("Done. "),
        HI,
    ]

    sent = [wired(*whole[: count + 1]) for count, message in enumerate(whole) if message.role == "user"]

    for shorter, longer in pairwise(sent):
        assert longer[: len(shorter)] == shorter


# ------------------------------------------------------------------------------------------------ caching


def marked(body: dict[str, Any]) -> list[str]:
    """Return where the marks are."""
    blocks = [("tools", body.get("tools", [])), ("system", body.get("system", []))]
    blocks += [(f"{place}", message["content"]) for place, message in enumerate(body["messages"])]
    return [f"{where}.{n}" for where, found in blocks for n, block in enumerate(found) if "cache_control" in block]


def test_what_stays_the_same_is_marked_for_the_cache() -> None:
    """Tools, system prompt, the end of the messages, and the end of the request before: four marks, which is all."""
    tools = tuple(ToolSpec(name=name, description="", parameters={}) for name in "ab")
    messages = (HI, said("Yes."), HI, said(call("a")), heard("and?", result("a", "x")))

    body = to_wire(Request(system="Be brief.", messages=messages, tools=tools), cache={"type": "ephemeral"})

    assert marked(body) == ["tools.1", "system.0", "2.0", "4.1"]
    assert body["messages"][4]["content"][1] == {**text("and?"), "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    "marks, places",
    [(3, ["system.0", "2.0", "4.1"]), (2, ["system.0", "4.1"]), (1, ["4.1"]), (0, []), (-1, [])],
)
def test_where_marks_are_few_the_end_of_the_messages_keeps_its(marks: int, places: list[str]) -> None:
    """Marks of the caller's own leave fewer; the API refuses a request with more than four."""
    tools = (ToolSpec(name="a", description="", parameters={}),)
    messages = (HI, said("Yes."), HI, said(call("a")), heard("and?", result("a", "x")))
    request = Request(system="Be brief.", messages=messages, tools=tools)

    assert marked(to_wire(request, cache={"type": "ephemeral"}, marks=marks)) == places


def test_the_mark_of_one_request_is_found_by_the_next() -> None:
    """The end of a request is marked again in the next one, however much came in between."""
    first = to_wire(Request(messages=(HI,)), cache={"type": "ephemeral"})
    many = heard(*(result(f"c{n}", "x") for n in range(30)))
    then = to_wire(Request(messages=(HI, said(*(call(f"c{n}") for n in range(30))), many)), cache={"type": "ephemeral"})

    assert marked(first) == ["0.0"]
    assert marked(then) == ["0.0", "2.29"]
