"""Connections: used again, given back, and never taken to another event loop."""

from __future__ import annotations

import gc
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import certifi
import httpx
import pytest

from alpineagents.errors import ConfigError, ProviderError
from alpineagents.messages import Message, Request
from alpineagents.models.pool import Pool
from tests.models.asking import HELLO, KEY, model_at, refusal, respond
from tests.models.conftest import Serve
from tests.servers.openai_server import (
    Answer,
    Received,
    Step,
    begins,
    says,
)


async def test_a_connection_serves_the_next_request(serve: Serve) -> None:
    """The stream is read to its end, so that the next request need not connect again."""
    server = serve(says("one"), says("two"))
    model = model_at(server)

    await model.respond(HELLO)
    await model.respond(HELLO)
    await model.aclose()

    assert server.connections == 1


async def test_a_cancelled_request_leaves_the_model_usable(serve: Serve) -> None:
    """Cancelling in mid-stream closes that connection only."""
    server = serve(begins("The sum").then(Step.STALL), says("Hi"))
    model = model_at(server)

    with anyio.CancelScope() as scope:
        await model.respond(HELLO, emit=lambda _delta: scope.cancel())
    reply = await model.respond(HELLO)
    await model.aclose()

    assert scope.cancelled_caught
    assert reply.message.text == "Hi"


async def test_an_error_of_emit_leaves_the_model_usable(serve: Serve) -> None:
    """What should not raise and does is not hidden, and leaves nothing open."""
    server = serve(says("one"), says("two"))
    model = model_at(server)

    with pytest.raises(ZeroDivisionError):
        await model.respond(HELLO, emit=lambda _delta: 1 / 0)
    reply = await model.respond(HELLO)
    await model.aclose()

    assert reply.message.text == "two"


async def test_a_closed_model_opens_again(serve: Serve) -> None:
    """Closing gives connections back; the next request takes new ones."""
    server = serve(says("one"), says("two"))
    model = model_at(server)

    await respond(model)
    await model.aclose()
    reply = await respond(model)

    assert (reply.message.text, server.connections) == ("two", 2)


async def test_fifty_requests_run_at_once(serve: Serve) -> None:
    """The server answers only when all fifty have come, and each gets its own reply."""
    all_here = threading.Barrier(50)

    def script(received: Received) -> Answer:
        all_here.wait(timeout=30)
        return says("re: ", received.body["messages"][0]["content"])

    server = serve(script=script)
    model = model_at(server)
    texts: dict[int, str] = {}

    async def ask(number: int) -> None:
        reply = await model.respond(Request(messages=(Message.user(f"no {number}"),)))
        texts[number] = reply.message.text

    async with anyio.create_task_group() as tasks:
        for number in range(50):
            tasks.start_soon(ask, number)
    await model.aclose()

    assert texts == {number: f"re: no {number}" for number in range(50)}


@pytest.mark.parametrize("order", [("asyncio", "asyncio"), ("trio", "trio"), ("asyncio", "trio")])
def test_a_model_serves_one_event_loop_after_another(serve: Serve, order: tuple[str, str]) -> None:
    """A script with two `asyncio.run` and no aclose works, and no connection outlives its loop."""
    server = serve(says("one"), says("two"), says("three"))
    model = model_at(server)

    texts = [anyio.run(partial(model.respond, HELLO), backend=backend).message.text for backend in order]
    gc.collect()  # An open socket would warn here.

    assert texts == ["one", "two"]
    assert server.connections == 2
    assert all(client.is_closed for client, _ in model._endpoint._pool._held.values())


def test_a_model_serves_two_event_loops_at_once(serve: Serve) -> None:
    """A loop in another thread has connections of its own."""
    both_here = threading.Barrier(2)

    def script(_received: Received) -> Answer:
        both_here.wait(timeout=30)
        return says("Hi")

    model = model_at(serve(script=script))
    texts: list[str] = []

    def run() -> None:
        texts.append(anyio.run(model.respond, HELLO).message.text)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert texts == ["Hi", "Hi"]


async def test_a_client_of_ones_own_is_used_and_left_open(serve: Serve) -> None:
    """Headers and settings of the given client hold, and who opened it closes it."""
    server = serve(says("Hi"), says("Hi"))

    async with httpx.AsyncClient(headers={"x-team": "alps"}) as client:
        await respond(model_at(server, http_client=client))
        assert not client.is_closed

    assert server.requests[0].headers["x-team"] == "alps"
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


async def test_the_timeout_of_a_given_client_holds(serve: Serve) -> None:
    """Without a timeout of its own, a model keeps to that of the client."""
    async with httpx.AsyncClient(timeout=0.2) as client:
        with anyio.fail_after(10):
            await refusal(serve(begins("x").then(Step.STALL)), ProviderError, http_client=client)


async def test_a_closed_client_of_ones_own_is_refused(serve: Serve) -> None:
    """The error says that the given client was closed."""
    async with httpx.AsyncClient() as client:
        model = model_at(serve(), http_client=client)

    with pytest.raises(ConfigError, match="closed"):
        await model.respond(HELLO)


def test_certificates_of_the_environment_are_read_where_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that names its certificates after its first request has them in its next client."""

    async def trusted() -> int:
        pool = Pool(None)
        transport: Any = (await pool.client())._transport
        await pool.aclose()
        return len(transport._pool._ssl_context.get_ca_certs())

    own = tmp_path / "own.pem"
    end = "-----END CERTIFICATE-----\n"
    own.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    before = anyio.run(trusted)
    monkeypatch.setenv("SSL_CERT_FILE", str(own))

    assert before > 1
    assert anyio.run(trusted) == 1
