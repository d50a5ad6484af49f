"""The real APIs of OpenAI, where there is a key for them."""

from __future__ import annotations

import os

import pytest

from alpineagents import Agent, Message, Model, OpenAICompatible, OpenAIResponses, State, tool

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not os.environ.get("OPENAI_API_KEY"), reason="OPENAI_API_KEY is not set"),
]

MODEL = os.environ.get("ALPINE_TEST_OPENAI", "gpt-5-mini")


@pytest.mark.parametrize("kind", [OpenAICompatible, OpenAIResponses])
async def test_a_loop_with_tools(kind: type[OpenAICompatible | OpenAIResponses]) -> None:
    """The model calls a tool, reads the result, answers, and goes on."""

    @tool(read_only=True)
    def height(of: str) -> str:
        """Tell the height of a mountain in metres."""
        return {"Eiger": "3967", "Mönch": "4110"}.get(of, "unknown")

    model: Model = kind(MODEL)
    agent = Agent(model, system="Use the tool for each mountain.", tools=[height])
    state = State(
        messages=[Message.user("How high are the Eiger and the Mönch, together? Answer with the number only.")]
    )

    assert "8077" in str(await agent.run(state)).replace(",", "")
    state.add_message(Message.user("And twice that?"))
    assert "16154" in str(await agent.run(state)).replace(",", "")
    await agent.aclose()
