"""OpenAI's Responses API, with nothing kept at the server."""

from __future__ import annotations

import re
from typing import Any

from alpineagents.messages import Request
from alpineagents.models.base import Emit
from alpineagents.models.openai_api import OpenAIModel
from alpineagents.models.responses_reply import ReplyReader
from alpineagents.models.responses_wire import to_wire

# They do not reason, and refuse a request that asks for their reasoning.
_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-4)")


class OpenAIResponses(OpenAIModel):
    """
    A model behind OpenAI's Responses API, or a server that speaks its format.

    Reasoning models think on from turn to turn: their reasoning comes encrypted, is kept in the State, and is sent back
    to the same model. Nothing is stored at the server (`store: false`). Images in tool results are sent as such.

    Args:
        model: as the server names it; all options are those of `OpenAICompatible`.

    Raises:
        AuthError: the key is missing, or has characters that no key has.
        ConfigError: an argument cannot work.

    Example:
        >>> OpenAIResponses("gpt-5", api_key="your-key")
        OpenAIResponses('gpt-5', base_url='https://api.openai.com/v1')
    """

    _format = "responses"
    _path = "/responses"
    _own_fields = ("model", "input", "instructions", "stream", "store")

    def _body(self, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            **to_wire(request, provider=self._provider),
            "stream": True,
            "store": False,
        }
        if not _WITHOUT_REASONING.match(self._model):
            body["include"] = ["reasoning.encrypted_content"]
        if self._effort is not None:
            body["reasoning"] = {"effort": self._effort}
        return body

    def _reader(self, emit: Emit) -> ReplyReader:
        return ReplyReader(emit, provider=self._provider)
