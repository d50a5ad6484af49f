"""What requests took that gave no whole reply: what is known is counted, and the sum is known to be partial."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from alpineagents import Agent, FallbackModel, MemoryStore, Model, OpenAIResponses, Price, ProviderError, Usage
from tests.models.asking import HELLO, KEY, model_at
from tests.models.asking_claude import claude_at
from tests.models.conftest import Serve
from tests.servers import anthropic_server as claude
from tests.servers.openai_server import USAGE, Answer, OpenAIServer, Step, begins, chunk, status, stream
from tests.servers.responses_answers import responds, response, streams, text

PRICE = Price(input=1.0, output=10.0)
READ = Usage(
    input_tokens=60, output_tokens=1, cache_read_tokens=30, cache_write_tokens=20, requests=1, unpriced_requests=1
).model_copy(update={"cost_usd": 70 / 1_000_000})
"""What a reply of Claude has taken as it begins, at PRICE."""


def half(*steps: bytes | Step) -> Answer:
    """Begin a reply of Claude, and go on with these steps."""
    return claude.stream(
        claude.start(), claude.opened(0, claude.text("")), claude.delta(0, "text_delta", text="Hm"), *steps
    )


async def usage_of(model: Model) -> Usage:
    """Run an Agent that fails, and return what its State has taken."""
    store = MemoryStore()
    with pytest.raises(ProviderError):
        await Agent(model, store=store).run("Hello", id="s")
    await model.aclose()
    return (await store.load("s")).usage


async def cancelled_usage(model: Model, server: OpenAIServer) -> Usage:
    """Cancel a run once its server stalls, and return what its State has taken."""
    store = MemoryStore()
    async with anyio.create_task_group() as group:
        seen = anyio.Event()

        async def run() -> None:
            async with Agent(model, store=store).stream("Hello", id="s") as items:
                async for item in items:
                    if item.kind == "text":
                        seen.set()

        group.start_soon(run)
        await seen.wait()
        group.cancel_scope.cancel()
    await model.aclose()
    server.release()
    return (await store.load("s")).usage


@pytest.mark.parametrize(
    "wrong", [(), (Step.DROP,), (claude.error_event("overloaded_error"),), (claude.delta(7, "x"),)]
)
async def test_a_reply_that_broke_off_is_counted_as_far_as_it_is_known(serve: Serve, wrong: tuple[bytes]) -> None:
    """What was read is known and has its cost; what was written is not, so the request counts as unpriced."""
    assert await usage_of(claude_at(serve(half(*wrong)), price=PRICE)) == READ


async def test_a_cancelled_reply_is_counted_as_one_that_broke_off(serve: Serve) -> None:
    """Whoever ends it, the provider takes money for what it has read."""
    server = serve(half(Step.STALL))

    assert await cancelled_usage(claude_at(server, price=PRICE), server) == READ


async def test_a_cancelled_reply_behind_a_fallback_is_counted_too(serve: Serve) -> None:
    """So it is where a FallbackModel stands between, together with the attempt before it."""
    server = serve(half(Step.STALL))
    model = FallbackModel([model_at(serve(status(500))), claude_at(server, price=PRICE)])

    assert await cancelled_usage(model, server) == READ + Usage(requests=1)


@pytest.mark.parametrize("broken", [half(Step.DROP), claude.stream(claude.start(), Step.DROP)])
async def test_what_a_repeated_attempt_took_is_counted(serve: Serve, broken: Answer) -> None:
    """An attempt that is made again was paid for too, in the retry's item and in the sum."""
    shown: list[object] = []
    model = claude_at(serve(broken, claude.says("Hi")), price=PRICE, max_retries=1, retry_streams=True)

    reply = await model.respond(HELLO, emit=shown.append)
    await model.aclose()

    (retry,) = [item for item in shown if getattr(item, "kind", "") == "retry"]
    assert retry.usage == READ
    assert (reply.usage.requests, reply.usage.unpriced_requests) == (2, 1)
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (120, 16)


async def test_a_part_before_a_pause_is_counted_whatever_comes_after(serve: Serve) -> None:
    """A reply that paused and was then cancelled has the usage of both parts."""
    server = serve(claude.replies(stop_reason="pause_turn"), half(Step.STALL))

    usage = await cancelled_usage(claude_at(server, price=PRICE), server)

    assert (usage.requests, usage.unpriced_requests) == (2, 1)
    assert (usage.input_tokens, usage.output_tokens) == (120, 16)


async def test_usage_in_mid_stream_is_counted_where_the_reply_breaks_off(serve: Serve) -> None:
    """Servers that count in each chunk have said what was read; the request is unpriced all the same."""
    answer = stream(chunk({"content": "Hm"}, usage=USAGE), done=False)

    usage = await usage_of(model_at(serve(answer), price=PRICE))

    assert (usage.input_tokens, usage.output_tokens) == (12, 5)
    assert (usage.requests, usage.unpriced_requests) == (1, 1)
    assert usage.cost_usd == pytest.approx(62 / 1_000_000)


async def test_a_failed_response_is_counted_as_it_says(serve: Serve) -> None:
    """The Responses API counts what a response took that failed: that is all of it, and has its price."""
    counted = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
    error = {"code": "server_error", "message": "it failed"}
    server = serve(streams({"type": "response.failed", "response": response("failed", error=error, usage=counted)}))
    model = OpenAIResponses("test", base_url=server.base_url, api_key=KEY, max_retries=0, price=PRICE)

    usage = await usage_of(model)

    assert (usage.input_tokens, usage.output_tokens, usage.unpriced_requests) == (12, 5, 0)


async def test_what_nobody_counted_is_unpriced(serve: Serve) -> None:
    """A reply that broke off before its server counted is a request of unknown cost."""
    server = serve(responds(text("Hm"), complete=False))
    responding = OpenAIResponses("test", base_url=server.base_url, api_key=KEY, max_retries=0, price=PRICE)

    for model in (model_at(serve(begins("Hm")), price=PRICE), responding):
        assert await usage_of(model) == Usage(requests=1, unpriced_requests=1)


async def test_the_request_id_of_a_dropped_stream_is_known(serve: Serve) -> None:
    """It came with the headers, and Anthropic's own goes before one that a proxy gave."""
    answer = replace(half(Step.DROP), headers={"x-request-id": "proxy", "request-id": "req_1"})
    model = claude_at(serve(answer))

    with pytest.raises(ProviderError) as refused:
        await model.respond(HELLO)
    await model.aclose()

    assert refused.value.request_id == "req_1"
