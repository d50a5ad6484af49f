"""What is tried again, how often, and after how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anyio
import pytest

from alpineagents.errors import ModelError, ProviderError, RateLimitError
from alpineagents.models import Delta
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
    shown: list[Delta] = []

    reply = await respond(model_at(server, max_retries=2), shown)

    assert reply.message.text == "Hi"
    assert [delta.text for delta in shown] == ["Hi"]
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
