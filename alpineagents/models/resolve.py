"""From a model's name to a Model: `"gpt-5"`, `"ollama/llama3.2"`, `"openrouter/mistralai/mistral-large"`."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import os
import re
from typing import Any

from alpineagents.errors import AuthError, ConfigError
from alpineagents.models.anthropic import Anthropic
from alpineagents.models.base import Model
from alpineagents.models.openai import OpenAICompatible
from alpineagents.models.openai_responses import OpenAIResponses


@dataclasses.dataclass(frozen=True)
class _Provider:
    """
    Where the models of a prefix are.

    Attributes:
        title: as people call it.
        base_url: of its API; None for what the Model takes by itself.
        key_variable: the environment variable with the key; None where there is no key.
        kind: the Model for it.
    """

    title: str
    base_url: str | None
    key_variable: str | None
    kind: type[OpenAICompatible] | type[OpenAIResponses] | type[Anthropic] = OpenAICompatible

    @property
    def options(self) -> tuple[str, ...]:
        """What the Model can be given with its name."""
        return tuple(name for name in inspect.signature(self.kind).parameters if name != "model")


_PROVIDERS = {
    "openai": _Provider("OpenAI", None, "OPENAI_API_KEY"),
    "anthropic": _Provider("Anthropic", None, "ANTHROPIC_API_KEY", Anthropic),
    "openai-responses": _Provider("OpenAI", None, "OPENAI_API_KEY", OpenAIResponses),
    "openrouter": _Provider("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": _Provider("Ollama", "http://localhost:11434/v1", None),
}

_BARE_NAMES = {
    "openai": re.compile(r"(gpt|chatgpt)-.+|o\d.*"),
    "anthropic": re.compile(r"claude-.+"),
}

_KNOWN = (
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-sonnet-5",
    "gpt-5",
    "gpt-5-mini",
    "gpt-4.1",
    "o3",
    "o4-mini",
)


def resolve_model(name: str, /, **options: Any) -> Model:
    """
    Return the Model that a name stands for.

    `gpt-…`, `o3` and the like, and `openai/…` are OpenAI's; `openai-responses/…` asks them through the Responses API.
    `claude-…` and `anthropic/…` are Anthropic's,
    `openrouter/…` goes to OpenRouter and `ollama/…` to an Ollama server on this computer.

    Args:
        options: of the Model, such as `timeout=60.0` or `base_url=…`.

    Raises:
        ConfigError: the name or an option is unknown; the text has the nearest ones.
        AuthError: the key that the provider needs is not in its environment variable.

    Example:
        >>> resolve_model("ollama/llama3.2")
        OpenAICompatible('llama3.2', base_url='http://localhost:11434/v1')
    """
    given: object = name
    if not isinstance(given, str) or not given.strip():
        raise ConfigError(f'a model is named by a text such as "gpt-5" or "claude-sonnet-5-5", not by {given!r}')
    provider, model = _split(name)
    for option in options:
        if option not in provider.options:
            near = difflib.get_close_matches(option, provider.options, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(provider.options)}."
            raise ConfigError(
                f"{option!r} is not an option of {name!r}. {hint} Fields for the provider go into "
                f'extra_body={{"{option}": …}}'
            )
    has_own_address = options.get("base_url") is not None
    if provider.base_url is not None and not has_own_address:
        options["base_url"] = provider.base_url
    if provider.key_variable is None:
        options.setdefault("api_key", "")
    elif provider.base_url is not None:
        options.setdefault("key_variable", provider.key_variable)
        variable = options["key_variable"]
        if not has_own_address and options.get("api_key") is None and not os.environ.get(variable, "").strip():
            raise AuthError(
                f"{provider.title} needs a key for {name!r}, and {variable} is not set. In the shell: "
                f"export {variable}='your key', or in the program: "
                f'resolve_model("{name}", api_key=your_key)'
            )
    options["name"] = options.get("name") or name
    return provider.kind(model, **options)


def _split(name: str) -> tuple[_Provider, str]:
    prefix, slash, model = name.partition("/")
    if slash and prefix in _PROVIDERS:
        if not model.strip():
            raise ConfigError(f'{name!r} lacks the model\'s name after the slash: "{prefix}/name-of-the-model"')
        return _PROVIDERS[prefix], model
    for bare, pattern in _BARE_NAMES.items():
        if not slash and pattern.fullmatch(name):
            return _PROVIDERS[bare], name
    raise ConfigError(
        f"no provider is known for the model {name!r}.{_nearest(name)} Names begin with gpt-, o3, claude-, openai/, "
        "openai-responses/, anthropic/, openrouter/ or ollama/. For any other server: "
        f'OpenAICompatible("{name}", base_url="http://localhost:8000/v1")'
    )


def _nearest(name: str) -> str:
    lowered = name.strip().lower()
    prefix, slash, model = lowered.partition("/")
    if slash:
        prefixes = difflib.get_close_matches(prefix, _PROVIDERS, n=1)
        near = [f"{match}/{model}" for match in prefixes] or [f"openrouter/{lowered}"]
    else:
        near = difflib.get_close_matches(lowered, _KNOWN, n=2, cutoff=0.6)
        near += [known for known in _KNOWN if len(lowered) > 2 and lowered in known and known not in near]
        near = near[:3] or [f"ollama/{lowered}"]
    return f" Did you mean {' or '.join(repr(match) for match in near)}?"
