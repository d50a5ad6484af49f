"""The official client as a judge: it reads what the test server says, and its types take what the library sends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import openai
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from alpineagents import OpenAICompatible, OpenAIResponses
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
from tests.models.asking import HELLO, KEY
from tests.models.conftest import Serve
from tests.servers.openai_server import OpenAIServer, calls, says
from tests.servers.responses_answers import call, refusal, responds, text, thought

GIF = Image.from_bytes(b"GIF89a", "image/gif")


@pytest.fixture
def anyio_backend() -> str:
    """The official client runs on asyncio."""
    return "asyncio"


@pytest.fixture
async def client_of() -> AsyncIterator[Any]:
    """Gives a client that refuses whatever does not have the exact types."""
    opened: list[openai.AsyncOpenAI] = []

    def open_client(server: OpenAIServer) -> openai.AsyncOpenAI:
        opened.append(
            openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=0, _strict_response_validation=True)
        )
        return opened[-1]

    yield open_client
    for client in opened:
        await client.close()


async def test_it_reads_the_chat_completions_of_the_test_server(serve: Serve, client_of: Any) -> None:
    """Text, calls in pieces and the usage are what the official client takes for such."""
    server = serve(says("The ", "summit."), calls(("read", {"path": "a"}), ("ls", {})))
    client = client_of(server)
    asked: Any = {"model": "test", "messages": [{"role": "user", "content": "Hello"}], "stream": True}

    said = [chunk async for chunk in await client.chat.completions.create(**asked)]
    wanted = [chunk async for chunk in await client.chat.completions.create(**asked)]

    assert "".join(chunk.choices[0].delta.content or "" for chunk in said if chunk.choices) == "The summit."
    assert said[-1].usage.prompt_tokens_details.cached_tokens == 8
    pieces = [piece for chunk in wanted if chunk.choices for piece in chunk.choices[0].delta.tool_calls or []]
    assert [piece.function.name for piece in pieces if piece.function.name] == ["read", "ls"]


async def test_it_reads_the_responses_of_the_test_server(serve: Serve, client_of: Any) -> None:
    """The same for the Responses API, whose events it puts together itself."""
    server = serve(responds(thought("Hm."), text("The ", "summit."), call("read", {"path": "a"})))

    async with client_of(server).responses.stream(model="test", input="Hello") as events:
        kinds = [event.type async for event in events]
        final = await events.get_final_response()

    assert kinds[0] == "response.created"
    assert final.output_text == "The summit."
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.usage.input_tokens_details.cached_tokens == 8


async def test_it_reads_a_refusal_of_the_test_server(serve: Serve, client_of: Any) -> None:
    """Also a refusal is one to the official client."""
    stream = await client_of(serve(responds(refusal("No.")))).responses.create(model="test", input="?", stream=True)

    assert [event.delta async for event in stream if event.type == "response.refusal.delta"] == ["No."]


def plain(value: Any) -> Any:
    """Return a value with what pydantic validates only as it is read."""
    if isinstance(value, Mapping):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value


def conversation(provider: str, reasoning: Any) -> Request:
    """Return a request with all that one can hold."""
    return Request(
        system="Be brief.",
        messages=(
            Message.user("What is it?", GIF),
            Message(
                role="assistant",
                content=(
                    RawBlock(provider=provider, data=reasoning),
                    TextBlock(text="I look."),
                    ToolCall(id="a", name="read", args={"path": "a"}),
                    ToolCall(id="b", name="read", invalid_json="{"),
                ),
            ),
            Message(
                role="user",
                content=(
                    ToolResultBlock(call_id="a", content=(TextBlock(text="A map:"), GIF)),
                    ToolResultBlock(call_id="b", outcome="input_error", content=(TextBlock(text="no JSON"),)),
                ),
            ),
            Message(role="assistant", content=(TextBlock(text="A summit."),)),
            Message.user("And?"),
        ),
        output=OutputSpec(name="peak", json_schema={"type": "object", "properties": {"metres": {"type": "number"}}}),
        tools=(ToolSpec(name="read", description="Read.", parameters={"type": "object", "properties": {}}),),
    )


async def test_its_types_take_what_is_sent_as_chat_completion(serve: Serve) -> None:
    """Nothing is missing, and no field is sent that the API does not have."""
    server = serve(says("Hi"))
    model = OpenAICompatible("test", base_url=server.base_url, reasoning_effort="low")

    await model.respond(conversation("another", {"reasoning": "Hm."}))
    await model.aclose()

    body = server.bodies[0]
    assert plain(TypeAdapter(CompletionCreateParamsStreaming).validate_python(body)) == body


async def test_its_types_take_what_is_sent_as_response(serve: Serve) -> None:
    """The same for the Responses API, encrypted reasoning included."""
    server = serve(responds(thought("Hm."), text("Hi", phase="commentary")), responds(text("Hi")))
    model = OpenAIResponses("test", base_url=server.base_url, reasoning_effort="low")

    reply = await model.respond(HELLO)
    raw = reply.message.content[0]
    assert isinstance(raw, RawBlock)
    request = conversation(raw.provider, raw.data)
    await model.respond(
        request.model_copy(update={"messages": (*request.messages[:1], reply.message, *request.messages)})
    )
    await model.aclose()

    body = server.bodies[1]
    assert {item["type"] for item in body["input"]} == {"message", "reasoning", "function_call", "function_call_output"}
    assert plain(TypeAdapter(ResponseCreateParamsStreaming).validate_python(body)) == body
