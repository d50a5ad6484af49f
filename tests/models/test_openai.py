"""OpenAICompatible: how it is built and what it sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from alpineagents.errors import AuthError, ConfigError, ValueNotStorableError
from alpineagents.messages import Message, Request, ToolCall, ToolSpec
from alpineagents.models import Delta, Model, OpenAICompatible
from tests.models.asking import HELLO
from tests.models.conftest import Serve
from tests.servers.openai_server import calls, chunk, says, stream


def test_it_is_a_model() -> None:
    """It has all that the library asks of a model."""
    assert isinstance(OpenAICompatible("x", base_url="http://localhost:1/v1"), Model)


async def test_deltas_come_as_the_server_sends_them(serve: Serve) -> None:
    """Each piece of text is handed on, and the reply holds all of it."""
    model = OpenAICompatible("test", base_url=serve(says("The ", "summit.")).base_url)
    shown: list[Delta] = []

    reply = await model.respond(HELLO, emit=shown.append)
    await model.aclose()

    assert shown == [Delta(text="The "), Delta(text="summit.")]
    assert reply.message.text == "The summit."


async def test_tool_calls_come_with_their_arguments(serve: Serve) -> None:
    """Parallel calls are put together from their pieces."""
    model = OpenAICompatible("test", base_url=serve(calls(("read", {"path": "a"}), ("ls", {}))).base_url)

    reply = await model.respond(HELLO)
    await model.aclose()

    assert reply.stop_reason == "tool_use"
    assert reply.message.tool_calls == (
        ToolCall(id="call_0x", name="read", args={"path": "a"}),
        ToolCall(id="call_1x", name="ls"),
    )


async def test_the_request_is_a_streaming_chat_completion(serve: Serve) -> None:
    """The body has the model, the messages, the tools, and asks for a stream with usage."""
    server = serve(says("Hi"))
    model = OpenAICompatible("test", base_url=server.base_url + "/", extra_body={"temperature": 0})
    tool = ToolSpec(name="ls", description="List.", parameters={"type": "object"})

    await model.respond(Request(system="Be brief.", messages=(Message.user("Hello"),), tools=(tool,)))
    await model.aclose()

    (received,) = server.requests
    assert received.path == "/v1/chat/completions"
    assert received.headers["content-type"] == "application/json"
    assert "authorization" not in received.headers
    assert received.body == {
        "model": "test",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "tools": [
            {"type": "function", "function": {"name": "ls", "description": "List.", "parameters": {"type": "object"}}}
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }


async def test_any_text_can_be_sent(serve: Serve) -> None:
    """The body is UTF-8, and a lone surrogate, which no server takes, is replaced, also in a call's arguments."""
    server = serve(says("Hi"))
    model = OpenAICompatible("test", base_url=server.base_url)
    call = ToolCall(id="a", name="f", args={"\ud800": "\ud800"})

    await model.respond(
        Request(messages=(Message.user("\ud800 峠 \U0001f3d4 \x00"), Message(role="assistant", content=(call,))))
    )
    await model.aclose()

    (received,) = server.requests
    assert received.raw.decode("utf-8")
    asked, told = received.body["messages"]
    assert asked["content"] == "\ufffd 峠 \U0001f3d4 \x00"
    assert json.loads(told["tool_calls"][0]["function"]["arguments"]) == {"\ufffd": "\ufffd"}


async def test_thinking_is_sent_back_to_the_same_model_only(serve: Serve) -> None:
    """What a model thought goes back to it, and not to another model at the same server."""
    thinks = stream(chunk({"reasoning_content": "Hm."}), chunk({"content": "Hi"}, finish_reason="stop"))
    server = serve(thinks, says("a"), says("b"))
    one, other = (OpenAICompatible(name, base_url=server.base_url) for name in ("one", "other"))

    reply = await one.respond(HELLO)
    again = Request(messages=(*HELLO.messages, reply.message, Message.user("And?")))
    await one.respond(again)
    await other.respond(again)
    await one.aclose()
    await other.aclose()

    assert server.bodies[1]["messages"][1] == {"role": "assistant", "content": "Hi", "reasoning_content": "Hm."}
    assert server.bodies[2]["messages"][1] == {"role": "assistant", "content": "Hi"}


async def test_reasoning_effort_is_sent(serve: Serve) -> None:
    """As the field that the format has for it."""
    server = serve(says("Hi"))
    model = OpenAICompatible("test", base_url=server.base_url, reasoning_effort="high")

    await model.respond(HELLO)
    await model.aclose()

    assert server.bodies[0]["reasoning_effort"] == "high"


def test_openai_needs_a_key() -> None:
    """Without a key, the error names the variable and the line to write, before anything is sent."""
    with pytest.raises(AuthError, match=r"export OPENAI_API_KEY=.*OpenAICompatible\(\"gpt-5\", api_key=your_key\)"):
        OpenAICompatible("gpt-5")


async def test_address_and_key_come_from_the_environment(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_BASE_URL and OPENAI_API_KEY are used where nothing is given; blanks around a key are not part of it."""
    server = serve(says("Hi"))
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "key-from-the-shell\n")
    model = OpenAICompatible("test")

    await model.respond(HELLO)
    await model.aclose()

    assert server.requests[0].headers["authorization"] == "Bearer key-from-the-shell"


async def test_an_empty_key_sends_none(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """`api_key=""` keeps the key of the environment at home."""
    server = serve(says("Hi"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-from-the-shell")
    model = OpenAICompatible("test", base_url=server.base_url, api_key="")

    await model.respond(HELLO)
    await model.aclose()

    assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_unseen(key: str) -> None:
    """A key with a line break in it is refused without being shown."""
    with pytest.raises(AuthError) as refused:
        OpenAICompatible("x", base_url="http://localhost:1/v1", api_key=key)

    assert key not in str(refused.value)


@pytest.mark.parametrize(
    "options, hint",
    [
        ({"base_url": "localhost:8000/v1"}, "http://localhost:8000/v1"),
        ({"base_url": "http://"}, "http://localhost:8000/v1"),
        ({"base_url": ""}, "http://localhost:8000/v1"),
        ({"base_url": 8000}, "http://localhost:8000/v1"),
        ({"base_url": "http://joe:se/cret@localhost/v1"}, "http://localhost:8000/v1"),
        ({"base_url": "http://localhost/v1?key=secret"}, "params="),
        ({"timeout": 0}, "timeout=120.0"),
        ({"timeout": "1"}, "timeout=120.0"),
        ({"timeout": float("nan")}, "timeout=120.0"),
        ({"max_retries": -1}, "max_retries=2"),
        ({"max_retries": True}, "max_retries=2"),
        ({"retry_seconds": "1"}, "retry_seconds=60.0"),
        ({"retry_seconds": -1}, "retry_seconds=60.0"),
        ({"http_client": object()}, "httpx.AsyncClient()"),
        ({"extra_body": ["x"]}, "extra_body="),
        ({"extra_body": {"stream": False}}, "leave it out"),
        ({"reasoning_effort": 3}, 'reasoning_effort="high"'),
        ({"output_mode": "json"}, 'output_mode="tool"'),
        ({"base_url": "http://joe:secret@localhost/v1", "api_key": "key-12345"}, "only one of them"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], hint: str) -> None:
    """Each wrong setting is a ConfigError that shows what to write, and no part of a password."""
    with pytest.raises(ConfigError) as refused:
        OpenAICompatible("x", **{"base_url": "http://localhost:1/v1", **options})

    assert hint in str(refused.value)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("model", ["", "  ", None, 5])
def test_a_model_has_a_name(model: Any) -> None:
    """No name, no model."""
    with pytest.raises(ConfigError, match="OpenAICompatible"):
        OpenAICompatible(model, base_url="http://localhost:1/v1")


def test_a_field_that_is_no_json_is_refused_where_it_enters() -> None:
    """The error names the path to the value."""
    with pytest.raises(ValueNotStorableError, match=r"extra_body\['stop'\]"):
        OpenAICompatible("x", base_url="http://localhost:1/v1", extra_body={"stop": {"a"}})


def test_a_name_can_be_given() -> None:
    """History and lists show the name; the server gets the model."""
    local = "http://localhost:1/v1"

    assert OpenAICompatible("x", base_url=local).name == "x"
    assert OpenAICompatible("x", base_url=local, name="ours").name == "ours"


def test_the_package_is_light_to_import() -> None:
    """Importing models imports no HTTP client."""
    program = "import sys, alpineagents.models; print([name for name in sys.modules if name.startswith('http')])"

    shown = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    ).stdout

    assert "httpx" not in shown


def test_a_header_may_hold_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenAI's own API needs no other then, and that of the environment stays at home."""
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-environment")

    model = OpenAICompatible("gpt-5", headers={"Authorization": "Bearer key-1234567890"})

    assert model._endpoint._headers["Authorization"].get_secret_value() == "Bearer key-1234567890"
    assert "1234567890" not in f"{model!r} {vars(model)} {vars(model._endpoint)}"
