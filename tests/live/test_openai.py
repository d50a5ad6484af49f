"""The real APIs of OpenAI, where there is a key for them."""

from __future__ import annotations

import os

import pytest

from alpineagents import Model, OpenAICompatible, OpenAIResponses
from tests.live.parts import add_heights

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not os.environ.get("OPENAI_API_KEY"), reason="OPENAI_API_KEY is not set"),
]

MODEL = os.environ.get("ALPINE_TEST_OPENAI", "gpt-5-mini")


@pytest.mark.parametrize("kind", [OpenAICompatible, OpenAIResponses])
async def test_a_loop_with_tools(kind: type[OpenAICompatible | OpenAIResponses]) -> None:
    """The model calls a tool, reads the result, answers, and goes on."""
    model: Model = kind(MODEL)

    await add_heights(model)
    await model.aclose()
