"""What goes wrong between an Anthropic and its server, met on a real socket."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest

from alpineagents.errors import AuthError, ContextTooLongError, ModelError, ProviderError, RateLimitError
from tests.models.asking import HELLO, KEY
from tests.models.asking_claude import claude_at, refusal, respond
from tests.models.conftest import Serve
from tests.servers.anthropic_server import (
    PING,
    STOP,
    begins,
    closed,
    context_too_long,
    counts,
    delta,
    end,
    error_event,
    event,
    opened,
    overloaded,
    says,
    start,
    status,
    stream,
)
from tests.servers.openai_server import Answer, Step, page, silent

# ------------------------------------------------------------------------------------------------ statuses


@pytest.mark.parametrize(
    "answer, kind",
    [
        (status(400, "invalid_request_error"), ProviderError),
        (status(401, "authentication_error"), AuthError),
        (status(402, "billing_error"), ProviderError),
        (status(403, "permission_error"), AuthError),
        (status(404, "not_found_error"), ProviderError),
        (status(413, "request_too_large"), ContextTooLongError),
        (status(429, "rate_limit_error"), RateLimitError),
        (status(500, "api_error"), ProviderError),
        (status(504, "timeout_error"), ProviderError),
        (overloaded(), ProviderError),
        (context_too_long(), ContextTooLongError),
        (
            status(400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000"),
            ContextTooLongError,
        ),
    ],
)
async def test_each_status_has_its_error(serve: Serve, answer: Answer, kind: type[ModelError]) -> None:
    """The status, the request's id and the API's own words are kept, in the error that says what can be done."""
    error = await refusal(serve(answer), kind)

    assert (error.status, error.request_id) == (answer.status, "req_7")
    assert any(words in str(error) for words in ("it failed", "Overloaded", "too long", "exceed context limit"))


async def test_too_many_requests_say_how_long_to_wait(serve: Serve) -> None:
    """429 has the seconds that the API gave."""
    error = await refusal(serve(status(429, "rate_limit_error", headers={"Retry-After": "7"})), RateLimitError)

    assert error.retry_after == 7.0


@pytest.mark.parametrize(
    "answer",
    [
        status(408, "api_error"),
        status(409, "conflict_error"),
        status(429, "rate_limit_error", headers={"Retry-After": "0"}),
        status(500),
        overloaded(),
        Answer(before_headers=Step.DROP),
        stream(start()).then(Step.DROP),
        stream(start()),
        stream(start(), PING, error_event("overloaded_error", "Overloaded")),
        begins().then(error_event("api_error")),
    ],
)
async def test_what_may_pass_is_tried_again(serve: Serve, answer: Answer) -> None:
    """Busy servers and broken connections are asked again, and nobody notices."""
    server = serve(answer, answer, says("Hi"))
    shown: list[Any] = []

    reply = await respond(claude_at(server, max_retries=2), shown=shown)

    assert reply.message.text == "Hi"
    assert [item.kind for item in shown] == ["retry", "retry", "text"]
    assert reply.usage.requests == 3
    assert server.bodies == [server.bodies[0]] * 3


@pytest.mark.parametrize(
    "answer",
    [
        status(400, "invalid_request_error"),
        status(401, "authentication_error"),
        status(402, "billing_error"),
        status(404, "not_found_error"),
        status(529, "overloaded_error", headers={"x-should-retry": "false"}),
        status(429, "rate_limit_error", details={"error_code": "enforced_spend_limit_reached"}),
        context_too_long(),
        stream(start(), error_event("invalid_request_error")),
        page(),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(serve: Serve, answer: Answer) -> None:
    """A refusal that the next attempt would meet too is raised at once."""
    server = serve(answer, says("Hi"))

    with pytest.raises(ModelError):
        await respond(claude_at(server, max_retries=2))

    assert len(server.requests) == 1


# ------------------------------------------------------------------------------------------------ broken streams

BLOCKS = {
    "text": ({"type": "text", "text": ""}, delta(0, "text_delta", text="So")),
    "thinking": ({"type": "thinking", "thinking": "", "signature": ""}, delta(0, "thinking_delta", thinking="Hm")),
    "a signature": ({"type": "thinking", "thinking": "", "signature": ""}, delta(0, "signature_delta", signature="s")),
    "redacted thinking": ({"type": "redacted_thinking", "data": "x"}, PING),
    "a call": ({"type": "tool_use", "id": "a", "name": "f", "input": {}}, PING),
}


@pytest.mark.parametrize("block, part", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize(
    "wrong",
    [(), (Step.DROP,), (error_event("overloaded_error"),), (closed(0),), (closed(0), end())],
    ids=["ends", "drops", "fails", "ends after a block", "ends after the reason"],
)
async def test_a_stream_without_its_end_is_no_reply(serve: Serve, block: Any, part: bytes, wrong: Any) -> None:
    """Until `message_stop` came it is an error; and what was begun is not begun a second time."""
    server = serve(stream(start(), opened(0, block), part, *wrong), says("Hi"))

    error = await refusal(server, ProviderError, max_retries=2)

    assert len(server.requests) == 1
    assert error.request_id == "req_7"


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("overloaded_error", ProviderError),
        ("api_error", ProviderError),
        ("rate_limit_error", RateLimitError),
        ("authentication_error", AuthError),
        ("invalid_request_error", ProviderError),
        ("request_too_large", ContextTooLongError),
    ],
)
async def test_an_error_inside_the_stream_is_raised(serve: Serve, kind: str, expected: type[ModelError]) -> None:
    """An API that fails after the headers says so in an event, whose kind and request are kept."""
    error = await refusal(serve(begins("The sum").then(error_event(kind, "it broke"))), expected)

    assert "it broke" in str(error)
    assert error.request_id == "req_7"


@pytest.mark.parametrize("answer", [begins("The sum").then(Step.STALL), silent()], ids=["stream", "headers"])
async def test_silence_fails_within_the_timeout(serve: Serve, answer: Answer) -> None:
    """A server that falls silent, before or after the headers, is given up after `timeout` seconds."""
    with anyio.fail_after(10):
        error = await refusal(serve(answer), ProviderError, timeout=0.2)

    assert "sent nothing of the reply for 0.2 s" in str(error)


@pytest.mark.parametrize("data", ["{nope", "[1]", "null", '{"type": "content_block_delta", "index": 0, "delta": {"ty'])
async def test_an_event_that_is_no_json_object_is_a_provider_error(serve: Serve, data: str) -> None:
    """A truncated event ends the reply, and names base_url."""
    error = await refusal(serve(begins("The sum").then(event(data), end(), STOP)), ProviderError)

    assert "not a JSON object" in str(error)
    assert "base_url" in str(error)
    assert error.request_id == "req_7"


@pytest.mark.parametrize(
    "wrong",
    [
        delta(1, "text_delta", text="mit"),
        delta(0, "text_delta"),
        delta(0, "text_delta", text=7),
        event({"type": "content_block_delta", "index": 0}),
        event({"type": "content_block_delta", "index": "0", "delta": {}}),
        event({"type": "content_block_start", "index": 1}),
        opened(0, {"type": "text", "text": ""}),
    ],
)
async def test_an_event_that_lost_a_part_is_a_provider_error(serve: Serve, wrong: bytes) -> None:
    """What does not fit the parts before it means that something is missing, so there is no reply."""
    error = await refusal(serve(begins("The sum").then(wrong, closed(0), end(), STOP)), ProviderError)

    assert "not the Messages format" in str(error)


async def test_a_stream_of_another_format_is_no_reply(serve: Serve) -> None:
    """The end mark of Chat Completions ends nothing here."""
    chat = b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'

    error = await refusal(serve(Answer((chat,))), ProviderError)

    assert "base_url" in str(error)


async def test_a_web_page_is_a_provider_error(serve: Serve) -> None:
    """An HTML page with status 200 is no stream."""
    error = await refusal(serve(page()), ProviderError)

    assert "'text/html'" in str(error)


# ------------------------------------------------------------------------------------------------ counting


async def test_tokens_are_counted(serve: Serve) -> None:
    """The number comes from the API, which is asked again where that may help."""
    server = serve(overloaded(), counts(42))
    model = claude_at(server, max_retries=1)

    assert await model.count_tokens(HELLO) == 42
    await model.aclose()

    assert server.requests[1].path == "/v1/messages/count_tokens"
    assert server.bodies[1].keys() == {"model", "messages"}


@pytest.mark.parametrize(
    "answer, kind",
    [
        (status(401, "authentication_error"), AuthError),
        (status(404, "not_found_error"), ProviderError),
        (counts(None), ProviderError),
        (counts(True), ProviderError),
        (page(), ProviderError),
        (Answer(before_headers=Step.DROP), ProviderError),
        (Answer((b'{"input_to', Step.DROP), content_type="application/json"), ProviderError),
    ],
)
async def test_a_count_that_fails_is_an_error(serve: Serve, answer: Answer, kind: type[ModelError]) -> None:
    """A server that does not count gives no number."""
    model = claude_at(serve(answer))

    with pytest.raises(kind):
        await model.count_tokens(HELLO)
    await model.aclose()


# ------------------------------------------------------------------------------------------------ secrets


async def test_secrets_are_sent_and_shown_nowhere(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The key and headers are sent; they are not in a repr, an error, an attribute or a log."""
    caplog.set_level(logging.DEBUG)
    told = f"x-api-key {KEY}, sk-ant-api03-abc_xyz and gateway-pass are no good"
    server = serve(
        says("Hi"),
        status(500, message=told),
        begins("x").then(error_event("api_error", told)),
        status(400, message=told),
    )
    model = claude_at(server, headers={"x-gateway": "gateway-pass"})

    await model.respond(HELLO)
    errors = []
    for ask in (model.respond, model.respond, model.count_tokens):
        with pytest.raises(ProviderError) as refused:
            await ask(HELLO)
        errors.append(f"{refused.value} {refused.value!r}")
    await model.aclose()

    for received in server.requests:
        assert received.headers["x-api-key"] == KEY
        assert received.headers["x-gateway"] == "gateway-pass"
    assert "httpx" in caplog.text
    shown = f"{model!r} {vars(model)} {vars(model._endpoint)} {errors} {caplog.text}"
    assert not [secret for secret in (KEY, "sk-ant", "gateway-pass") if secret in shown]
