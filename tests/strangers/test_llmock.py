"""The loop against LLMock, which breaks what it is told to and judges how its client took it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from alpineagents import (
    Agent,
    Anthropic,
    ContextTooLongError,
    Message,
    Model,
    OpenAICompatible,
    OpenAIResponses,
    ProviderError,
    State,
    tool,
)

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@tool(read_only=True)
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"21 degrees in {city}"


KEY = "key-1234567890"
MODELS: dict[str, Callable[..., Model]] = {
    # At the addresses that the fixture puts into the environment.
    "messages": lambda **options: Anthropic(
        "claude-sonnet-4-5", base_url=os.environ["ANTHROPIC_BASE_URL"], api_key=KEY, **options
    ),
    "chat": lambda **options: OpenAICompatible(
        "gpt-4.1", base_url=os.environ["OPENAI_BASE_URL"], api_key=KEY, **options
    ),
    "responses": lambda **options: OpenAIResponses(
        "gpt-4.1", base_url=os.environ["OPENAI_BASE_URL"], api_key=KEY, **options
    ),
}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> Callable[..., Model]:
    """Makes a model of each format."""
    return MODELS[request.param]


async def test_the_loop(llmock: Any, model: Callable[..., Model]) -> None:
    """A tool is called with arguments, its result is sent back, and there is an answer."""
    agent = Agent(model(), tools=[get_weather])
    state = State(messages=[Message.user("What is the weather in Paris?")])

    answer = await agent.run(state)
    await agent.aclose()

    assert answer
    assert [result.outcome for message in state.messages for result in message.tool_results] == ["ok"]
    assert state.usage.requests == 2
    llmock.assert_resilient(strict=True)


async def test_it_waits_as_told(llmock: Any, model: Callable[..., Model]) -> None:
    """Rate limits are waited for, and the answer comes."""
    llmock.rate_limit(times=1, retry_after=0.5)
    agent = Agent(model())

    assert await agent.run("Hello")
    await agent.aclose()

    llmock.assert_resilient(strict=True)


async def test_a_cut_stream_is_no_answer(llmock: Any, model: Callable[..., Model]) -> None:
    """A stream without its end is an error."""
    llmock.truncate(after_chunks=3)
    agent = Agent(model(max_retries=0))

    with pytest.raises(ProviderError):
        await agent.run("Hello")
    await agent.aclose()


@pytest.mark.parametrize("fault", ["disconnect", "corrupt"])
async def test_a_broken_stream_is_no_answer(llmock: Any, model: Callable[..., Model], fault: str) -> None:
    """A connection that drops and an event that is no JSON are errors."""
    getattr(llmock, fault)(after_chunks=4)
    agent = Agent(model(max_retries=0))

    with pytest.raises(ProviderError):
        await agent.run("Hello")
    await agent.aclose()


async def test_a_stalled_stream_is_given_up(llmock: Any, model: Callable[..., Model]) -> None:
    """Silence ends at the timeout."""
    llmock.stall(seconds=20)
    agent = Agent(model(max_retries=0, timeout=0.5))

    with pytest.raises(ProviderError, match="sent nothing"):
        await agent.run("Hello")
    await agent.aclose()


async def test_a_prompt_that_is_too_long_has_its_error(llmock: Any, model: Callable[..., Model]) -> None:
    """It is told from other bad requests."""
    llmock.context_overflow()
    agent = Agent(model())

    with pytest.raises(ContextTooLongError):
        await agent.run("Hello")
    await agent.aclose()

    llmock.assert_resilient()


async def test_arguments_that_are_no_json_are_told_to_the_model(llmock: Any, model: Callable[..., Model]) -> None:
    """The run goes on after a call that could not be read."""
    llmock.break_tool_call("malformed_arguments")
    agent = Agent(model(), tools=[get_weather])
    state = State(messages=[Message.user("What is the weather in Paris?")])

    await agent.run(state)
    await agent.aclose()

    outcomes = [result.outcome for message in state.messages for result in message.tool_results]
    assert outcomes[0] == "input_error"
