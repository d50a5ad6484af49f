"""OpenAIResponses: what it sends, and what it makes of what comes."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest

from alpineagents import Agent, ConfigError, MemoryStore, OpenAICompatible, OpenAIResponses, Price, Usage, tool
from alpineagents.errors import AuthError, ContextTooLongError, ModelError, ProviderError, RateLimitError
from alpineagents.messages import (
    Image,
    Message,
    OutputSpec,
    RawBlock,
    Reply,
    Request,
    TextBlock,
    ToolCall,
    ToolResultBlock,
    ToolSpec,
)
from alpineagents.models import Delta, Model
from alpineagents.models.responses_reply import ReplyReader
from alpineagents.models.responses_wire import to_wire
from tests.models.asking import HELLO, KEY
from tests.models.conftest import Serve
from tests.servers.openai_server import Answer, OpenAIServer, Step, says, status
from tests.servers.responses_answers import call, fails, refusal, responds, response, streams, text, thought

GIF = Image.from_bytes(b"GIF89a", "image/gif")
GIF_PART = {"type": "input_image", "detail": "auto", "image_url": "data:image/gif;base64,R0lGODlh"}


def model_at(server: OpenAIServer, name: str = "test", **options: Any) -> OpenAIResponses:
    """Return a model at a server; a request is not repeated unless the test says so."""
    return OpenAIResponses(name, **{"base_url": server.base_url, "api_key": KEY, "max_retries": 0, **options})


async def answer_of(server: OpenAIServer, shown: list[Any] | None = None, **options: Any) -> Reply:
    """Ask a model once."""
    model = model_at(server, **options)
    try:
        return await model.respond(HELLO, emit=None if shown is None else shown.append)
    finally:
        await model.aclose()


def items_of(*messages: Message, provider: str = "p") -> list[Any]:
    """Return the items that messages are sent as."""
    sent: list[Any] = to_wire(Request(messages=messages), provider=provider)["input"]
    return sent


def replied(*blocks: Any) -> Message:
    """Return a reply's message."""
    return Message(role="assistant", content=tuple(blocks))


# ------------------------------------------------------------------------------------------------ what is sent


def test_it_is_a_model() -> None:
    """It has all that the library asks of a model, and needs a key at OpenAI."""
    assert isinstance(OpenAIResponses("x", base_url="http://localhost:1/v1"), Model)
    with pytest.raises(AuthError, match=r"OpenAIResponses\(\"gpt-5\", api_key=your_key\)"):
        OpenAIResponses("gpt-5")


async def test_the_request_keeps_nothing_at_the_server(serve: Serve) -> None:
    """The body has the whole conversation, asks for a stream and for the encrypted reasoning, and stores nothing."""
    server = serve(responds(text("Hi")))
    model = model_at(server, extra_body={"temperature": 0}, reasoning_effort="low")
    spec = ToolSpec(name="ls", description="List.", parameters={"type": "object"})

    await model.respond(Request(system="Be brief.", messages=HELLO.messages, tools=(spec,)))
    await model.aclose()

    (received,) = server.requests
    assert received.path == "/v1/responses"
    assert received.body == {
        "model": "test",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "tools": [
            {
                "type": "function",
                "name": "ls",
                "description": "List.",
                "parameters": {"type": "object"},
                "strict": False,
            }
        ],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "low"},
        "temperature": 0,
    }


@pytest.mark.parametrize("name", ["gpt-4.1", "gpt-4o-mini", "ft:gpt-4o:acme"])
async def test_a_model_that_does_not_reason_is_not_asked_for_it(serve: Serve, name: str) -> None:
    """Such models refuse the whole request."""
    server = serve(responds(text("Hi")))

    await answer_of(server, name=name)

    assert "include" not in server.bodies[0]


@pytest.mark.parametrize("field", ["input", "instructions", "store", "stream"])
def test_fields_of_the_library_cannot_be_set(field: str) -> None:
    """`extra_body` adds fields, it does not replace the conversation."""
    with pytest.raises(ConfigError, match="leave it out"):
        OpenAIResponses("x", base_url="http://localhost:1/v1", extra_body={field: True})


def test_calls_and_results_are_items() -> None:
    """Text and each call of a reply are items of their own, and so is each result, before what is said after it."""
    sent = items_of(
        replied(
            TextBlock(text="Let me look."), ToolCall(id="a", name="f", args={"x": "é"}), ToolCall(id="b", name="g")
        ),
        Message(
            role="user",
            content=(
                TextBlock(text="and?"),
                ToolResultBlock(call_id="a", content=(TextBlock(text="one"),)),
                ToolResultBlock(call_id="b", content=(TextBlock(text="no file"),), outcome="error"),
            ),
        ),
    )

    assert sent == [
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x": "é"}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "one"},
        {"type": "function_call_output", "call_id": "b", "output": "[error] no file"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ]


def test_ids_and_names_from_elsewhere_are_sent_as_the_format_has_them() -> None:
    """As in Chat Completions: what a model made up does not block the conversation."""
    called, got = items_of(
        replied(ToolCall(id="read:0", name="functions.read")),
        Message(role="user", content=(ToolResultBlock(call_id="read:0"),)),
    )

    assert called["name"] == "functions_read"
    assert called["call_id"] == got["call_id"] != "read:0"


def test_the_shape_of_the_answer_is_asked_for() -> None:
    """As the format of the text; a schema of any names is a wish, and not held to strictly."""
    schema: Any = {"type": "object", "additionalProperties": {"type": "number"}}

    body = to_wire(Request(messages=(), output=OutputSpec(name="peak", json_schema=schema)))

    assert body["text"] == {"format": {"type": "json_schema", "name": "peak", "schema": schema, "strict": False}}


def test_images_are_sent_in_messages_and_in_results() -> None:
    """The format takes images in both."""
    result = ToolResultBlock(call_id="a", content=(TextBlock(text="A map:"), GIF), outcome="unknown")

    said, shown = items_of(Message.user("What is it?", GIF), Message(role="user", content=(result,)))

    assert said["content"] == [GIF_PART, {"type": "input_text", "text": "What is it?"}]
    assert shown["output"] == [
        {"type": "input_text", "text": "[unknown]"},
        {"type": "input_text", "text": "A map:"},
        GIF_PART,
    ]


REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}


def test_reasoning_goes_with_what_it_led_to() -> None:
    """It is sent before its text or call; alone it would be refused, so it is left out then."""
    raw = RawBlock(provider="p", data=REASONING)

    assert items_of(replied(raw, ToolCall(id="a", name="f"))) == [
        REASONING,
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
    ]
    assert items_of(replied(raw)) == []
    assert items_of(replied(TextBlock(text="So."), raw)) == [{"type": "message", "role": "assistant", "content": "So."}]


def test_what_another_provider_made_is_left_out() -> None:
    """Reasoning, phases and items of others are not sent; text and calls are."""
    message = replied(
        RawBlock(provider="q", data=REASONING),
        RawBlock(provider="q", data={"phase": "commentary"}),
        TextBlock(text="Hm."),
        RawBlock(provider="q", data={"type": "web_search_call", "id": "ws_1"}),
    )

    assert items_of(message) == [{"type": "message", "role": "assistant", "content": "Hm."}]


# ------------------------------------------------------------------------------------------------ what comes


async def test_text_comes_as_it_is_said(serve: Serve) -> None:
    """Each piece is handed on, and the reply holds all of it, with its usage."""
    shown: list[Any] = []

    reply = await answer_of(serve(responds(text("The ", "summit."))), shown)

    assert shown == [Delta(text="The "), Delta(text="summit.")]
    assert reply == Reply(
        message=replied(TextBlock(text="The summit.")),
        usage=Usage(
            input_tokens=12,
            output_tokens=5,
            cache_read_tokens=8,
            cache_write_tokens=1,
            reasoning_tokens=2,
            requests=1,
            unpriced_requests=1,
        ),
        stop_reason="end_turn",
        model="test-model-2025",
    )


async def test_parallel_calls_come_with_their_arguments(serve: Serve) -> None:
    """Each call has its arguments, which are shown as they come."""
    shown: list[Any] = []
    server = serve(responds(call("read", {"path": "a"}, call_id="a"), call("ls", {}, call_id="b")))

    reply = await answer_of(server, shown)

    assert reply.stop_reason == "tool_use"
    assert reply.message.tool_calls == (ToolCall(id="a", name="read", args={"path": "a"}), ToolCall(id="b", name="ls"))
    assert [(delta.call_index, delta.tool_name) for delta in shown] == [(0, "read")] * 3 + [(1, "ls")] * 3
    assert "".join(delta.text for delta in shown if delta.call_index == 0) == '{"path": "a"}'


async def test_reasoning_is_carried_over(serve: Serve) -> None:
    """A run sends the encrypted reasoning back before the call that it led to, and not to another model."""

    @tool
    def look() -> str:
        """Look."""
        return "fog"

    server = serve(responds(thought("Hm."), call("look", {})), responds(text("Fog.")), responds(text("Still fog.")))
    store = MemoryStore()

    async with aclosing(Agent(model_at(server), tools=[look], store=store)) as agent:
        await agent.run("What is there?", id="s")
    async with aclosing(Agent(model_at(server, "other"), tools=[look], store=store)) as other:
        with pytest.warns(match="differs in model"):
            await other.resume("s", "And now?")

    kept = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    kept |= {"encrypted_content": "gAAAA"}
    _, second, third = (body["input"] for body in server.bodies)
    assert [item["type"] for item in second] == ["message", "reasoning", "function_call", "function_call_output"]
    assert second[1] == kept
    assert "reasoning" not in [item["type"] for item in third]


async def test_reasoning_that_the_server_does_not_keep_is_not_sent(serve: Serve) -> None:
    """Without its encrypted content the server would not know it again."""
    reply = await answer_of(serve(responds(thought("Hm.", encrypted=None), text("Hi"))))

    assert reply.message == replied(TextBlock(text="Hi"))


async def test_thinking_is_shown(serve: Serve) -> None:
    """The summary of the reasoning is a delta of its own kind."""
    shown: list[Any] = []

    await answer_of(serve(responds(thought("Hm."), text("Hi"))), shown)

    assert shown == [Delta(kind="thinking", text="Hm."), Delta(text="Hi")]


async def test_the_phase_of_a_text_goes_back_with_it(serve: Serve) -> None:
    """Models that mark comments and answers want the mark back."""
    server = serve(
        responds(text("I look.", phase="commentary"), text("Fog.", phase="final_answer")), responds(text("a"))
    )
    model = model_at(server)

    reply = await model.respond(HELLO)
    await model.respond(Request(messages=(*HELLO.messages, reply.message, Message.user("And?"))))
    await model.aclose()

    assert server.bodies[1]["input"][1:3] == [
        {"type": "message", "role": "assistant", "content": "I look.", "phase": "commentary"},
        {"type": "message", "role": "assistant", "content": "Fog.", "phase": "final_answer"},
    ]


@pytest.mark.parametrize(
    "reason, stop_reason",
    [("max_output_tokens", "max_tokens"), ("content_filter", "refusal"), ("steered", "steered")],
)
async def test_a_reply_that_is_cut_says_why(serve: Serve, reason: str, stop_reason: str) -> None:
    """The reasons have the library's names; an unknown one keeps its own."""
    reply = await answer_of(serve(responds(text("The sum"), reason=reason)))

    assert (reply.message.text, reply.stop_reason) == ("The sum", stop_reason)


async def test_a_refusal_is_text_and_reason(serve: Serve) -> None:
    """What a model says as a refusal is kept, and the reason says what it is."""
    reply = await answer_of(serve(responds(refusal("I will not."))))

    assert (reply.message.text, reply.stop_reason) == ("I will not.", "refusal")


async def test_a_reply_has_its_cost(serve: Serve) -> None:
    """Prices work as for Chat Completions."""
    reply = await answer_of(serve(responds(text("Hi"))), price=Price(1e6, 0, cache_read=0, cache_write=0))

    assert (reply.usage.cost_usd, reply.usage.unpriced_requests) == (3.0, 0)


@pytest.mark.parametrize(
    "failing, kind",
    [
        (fails("server_error"), ProviderError),
        (fails("rate_limit_exceeded"), RateLimitError),
        (fails("context_length_exceeded"), ContextTooLongError),
        (streams({"type": "error", "code": "server_error", "message": "it failed", "param": None}), ProviderError),
        (status(401), AuthError),
        (responds(text("The sum"), complete=False), ProviderError),
        (responds(text("The sum"), complete=False).then(Step.DROP), ProviderError),
        (says("Hi"), ProviderError),
    ],
)
async def test_what_is_no_whole_reply_is_an_error(serve: Serve, failing: Answer, kind: type[ModelError]) -> None:
    """A failure in mid-stream, a stream without its last event, and another format are never an answer."""
    with pytest.raises(kind) as raised:
        await answer_of(serve(failing))

    assert type(raised.value) is kind


async def test_a_failure_before_the_first_part_is_tried_again(serve: Serve) -> None:
    """As for Chat Completions; the first events alone say nothing."""
    reply = await answer_of(serve(fails("server_error"), responds(text("Hi"))), max_retries=1)

    assert (reply.message.text, reply.usage.requests) == ("Hi", 2)


def read(*events: Any) -> Reply:
    """Return the reply that events make."""
    reader = ReplyReader(provider="p")
    for event in events:
        reader.read(event)
    assert reader.complete
    return reader.reply(model="asked")


def test_items_that_come_only_at_the_end_are_taken() -> None:
    """A server may send nothing but the last event, or leave the items out of it."""
    item, _ = text("Hi")
    bare = {"type": "response.completed", "response": response("completed")}

    assert read({**bare, "response": response("completed", output=[item])}).message.text == "Hi"
    assert read({"type": "response.output_text.delta", "delta": "Hi"}, bare).message.text == "Hi"


@pytest.mark.parametrize("noise", [{}, {"type": "response.new"}, {"type": "response.output_item.done", "item": None}])
def test_unknown_events_are_passed_over(noise: Any) -> None:
    """A new kind of event changes nothing."""
    reply = read(noise, {"type": "response.completed", "response": {}})

    assert (reply.message.content, reply.model, reply.usage) == ((), "asked", Usage(requests=1, unpriced_requests=1))


def test_an_item_of_another_kind_is_kept_for_its_provider() -> None:
    """What a tool of the provider's did goes back to it as it came."""
    search = {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": "fog"}}
    item, _ = text("Fog.")

    reply = read({"type": "response.completed", "response": response(output=[{**search, "status": "completed"}, item])})

    assert items_of(reply.message)[0] == search
    assert items_of(reply.message, provider="q") == items_of(reply.message)[1:]


async def test_a_state_moves_between_the_two_formats(serve: Serve) -> None:
    """Reasoning of one format is not sent in the other, at the same address and for the same model."""
    server = serve(responds(thought("Hm."), text("Hi")), says("Hello again"))
    chat = OpenAICompatible("test", base_url=server.base_url)

    reply = await answer_of(server)
    await chat.respond(Request(messages=(*HELLO.messages, reply.message, Message.user("And?"))))
    await chat.aclose()

    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": "Hi"}


async def test_tools_of_openais_own_are_added(serve: Serve) -> None:
    """Those in `extra_body` stand behind the Agent's; what they did stays in the history and goes back."""
    search: Any = {"type": "web_search"}
    done = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}}
    server = serve(responds((done, []), text("Hi")), responds(text("Yes.")))
    model = model_at(server, extra_body={"tools": [search]}, headers={"x-team": "alps-team"})
    spec = ToolSpec(name="f", description="", parameters={})

    reply = await model.respond(Request(messages=(Message.user("Hi"),), tools=(spec,)))
    await model.respond(Request(messages=(Message.user("Hi"), reply.message, Message.user("And?"))))
    await model.aclose()

    assert [tool["type"] for tool in server.bodies[0]["tools"]] == ["function", "web_search"]
    assert server.bodies[1]["tools"] == [search]
    assert [item["type"] for item in server.bodies[1]["input"]] == ["message", "web_search_call", "message", "message"]
    assert server.requests[0].headers["x-team"] == "alps-team"


async def test_arguments_may_come_as_an_object(serve: Serve) -> None:
    """Servers that do not write them out are read all the same."""
    item = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": {"peak": "P"}}
    server = serve(responds((item, [])))

    reply = await answer_of(server)

    (call,) = reply.message.tool_calls
    assert (call.args, call.invalid_json) == ({"peak": "P"}, None)
