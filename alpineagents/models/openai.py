"""OpenAI's Chat Completions API, and every server that speaks its format."""

from __future__ import annotations

from typing import Any

from alpineagents.messages import Request
from alpineagents.models.base import Emit
from alpineagents.models.chat_reply import ReplyReader
from alpineagents.models.chat_wire import to_wire
from alpineagents.models.openai_api import OpenAIModel


class OpenAICompatible(OpenAIModel):
    """
    A model behind a Chat Completions API: OpenAI, vLLM, Ollama, LM Studio, llama.cpp, OpenRouter and others.

    It may serve many runs at once, on one event loop after another or on several, on asyncio and trio.

    Args:
        model: as the server names it.
        base_url: address of the API, which mostly ends in `/v1`; otherwise `OPENAI_BASE_URL`, or OpenAI's own.
        api_key: otherwise taken from the variable `key_variable`; `""` for none. OpenAI's own API needs one.
        timeout: seconds that the server may send nothing of the reply, before it counts as stalled; otherwise 300, or
            what `http_client` says, and 600 where pings or comments show that the server is alive.
        max_retries: how often a request is sent again after a failed connection, a 408, 409, 429 or 5xx, as long as
            no part of a reply has come. `Retry-After` is obeyed.
        retry_seconds: no attempt begins later than this after the first one began; otherwise 60.
        retry_streams: send a request again also where a part of the reply has come; it is then shown anew.
        reasoning_effort: how long a reasoning model thinks, such as `"low"` or `"high"`; otherwise as the server does.
        output_mode: how an answer of a shape is asked for: `"schema"` by the format's field for it, `"tool"` as a tool
            that the model must call, for servers without that field.
        price: what it costs; otherwise as the provider says with its reply, or as the catalogue of the extra
            `alpineagents[prices]` has it for the address. A reply without a price counts as unpriced in `Usage`.
        headers: more headers for each request; their values are shown nowhere.
        extra_body: more fields for each request, such as `{"temperature": 0}`; tools in it, which the server runs
            itself, are added to those of the request.
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

    _format = "chat"
    _path = "/chat/completions"
    _own_fields = ("model", "messages", "stream")

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            **to_wire(request, provider=self._provider),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._effort is not None:
            body["reasoning_effort"] = self._effort
        return body

    def _reader(self, emit: Emit) -> ReplyReader:
        return ReplyReader(emit, provider=self._provider)
