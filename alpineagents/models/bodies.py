"""Bodies of answers that are no event stream, or do not say that they are one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import anyio
import httpx

STREAM_TYPE = "text/event-stream"
_ERROR_BODY_BYTES = 64 * 1024
_ERROR_BODY_SECONDS = 10.0
_LINE_OF_A_STREAM = re.compile(rb"(\xef\xbb\xbf)?\s*(data|event|id|retry)?:")
_LONGEST_BEGINNING = 16


def media_type(response: httpx.Response) -> str:
    """Return the type of an answer, in small letters and without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def as_stream(response: httpx.Response) -> tuple[httpx.Response, bool]:
    """
    Return an answer that is read from its beginning, and whether it is an event stream.

    Some servers and proxies give a stream another type, or none; it is known by its first line, as no other format
    begins like that.
    """
    is_stream = media_type(response) == STREAM_TYPE
    if not is_stream:
        rest = response.aiter_bytes()
        beginning = b""
        async for part in rest:
            beginning += part
            if len(beginning) >= _LONGEST_BEGINNING:
                break
        is_stream = _LINE_OF_A_STREAM.match(beginning) is not None
        headers = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        response = httpx.Response(response.status_code, headers=headers, stream=_Begun(beginning, rest))
    if is_stream:
        # As readers of streams want it written. Whatever it said of letters, a stream is UTF-8.
        response.headers["content-type"] = STREAM_TYPE
    return response, is_stream


class _Begun(httpx.AsyncByteStream):
    """A body whose beginning has been read."""

    def __init__(self, beginning: bytes, rest: AsyncIterator[bytes]) -> None:
        self._beginning, self._rest = beginning, rest

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._beginning
        async for part in self._rest:
            yield part


async def read_some(response: httpx.Response) -> str:
    """Return the first part of a body, as far as it comes in time."""
    body = bytearray()
    with anyio.move_on_after(_ERROR_BODY_SECONDS) as scope:
        try:
            async for part in response.aiter_bytes():
                body += part
                if len(body) > _ERROR_BODY_BYTES:
                    scope.cancel()
        except httpx.HTTPError:
            pass  # The status is known; a body that breaks off takes nothing from it.
    return body[:_ERROR_BODY_BYTES].decode("utf-8", "replace")
