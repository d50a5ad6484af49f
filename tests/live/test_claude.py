"""One loop with the real Claude, where there is a key for it: `pytest -m live`. It costs less than a cent."""

from __future__ import annotations

import os

import pytest

from alpineagents import Anthropic, Request
from tests.live.parts import add_heights

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not os.environ.get("ANTHROPIC_API_KEY"), reason="ANTHROPIC_API_KEY is not set"),
]

MODEL = os.environ.get("ALPINE_TEST_CLAUDE", "claude-haiku-5-5")


async def test_a_loop_with_tools_and_thinking() -> None:
    """Claude calls a tool, reads the result, answers, and goes on from its own thinking."""
    model = Anthropic(MODEL, max_tokens=4_000)

    state = await add_heights(model)
    assert await model.count_tokens(Request(messages=tuple(state.messages))) > 10
    await model.aclose()

    assert state.usage.input_tokens > 0
