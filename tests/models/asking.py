"""A model at a test server, and what asking it ends in."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents.errors import ModelError
from alpineagents.messages import Message, Reply, Request
from alpineagents.models import OpenAICompatible
from tests.servers.openai_server import (
    OpenAIServer,
)

KEY = "key-1234567890-abcdef"
HELLO = Request(messages=(Message.user("Hello"),))


def model_at(server: OpenAIServer, **options: Any) -> OpenAICompatible:
    """Return a model at a server; a request is not repeated unless the test says so."""
    return OpenAICompatible("test", **{"base_url": server.base_url, "api_key": KEY, "max_retries": 0, **options})


async def respond(model: OpenAICompatible, shown: list[Any] | None = None) -> Reply:
    """Ask a model and close it."""
    try:
        return await model.respond(HELLO, emit=None if shown is None else shown.append)
    finally:
        await model.aclose()


async def refusal(server: OpenAIServer, kind: type[ModelError], **options: Any) -> Any:
    """Return the error that a request ends in."""
    with pytest.raises(kind) as refused:
        await respond(model_at(server, **options))
    assert type(refused.value) is kind
    return refused.value
