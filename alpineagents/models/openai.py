"""OpenAI's Chat Completions API, and every server that speaks its format."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import JsonValue

from alpineagents.errors import AuthError, ConfigError
from alpineagents.messages import Reply, Request
from alpineagents.models.base import Emit
from alpineagents.models.chat_reply import ReplyReader
from alpineagents.models.chat_wire import to_wire
from alpineagents.models.prices import Pricing
from alpineagents.models.tally import Tally
from alpineagents.usage import Price
from alpineagents.values import storable

if TYPE_CHECKING:
    import httpx

OPENAI_URL = "https://api.openai.com/v1"

_OWN_FIELDS = ("model", "messages", "tools", "stream")


class OpenAICompatible:
    """
    A model behind a Chat Completions API: OpenAI, vLLM, Ollama, LM Studio, llama.cpp, OpenRouter and others.

    It may serve many runs at once, on one event loop after another or on several, on asyncio and trio.

    Args:
        model: as the server names it.
        base_url: address of the API, which mostly ends in `/v1`; otherwise `OPENAI_BASE_URL`, or OpenAI's own.
        api_key: otherwise taken from the variable `key_variable`; `""` for none. OpenAI's own API needs one.
        timeout: seconds that the server may send nothing, before a stalled reply counts as failed; otherwise 300,
            or what `http_client` says.
        max_retries: how often a request is sent again after a failed connection, a 408, 409, 429 or 5xx, as long as
            no part of a reply has come. `Retry-After` is obeyed.
        retry_seconds: no attempt begins later than this after the first one began; otherwise 60.
        retry_streams: send a request again also where a part of the reply has come; it is then shown anew.
        reasoning_effort: how long a reasoning model thinks, such as `"low"` or `"high"`; otherwise as the server does.
        price: what it costs; otherwise as the provider says with its reply, or as the catalogue of the extra
            `alpineagents[prices]` has it for the address. A reply without a price counts as unpriced in `Usage`.
        extra_body: more fields for each request, such as `{"temperature": 0}`.
        http_client: an `httpx.AsyncClient` of your own, for proxies, certificates or limits; you close it.
        name: what history and lists show; otherwise the model.
        key_variable: the environment variable with the key.

    Raises:
        AuthError: the key is missing, or has characters that no key has.
        ConfigError: an argument cannot work.

    Example:
        >>> OpenAICompatible("llama3.2", base_url="http://localhost:11434/v1")
        OpenAICompatible('llama3.2', base_url='http://localhost:11434/v1')
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        retry_seconds: float | None = None,
        retry_streams: bool = False,
        reasoning_effort: str | None = None,
        price: Price | None = None,
        extra_body: dict[str, JsonValue] | None = None,
        http_client: httpx.AsyncClient | None = None,
        name: str | None = None,
        key_variable: str = "OPENAI_API_KEY",
    ) -> None:
        # Here and not at the top: httpx takes longer to import than the rest of the package that needs no network.
        from alpineagents.models.http import Endpoint

        given: object = model
        if not isinstance(given, str) or not given.strip():
            raise ConfigError(f'a model has a name, not {given!r}: OpenAICompatible("gpt-5")')
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        key = (os.environ.get(key_variable, "") if api_key is None else api_key).strip()
        if not key and _is_openai(base_url):
            raise AuthError(
                f"OpenAI needs a key, and {key_variable} is not set. In the shell: export {key_variable}='your key', "
                f'or in the program: OpenAICompatible("{model}", api_key=your_key)'
            )
        if api_key is None and _has_userinfo(base_url):
            key = ""  # Who writes a password into the address means that one to be sent.
        self._model = model
        self._name = name or model
        self._extra_body = _checked(extra_body)
        if reasoning_effort is not None:
            self._extra_body = {"reasoning_effort": _effort(reasoning_effort), **self._extra_body}
        self._endpoint = Endpoint(
            base_url,
            key=key or None,
            key_hint=key_variable if api_key is None else "api_key",
            timeout=timeout,
            max_retries=max_retries,
            retry_seconds=retry_seconds,
            retry_streams=retry_streams,
            http_client=http_client,
        )
        self._pricing = Pricing(price, self._endpoint.base_url)
        # Without the port: a server that was started again elsewhere is the same.
        self._provider = f"chat:{self._endpoint.host}/{model}"

    def __repr__(self) -> str:
        return f"OpenAICompatible({self._model!r}, base_url={self._endpoint.base_url!r})"

    @property
    def name(self) -> str:
        """As history and lists show it."""
        return self._name

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Answer a request.

        Args:
            emit: called with each part of the reply as it arrives, and with each attempt that is made again.

        Raises:
            AuthError: the server refused the key.
            RateLimitError: too many requests; `retry_after` says how long to wait.
            ContextTooLongError: the messages are too long for the model.
            ProviderError: the server failed, could not be reached, fell silent, or sent something else than a reply.
        """
        tally = Tally(emit)
        body: dict[str, Any] = {
            "model": self._model,
            **to_wire(request, provider=self._provider),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._extra_body,
        }
        reader = await self._endpoint.stream(
            "/chat/completions", body, lambda: ReplyReader(tally, provider=self._provider), emit=tally
        )
        reply = reader.reply(model=self._model)
        usage = self._pricing.of(reply.usage, reply.model, self._model)
        return reply.model_copy(update={"usage": usage + tally.usage})

    async def aclose(self) -> None:
        """Close the connections. The next request, if any, opens new ones; an `http_client` of yours stays open."""
        await self._endpoint.aclose()


def _checked(extra_body: dict[str, JsonValue] | None) -> dict[str, JsonValue]:
    fields = storable({} if extra_body is None else extra_body, "extra_body")
    if not isinstance(fields, dict):
        raise ConfigError(f'extra_body is a {type(extra_body).__name__}; it is a dict: extra_body={{"temperature": 0}}')
    for field in _OWN_FIELDS:
        if field in fields:
            raise ConfigError(f"extra_body cannot set {field!r}, which the library sets for each request; leave it out")
    return fields


def _effort(reasoning_effort: object) -> str:
    if not isinstance(reasoning_effort, str) or not reasoning_effort.strip():
        raise ConfigError(f'reasoning_effort is {reasoning_effort!r}; it is a word: reasoning_effort="high"')
    return reasoning_effort


def _is_openai(base_url: str) -> bool:
    try:
        host = urlsplit(str(base_url)).hostname or ""
    except ValueError:
        return False
    return host == "openai.com" or host.endswith(".openai.com")


def _has_userinfo(base_url: str) -> bool:
    try:
        return "@" in urlsplit(str(base_url)).netloc
    except ValueError:
        return False
