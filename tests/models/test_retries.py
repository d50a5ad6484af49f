"""What is tried again, how often, and after how long."""

from __future__ import annotations

from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from alpineagents import Agent, Message, State
from alpineagents.errors import ModelError, ProviderError, RateLimitError
from alpineagents.models import Delta, Retry
from alpineagents.models.failures import retry_after
from tests.models.asking import model_at, refusal, respond
from tests.models.conftest import Serve
from tests.servers.openai_server import (
    Answer,
    Step,
    begins,
    chunk,
    context_too_long,
    event,
    page,
    says,
    status,
    stream,
)


@pytest.mark.parametrize(
    "failing",
    [
        status(408),
        status(409),
        status(429, headers={"Retry-After": "0"}),
        status(500),
        status(529),
        status(400, headers={"x-should-retry": "true"}),
        Answer(before_headers=Step.DROP),
        begins().then(Step.DROP),
        begins(),
        begins().then(event({"error": {"message": "overloaded", "code": 502}})),
    ],
)
async def test_what_may_pass_is_tried_again(serve: Serve, failing: Answer) -> None:
    """Busy servers and broken connections are asked again, and nobody notices."""
    server = serve(failing, failing, says("Hi"))
    shown: list[Any] = []

    reply = await respond(model_at(server, max_retries=2), shown)

    assert reply.message.text == "Hi"
    assert [item.text for item in shown if isinstance(item, Delta)] == ["Hi"]
    assert server.bodies == [server.bodies[0]] * 3


@pytest.mark.parametrize(
    "failing",
    [
        status(400),
        status(401),
        status(404),
        context_too_long(),
        status(500, headers={"x-should-retry": "false"}),
        status(429, code="insufficient_quota"),
        page(),
    ],
)
async def test_what_will_not_pass_is_not_tried_again(serve: Serve, failing: Answer) -> None:
    """A refusal that the next attempt would meet too is raised at once."""
    server = serve(failing, says("Hi"))

    with pytest.raises(ModelError):
        await respond(model_at(server, max_retries=2))

    assert len(server.requests) == 1


@pytest.mark.parametrize("delta", [{"content": "x"}, {"reasoning_content": "x"}, {"tool_calls": [{"id": "a"}]}])
async def test_nothing_is_tried_again_after_the_first_delta(serve: Serve, delta: dict[str, Any]) -> None:
    """What was begun is not begun a second time."""
    server = serve(stream(chunk(delta), done=False).then(Step.DROP), says("Hi"))

    with pytest.raises(ProviderError):
        await respond(model_at(server, max_retries=2))

    assert len(server.requests) == 1


async def test_a_stream_is_begun_anew_where_the_model_says_so(serve: Serve) -> None:
    """With `retry_streams`, a reply that broke off is asked for again; the item between says that it begins anew."""
    server = serve(begins("The sum").then(Step.DROP), says("The ", "peak."))
    shown: list[Any] = []

    reply = await respond(model_at(server, max_retries=2, retry_streams=True), shown)

    assert reply.message.text == "The peak."
    assert [item.text if item.kind == "text" else item.kind for item in shown] == ["The sum", "retry", "The ", "peak."]
    assert (reply.usage.requests, reply.usage.input_tokens) == (2, 12)


async def test_each_retry_is_told(serve: Serve) -> None:
    """An attempt that is made again is told with its number, the wait before it, and why."""
    server = serve(status(429, headers={"Retry-After": "0.01"}), begins(), says("Hi"))
    shown: list[Any] = []

    await respond(model_at(server, max_retries=2), shown)

    first, second = (item for item in shown if isinstance(item, Retry))
    assert (first.attempt, second.attempt) == (2, 3)
    assert 0.01 <= first.wait_seconds < 0.02
    assert "answered 429" in first.error
    assert "ended before the reply did" in second.error


async def test_failed_attempts_are_counted(serve: Serve) -> None:
    """A refused attempt cost nothing; what one cost that broke off is not known."""
    refused, broken = serve(status(500), says("Hi")), serve(begins(), says("Hi"))

    one = await respond(model_at(refused, max_retries=1))
    two = await respond(model_at(broken, max_retries=1))

    assert (one.usage.requests, one.usage.unpriced_requests) == (2, 1)
    assert (two.usage.requests, two.usage.unpriced_requests) == (2, 2)


async def test_no_attempt_begins_after_the_budget(serve: Serve) -> None:
    """`retry_seconds` bounds all attempts together."""
    server = serve(status(503, headers={"Retry-After": "2"}), says("Hi"))

    await refusal(server, ProviderError, max_retries=5, retry_seconds=1.0)

    assert len(server.requests) == 1


async def test_a_run_shows_retries_and_counts_them(serve: Serve) -> None:
    """A reader of a run sees the retry between request and reply, and the State counts both attempts."""
    async with aclosing(Agent(model_at(serve(status(500), says("Hi")), max_retries=1))) as agent:
        async with agent.stream("Hello") as items:
            kinds = [item.kind async for item in items]

    assert kinds[2:6] == ["model_requested", "retry", "text", "model_replied"]
    assert items.state.usage.requests == 2


async def test_a_run_that_fails_counts_all_attempts(serve: Serve) -> None:
    """What a failed request took is in the sum too, each attempt of it."""
    state = State(messages=[Message.user("Hello")])

    async with aclosing(Agent(model_at(serve(status(500), begins(), status(500)), max_retries=2))) as agent:
        with pytest.raises(ProviderError):
            await agent.run(state)

    assert (state.usage.requests, state.usage.unpriced_requests) == (3, 1)


async def test_a_run_that_is_cancelled_counts_all_attempts(serve: Serve) -> None:
    """The request that was under way is counted, and the ones before it."""
    server = serve(status(500), begins("The sum").then(Step.STALL))
    state = State(messages=[Message.user("Hello")])

    async with aclosing(Agent(model_at(server, max_retries=2))) as agent:
        async with agent.stream(state) as items:
            async for item in items:
                if item.kind == "text":
                    break

    (failed,) = [event for event in state.history if event.kind == "model_failed"]
    assert (failed.outcome, failed.partial) == ("cancelled", "The sum")
    assert (state.usage.requests, state.usage.unpriced_requests) == (2, 1)


async def test_an_attempt_that_had_not_begun_is_not_counted(serve: Serve) -> None:
    """A run that is cancelled while it waits for the next attempt has made the ones before it."""
    server = serve(status(429, headers={"Retry-After": "30"}))
    state = State(messages=[Message.user("Hello")])

    async with aclosing(Agent(model_at(server, max_retries=2))) as agent:
        async with agent.stream(state) as items:
            async for item in items:
                if item.kind == "retry":
                    break

    assert (state.usage.requests, state.usage.unpriced_requests) == (1, 0)
    assert len(server.requests) == 1


async def test_attempts_are_bounded(serve: Serve) -> None:
    """After `max_retries` the last error is raised."""
    server = serve(status(500), status(500), status(503), says("Hi"))

    error = await refusal(server, ProviderError, max_retries=2)

    assert (error.status, len(server.requests)) == (503, 3)


async def test_retry_after_is_obeyed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is never shorter than the server asks."""
    waits: list[float] = []

    async def note(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr(anyio, "sleep", note)
    server = serve(status(429, headers={"Retry-After": "20"}), status(503, headers={"Retry-After": "15"}), says("Hi"))

    await respond(model_at(server, max_retries=2))

    assert 20 <= waits[0] <= 22
    assert 15 <= waits[1] <= 16.5


async def test_a_wait_beyond_the_budget_is_not_waited(serve: Serve) -> None:
    """An hour is for the caller to decide on, who gets the error at once."""
    server = serve(status(429, headers={"Retry-After": "3600"}), says("Hi"))

    error = await refusal(server, RateLimitError, max_retries=2)

    assert (error.retry_after, len(server.requests)) == (3600.0, 1)


NOW = datetime(2025, 11, 29, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "-2"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": format_datetime(NOW + timedelta(seconds=30), usegmt=True)}, 30.0),
        ({"retry-after": format_datetime(NOW - timedelta(seconds=30), usegmt=True)}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(headers: dict[str, str], seconds: float | None) -> None:
    """Both forms of the header are read, and nonsense is no wait."""
    assert retry_after(headers, now=NOW) == seconds
