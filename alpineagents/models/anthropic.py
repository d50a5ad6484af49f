"""Anthropic's Messages API, and every server that speaks its format."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import JsonValue

from alpineagents.errors import AuthError, ConfigError, ProviderError
from alpineagents.messages import Block, Message, Reply, Request
from alpineagents.models.base import Emit, Pooled
from alpineagents.models.claude import facts_of
from alpineagents.models.messages_reader import MessageReader
from alpineagents.models.messages_wire import (
    MARKS,
    Wire,
    marks_in,
    resumes_without_thinking,
    shape_of,
    thinking_of,
    to_wire,
)
from alpineagents.models.prices import Pricing
from alpineagents.models.tally import Tally
from alpineagents.usage import Price
from alpineagents.values import storable

if TYPE_CHECKING:
    import httpx

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"
"""The version that Anthropic and every other server of the format speaks; `headers` may ask for another."""
BINDING_BETA = "thinking-binding-controls-2026-08-01"
MAX_PAUSES = 10
"""How often a reply that pauses is gone on with."""
SMALLEST_BUDGET = 1_024

Cache = Literal["5m", "1h"]
Thinking = Literal["adaptive", "disabled"] | int | dict[str, JsonValue]

_OWN_FIELDS = ("model", "max_tokens", "messages", "system", "thinking", "stream", "cache_control")
_COUNTED_FIELDS = ("model", "messages", "system", "tools", "thinking", "tool_choice", "output_config", "mcp_servers")


class Anthropic:
    """
    A Claude model behind Anthropic's Messages API, or another model behind a server of that format.

    It may serve many runs at once, on one event loop after another or on several, on asyncio and trio.

    Args:
        model: as the API names it.
        max_tokens: how much one reply may have, thinking included; otherwise the most that the model can write.
        thinking: `"adaptive"`, `"disabled"`, a budget in tokens from 1,024 on, or the field as the API has it;
            otherwise what the model does by itself.
        cache: how long the beginning of a conversation stays in the API's cache; None to leave caching alone.
        betas: names of beta features, such as `"context-1m-2025-08-07"`.
        headers: more headers for each request; their values are shown nowhere.
        base_url: address of the API; otherwise `ANTHROPIC_BASE_URL`, or Anthropic's own.
        api_key: otherwise `ANTHROPIC_API_KEY`; `""` for none. Anthropic's own API needs one.
        timeout: seconds that the server may send nothing of the reply, before it counts as stalled; otherwise 300, or
            what `http_client` says, and 600 where pings or comments show that the server is alive.
        max_retries: how often a request is sent again after a failed connection, a 408, 409, 429 or 5xx, as long as
            no part of a reply has come. `Retry-After` is obeyed.
        retry_seconds: no attempt begins later than this after the first one began; otherwise 60.
        retry_streams: send a request again also where a part of the reply has come; it is then shown anew.
        price: what it costs; otherwise as the catalogue of the extra `alpineagents[prices]` has it for the address.
        extra_body: more fields for each request, such as `{"output_config": {"effort": "low"}}`; tools in it, which the
            API runs itself, are added to those of the request.
        http_client: an `httpx.AsyncClient` of your own, for proxies, certificates or limits; you close it.
        name: what history and lists show; otherwise the model.
        context_tokens: how much the model reads and writes in all; otherwise as it is known, or 200,000.
        key_variable: the environment variable with the key.

    Attributes:
        context_tokens: how much the model reads and writes in all.
        max_tokens: how much one reply may have.

    Raises:
        AuthError: the key is missing, or has characters that no key has.
        ConfigError: an argument cannot work.

    Example:
        >>> model = Anthropic("claude-sonnet-5-5", api_key="your key".replace(" ", "-"))
        >>> model, model.context_tokens
        (Anthropic('claude-sonnet-5-5', base_url='https://api.anthropic.com/v1'), 1000000)
    """

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        thinking: Thinking | None = None,
        cache: Cache | None = "5m",
        betas: Iterable[str] = (),
        headers: Mapping[str, str] | None = None,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        retry_seconds: float | None = None,
        retry_streams: bool = False,
        price: Price | None = None,
        extra_body: dict[str, JsonValue] | None = None,
        http_client: httpx.AsyncClient | None = None,
        name: str | None = None,
        context_tokens: int | None = None,
        key_variable: str = "ANTHROPIC_API_KEY",
    ) -> None:
        # Here and not at the top: httpx takes longer to import than the rest of the package that needs no network.
        from alpineagents.models.http import Endpoint

        given: object = model
        if not isinstance(given, str) or not given.strip():
            raise ConfigError(f'a model has a name, not {given!r}: Anthropic("claude-sonnet-5-5")')
        self._facts = facts_of(model)
        self._model = model
        self._name = name or model
        self.max_tokens = _whole("max_tokens", max_tokens, self._facts.max_tokens)
        self.context_tokens = _whole("context_tokens", context_tokens, self._facts.context_tokens)
        self._thinking = _thinking(thinking, self.max_tokens)
        self._cache = _cache(cache)
        own = {str(key): value for key, value in dict(headers or {}).items()}
        self._betas = _betas(betas, [own.pop(key) for key in list(own) if key.lower() == "anthropic-beta"])
        self._tools, self._extra_body = _checked(extra_body)
        address = _address(base_url)
        key = _key(model, address, api_key, key_variable, own)
        self._endpoint = Endpoint(
            address,
            key=key,
            key_hint=key_variable if api_key is None else "api_key",
            key_header="x-api-key",
            headers=own,
            timeout=timeout,
            max_retries=max_retries,
            retry_seconds=retry_seconds,
            retry_streams=retry_streams,
            http_client=http_client,
        )
        self._pricing = Pricing(price, self._endpoint.base_url)

    def __repr__(self) -> str:
        return f"Anthropic({self._model!r}, base_url={self._endpoint.base_url!r})"

    @property
    def name(self) -> str:
        """As history and lists show it."""
        return self._name

    async def respond(self, request: Request, *, emit: Emit | None = None) -> Reply:
        """
        Answer a request.

        A reply that the API pauses, as it does while tools of its own run for long, is sent back and gone on with; all
        parts are one reply.

        Args:
            emit: called with each part of the reply as it arrives, and with each attempt that is made again.

        Raises:
            AuthError: the server refused the key.
            RateLimitError: too many requests; `retry_after` says how long to wait.
            ContextTooLongError: the messages are too long for the model.
            ProviderError: the server failed, could not be reached, fell silent, or sent something else than a reply.
        """
        body, headers = self._request(request)
        body |= {"max_tokens": self.max_tokens, "stream": True}
        asked = body["messages"]
        tally = Tally(emit)
        contents: list[Block] = []
        said: list[Wire] = []
        pauses = 0
        while True:
            reader = await self._endpoint.stream(
                "/messages",
                body,
                lambda: MessageReader(tally),
                priced=lambda reader: self._pricing.of_part(reader, self._model),
                emit=tally,
                headers=headers,
            )
            reply = reader.reply(model=self._model)
            usage = self._pricing.of(reply.usage, reply.model, self._model)
            contents += reply.message.content
            if reader.stop_reason != "pause_turn" or reply.message.tool_calls or pauses == MAX_PAUSES:
                break
            pauses += 1
            tally.used(usage, goes_on=True)
            said += reader.wires()
            if said:
                body = {**body, "messages": [*asked, _assistant(said)]}
        message = Message(role="assistant", content=tuple(contents))
        return reply.model_copy(update={"message": message, "usage": tally.usage + usage})

    async def count_tokens(self, request: Request) -> int:
        """
        Ask how many tokens a request has. It costs nothing.

        Raises:
            ModelError: there is no answer; as `respond` does.
        """
        body, headers = self._request(request)
        counted = {name: body[name] for name in _COUNTED_FIELDS if name in body}
        answer = await self._endpoint.ask("/messages/count_tokens", counted, headers=headers)
        count = answer.get("input_tokens")
        if isinstance(count, bool) or not isinstance(count, int):
            raise ProviderError(f"{self._endpoint.base_url} does not count tokens: its answer has no input_tokens")
        return count

    def share_connections(self, other: Pooled) -> None:
        """Use the connections of another Model, unless `http_client` was given to either."""
        if (endpoint := getattr(other, "_endpoint", None)) is not None:
            self._endpoint.share(endpoint)

    async def aclose(self) -> None:
        """Close the connections. The next request, if any, opens new ones; an `http_client` of yours stays open."""
        await self._endpoint.aclose()

    def _request(self, request: Request) -> tuple[Wire, dict[str, str]]:
        marks = MARKS - marks_in([self._tools, self._extra_body])
        wire = to_wire(request, cache=self._cache, marks=marks, takes_prefill=self._facts.takes_prefill)
        if self._tools:
            wire["tools"] = [*wire.get("tools", []), *self._tools]
        body: dict[str, Any] = {"model": self._model, **wire, **self._extra_body}
        if request.output is not None:
            held, wished = shape_of(request.output, is_held=self._facts.takes_shape)
            config = body.get("output_config")
            body |= {"output_config": {**(config if isinstance(config, dict) else {}), **held}} if held else {}
            body |= {"system": [*body.get("system", []), *wished]} if wished else {}
        betas = list(self._betas)
        thinking = self._thinking
        if thinking is not None and thinking.get("type") == "enabled" and resumes_without_thinking(wire["messages"]):
            thinking = None  # Refused: a turn either begins with thinking, or has none.
        if self._facts.binds_thinking and thinking_of(wire["messages"]):
            # After a compaction, or with other tools, the thinking of before is left out instead of being refused.
            thinking = thinking or {"type": "adaptive"}
            if thinking.get("type") in ("adaptive", "enabled") and "block_binding" not in thinking:
                thinking = {**thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
                betas.append(BINDING_BETA)
        if thinking is not None:
            body["thinking"] = thinking
        headers = {"anthropic-version": API_VERSION}
        return body, headers | ({"anthropic-beta": ",".join(dict.fromkeys(betas))} if betas else {})


def _assistant(said: list[Wire]) -> Wire:
    last = said[-1]
    if last.get("type") == "text":
        said = [*said[:-1], {**last, "text": str(last.get("text")).rstrip()}]
    return {"role": "assistant", "content": said}


# ------------------------------------------------------------------------------------------------ settings


def _whole(name: str, given: object, otherwise: int) -> int:
    if given is None:
        return otherwise
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ConfigError(f"{name} is {given!r}; it is a number of tokens: {name}={otherwise}")
    return given


def _thinking(given: object, max_tokens: int) -> dict[str, JsonValue] | None:
    if given is None:
        return None
    if given in ("adaptive", "disabled"):
        return {"type": str(given)}
    if isinstance(given, int) and not isinstance(given, bool):
        if not SMALLEST_BUDGET <= given < max_tokens:
            raise ConfigError(
                f"thinking={given} is a budget in tokens, from {SMALLEST_BUDGET} on and below max_tokens, which is "
                f"{max_tokens}: thinking=4096, max_tokens=16000"
            )
        return {"type": "enabled", "budget_tokens": given}
    if isinstance(given, dict):
        fields = storable(given, "thinking")
        if isinstance(fields, dict) and fields.get("type"):
            return fields
    raise ConfigError(f'thinking is {given!r:.80}; it is "adaptive", "disabled" or a budget in tokens: thinking=4096')


def _cache(given: object) -> Wire | None:
    if given is None:
        return None
    if given not in ("5m", "1h"):
        raise ConfigError(f'cache is {given!r}; it is "5m", "1h" or None: cache="1h"')
    return {"type": "ephemeral"} if given == "5m" else {"type": "ephemeral", "ttl": "1h"}


def _betas(given: object, more: Iterable[str]) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"betas is {given!r:.80}; it is a list of names: betas=[{given!r:.80}]")
    return [name.strip() for item in (*given, *more) for name in str(item).split(",") if name.strip()]


def _checked(extra_body: object) -> tuple[list[JsonValue], dict[str, JsonValue]]:
    fields = storable({} if extra_body is None else extra_body, "extra_body")
    if not isinstance(fields, dict):
        raise ConfigError(
            f"extra_body is a {type(extra_body).__name__}; it is a dict: "
            'extra_body={"output_config": {"effort": "low"}}'
        )
    for field in _OWN_FIELDS:
        if field in fields:
            own = "Anthropic has an argument for it" if field in ("max_tokens", "thinking") else "leave it out"
            raise ConfigError(f"extra_body cannot set {field!r}, which the library sets for each request; {own}")
    tools = fields.pop("tools", [])
    if not isinstance(tools, list):
        raise ConfigError('tools in extra_body are a list: extra_body={"tools": [{"type": "…", "name": "…"}]}')
    return tools, fields


def _address(base_url: str | None) -> str:
    address = (os.environ.get("ANTHROPIC_BASE_URL") or ANTHROPIC_URL) if base_url is None else base_url
    if not isinstance(address, str) or not address.strip():
        raise ConfigError('base_url is not an address. Write it like this: base_url="http://localhost:8000"')
    # Others' clients take it without the /v1, and add that themselves.
    return address.rstrip("/").removesuffix("/v1") + "/v1"


def _key(model: str, address: str, api_key: str | None, variable: str, headers: Mapping[str, str]) -> str | None:
    sent = any(name.lower() in ("authorization", "x-api-key") for name in headers)
    try:
        parts = urlsplit(address)
        host, has_password = parts.hostname or "", "@" in parts.netloc
    except ValueError:
        host, has_password = "", False
    if api_key is None and (sent or has_password):
        return None  # Who writes a password into the address or a header means that one to be sent.
    key = (os.environ.get(variable, "") if api_key is None else api_key).strip()
    if not key and not sent and (host == "anthropic.com" or host.endswith(".anthropic.com")):
        raise AuthError(
            f"Anthropic needs a key, and {variable} is not set. In the shell: export {variable}='your key', "
            f'or in the program: Anthropic("{model}", api_key=your_key)'
        )
    return key or None
