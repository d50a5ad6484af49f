"""Keys and passwords are sent, and shown nowhere."""

from __future__ import annotations

import html
import json
import logging
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from alpineagents import Agent, MemoryStore
from alpineagents.errors import AuthError, ProviderError
from alpineagents.models import OpenAICompatible
from tests.models.asking import HELLO, KEY, model_at, refusal, respond
from tests.models.asking_claude import claude_at
from tests.models.conftest import Serve
from tests.servers.openai_server import (
    begins,
    event,
    page,
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


@pytest.mark.parametrize("make", [model_at, claude_at])
async def test_a_key_in_the_reason_phrase_is_not_shown(serve: Serve, make: Callable[..., Any]) -> None:
    """The words beside the status are the server's own, and are cleaned like its body."""
    server = serve(replace(status(401, "no"), reason=f"Invalid key {KEY}"))
    store = MemoryStore()

    with pytest.raises(AuthError, match=r"Invalid key \[key\]"):
        await Agent(make(server), store=store).run("Hello", id="a")

    assert KEY not in "".join(event.model_dump_json() for event in (await store.load("a")).history)


@pytest.mark.parametrize(
    "spell",
    [
        lambda key: quote(key, safe=""),
        lambda key: quote(key, safe="").replace("%2B", "%2b"),
        lambda key: json.dumps(key)[1:-1].replace("/", "\\/"),
        lambda key: "".join(f"\\u{ord(letter):04X}" for letter in key),
        html.escape,
    ],
)
async def test_a_key_is_not_shown_however_it_is_spelled(serve: Serve, spell: Callable[[str], str]) -> None:
    """A server that escapes the key for an address, for JSON or for HTML does not bring it into an error."""
    key = "Hunter2-my_\"Password'!x/y+z="
    spelled = spell(key)

    error = await refusal(serve(status(400, f"bad key <{spelled}>")), ProviderError, api_key=key)

    assert "bad key <[key]>" in str(error)


async def test_a_key_in_the_content_type_is_not_shown(serve: Serve) -> None:
    """Nor does the type of an answer that is no stream."""
    error = await refusal(serve(replace(page(), content_type=f"text/{KEY}")), ProviderError)

    assert "text/[key]" in str(error)


@pytest.mark.parametrize("key", ["x", "ollama"])
async def test_a_short_key_leaves_the_words_of_errors_whole(serve: Serve, key: str) -> None:
    """A stand-in for a key is left out where it is a word of its own, and not out of other words."""
    words = f"model 'ollama-x1' not found at extra.example, key {key}"

    error = await refusal(serve(status(404, words)), ProviderError, api_key=key)

    assert "model 'ollama-x1' not found at extra.example, key [key]" in str(error)


async def test_a_broken_answer_with_the_key_is_in_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the client's own error quotes the key, a traceback does not show it as the cause."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError(f"illegal status line: HTTP/1.1 401 {KEY}", request=request)

    client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    model = OpenAICompatible("test", base_url="http://127.0.0.1:1", api_key=KEY, max_retries=0, http_client=client)

    with pytest.raises(ProviderError, match=r"\[key\]") as refused:
        await model.respond(HELLO)
    await client.aclose()

    assert KEY not in "".join(traceback.format_exception(refused.value))
