"""What the tests of models share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from alpineagents.models import retries
from tests.servers.openai_server import Answer, OpenAIServer, Script

Serve = Callable[..., OpenAIServer]

_VARIABLES = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENROUTER_API_KEY")
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Run each async test on both event loops."""
    return str(request.param)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, address or proxy of the person who runs the tests; no wait between attempts."""
    for variable in _VARIABLES + _PROXIES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.0)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a server with the given answers; it ends with the test."""
    with ExitStack() as running:

        def start(*answers: Answer, script: Script | None = None) -> OpenAIServer:
            return running.enter_context(OpenAIServer(*answers, script=script))

        yield start
