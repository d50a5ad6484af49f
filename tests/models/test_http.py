"""What goes wrong between a Model and its server, met on a real socket."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import Any

import anyio
import httpx
import pytest

from alpineagents.errors import AuthError, ConfigError, ContextTooLongError, ModelError, ProviderError, RateLimitError
from alpineagents.messages import Message, Request
from alpineagents.models import OpenAICompatible, http
from tests.models.asking import KEY, model_at, refusal, respond
from tests.models.conftest import Serve
from tests.servers.openai_server import (
    DONE,
    Answer,
    Repeat,
    Step,
    begins,
    chunk,
    context_too_long,
    event,
    page,
    says,
    silent,
    status,
    stream,
)

# ------------------------------------------------------------------------------------------------ statuses


@pytest.mark.parametrize("code", [401, 403])
async def test_a_refused_key_is_an_auth_error(serve: Serve, code: int) -> None:
    """401 and 403 say that the key is wrong and where it came from, without showing it."""
    server = serve(status(code, f"Incorrect API key provided: {KEY}", code="invalid_api_key"))

    error = await refusal(server, AuthError)

    assert (error.status, error.request_id) == (code, "req_7")
    assert "check api_key" in str(error)
    assert KEY not in str(error)


async def test_a_missing_key_is_named_when_the_server_wants_one(serve: Serve) -> None:
    """A server that turns out to need a key gives an error that names the variable."""
    error = await refusal(serve(status(401)), AuthError, api_key=None)

    assert "set OPENAI_API_KEY" in str(error)


async def test_too_many_requests_say_how_long_to_wait(serve: Serve) -> None:
    """429 is a RateLimitError with the seconds that the server gave."""
    error = await refusal(serve(status(429, headers={"Retry-After": "7"})), RateLimitError)

    assert (error.status, error.retry_after) == (429, 7.0)


@pytest.mark.parametrize(
    "answer",
    [
        context_too_long(),
        status(413, "payload too large"),
        status(400, "the request exceeds the available context size", type="exceed_context_size_error", code=400),
    ],
)
async def test_a_context_that_is_too_long_has_its_own_error(serve: Serve, answer: Answer) -> None:
    """The codes that servers have for it, and 413, are a ContextTooLongError."""
    error = await refusal(serve(answer), ContextTooLongError)

    assert error.status == answer.status


@pytest.mark.parametrize("code", [400, 404, 418, 500, 503, 307])
async def test_any_other_status_is_a_provider_error(serve: Serve, code: int) -> None:
    """The status, the request's id and the server's own words are kept."""
    error = await refusal(serve(status(code, "the model is on holiday")), ProviderError)

    assert (error.status, error.request_id) == (code, "req_7")
    assert "the model is on holiday" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b'{"error": "no such model"}',
        b'{"detail": "no such model"}',
        b'[{"error": {"message": "no such model"}}]',
        b"no such model",
    ],
)
async def test_error_bodies_of_other_servers_are_read(serve: Serve, body: bytes) -> None:
    """The words are found where Ollama, FastAPI, Gemini and plain servers put them."""
    error = await refusal(serve(Answer((body,), 404, "application/json")), ProviderError)

    assert "answered 404 Not Found: no such model." in str(error)


async def test_a_long_error_body_is_cut(serve: Serve) -> None:
    """Of a server's own words, 1,000 characters are kept."""
    error = await refusal(serve(Answer((b"x" * 300_000,), 500, "text/plain")), ProviderError)

    assert 1_000 < len(str(error)) < 1_200


async def test_an_error_body_that_breaks_off_leaves_the_status(serve: Serve) -> None:
    """The status is known before the body, and is not lost with it."""
    error = await refusal(serve(Answer((b"it fai", Step.DROP), 500, "text/plain")), ProviderError)

    assert error.status == 500


# ------------------------------------------------------------------------------------------------ broken streams


async def test_a_stalled_stream_fails_within_the_timeout(serve: Serve) -> None:
    """A server that falls silent in mid-stream is given up after `timeout` seconds."""
    server = serve(begins("The sum").then(Step.STALL))

    with anyio.fail_after(10):
        error = await refusal(server, ProviderError, timeout=0.2)

    assert server.stalled.is_set()
    assert "sent nothing of the reply for 0.2 s" in str(error)


@pytest.mark.parametrize(
    "sign",
    [b": ping\n\n", event({"type": "ping"}), event({"choices": []}), event(chunk({"content": ""}))],
    ids=["comment", "ping", "no choice", "empty delta"],
)
async def test_signs_of_life_are_no_part_of_the_reply(serve: Serve, sign: bytes) -> None:
    """A server that only says that it is alive is given up like a silent one."""
    server = serve(begins("The sum").then(Repeat(sign)))

    with anyio.fail_after(10):
        error = await refusal(server, ProviderError, timeout=0.4)

    assert "sent nothing of the reply for 0.4 s" in str(error)


async def test_signs_of_life_are_waited_for_longer_unless_told(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a timeout of the caller's own, a server that shows that it is alive has longer than a silent one."""
    monkeypatch.setattr(http, "READ_SECONDS", 0.2)
    monkeypatch.setattr(http, "STALL_SECONDS", 0.8)
    server = serve(begins("The sum").then(Repeat(b": ping\n\n")))

    with anyio.fail_after(10):
        error = await refusal(server, ProviderError)

    assert "sent nothing of the reply for 0.8 s" in str(error)


@pytest.mark.parametrize("wait", [says("Hi"), says("Hi").then(event("[DONE]"))])
async def test_a_server_that_does_not_hang_up_delays_nothing(serve: Serve, wait: Answer) -> None:
    """Behind the end mark nothing can follow, so the reply is there at once."""
    server = serve(wait.then(Step.STALL))

    with anyio.fail_after(http.TAIL_SECONDS / 2):
        assert (await respond(model_at(server))).message.text == "Hi"


@pytest.mark.parametrize("kind", ["Text/Event-Stream", "TEXT/EVENT-STREAM; charset=latin-1", "text/plain", ""])
async def test_a_stream_is_known_whatever_its_type_says(serve: Serve, kind: str) -> None:
    """Small and large letters are one in a type, and servers that give another one, or none, are read too."""
    answer = replace(says("Höhe"), content_type=kind)

    assert (await respond(model_at(serve(answer)))).message.text == "Höhe"
    assert (await respond(model_at(serve(replace(answer, steps=(b": hi\n\n", *answer.steps)))))).message.text == "Höhe"


@pytest.mark.parametrize("body", [b"", b"upstream is down: try later", b'{"error": {"message": "no"}}'])
async def test_what_does_not_begin_as_a_stream_is_none(serve: Serve, body: bytes) -> None:
    """Its words are in the error, from their beginning on."""
    error = await refusal(serve(Answer((body,) if body else (), content_type="text/plain")), ProviderError)

    assert "'text/plain' where an event stream" in str(error)
    assert body == b"" or body.decode()[-10:-4] in str(error) or "'no'" in str(error)


async def test_slow_headers_fail_within_the_timeout(serve: Serve) -> None:
    """A server that takes a request and says nothing is given up too."""
    with anyio.fail_after(10):
        error = await refusal(serve(silent()), ProviderError, timeout=0.2)

    assert isinstance(error.__cause__, httpx.ReadTimeout)


async def test_a_dropped_connection_is_a_provider_error(serve: Serve) -> None:
    """A connection that breaks in mid-stream gives no reply, and the cause is kept."""
    error = await refusal(serve(begins("The sum").then(Step.DROP)), ProviderError)

    assert "broke off" in str(error)
    assert isinstance(error.__cause__, httpx.RequestError)


async def test_a_stream_without_its_end_is_no_reply(serve: Serve) -> None:
    """A stream that ends cleanly without finish reason and `[DONE]` was cut by somebody."""
    error = await refusal(serve(begins("The sum")), ProviderError)

    assert "ended before the reply did" in str(error)


async def test_an_end_mark_after_nothing_is_no_reply(serve: Serve) -> None:
    """`[DONE]` alone says nothing."""
    await refusal(serve(Answer((DONE,))), ProviderError)


async def test_a_stream_without_finish_reason_is_a_reply_if_done(serve: Serve) -> None:
    """Some servers give no finish reason; the end mark after some text is enough."""
    reply = await respond(model_at(serve(begins("Hi").then(DONE))))

    assert (reply.message.text, reply.stop_reason) == ("Hi", "end_turn")


@pytest.mark.parametrize("step", [Step.STALL, Step.DROP])
async def test_what_fails_after_the_reply_is_whole_takes_nothing_from_it(
    serve: Serve, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the finish reason came, a server that stalls or drops costs the usage only."""
    monkeypatch.setattr(http, "TAIL_SECONDS", 0.1)

    reply = await respond(
        model_at(serve(stream(chunk({"content": "Hi"}, finish_reason="stop"), done=False).then(step)))
    )

    assert reply.message.text == "Hi"


@pytest.mark.parametrize("data", ["{nope", "[1]", "7", "null", "[" * 100_000])
async def test_an_event_that_is_no_json_object_is_a_provider_error(serve: Serve, data: str) -> None:
    """Malformed events name base_url, which is what is mostly wrong."""
    error = await refusal(serve(begins("The sum").then(event(data), DONE)), ProviderError)

    assert "not a JSON object" in str(error)
    assert "base_url" in str(error)


async def test_a_web_page_is_a_provider_error(serve: Serve) -> None:
    """An HTML page with status 200 is no stream."""
    error = await refusal(serve(page()), ProviderError, max_retries=2)

    assert "'text/html'" in str(error)
    assert "base_url" in str(error)


@pytest.mark.parametrize(
    "told, kind",
    [
        ({"message": "upstream failed", "code": 502}, ProviderError),
        ({"message": "slow down", "code": 429}, RateLimitError),
        ({"message": "too long", "code": "context_length_exceeded"}, ContextTooLongError),
        ("it broke", ProviderError),
    ],
)
async def test_an_error_inside_the_stream_is_raised(serve: Serve, told: Any, kind: type[ModelError]) -> None:
    """Servers that fail after the headers say so in an event."""
    error = await refusal(serve(begins("The sum").then(event({"error": told}))), kind)

    assert (told if isinstance(told, str) else told["message"]) in str(error)


async def test_comments_and_odd_packets_are_read(serve: Serve) -> None:
    """Comments, line ends of all kinds, and characters cut in half by packets change nothing."""
    raw = b": OPENROUTER PROCESSING\r\n\r\nretry: 10\nid: 7\n\n" + event(
        '{"choices": [{"delta": {"content": "Grüße, 峠"}}]}'
    )
    packets = [raw[start : start + 7] for start in range(0, len(raw), 7)]

    reply = await respond(model_at(serve(Answer((*packets, b": ping\n\n", DONE)))))

    assert reply.message.text == "Grüße, 峠"


async def test_nobody_listening_is_a_provider_error() -> None:
    """A refused connection asks for base_url."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/v1"

    with pytest.raises(ProviderError, match=r"cannot reach http://127.0.0.1.*base_url") as refused:
        await respond(OpenAICompatible("test", base_url=address, max_retries=0))

    assert isinstance(refused.value.__cause__, httpx.ConnectError)


async def test_text_is_sent_as_utf8(serve: Serve) -> None:
    """A body of other scripts is as long as its text, not three times that."""
    server = serve(says("ok"))
    model = model_at(server)

    await model.respond(Request(messages=(Message.user("日本語"),)))
    await model.aclose()

    assert "日本語".encode() in server.requests[0].raw


@pytest.mark.parametrize("port", [0, 65_536, 99_999])
def test_a_port_that_no_computer_has_is_refused(port: int) -> None:
    """It is said when the Model is built, and not by whatever the network makes of it."""
    with pytest.raises(ConfigError, match=f"port {port}"):
        OpenAICompatible("test", base_url=f"http://127.0.0.1:{port}/v1")
