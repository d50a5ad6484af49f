"""An Anthropic at a test server, and what asking it ends in."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents.errors import ModelError
from alpineagents.messages import Message, Reply, Request
from alpineagents.models import Anthropic
from tests.models.asking import HELLO, KEY
from tests.servers.openai_server import OpenAIServer


def claude_at(server: OpenAIServer, model: str = "claude-test", **options: Any) -> Anthropic:
    """Return a model at a server; a request is not repeated unless the test says so."""
    return Anthropic(model, **{"base_url": server.base_url, "api_key": KEY, "max_retries": 0, **options})


async def respond(model: Anthropic, request: Request | Message = HELLO, shown: list[Any] | None = None) -> Reply:
    """Ask a model and close it."""
    if isinstance(request, Message):
        request = Request(messages=(request,))
    try:
        return await model.respond(request, emit=None if shown is None else shown.append)
    finally:
        await model.aclose()


async def refusal(server: OpenAIServer, kind: type[ModelError], **options: Any) -> Any:
    """Return the error that a request ends in."""
    with pytest.raises(kind) as refused:
        await respond(claude_at(server, **options))
    assert type(refused.value) is kind
    return refused.value
