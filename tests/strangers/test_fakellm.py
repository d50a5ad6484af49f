"""The loop against fakellm, which answers by the rules of a file."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from alpineagents import Agent, Anthropic, Message, Model, OpenAICompatible, State, tool
from alpineagents.testing import FakeModel

RULES = """
rules:
  - name: answer
    when: {tool_result_contains: "degrees"}
    respond: {content: "It is mild in Paris and in Oslo."}
  - name: ask for two tools
    when: {messages_contain: "weather"}
    respond:
      tool_calls:
        - {name: get_weather, arguments: {city: "Paris"}}
        - {name: get_weather, arguments: {city: "Oslo"}}
"""
SECONDS = 30.0

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The address of a server of its own: it remembers conversations by their first words."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("fakellm")
    with subprocess.Popen([str(program), "serve", "--port", str(port), "--config", str(rules)]) as server:
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}", server)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_until_it_answers(url: str, server: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends and server.poll() is None:
        try:
            httpx.get(url)
        except httpx.ConnectError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("fakellm did not start")


@pytest.fixture(params=["chat", "messages"])
def model(request: pytest.FixtureRequest, url: str) -> Model:
    """A model of each format that the server speaks."""
    if request.param == "chat":
        return OpenAICompatible("gpt-4.1", base_url=f"{url}/v1", api_key="key-1234567890", max_retries=0)
    return Anthropic("claude-sonnet-4-5", base_url=url, api_key="key-1234567890", max_retries=0)


@tool(read_only=True)
def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"21 degrees in {city}"


async def test_the_loop_with_two_calls_at_once(model: Model) -> None:
    """Both are made, their results go back in order, and there is an answer."""
    agent = Agent(model, tools=[get_weather])
    state = State(messages=[Message.user("How is the weather?")])

    answer = await agent.run(state)
    await agent.aclose()

    assert answer == "It is mild in Paris and in Oslo."
    results = [result for message in state.messages for result in message.tool_results]
    assert [result.text for result in results] == ["21 degrees in Paris", "21 degrees in Oslo"]
    assert state.usage.requests == 2


async def test_a_state_of_another_provider_goes_on(model: Model) -> None:
    """What was said elsewhere is taken by the server as it is sent."""
    state = State(messages=[Message.user("Good day")])
    await Agent(FakeModel(["Good day to you."])).run(state)
    state.add_message(Message.user("How is the weather?"))
    agent = Agent(model, tools=[get_weather])

    assert await agent.run(state) == "It is mild in Paris and in Oslo."
    await agent.aclose()
