"""From a model's name to a Model."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents.errors import AuthError, ConfigError
from alpineagents.models import Anthropic, resolve_model
from tests.models.asking import HELLO
from tests.models.conftest import Serve
from tests.servers import anthropic_server
from tests.servers.openai_server import says

KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a key to each provider."""
    for variable in KEYS:
        monkeypatch.setenv(variable, f"key-of-{variable}")


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    "name, model, base_url",
    [
        ("gpt-5", "gpt-5", "https://api.openai.com/v1"),
        ("o3", "o3", "https://api.openai.com/v1"),
        ("o4-mini", "o4-mini", "https://api.openai.com/v1"),
        ("openai/anything", "anything", "https://api.openai.com/v1"),
        ("openrouter/mistralai/mistral-large", "mistralai/mistral-large", "https://openrouter.ai/api/v1"),
        ("ollama/llama3.2:3b", "llama3.2:3b", "http://localhost:11434/v1"),
    ],
)
def test_a_name_leads_to_its_provider(name: str, model: str, base_url: str) -> None:
    """Prefixes and well-known names say where a model is."""
    found = resolve_model(name)

    assert repr(found) == f"OpenAICompatible({model!r}, base_url={base_url!r})"
    assert found.name == name


@pytest.mark.usefixtures("keys")
def test_the_responses_api_has_a_prefix() -> None:
    """`openai-responses/` asks OpenAI's models through that API."""
    found = resolve_model("openai-responses/gpt-5", reasoning_effort="low")

    assert repr(found) == "OpenAIResponses('gpt-5', base_url='https://api.openai.com/v1')"
    assert found.name == "openai-responses/gpt-5"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("name", ["claude-sonnet-5", "anthropic/claude-sonnet-5"])
def test_claude_is_asked_in_its_own_format(name: str) -> None:
    """The names of Anthropic's models give an Anthropic, which knows how much they read."""
    found = resolve_model(name)

    assert isinstance(found, Anthropic)
    assert repr(found) == "Anthropic('claude-sonnet-5', base_url='https://api.anthropic.com/v1')"
    assert (found.name, found.context_tokens) == (name, 1_000_000)


def test_ollama_needs_no_key() -> None:
    """A server on this computer is asked without a key."""
    resolve_model("ollama/llama3.2")


@pytest.mark.parametrize(
    "name, variable",
    [
        ("gpt-5", "OPENAI_API_KEY"),
        ("claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("openrouter/mistralai/mistral-large", "OPENROUTER_API_KEY"),
    ],
)
def test_a_missing_key_is_named_at_once(name: str, variable: str) -> None:
    """The error names the variable and the line to write, when the model is built."""
    with pytest.raises(AuthError, match=f"export {variable}="):
        resolve_model(name)


@pytest.mark.parametrize("tail", ["", "/v1", "/v1/"])
async def test_anthropics_address_comes_from_the_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, tail: str
) -> None:
    """ANTHROPIC_BASE_URL is where Claude is asked, with the key for it and no other."""
    server = serve(anthropic_server.says("Hi"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-somebody-else")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key-of-claude")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url.removesuffix("/v1") + tail)
    model = resolve_model("claude-sonnet-5")

    await model.respond(HELLO)
    await model.aclose()

    (received,) = server.requests
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == "key-of-claude"
    assert "authorization" not in received.headers


async def test_ollama_gets_no_key_of_openai(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in the environment goes only to whom it belongs."""
    server = serve(says("Hi"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-openai")
    model = resolve_model("ollama/llama3.2", base_url=server.base_url)

    await model.respond(HELLO)
    await model.aclose()

    assert "authorization" not in server.requests[0].headers


def test_options_go_to_the_model() -> None:
    """What the Model takes can be given with the name."""
    model = resolve_model("gpt-5", base_url="http://localhost:1/v1", name="ours", timeout=5.0)

    assert (model.name, repr(model)) == ("ours", "OpenAICompatible('gpt-5', base_url='http://localhost:1/v1')")


def test_options_of_anthropic_go_to_it() -> None:
    """Claude takes what OpenAICompatible does not."""
    model = resolve_model("claude-sonnet-5", base_url="http://localhost:1", name="ours", max_tokens=500)

    assert (model.name, repr(model)) == ("ours", "Anthropic('claude-sonnet-5', base_url='http://localhost:1/v1')")
    assert isinstance(model, Anthropic)
    assert model.max_tokens == 500


@pytest.mark.parametrize(
    "name, option, near",
    [
        ("ollama/llama3.2", "time_out", "timeout"),
        ("claude-sonnet-5", "max_token", "max_tokens"),
        ("claude-sonnet-5", "thinkin", "thinking"),
    ],
)
def test_an_unknown_option_is_refused(name: str, option: str, near: str) -> None:
    """The error names the nearest option, and where a provider's own field goes."""
    with pytest.raises(ConfigError, match=rf"Did you mean '{near}'.*extra_body"):
        resolve_model(name, **{option: 5.0})


def test_an_option_of_another_provider_is_refused() -> None:
    """What only Claude takes is no option of another model."""
    with pytest.raises(ConfigError, match="'thinking' is not an option of 'gpt-5'"):
        resolve_model("gpt-5", thinking="adaptive")


@pytest.mark.parametrize(
    "name, near",
    [
        ("gtp-5", "'gpt-5'"),
        ("GPT-5", "'gpt-5'"),
        ("claude", "'claude-opus-5-5'"),
        ("cluade-sonnet-5-5", "'claude-sonnet-5-5'"),
        ("sonnet", "'claude-sonnet-5-5'"),
        ("llama3.2", "'ollama/llama3.2'"),
        ("anthropc/claude-sonnet-5", "'anthropic/claude-sonnet-5'"),
        ("mistralai/mistral-large", "'openrouter/mistralai/mistral-large'"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, near: str) -> None:
    """The error has the nearest names, the prefixes, and the line for any other server."""
    with pytest.raises(ConfigError) as refused:
        resolve_model(name)

    assert near in str(refused.value)
    assert "openrouter/" in str(refused.value)
    assert f'OpenAICompatible("{name}", base_url="http://localhost:8000/v1")' in str(refused.value)


@pytest.mark.parametrize("name", ["", " ", None, 5, "openai/", "ollama/ "])
def test_no_name_is_refused(name: Any) -> None:
    """Nothing, or something that is no text, is a ConfigError that shows a name."""
    with pytest.raises(ConfigError, match="name"):
        resolve_model(name)
