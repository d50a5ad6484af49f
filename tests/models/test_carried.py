"""The table "What is carried over" of the docs: each of its cells has a test."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from alpineagents import Anthropic, OpenAICompatible, OpenAIResponses, Price
from alpineagents.messages import Image, Message, OutputSpec, Reply, Request, TextBlock, ToolCall, ToolResultBlock
from alpineagents.models import Delta
from tests.models.conftest import Serve
from tests.servers import anthropic_server as claude
from tests.servers.openai_server import Answer, calls, chunk, says, stream
from tests.servers.responses_answers import call, responds, text, thought

PAGE = Path(__file__).parents[2] / "docs" / "models.md"
GIF = Image.from_bytes(b"GIF89a", "image/gif")
URL = "data:image/gif;base64,R0lGODlh"
HELLO = Message.user("Hello")


class Chat:
    """OpenAICompatible, and answers in its format."""

    model = OpenAICompatible
    said = says("The ", "summit.")
    wanted = calls(("read", {"path": "a"}), ("ls", {}))
    answered = calls(("final_answer", {"metres": 4478}), text="Here it is.")
    thinking = stream(chunk({"reasoning": "Hm."}), chunk({"content": "Hi"}, finish_reason="stop"))


class Responses:
    """OpenAIResponses, and answers in its format."""

    model = OpenAIResponses
    said = responds(text("The ", "summit."))
    wanted = responds(call("read", {"path": "a"}, call_id="a"), call("ls", {}, call_id="b"))
    answered = responds(text("Here it is."), call("final_answer", {"metres": 4478}))
    thinking = responds(thought("Hm."), text("Hi"))


class Messages:
    """Anthropic, and answers in its format."""

    model = Anthropic
    said = claude.says("The ", "summit.")
    wanted = claude.calls(("read", {"path": "a"}), ("ls", {}))
    thinking = claude.replies(claude.thinking("Hm."), claude.text("Hi"))


Format = type[Chat] | type[Responses] | type[Messages]


async def exchange(
    serve: Serve, format: Format, answer: Answer, request: Request, *, model: str = "test", **options: Any
) -> tuple[Reply, Any, list[Any]]:
    """Send a request; return the reply, the body that was sent, and what was shown."""
    server = serve(answer)
    asked = format.model(model, base_url=server.base_url, **options)
    shown: list[Any] = []
    reply = await asked.respond(request, emit=shown.append)
    await asked.aclose()
    return reply, server.bodies[0], shown


async def text_as_it_comes(serve: Serve, format: Format) -> None:
    reply, _, shown = await exchange(serve, format, format.said, Request(messages=(HELLO,)))

    assert shown == [Delta(text="The "), Delta(text="summit.")]
    assert reply.message.text == "The summit."


async def tools_and_parallel_calls(serve: Serve, format: Format) -> None:
    reply, _, shown = await exchange(serve, format, format.wanted, Request(messages=(HELLO,)))
    ids = [call.id for call in reply.message.tool_calls]
    results = tuple(ToolResultBlock(call_id=call_id, content=(TextBlock(text="x"),)) for call_id in ids)
    request = Request(messages=(HELLO, reply.message, Message(role="user", content=results)))
    _, body, _ = await exchange(serve, format, format.said, request)

    assert [(call.name, call.args) for call in reply.message.tool_calls] == [("read", {"path": "a"}), ("ls", {})]
    assert {delta.kind for delta in shown} == {"tool_args"}
    if format is Chat:
        assert [sent.get("tool_call_id") for sent in body["messages"][2:]] == ids
    elif format is Messages:
        assert [block["tool_use_id"] for block in body["messages"][2]["content"]] == ids
    else:
        outputs = [item["call_id"] for item in body["input"] if item["type"] == "function_call_output"]
        assert outputs == ids


async def images_in_messages(serve: Serve, format: Format) -> None:
    _, body, _ = await exchange(serve, format, format.said, Request(messages=(Message.user("What?", GIF),)))

    if format is Chat:
        assert body["messages"][0]["content"][0] == {"type": "image_url", "image_url": {"url": URL}}
    elif format is Messages:
        assert body["messages"][0]["content"][0]["source"]["data"] == GIF.data
    else:
        assert body["input"][0]["content"][0]["image_url"] == URL


async def images_in_tool_results(serve: Serve, format: Format) -> None:
    asked = Message(role="assistant", content=(ToolCall(id="a", name="map"),))
    result = Message(role="user", content=(ToolResultBlock(call_id="a", content=(GIF,)),))
    _, body, _ = await exchange(serve, format, format.said, Request(messages=(HELLO, asked, result)))

    if format is Chat:
        assert [sent["role"] for sent in body["messages"]] == ["user", "assistant", "tool", "user"]
        assert body["messages"][3]["content"][1]["image_url"]["url"] == URL
    elif format is Messages:
        assert body["messages"][2]["content"][0]["content"][0]["source"]["data"] == GIF.data
    else:
        assert body["input"][-1]["output"][0]["image_url"] == URL


async def thinking_as_it_comes(serve: Serve, format: Format) -> None:
    reply, _, shown = await exchange(serve, format, format.thinking, Request(messages=(HELLO,)))

    assert shown[0] == Delta(kind="thinking", text="Hm.")
    assert reply.message.text == "Hi"


async def thinking_sent_back(serve: Serve, format: Format) -> None:
    reply, _, _ = await exchange(serve, format, format.thinking, Request(messages=(HELLO,)))
    request = Request(messages=(HELLO, reply.message, HELLO))
    _, body, _ = await exchange(serve, format, format.said, request)

    if format is Chat:
        assert body["messages"][1] == {"role": "assistant", "content": "Hi", "reasoning": "Hm."}
    elif format is Messages:
        assert body["messages"][1]["content"][0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    else:
        assert [item["type"] for item in body["input"]] == ["message", "reasoning", "message", "message"]
        assert body["input"][1]["encrypted_content"] == "gAAAA"


async def prompt_caching(serve: Serve, format: Format) -> None:
    """A longer conversation begins with the very bytes of the shorter one, which is what a cache needs."""
    _, short, _ = await exchange(serve, format, format.said, Request(messages=(HELLO,)))
    reply, longer, _ = await exchange(serve, format, format.said, Request(messages=(HELLO, HELLO)))

    if format is Messages:
        assert "cache_control" in short["messages"][0]["content"][-1]
        assert "cache_control" in longer["messages"][0]["content"][-1]
        assert (reply.usage.cache_read_tokens, reply.usage.cache_write_tokens) == (30, 20)
        return
    field = "messages" if format is Chat else "input"
    assert longer[field][: len(short[field])] == short[field]
    assert reply.usage.cache_read_tokens == 8


async def usage_and_cost(serve: Serve, format: Format) -> None:
    price = Price(input=1e6, output=1e6, cache_read=0, cache_write=1e6)
    reply, _, _ = await exchange(serve, format, format.said, Request(messages=(HELLO,)), price=price)

    if format is Messages:
        assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.reasoning_tokens) == (60, 15, 4)
        assert reply.usage.cost_usd == 10 + 20 + 15
        return
    assert (reply.usage.input_tokens, reply.usage.output_tokens, reply.usage.reasoning_tokens) == (12, 5, 2)
    assert reply.usage.cost_usd == 12 - 8 + 5


async def structured_output(serve: Serve, format: Format) -> None:
    output = OutputSpec(name="peak", json_schema={"type": "object", "properties": {}, "additionalProperties": False})
    _, body, _ = await exchange(serve, format, format.said, Request(messages=(HELLO,), output=output))

    if format is Messages:
        assert json.dumps(output.json_schema) in body["system"][0]["text"]
        _, body, _ = await exchange(
            serve, format, format.said, Request(messages=(HELLO,), output=output), model="claude-sonnet-5-5"
        )
        assert body["output_config"]["format"] == {"type": "json_schema", "schema": output.json_schema}
        return
    shape = body["response_format"]["json_schema"] if format is Chat else body["text"]["format"]
    assert (shape["name"], shape["schema"]) == ("peak", output.json_schema)

    request = Request(messages=(HELLO,), output=output)
    reply, body, _ = await exchange(serve, format, format.answered, request, output_mode="tool")

    assert not {"response_format", "text"} & body.keys()
    assert body["tool_choice"] == "required"
    assert reply.message.content == (TextBlock(text='{"metres": 4478}'),)
    assert reply.stop_reason == "end_turn"


FORMATS: dict[str, Format] = {"`OpenAICompatible`": Chat, "`OpenAIResponses`": Responses, "`Anthropic`": Messages}
ROWS: dict[str, Callable[[Serve, Format], Awaitable[None]]] = {
    "text, as it comes": text_as_it_comes,
    "tools and parallel calls": tools_and_parallel_calls,
    "images in messages": images_in_messages,
    "images in tool results": images_in_tool_results,
    "thinking, as it comes": thinking_as_it_comes,
    "thinking sent back": thinking_sent_back,
    "prompt caching": prompt_caching,
    "usage and cost": usage_and_cost,
    "structured output": structured_output,
}


def table() -> list[list[str]]:
    """Return the cells of the table in the docs, without the line below its head."""
    section = PAGE.read_text(encoding="utf-8").partition("## What is carried over")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and not line.startswith("|--")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_table_is_the_one_that_is_tested() -> None:
    """A row or a column that nobody tests cannot be added."""
    head, *rows = table()

    assert head[1:] == list(FORMATS)
    assert [row[0] for row in rows] == list(ROWS)
    assert all(len(row) == len(head) and all(row) for row in rows)


@pytest.mark.parametrize("column", FORMATS)
@pytest.mark.parametrize("row", ROWS)
async def test_a_cell_of_the_table_is_true(serve: Serve, row: str, column: str) -> None:
    """What the docs say that a provider's class carries over, it does."""
    await ROWS[row](serve, FORMATS[column])
