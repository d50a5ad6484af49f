"""What all APIs of OpenAI have in common: the key, the address, retries and prices."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args
from urllib.parse import urlsplit

from pydantic import JsonValue

from alpineagents.errors import AuthError, ConfigError
from alpineagents.messages import Reply, Request
from alpineagents.models.answer_tool import answered, with_answer_tool
from alpineagents.models.base import Emit, Pooled
from alpineagents.models.prices import Pricing
from alpineagents.models.reading import ReplyReader
from alpineagents.models.tally import Tally
from alpineagents.usage import Price
from alpineagents.values import storable

if TYPE_CHECKING:
    import httpx


OutputMode = Literal["schema", "tool"]
"""How an answer of a shape is asked for: by the format's own field for it, or as a tool that the model must call."""

OPENAI_URL = "https://api.openai.com/v1"


class OpenAIModel(ABC):
    """A model behind an API of OpenAI's or of the same kind; a subclass knows its format."""

    _format: ClassVar[str]
    """Names the format, so that its raw blocks are not sent in another."""
    _path: ClassVar[str]
    _own_fields: ClassVar[tuple[str, ...]]
    """Fields of the body that each request sets."""

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
        output_mode: OutputMode = "schema",
        headers: Mapping[str, str] | None = None,
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
            raise ConfigError(f'a model has a name, not {given!r}: {type(self).__name__}("gpt-5")')
        if base_url is None:
            base_url = os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        key = (os.environ.get(key_variable, "") if api_key is None else api_key).strip()
        is_sent = any(str(header).lower() in ("authorization", "api-key") for header in headers or {})
        if not key and not is_sent and _is_openai(base_url):
            raise AuthError(
                f"OpenAI needs a key, and {key_variable} is not set. In the shell: export {key_variable}='your key', "
                f'or in the program: {type(self).__name__}("{model}", api_key=your_key)'
            )
        if api_key is None and (is_sent or _has_userinfo(base_url)):
            key = ""  # Who writes a password into the address or a header means that one to be sent.
        self._model = model
        self._name = name or model
        if output_mode not in get_args(OutputMode):
            raise ConfigError(f'output_mode is {output_mode!r}; it is "schema" or "tool": output_mode="tool"')
        self._output_mode = output_mode
        self._effort = _effort(reasoning_effort)
        self._tools, self._extra_body = self._checked(extra_body)
        self._endpoint = Endpoint(
            base_url,
            key=key or None,
            key_hint=key_variable if api_key is None else "api_key",
            headers=headers,
            timeout=timeout,
            max_retries=max_retries,
            retry_seconds=retry_seconds,
            retry_streams=retry_streams,
            http_client=http_client,
        )
        self._pricing = Pricing(price, self._endpoint.base_url)
        # Without the port: a server that was started again elsewhere is the same.
        self._provider = f"{self._format}:{self._endpoint.host}/{model}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._model!r}, base_url={self._endpoint.base_url!r})"

    @property
    def name(self) -> str:
        """As history and lists show it."""
        return self._name

    @abstractmethod
    def _body(self, request: Request) -> dict[str, Any]:
        """Return what is sent, `extra_body` left out."""

    @abstractmethod
    def _reader(self, emit: Emit) -> ReplyReader:
        """Return what reads one answer."""

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
        answer_tool = ""
        forced: dict[str, Any] = {}
        if request.output is not None and self._output_mode == "tool":
            request, answer_tool = with_answer_tool(request)
            forced = {"tool_choice": "required"}
        body = {**self._body(request), **forced, **self._extra_body}
        if self._tools:
            body["tools"] = [*body.get("tools", []), *self._tools]
        reader = await self._endpoint.stream(
            self._path,
            body,
            lambda: self._reader(tally),
            priced=lambda reader: self._pricing.of_part(reader, self._model),
            emit=tally,
        )
        reply = answered(reader.reply(model=self._model), answer_tool)
        usage = self._pricing.of(reply.usage, reply.model, self._model)
        return reply.model_copy(update={"usage": usage + tally.usage})

    def share_connections(self, other: Pooled) -> None:
        """Use the connections of another Model, unless `http_client` was given to either."""
        if (endpoint := getattr(other, "_endpoint", None)) is not None:
            self._endpoint.share(endpoint)

    async def aclose(self) -> None:
        """Close the connections. The next request, if any, opens new ones; an `http_client` of yours stays open."""
        await self._endpoint.aclose()

    def _checked(self, extra_body: dict[str, JsonValue] | None) -> tuple[list[JsonValue], dict[str, JsonValue]]:
        fields = storable({} if extra_body is None else extra_body, "extra_body")
        if not isinstance(fields, dict):
            raise ConfigError(
                f'extra_body is a {type(extra_body).__name__}; it is a dict: extra_body={{"temperature": 0}}'
            )
        for field in self._own_fields:
            if field in fields:
                raise ConfigError(
                    f"extra_body cannot set {field!r}, which the library sets for each request; leave it out"
                )
        tools = fields.pop("tools", [])
        if not isinstance(tools, list):
            raise ConfigError('tools in extra_body are a list: extra_body={"tools": [{"type": "web_search"}]}')
        return tools, fields


def _effort(reasoning_effort: object) -> str | None:
    if reasoning_effort is None:
        return None
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
