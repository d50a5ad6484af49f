"""One loop with the real Claude, where there is a key for it: `pytest -m live`. It costs less than a cent."""

from __future__ import annotations

import os

import pytest

from alpineagents import Agent, Anthropic, Message, Request, State, tool

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not os.environ.get("ANTHROPIC_API_KEY"), reason="ANTHROPIC_API_KEY is not set"),
]

MODEL = os.environ.get("ALPINE_TEST_CLAUDE", "claude-haiku-5-5")


async def test_a_loop_with_tools_and_thinking() -> None:
    """Claude calls a tool, reads the result, answers, and goes on from its own thinking."""

    @tool(read_only=True)
    def height(of: str) -> str:
        """Tell the height of a mountain in metres."""
        return {"Eiger": "3967", "Mönch": "4110"}.get(of, "unknown")

    model = Anthropic(MODEL, max_tokens=4_000)
    agent = Agent(model, system="Use the tool for each mountain.", tools=[height])
    state = State(
        messages=[Message.user("How high are the Eiger and the Mönch, together? Answer with the number only.")]
    )

    assert "8077" in str(await agent.run(state)).replace(",", "")
    state.add_message(Message.user("And twice that?"))
    assert "16154" in str(await agent.run(state)).replace(",", "")
    assert await model.count_tokens(Request(messages=tuple(state.messages))) > 10
    await agent.aclose()

    assert state.usage.input_tokens > 0
