"""Anthropic: how it is built and what it sends."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from alpineagents.errors import AuthError, ConfigError, ProviderError, ValueNotStorableError
from alpineagents.messages import Message, OutputSpec, RawBlock, Request, TextBlock, ToolCall, ToolResultBlock, ToolSpec
from alpineagents.models import Anthropic, Model
from alpineagents.models.anthropic import MAX_PAUSES
from alpineagents.models.claude import facts_of
from alpineagents.usage import Price
from tests.models.asking import HELLO, KEY
from tests.models.asking_claude import claude_at, respond
from tests.models.conftest import Serve
from tests.models.judge import check_request
from tests.servers.anthropic_server import (
    begins,
    calls,
    counts,
    overloaded,
    redacted,
    replies,
    says,
    text,
    thinking,
    use,
)
from tests.servers.openai_server import Answer, Received, Step

LOCAL = "http://localhost:1"
THOUGHT = RawBlock(provider="anthropic", data={"type": "thinking", "thinking": "Hm.", "signature": "c2ln"})


def turn(*blocks: Any) -> tuple[Message, ...]:
    """Return a conversation in which the model called a tool after these blocks, and got its result."""
    call, result = ToolCall(id="a", name="f"), ToolResultBlock(call_id="a", content=(TextBlock(text="x"),))
    asked = Message(role="assistant", content=(*blocks, call))
    return (Message.user("Hi"), asked, Message(role="user", content=(result,)))


def test_it_is_a_model() -> None:
    """It has all that the library asks of a model."""
    assert isinstance(Anthropic("x", base_url=LOCAL), Model)


async def test_the_request_is_a_streaming_message(serve: Serve) -> None:
    """The body has the model, the prompt, the messages and the tools, and marks what is to be cached."""
    server = serve(says("Hi"))
    tool = ToolSpec(name="ls", description="List.", parameters={"type": "object"})
    mark = {"type": "ephemeral"}

    await respond(
        claude_at(server, max_tokens=500, extra_body={"metadata": {"user_id": "u"}}),
        Request(system="Be brief.", messages=(Message.user("Hello"),), tools=(tool,)),
    )

    (received,) = server.requests
    assert received.path == "/v1/messages"
    assert received.headers["content-type"] == "application/json"
    assert received.headers["anthropic-version"] == "2023-06-01"
    assert received.headers["x-api-key"] == KEY
    assert "anthropic-beta" not in received.headers
    assert received.body == {
        "model": "claude-test",
        "max_tokens": 500,
        "stream": True,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": mark}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", "cache_control": mark}]}],
        "tools": [
            {"name": "ls", "description": "List.", "input_schema": {"type": "object"}, "cache_control": mark},
        ],
        "metadata": {"user_id": "u"},
    }
    check_request(received.body)


async def test_deltas_come_as_the_server_sends_them(serve: Serve) -> None:
    """Thinking, text and arguments are handed on in their order, each as its kind."""
    shown: list[Any] = []

    await respond(claude_at(serve(replies(thinking("Hm."), text("I ", "look."), use("ls", {"at": "a"})))), shown=shown)

    assert [delta.kind for delta in shown] == ["thinking", "text", "text", *["tool_args"] * 3]


async def test_any_text_can_be_sent(serve: Serve) -> None:
    """The body is UTF-8, and a lone surrogate, which no server takes, is replaced."""
    server = serve(says("Hi"))

    await respond(claude_at(server), Message.user("\ud800 峠 \U0001f3d4 \x00"))

    (received,) = server.requests
    assert received.raw.decode("utf-8")
    assert received.body["messages"][0]["content"][0]["text"] == "\ufffd 峠 \U0001f3d4 \x00"


# ------------------------------------------------------------------------------------------------ thinking


@pytest.mark.parametrize(
    "given, sent",
    [
        (None, None),
        ("adaptive", {"type": "adaptive"}),
        ("disabled", {"type": "disabled"}),
        (2048, {"type": "enabled", "budget_tokens": 2048}),
        ({"type": "adaptive", "display": "summarized"}, {"type": "adaptive", "display": "summarized"}),
    ],
)
async def test_thinking_is_asked_for_as_told(serve: Serve, given: Any, sent: Any) -> None:
    """Without a word the model does what it does by itself."""
    server = serve(says("Hi"))

    await respond(claude_at(server, thinking=given))

    assert server.bodies[0].get("thinking") == sent


async def test_thinking_goes_back_as_it_came(serve: Serve) -> None:
    """The signature and the thinking that nobody can read are the same, byte for byte."""
    server = serve(
        replies(thinking("Hm", ". é", signature="a+/="), redacted("x/y"), use("f", {}, id="a")), says("Done")
    )
    model = claude_at(server)

    reply = await model.respond(HELLO)
    result = Message(role="user", content=(ToolResultBlock(call_id="a"),))
    await respond(model, Request(messages=(*HELLO.messages, reply.message, result)))

    assert server.bodies[1]["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm. é", "signature": "a+/="},
        {"type": "redacted_thinking", "data": "x/y"},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]


async def test_a_budget_is_left_out_where_a_turn_began_without_thinking(serve: Serve) -> None:
    """A turn that another provider's model began cannot be thought on; the next turn can."""
    server = serve(says("a"), says("b"), says("c"))
    model = claude_at(server, thinking=2048)
    foreign = turn(RawBlock(provider="openai", data={"type": "reasoning"}))

    await model.respond(Request(messages=foreign))
    await model.respond(Request(messages=turn(THOUGHT)))
    await respond(model, Request(messages=(*foreign, Message(role="assistant", content="Ok"), Message.user("Go on"))))

    assert ["thinking" in body for body in server.bodies] == [False, True, True]


@pytest.mark.parametrize(
    "model, given, sent",
    [
        ("claude-sonnet-5-5", None, {"type": "adaptive"}),
        ("claude-opus-5-5", "adaptive", {"type": "adaptive"}),
        ("claude-fable-5-1", {"type": "adaptive", "display": "omitted"}, {"type": "adaptive", "display": "omitted"}),
    ],
)
async def test_thinking_behind_a_changed_conversation_is_let_go(
    serve: Serve, model: str, given: Any, sent: Any
) -> None:
    """Models that would refuse it are told to leave it out, once there is some, and not where the caller said more."""
    server = serve(says("a"), says("b"))
    claude = claude_at(server, model, thinking=given, betas=["other-beta"])

    await claude.respond(HELLO)
    await respond(claude, Request(messages=turn(THOUGHT)))

    assert server.bodies[0].get("thinking") == (None if given is None else sent)
    assert server.bodies[1]["thinking"] == {**sent, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert [received.headers["anthropic-beta"] for received in server.requests] == [
        "other-beta",
        "other-beta,thinking-binding-controls-2026-08-01",
    ]


@pytest.mark.parametrize(
    "model, given",
    [
        ("claude-sonnet-5", None),
        ("claude-haiku-4-5", 2048),
        ("claude-sonnet-5-5", "disabled"),
        ("claude-sonnet-5-5", {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}),
    ],
)
async def test_other_models_and_other_wishes_are_left_alone(serve: Serve, model: str, given: Any) -> None:
    """A model that does not know the control does not get it, nor does a caller who set another."""
    server = serve(says("a"))

    await respond(claude_at(server, model, thinking=given), Request(messages=turn(THOUGHT)))

    assert "drop_block" not in str(server.bodies[0])
    assert "anthropic-beta" not in server.requests[0].headers


# ------------------------------------------------------------------------------------------------ caching, pauses


@pytest.mark.parametrize("cache, mark", [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})])
async def test_the_cache_keeps_as_long_as_told(serve: Serve, cache: Any, mark: Any) -> None:
    """The mark says how long."""
    server = serve(says("Hi"))

    await respond(claude_at(server, cache=cache))

    assert server.bodies[0]["messages"][0]["content"][0]["cache_control"] == mark


async def test_without_a_cache_nothing_is_marked(serve: Serve) -> None:
    """`cache=None` leaves it alone."""
    server = serve(says("Hi"))

    await respond(claude_at(server, cache=None))

    assert "cache_control" not in str(server.bodies)


def pause(*blocks: Any) -> Answer:
    """Answer with a reply that pauses."""
    return replies(*blocks, stop_reason="pause_turn")


async def test_a_pause_is_gone_on_from(serve: Serve) -> None:
    """What came goes back as it came, and all parts are one reply, with the tokens of all requests."""
    searching = use("web_search", {"q": "x"}, id="s", kind="server_tool_use")
    found = {"type": "web_search_tool_result", "tool_use_id": "s", "content": []}
    server = serve(pause(text("I search. "), searching), overloaded(), pause(found), says("4,478 m."))
    shown: list[Any] = []

    reply = await respond(claude_at(server, max_retries=1), shown=shown)

    sent = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": "x"}}
    began = [{"type": "text", "text": "I search. "}, sent]
    assert [body["messages"][1:] for body in server.bodies] == [
        [],
        [{"role": "assistant", "content": began}],
        [{"role": "assistant", "content": began}],
        [{"role": "assistant", "content": [*began, found]}],
    ]
    assert reply.message.content == (
        TextBlock(text="I search. "),
        RawBlock(provider="anthropic", data=sent),
        RawBlock(provider="anthropic", data=found),
        TextBlock(text="4,478 m."),
    )
    assert (reply.stop_reason, reply.usage.requests, reply.usage.output_tokens) == ("end_turn", 4, 45)
    assert [item.kind for item in shown] == ["text", "retry", "text"]


async def test_pauses_are_bounded(serve: Serve) -> None:
    """A reply that does nothing but pause is given back as such in the end."""
    server = serve(script=lambda _received: pause(text("…")))

    reply = await respond(claude_at(server))

    assert (reply.stop_reason, reply.usage.requests) == ("pause_turn", MAX_PAUSES + 1)
    assert len(server.requests) == MAX_PAUSES + 1


async def test_a_pause_that_fails_later_is_no_reply(serve: Serve) -> None:
    """Half of a reply is never an answer."""
    with pytest.raises(ProviderError):
        await respond(claude_at(serve(pause(text("So")), overloaded())))


async def test_a_pause_with_calls_waits_for_them(serve: Serve) -> None:
    """Only the caller can answer a call, so the reply is given back."""
    server = serve(replies(use("f", {}), stop_reason="pause_turn"))

    reply = await respond(claude_at(server))

    assert (reply.stop_reason, len(reply.message.tool_calls), len(server.requests)) == ("pause_turn", 1, 1)


# ------------------------------------------------------------------------------------------------ shapes, prices

CLOSED = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"], "additionalProperties": False}


async def test_a_shape_is_held_where_the_api_takes_it(serve: Serve) -> None:
    """The schema goes beside what else is configured, and is counted."""
    server = serve(says('{"x": "y"}'), counts(1))
    model = claude_at(server, "claude-sonnet-4-6", extra_body={"output_config": {"effort": "low"}})
    request = Request(messages=HELLO.messages, output=OutputSpec(name="peak", json_schema=CLOSED))

    await model.respond(request)
    await model.count_tokens(request)
    await model.aclose()

    for body in server.bodies:
        assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": CLOSED}}
        assert "system" not in body
    check_request(server.bodies[0])


@pytest.mark.parametrize(
    "model, schema",
    [
        ("claude-test", CLOSED),
        ("claude-opus-4-1", CLOSED),
        ("claude-sonnet-5-5", {**CLOSED, "additionalProperties": {"type": "string"}}),
        ("claude-sonnet-5-5", {**CLOSED, "properties": {"x": {}}}),
        ("claude-sonnet-5-5", {**CLOSED, "properties": {"x": {"$ref": "#/$defs/x"}}}),
    ],
)
async def test_a_shape_that_cannot_be_held_is_a_wish(serve: Serve, model: str, schema: Any) -> None:
    """The model is told of it behind the system prompt, which stays in the cache."""
    server = serve(says("{}"))
    request = Request(system="Be brief.", messages=HELLO.messages, output=OutputSpec(name="peak", json_schema=schema))

    await respond(claude_at(server, model), request)

    (body,) = server.bodies
    assert "output_config" not in body
    assert ["cache_control" in block for block in body["system"]] == [True, False]
    assert json.dumps(schema) in body["system"][1]["text"]
    check_request(body)


async def test_a_reply_costs_what_was_said(serve: Serve) -> None:
    """Each part of a pause, and each kind of token, by the price that was given."""
    price = Price(input=1e6, output=1e6, cache_read=0, cache_write=2e6)

    reply = await respond(claude_at(serve(pause(text("So")), says("far.")), price=price))

    assert reply.usage.cost_usd == 2 * (10 + 2 * 20 + 15)
    assert (reply.usage.requests, reply.usage.unpriced_requests) == (2, 0)


async def test_a_stream_is_begun_again_where_that_is_asked_for(serve: Serve) -> None:
    """`retry_streams` shows the reply anew, and both attempts are counted."""
    server = serve(begins("The sum").then(Step.DROP), says("The summit."))
    shown: list[Any] = []

    reply = await respond(claude_at(server, max_retries=1, retry_streams=True), shown=shown)

    assert [item.kind for item in shown] == ["text", "retry", "text"]
    assert (reply.message.text, reply.usage.requests) == ("The summit.", 2)


# ------------------------------------------------------------------------------------------------ settings


async def test_betas_and_headers_are_sent(serve: Serve) -> None:
    """Betas come together in one header, from wherever they are given; other headers go before the library's own."""
    server = serve(says("Hi"), counts(1))
    model = claude_at(
        server,
        betas=["a-1", "b-2, a-1"],
        headers={"x-team": "alps", "Anthropic-Beta": "c-3", "anthropic-version": "2026-10-21"},
    )

    await model.respond(HELLO)
    await model.count_tokens(HELLO)
    await model.aclose()

    for received in server.requests:
        assert received.headers["anthropic-beta"] == "a-1,b-2,c-3"
        assert received.headers["x-team"] == "alps"
        assert received.headers["anthropic-version"] == "2026-10-21"


async def test_tools_that_the_api_runs_are_added(serve: Serve) -> None:
    """They stand behind the tools of the request, and are counted too."""
    search = {"type": "web_search_20250305", "name": "web_search"}
    server = serve(says("Hi"), counts(1), says("Hi"))
    model = claude_at(server, extra_body={"tools": [search], "stop_sequences": ["."]}, cache=None)
    ls = ToolSpec(name="ls", description="", parameters={})

    await model.respond(Request(messages=HELLO.messages, tools=(ls,)))
    await model.count_tokens(Request(messages=HELLO.messages, tools=(ls,)))
    await respond(model)

    assert [[tool["name"] for tool in body["tools"]] for body in server.bodies] == [
        ["ls", "web_search"],
        ["ls", "web_search"],
        ["web_search"],
    ]
    assert ["stop_sequences" in body for body in server.bodies] == [True, False, True]


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
async def test_the_address_is_taken_with_and_without_its_version(serve: Serve, tail: str) -> None:
    """Gateways and other clients write it either way."""
    server = serve(says("Hi"))

    await respond(claude_at(server, base_url=server.base_url.removesuffix("/v1") + "/gateway" + tail))

    assert server.requests[0].path == "/gateway/v1/messages"


async def test_address_and_key_come_from_the_environment(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY are used where nothing is given."""
    server = serve(says("Hi"))
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", " key-from-the-shell\n")

    await respond(Anthropic("claude-test"))

    assert server.requests[0].headers["x-api-key"] == "key-from-the-shell"


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"api_key": ""}, {}),
        ({"headers": {"authorization": "Bearer token-1234"}}, {"authorization": "Bearer token-1234"}),
        ({"headers": {"X-Api-Key": "key-of-mine"}}, {"x-api-key": "key-of-mine"}),
    ],
)
async def test_a_key_of_the_environment_stays_at_home(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, options: Any, expected: dict[str, str]
) -> None:
    """Where the caller said that none is to be sent, or gave another in a header."""
    server = serve(says("Hi"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-from-the-shell")

    await respond(Anthropic("claude-test", base_url=server.base_url, **options))

    received = server.requests[0].headers
    assert {name: received[name] for name in ("authorization", "x-api-key") if name in received} == expected


async def test_a_password_in_the_address_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes instead of the key of the environment."""
    server = serve(says("Hi"))
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)

    await respond(Anthropic("claude-test", base_url=server.base_url.replace("//", "//joe:pass@")))

    assert server.requests[0].headers["authorization"] == "Basic am9lOnBhc3M="
    assert "x-api-key" not in server.requests[0].headers


def test_anthropic_needs_a_key() -> None:
    """Without one, the error names the variable and the line to write, before anything is sent."""
    with pytest.raises(
        AuthError, match=r"export ANTHROPIC_API_KEY=.*Anthropic\(\"claude-opus-5-5\", api_key=your_key\)"
    ):
        Anthropic("claude-opus-5-5")
    Anthropic("claude-opus-5-5", headers={"Authorization": "Bearer token"})


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schlüssel"])
def test_a_key_that_no_header_takes_is_refused_unseen(key: str) -> None:
    """A key with a line break in it is refused without being shown."""
    with pytest.raises(AuthError) as refused:
        Anthropic("claude-test", api_key=key)

    assert key not in str(refused.value)


async def test_a_client_of_ones_own_is_used_and_left_open(serve: Serve) -> None:
    """Headers and settings of the given client hold, and who opened it closes it."""
    server = serve(says("Hi"), counts(1))

    async with httpx.AsyncClient(headers={"x-team": "alps"}) as client:
        model = claude_at(server, http_client=client)
        await model.respond(HELLO)
        await model.count_tokens(HELLO)
        await model.aclose()
        assert not client.is_closed

    assert [received.headers["x-team"] for received in server.requests] == ["alps", "alps"]


@pytest.mark.parametrize(
    "options, hint",
    [
        ({"base_url": "localhost:8000"}, "base_url begins with http://"),
        ({"base_url": ""}, "base_url="),
        ({"base_url": 8000}, "base_url="),
        ({"base_url": "http://joe:se/cret@localhost"}, "base_url is not an address"),
        ({"max_tokens": 0}, "max_tokens=8192"),
        ({"max_tokens": True}, "max_tokens=8192"),
        ({"max_tokens": "9"}, "max_tokens=8192"),
        ({"context_tokens": -1}, "context_tokens=200000"),
        ({"thinking": "much"}, "thinking=4096"),
        ({"thinking": True}, "thinking=4096"),
        ({"thinking": 1023}, "from 1024 on"),
        ({"thinking": 8192}, "below max_tokens, which is 8192"),
        ({"thinking": {}}, "thinking=4096"),
        ({"cache": True}, 'cache="1h"'),
        ({"betas": "a-1"}, "betas=['a-1']"),
        ({"headers": {"x-team": "secret\n"}}, "'x-team'"),
        ({"headers": {"x-team": 5}}, "'x-team'"),
        ({"timeout": 0}, "timeout=120.0"),
        ({"max_retries": -1}, "max_retries=2"),
        ({"http_client": object()}, "httpx.AsyncClient()"),
        ({"extra_body": ["x"]}, "extra_body="),
        ({"extra_body": {"stream": False}}, "leave it out"),
        ({"extra_body": {"max_tokens": 5}}, "has an argument for it"),
        ({"extra_body": {"tools": {"type": "x"}}}, "are a list"),
        ({"base_url": "http://joe:secret@localhost", "api_key": "key-12345"}, "only one of them"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], hint: str) -> None:
    """Each wrong setting is a ConfigError that shows what to write, and no secret."""
    with pytest.raises(ConfigError) as refused:
        Anthropic("x", **{"base_url": LOCAL, **options})

    assert hint in str(refused.value)
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("model", ["", "  ", None, 5])
def test_a_model_has_a_name(model: Any) -> None:
    """No name, no model."""
    with pytest.raises(ConfigError, match="Anthropic"):
        Anthropic(model, base_url=LOCAL)


def test_a_field_that_is_no_json_is_refused_where_it_enters() -> None:
    """The error names the path to the value."""
    with pytest.raises(ValueNotStorableError, match=r"extra_body\['stop'\]"):
        Anthropic("x", base_url=LOCAL, extra_body={"stop": {"a"}})


@pytest.mark.parametrize(
    "model, context_tokens, max_tokens",
    [
        ("claude-sonnet-5-5", 1_000_000, 128_000),
        ("claude-fable-5", 1_000_000, 128_000),
        ("anthropic/claude-haiku-5-5", 1_000_000, 64_000),
        ("claude-opus-4-8", 1_000_000, 128_000),
        ("claude-sonnet-4-6", 1_000_000, 128_000),
        ("claude-opus-4-6", 1_000_000, 128_000),
        ("claude-sonnet-4-5-20250929", 200_000, 64_000),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", 200_000, 32_000),
        ("claude-opus-4-20250514", 200_000, 32_000),
        ("claude-sonnet-4-20250514", 200_000, 64_000),
        ("claude-sonnet-4-0", 200_000, 64_000),
        ("claude-3-7-sonnet-latest", 200_000, 64_000),
        ("claude-3-5-haiku-20241022", 200_000, 8_192),
        ("claude-3-haiku-20240307", 200_000, 4_096),
        ("claude-sonnet-7", 1_000_000, 128_000),
        ("qwen3-8b", 200_000, 8_192),
    ],
)
def test_a_model_knows_its_size(model: str, context_tokens: int, max_tokens: int) -> None:
    """How much it reads and writes follows from its name, and can be given."""
    known = Anthropic(model, base_url=LOCAL)
    given = Anthropic(model, base_url=LOCAL, context_tokens=5_000, max_tokens=50)

    assert (known.context_tokens, known.max_tokens) == (context_tokens, max_tokens)
    assert (given.context_tokens, given.max_tokens) == (5_000, 50)


@pytest.mark.parametrize(
    "model, takes_prefill, binds_thinking",
    [
        ("claude-haiku-4-5-20251001", True, False),
        ("claude-sonnet-4-6", False, False),
        ("claude-opus-5-20260901", False, False),
        ("claude-fable-5-1", False, True),
        ("claude-haiku-5-5", False, True),
        ("claude-opus-6", False, True),
    ],
)
def test_what_a_model_takes_follows_from_its_version(model: str, takes_prefill: bool, binds_thinking: bool) -> None:
    """A date in a name is no version."""
    facts = facts_of(model)

    assert (facts.takes_prefill, facts.binds_thinking) == (takes_prefill, binds_thinking)


async def test_one_model_serves_requests_at_once(serve: Serve) -> None:
    """A request leaves nothing behind in the model, also where the same one is asked in turn with other messages."""

    def script(received: Received) -> Answer:
        return says("re: ", received.body["messages"][-1]["content"][-1]["text"])

    model = claude_at(serve(script=script))

    first = await model.respond(Request(messages=(Message.user("one"),)))
    second = await respond(model, Request(messages=(Message.user("two"),)))

    assert (first.message.text, second.message.text) == ("re: one", "re: two")


async def test_calls_and_their_ids_come_back(serve: Serve) -> None:
    """Parallel calls have the ids that the API gave them."""
    reply = await respond(claude_at(serve(calls(("read", {"path": "a"}), ("ls", {})))))

    assert [(call.id, call.name) for call in reply.message.tool_calls] == [("toolu_0x", "read"), ("toolu_1x", "ls")]


async def test_marks_of_the_callers_tools_count(serve: Serve) -> None:
    """With a marked tool in `extra_body` there are four marks, and not five, which the API refuses."""
    search: Any = {"type": "web_search_20250305", "name": "web_search", "cache_control": {"type": "ephemeral"}}
    server = serve(says("ok"))
    spec = ToolSpec(name="f", description="", parameters={})
    request = Request(system="Be brief.", messages=(*turn(), Message.user("And?")), tools=(spec,))

    await respond(claude_at(server, extra_body={"tools": [search]}), request)

    (body,) = server.bodies
    assert json.dumps(body).count('"cache_control"') == 4
    assert body["tools"][-1] == search
