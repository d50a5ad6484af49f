"""What replies cost, and that the sum of a State is true."""

from __future__ import annotations

import importlib.util
from typing import Any

import httpx
import pytest

from alpineagents import Agent, ConfigError, MemoryStore, Message, OpenAICompatible, Price, ProviderError, State, Usage
from alpineagents.models.prices import Pricing
from tests.models.asking import HELLO, KEY, model_at, respond
from tests.models.asking_claude import claude_at
from tests.models.conftest import Serve
from tests.servers.anthropic_server import START_USAGE, STOP
from tests.servers.anthropic_server import end as claude_end
from tests.servers.anthropic_server import says as claude_says
from tests.servers.anthropic_server import start as claude_start
from tests.servers.anthropic_server import stream as claude_stream
from tests.servers.openai_server import OpenAIServer, begins, calls, says, status

PRICE = Price(input=10.0, output=100.0, cache_read=1.0, cache_write=20.0)
COST = (4 * 10.0 + 8 * 1.0 + 5 * 100.0) / 1_000_000
"""Of one reply of the test server at PRICE."""
OPENAI = "https://api.openai.com/v1"


def test_each_kind_of_token_has_its_price() -> None:
    """Cached tokens are a part of the input and have their own price; reasoning is output."""
    usage = Usage(
        input_tokens=100, cache_read_tokens=30, cache_write_tokens=20, output_tokens=7, reasoning_tokens=5, requests=1
    )

    assert PRICE.cost_usd(usage) == pytest.approx((50 * 10 + 30 * 1 + 20 * 20 + 7 * 100) / 1_000_000)
    assert Price(10, 100).cost_usd(usage) == pytest.approx((100 * 10 + 7 * 100) / 1_000_000)


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "1", None])
def test_a_price_is_a_number(wrong: Any) -> None:
    """What is no price is refused with the line to write."""
    with pytest.raises(ConfigError, match=r"Price\(input=1.25, output=10.0\)"):
        Price(input=wrong, output=1.0)


def test_a_model_takes_only_a_price() -> None:
    """A bare number does not say what it is the price of."""
    with pytest.raises(ConfigError, match="price=Price"):
        OpenAICompatible("x", base_url="http://localhost:1/v1", price=1.25)


async def test_a_reply_has_its_cost(serve: Serve) -> None:
    """By the price that was given."""
    reply = await respond(model_at(serve(says("Hi")), price=PRICE))

    assert reply.usage.cost_usd == pytest.approx(COST)
    assert (reply.usage.requests, reply.usage.unpriced_requests) == (1, 0)


async def test_a_reply_without_a_price_leaves_the_sum_partial(serve: Serve) -> None:
    """An unknown server has no price, and the usage says so."""
    reply = await respond(model_at(serve(says("Hi"))))

    assert (reply.usage.cost_usd, reply.usage.unpriced_requests) == (0.0, 1)


async def test_a_reply_that_nobody_counted_has_no_known_cost(serve: Serve) -> None:
    """A server that sends no usage is not free, whatever the price."""
    reply = await respond(model_at(serve(says("Hi", usage=None)), price=PRICE))

    assert (reply.usage.cost_usd, reply.usage.unpriced_requests) == (0.0, 1)


@pytest.mark.parametrize(
    "told, counted",
    [({"cost": 0.25}, (0.25, 0)), ({"cost": 0.25, "is_byok": True}, (0.0, 1)), ({"cost": {"total": 1}}, (0.0, 1))],
)
async def test_what_a_provider_says_it_took_counts(serve: Serve, told: Any, counted: tuple[float, int]) -> None:
    """OpenRouter says the cost with its reply, unless another one sends the bill."""
    reply = await respond(model_at(serve(says("Hi", usage={"prompt_tokens": 9, **told}))))

    assert (reply.usage.cost_usd, reply.usage.unpriced_requests) == counted


async def test_a_given_price_goes_before_what_the_provider_says(serve: Serve) -> None:
    """Whoever gives a price means it."""
    usage = {"prompt_tokens": 1_000_000, "cost": 0.25}

    reply = await respond(model_at(serve(says("Hi", usage=usage)), price=PRICE))

    assert reply.usage.cost_usd == 10.0


class _Rerouted(httpx.AsyncHTTPTransport):
    """Sends what is for OpenAI to a server of the test."""

    def __init__(self, server: OpenAIServer) -> None:
        super().__init__()
        self._to = httpx.URL(server.base_url)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        request.url = request.url.copy_with(scheme="http", host=self._to.host, port=self._to.port)
        return await super().handle_async_request(request)


async def test_the_catalogue_knows_the_prices_of_an_api(serve: Serve) -> None:
    """A model of OpenAI has a price without being given one, also where the reply names the model more exactly."""
    server = serve(says("Hi"))
    async with httpx.AsyncClient(transport=_Rerouted(server)) as client:
        reply = await respond(OpenAICompatible("gpt-4.1", base_url=OPENAI, api_key=KEY, http_client=client))

    # US dollars per million: 2 in, 0.5 cached, 8 out.
    assert reply.usage.cost_usd == pytest.approx((4 * 2.0 + 8 * 0.5 + 5 * 8.0) / 1_000_000)
    assert reply.usage.unpriced_requests == 0


def test_a_server_that_the_catalogue_does_not_know_has_no_price() -> None:
    """A model of a known name may cost something else there."""
    usage = Usage(input_tokens=9, requests=1, unpriced_requests=1)

    assert Pricing(None, "http://localhost:8000/v1").of(usage, "gpt-4.1") == usage
    assert Pricing(None, OPENAI).of(usage, "no-such-model") == usage
    assert Pricing(None, OPENAI).of(usage, "gpt-4.1").cost_usd > 0


def test_without_the_catalogue_there_is_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra; without it, requests are counted as unpriced."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    usage = Usage(input_tokens=9, requests=1, unpriced_requests=1)

    assert Pricing(None, OPENAI).of(usage, "gpt-4.1") == usage


def test_what_is_cached_for_an_hour_has_its_own_price() -> None:
    """By the price that was given, or else by the catalogue, where it is twice that of input."""
    usage = Usage(input_tokens=100, cache_write_tokens=80, cache_write_1h_tokens=60, requests=1, unpriced_requests=1)

    told = Price(1, 1, cache_write=2, cache_write_1h=5).cost_usd(usage)
    assert told == pytest.approx((20 * 1 + 20 * 2 + 60 * 5) / 1_000_000)
    assert Price(1, 1, cache_write=2).cost_usd(usage) == pytest.approx((20 * 1 + 80 * 2) / 1_000_000)
    priced = Pricing(None, "https://api.anthropic.com/v1").of(usage, "claude-sonnet-4-5")
    assert priced.cost_usd == pytest.approx((20 * 3 + 20 * 3.75 + 60 * 6) / 1_000_000)


async def test_the_api_says_what_it_keeps_for_an_hour(serve: Serve) -> None:
    """It is counted by itself, summed up, and stored only where there is some."""
    created = {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 15}
    answer = claude_stream(claude_start({**START_USAGE, "cache_creation": created}), claude_end(), STOP)
    model = claude_at(serve(answer, claude_says("Hi")))

    usage = (await model.respond(HELLO)).usage
    plain = (await model.respond(HELLO)).usage
    await model.aclose()

    assert (usage.cache_write_tokens, usage.cache_write_1h_tokens) == (20, 15)
    assert (usage + usage).cache_write_1h_tokens == 30
    assert Usage.model_validate(usage.model_dump()) == usage
    assert "cache_write_1h_tokens" not in plain.model_dump()


async def test_the_sum_is_true_over_failure_resume_and_fork(serve: Serve) -> None:
    """A loaded State goes on with what it has taken, once each; a fork begins with it too."""
    server = serve(calls(("gone", {})), status(500), says("Hi"), begins("The"), says("a"), says("b"))
    store = MemoryStore()
    agent = Agent(model_at(server, max_retries=1, price=PRICE), store=store)

    await agent.run("Hello", id="s")
    with pytest.raises(ProviderError):
        await agent.resume("s", "And?")
    await agent.resume("s", "And?")
    loaded = await store.load("s")
    fork = loaded.fork(id="t")
    await agent.copy(store=MemoryStore()).run(_asked(fork))
    await agent.aclose()

    # Two replies, one refused attempt, one that broke off, one reply; then one more in the fork.
    assert loaded.usage == sum_of(loaded)
    assert (loaded.usage.requests, loaded.usage.unpriced_requests) == (5, 1)
    assert loaded.usage.cost_usd == pytest.approx(3 * COST)
    assert (fork.usage.requests, fork.usage.unpriced_requests) == (6, 1)
    assert fork.usage.cost_usd == pytest.approx(4 * COST)
    assert (await store.info("s")).usage == loaded.usage


def _asked(state: State) -> State:
    state.add_message(Message.user("More?"))
    return state


def sum_of(state: State) -> Usage:
    """Return the sum over the Events of a State."""
    total = Usage()
    for event in state.history:
        if event.kind in ("model_replied", "model_failed"):
            total += event.usage
    return total
