"""Anthropic's own client as the judge: of the test server, of what is read, and of what is sent."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import APIStatusError, AsyncAnthropic
from pydantic import ValidationError

from alpineagents.messages import (
    Image,
    Message,
    RawBlock,
    Reply,
    Request,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models import Anthropic
from alpineagents.models.messages_reader import MessageReader
from tests.models.judge import as_client_says, check_count, check_request
from tests.servers.anthropic_server import (
    Answer,
    AnthropicServer,
    calls,
    counts,
    events_of,
    overloaded,
    redacted,
    replies,
    says,
    status,
    text,
    thinking,
    use,
)

PNG = Image.from_bytes(b"\x89PNG", "image/png")
TOOL = ToolSpec(
    name="look", description="Look.", parameters={"type": "object", "properties": {"at": {"type": "string"}}}
)

ANSWERS = {
    "text": says("The ", "summit. ⛰"),
    "calls": calls(("look", {"at": "a"}), ("look", {"at": "b"}), text="I look."),
    "thinking": replies(thinking("Hm", "m."), redacted(), text("Yes.")),
    "thinking and calls": replies(thinking("Hm.", signature="a+b/c=="), use("look", {"at": "a"})),
    "a tool of the API": replies(
        use("web_search", {"query": "summit"}, id="srvtoolu_1", kind="server_tool_use"),
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
        text("4,478 m."),
    ),
    "a refusal": replies(text("I"), stop_reason="refusal", stop_details={"type": "refusal", "category": "bio"}),
    "a pause": replies(text("So far"), stop_reason="pause_turn"),
    "a full context": says("So", stop_reason="model_context_window_exceeded"),
}


def client_of(server: AnthropicServer) -> AsyncAnthropic:
    """Return Anthropic's client, asking the server."""
    return AsyncAnthropic(api_key="key", base_url=server.base_url.removesuffix("/v1"), max_retries=0)


def read(answer: Answer) -> Reply:
    """Return what this library makes of an answer."""
    reader = MessageReader()
    for event in events_of(answer):
        reader.read(event)
    assert reader.complete
    return reader.reply()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_client_reads_the_same_message(answer: Answer) -> None:
    """The test server is understood by Anthropic's client, which makes the same message of its events."""
    with AnthropicServer(answer) as server:
        async with client_of(server) as client:
            async with client.messages.stream(
                model="claude-test", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
            ) as stream:
                message = await stream.get_final_message()

    reply = read(answer)

    assert reply.message == as_client_says(message)
    assert reply.model == message.model
    assert reply.stop_reason == message.stop_reason
    usage = message.usage
    assert reply.usage.output_tokens == usage.output_tokens
    assert usage.cache_read_input_tokens == reply.usage.cache_read_tokens == 30
    assert usage.cache_creation_input_tokens == reply.usage.cache_write_tokens == 20
    assert reply.usage.input_tokens == usage.input_tokens + 50
    assert usage.output_tokens_details is not None
    assert reply.usage.reasoning_tokens == usage.output_tokens_details.thinking_tokens


@pytest.mark.parametrize(
    "answer", [overloaded(), status(401, "authentication_error"), status(413, "request_too_large")]
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_client_reads_the_errors(answer: Answer) -> None:
    """The test server refuses as the API does."""
    with AnthropicServer(answer) as server:
        async with client_of(server) as client:
            with pytest.raises(APIStatusError) as refused:
                await client.messages.create(
                    model="claude-test", max_tokens=100, messages=[{"role": "user", "content": "Hi"}], stream=True
                )

    assert refused.value.status_code == answer.status
    assert refused.value.request_id == "req_7"
    assert refused.value.type is not None


def result(call_id: str, *content: TextBlock | Image, outcome: Any = "ok") -> ToolResultBlock:
    """Return a result."""
    return ToolResultBlock(call_id=call_id, content=content, outcome=outcome)


def conversation() -> tuple[Message, ...]:
    """Return a conversation with all that there can be, and much that the API refuses as it is."""
    thought = read(ANSWERS["thinking and calls"]).message
    searched = read(ANSWERS["a tool of the API"]).message
    return (
        Message(role="assistant", content="I begin.  "),
        Message.user("What is it?", PNG),
        Message.notice("A file changed."),
        thought,
        Message(role="user", content=(TextBlock(text="and?"), result("toolu_1x", PNG, TextBlock(text="")))),
        searched,
        Message(role="user", content=(TextBlock(text=" "),)),
        Message(
            role="assistant",
            content=(
                TextBlock(text="\n"),
                RawBlock(provider="openai", data={"type": "reasoning", "id": "rs_1"}),
                ToolCall(id="call|1", name="look at", invalid_json='{"a": '),
                ToolCall(id="call|1", name="look", args={"at": "b"}),
            ),
        ),
        Message(role="user", content=(result("call|1", outcome="denied"), result("call|1", outcome="ok"))),
        Message(role="assistant", content=(RawBlock(provider="openai", data={"type": "reasoning"}),)),
    )


@pytest.mark.parametrize("options", [{}, {"thinking": "adaptive", "cache": "1h"}, {"thinking": 2048}, {"cache": None}])
@pytest.mark.parametrize("count", range(1, 11))
async def test_what_is_sent_is_a_request(count: int, options: dict[str, Any]) -> None:
    """Any beginning of a conversation becomes a body that fits the types of Anthropic's client, and its other rules."""
    with AnthropicServer(says("Yes."), counts(7)) as server:
        model = Anthropic("claude-sonnet-4-6", base_url=server.base_url, api_key="key", **options)
        request = Request(system="Be brief.", messages=conversation()[:count], tools=(TOOL,))

        await model.respond(request)
        await model.count_tokens(request)
        await model.aclose()

    check_request(server.bodies[0])
    check_count(server.bodies[1])


async def test_the_controls_of_thinking_are_a_beta_request() -> None:
    """The field that lets old thinking go is one of the beta types."""
    with AnthropicServer(says("Yes.")) as server:
        model = Anthropic("claude-sonnet-5-5", base_url=server.base_url, api_key="key")
        await model.respond(Request(messages=conversation()[1:5]))
        await model.aclose()

    assert "block_binding" in server.bodies[0]["thinking"]
    check_request(server.bodies[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_tokens": "100"},
        {"unheard": 1},
        {"messages": [{"role": "user", "content": [{"type": "text", "txt": "Hi"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "extra": 1}]}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}]},
        {"messages": [{"role": "assistant", "content": [{"type": "text", "text": "Hi"}]}]},
        {"thinking": {"type": "enabled"}},
        {"tools": [{"name": "look"}]},
    ],
)
def test_the_judge_refuses_what_is_wrong(wrong: dict[str, Any]) -> None:
    """So that its yes means something."""
    right: dict[str, Any] = {
        "model": "claude-test",
        "max_tokens": 100,
        "stream": True,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    check_request(right)

    with pytest.raises((AssertionError, ValidationError)):
        check_request({**right, **wrong})
