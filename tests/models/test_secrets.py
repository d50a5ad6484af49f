"""Keys and passwords are sent, and shown nowhere."""

from __future__ import annotations

import logging

import pytest

from alpineagents.errors import AuthError, ProviderError
from alpineagents.models import OpenAICompatible
from tests.models.asking import HELLO, KEY, model_at, respond
from tests.models.conftest import Serve
from tests.servers.openai_server import (
    begins,
    event,
    says,
    status,
)


async def test_a_key_is_sent_and_shown_nowhere(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """The key is in the header; not in a repr, an error, or a log at any level."""
    caplog.set_level(logging.DEBUG)
    server = serve(
        says("Hi"), status(500, f"Bearer {KEY} and sk-proj-abc…xyz are no good"), begins("x").then(event(KEY))
    )
    model = model_at(server)

    await model.respond(HELLO)
    errors = []
    for _ in range(2):
        with pytest.raises(ProviderError) as refused:
            await model.respond(HELLO)
        errors.append(f"{refused.value} {refused.value!r}")
    await model.aclose()

    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert "httpx" in caplog.text
    shown = f"{model!r} {vars(model)} {vars(model._endpoint)} {errors} {caplog.text}"
    assert KEY not in shown
    assert "sk-proj" not in shown


async def test_a_password_in_the_address_is_sent_and_shown_nowhere(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name and password in base_url become a header; the key of the environment stays at home."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server = serve(status(401, "pa:ss is wrong"))
    model = OpenAICompatible("test", base_url=server.base_url.replace("//", "//joe:pa%3Ass@"))

    with pytest.raises(AuthError) as refused:
        await respond(model)

    assert server.requests[0].headers["authorization"] == "Basic am9lOnBhOnNz"
    shown = f"{model!r} {vars(model)} {vars(model._endpoint)} {refused.value!r} {caplog.text}"
    assert not [secret for secret in ("pa:ss", "pa%3Ass", "am9lOnBhOnNz", KEY) if secret in shown]
