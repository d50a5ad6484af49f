"""What a request is sent with: its body as bytes, and the headers of the caller."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from alpineagents.errors import ConfigError
from alpineagents.values import sendable


def to_bytes(body: Mapping[str, Any]) -> bytes:
    r"""
    Return a body as JSON in UTF-8; half of a surrogate pair, which UTF-8 has not, is replaced.

    Example:
        >>> to_bytes({"content": "日本 \ud83d"}).decode()
        '{"content": "日本 \ufffd"}'
    """
    return json.dumps(_all_sendable(body), ensure_ascii=False).encode()


def own_headers(headers: Mapping[str, str] | None) -> dict[str, str]:
    """
    Return the headers that a caller gave.

    Raises:
        ConfigError: one of them cannot be sent.
    """
    for name, value in (headers or {}).items():
        texts = isinstance(name, str) and isinstance(value, str)
        if not texts or not (name + value).isascii() or not (name + value).isprintable():
            # The value may be a secret.
            raise ConfigError(f'the header {name!r} has no value of plain text: headers={{"x-team": "alps"}}')
    return dict(headers or {})


def _all_sendable(value: Any) -> Any:
    if isinstance(value, str):
        return sendable(value)
    if isinstance(value, Mapping):
        return {sendable(name): _all_sendable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_all_sendable(item) for item in value]
    return value
