"""
The HTTP door to every model API: deadlines, retries, and the way from a status to an error.

    Endpoint.stream ──POST JSON──> server ──SSE events──> EventReader, made anew for each attempt
    Endpoint.ask ──POST JSON──> server ──JSON object──>

Only this module, `pool` and `bodies` import httpx, so that a change of client changes no other. The stream is read as
the WHATWG HTML standard says ("Server-sent events", 2024), with the end mark `[DONE]` of the Chat Completions format.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio
import httpx
import httpx_sse
from pydantic import JsonValue, SecretStr

from alpineagents.errors import AuthError, ConfigError, ModelError, ProviderError
from alpineagents.models.base import Emit
from alpineagents.models.bodies import as_stream, media_type, read_some
from alpineagents.models.failures import AttemptError, Failures, says_error
from alpineagents.models.pool import Pool
from alpineagents.models.reading import EventReader, is_keep_alive
from alpineagents.models.retries import Retries
from alpineagents.models.secrets import SECRET_LENGTH
from alpineagents.models.sending import own_headers, to_bytes
from alpineagents.models.tally import Tally
from alpineagents.usage import Usage

READ_SECONDS = 300.0
"""How long a server may send nothing; models that think before they speak are silent for minutes."""
CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
POOL_SECONDS = 60.0
STALL_SECONDS = 600.0
"""How long a server may only say that it is alive; that of the official clients for a whole request."""
TAIL_SECONDS = 5.0
"""How long to wait, once the answer is complete, for the usage, which may follow it."""
END_SECONDS = 0.25
"""How long to wait for the end of a stream that says nothing more, so that its connection can be used again."""


_Reader = TypeVar("_Reader", bound=EventReader)
_T = TypeVar("_T")


class Endpoint:
    """
    A model API at an address, with the key for it.

    Args:
        base_url: what all paths follow; a name and password in it are sent, and shown nowhere.
        key: sent as a bearer token, or None.
        key_hint: where the key comes from, for errors.
        key_header: a header that takes the key as it is, where the API wants no bearer token.
        headers: sent with each request, before all others; their values are shown nowhere.
        timeout: seconds that the server may send nothing of the reply; None for READ_SECONDS without a sign of life, or
            what `http_client` says, and STALL_SECONDS with nothing else.
        max_retries: how often a failed request is sent again.
        retry_seconds: no attempt begins later than this after the first one began; None for a minute.
        retry_streams: whether a request is sent again although a part of its reply has come.
        http_client: an `httpx.AsyncClient` of the caller, who closes it.

    Raises:
        ConfigError: one of them cannot work.
        AuthError: the key cannot be sent in a header.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        key_hint: str = "api_key",
        key_header: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_retries: int = 2,
        retry_seconds: float | None = None,
        retry_streams: bool = False,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        url = _parse(base_url)
        self.base_url = str(url.copy_with(username=None, password=None)).rstrip("/")
        self.host = url.host
        own = own_headers(headers)
        secrets = [key] if key else [url.password, _basic(url)] if url.userinfo else []
        secrets += [value for value in own.values() if len(value) >= SECRET_LENGTH]
        self._failures = Failures(self.base_url, key_hint, [secret for secret in secrets if secret])
        if key or url.userinfo:
            name, value = _authorization(url, key, key_hint, key_header)
            own[name] = value
        self._headers = {name: SecretStr(value) for name, value in own.items()}
        self._timeout = _timeout(timeout, has_own=http_client is not None)
        self._stall_seconds = STALL_SECONDS if timeout is None else float(timeout)
        self._retries = Retries(max_retries, retry_seconds)
        self._retry_streams = retry_streams
        self._pool = Pool(http_client)

    def __repr__(self) -> str:
        return f"Endpoint({self.base_url!r})"

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        new_reader: Callable[[], _Reader],
        *,
        priced: Callable[[_Reader], Usage | None],
        emit: Emit | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Reader:
        """
        Post a request and read the events that answer it.

        Failed attempts are repeated where that can help and as long as no part of a reply has come.

        Args:
            priced: says what an attempt took that gave no whole reply, as far as it is known.
            emit: told of each attempt that failed and is followed by another, and of what one took that was cancelled.
            headers: of this request, none of them secret.

        Returns:
            The reader of the attempt that gave a whole reply.

        Raises:
            ModelError: there is no reply, for a reason that the subclass names.
        """
        return await self._retried(emit, self._attempt, path, body, headers, new_reader, priced, emit)

    async def ask(self, path: str, body: Mapping[str, Any], *, headers: Mapping[str, str]) -> dict[str, JsonValue]:
        """
        Post a request and return the JSON object that answers it; failed attempts are repeated where that can help.

        Raises:
            ModelError: there is no answer, for a reason that the subclass names.
        """
        return await self._retried(None, self._ask, path, body, headers)

    async def _retried(
        self,
        emit: Emit | None,
        attempt: Callable[..., Awaitable[_T]],
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None,
        *args: Any,
    ) -> _T:
        sending = {
            "url": self.base_url + path,
            "content": to_bytes(body),
            "headers": {"Content-Type": "application/json", **(headers or {})},
            "auth": self._authorize if self._headers else httpx.USE_CLIENT_DEFAULT,
            "timeout": httpx.USE_CLIENT_DEFAULT if self._timeout is None else self._timeout,
            "follow_redirects": False,
        }
        try:
            return await self._retries.around(emit)(attempt, sending, *args)
        except AttemptError as failure:
            raise failure.error from failure.__cause__

    def share(self, other: Endpoint) -> None:
        """Use the connections of another, unless a caller has given either its own."""
        if self._pool.is_own and other._pool.is_own:
            self._pool = other._pool

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones. A given `http_client` stays open."""
        await self._pool.aclose()

    async def _attempt(
        self,
        sending: dict[str, Any],
        new_reader: Callable[[], _Reader],
        priced: Callable[[_Reader], Usage | None],
        emit: Emit | None,
    ) -> _Reader:
        reader = new_reader()
        try:
            await self._exchange(sending, reader)
        except AttemptError as failure:
            failure.again = failure.again and (self._retry_streams or not reader.started)
            failure.error.usage = priced(reader)
            raise
        except ModelError as error:
            error.usage = priced(reader)
            raise
        except BaseException:
            if isinstance(emit, Tally) and (usage := priced(reader)) is not None:
                emit.used(usage)  # A cancellation carries no usage.
            raise
        return reader

    def _cause(self, error: httpx.RequestError) -> httpx.RequestError | None:
        # A traceback shows the cause; its text may quote a header, or what the server said.
        text = str(error)
        return error if self._failures.scrub(text, len(text)) == text else None

    async def _ask(self, sending: dict[str, Any]) -> dict[str, JsonValue]:
        client = await self._pool.client()
        try:
            async with client.stream("POST", **sending) as response:
                body = await read_some(response)
        except httpx.RequestError as error:
            raise self._unreached(error, {}) from self._cause(error)
        if response.status_code != 200:
            raise self._failures.refused(response.status_code, response.reason_phrase, body, response.headers)
        answer = self._decode(body, response.headers)
        if says_error(answer):
            raise self._failures.broken_off(answer, response.headers)
        return answer

    async def _exchange(self, sending: dict[str, Any], reader: EventReader) -> None:
        client = await self._pool.client()
        headers: Mapping[str, str] = {}
        try:
            async with httpx_sse.aconnect_sse(client, "POST", **sending) as source:
                response = source.response
                headers = response.headers
                kind = media_type(response)
                if response.status_code != 200:
                    body = await read_some(response)
                    raise self._failures.refused(response.status_code, response.reason_phrase, body, headers)
                response, is_stream = await as_stream(response)
                if not is_stream:
                    raise self._failures.no_stream(kind, await read_some(response), headers)
                await self._read_events(response, headers, reader)
        except httpx.RequestError as error:
            if not reader.complete:
                raise self._unreached(error, headers) from self._cause(error)

    def _authorize(self, request: httpx.Request) -> httpx.Request:
        # Set here and not in a dict of headers, which a traceback with local variables would show.
        for name, value in self._headers.items():
            request.headers[name] = value.get_secret_value()
        return request

    async def _read_events(self, response: httpx.Response, headers: Mapping[str, str], reader: EventReader) -> None:
        events = httpx_sse.EventSource(response).aiter_sse()
        is_done = False
        with anyio.CancelScope(deadline=anyio.current_time() + self._stall_seconds) as scope:
            try:
                async for event in events:
                    if is_done or not event.data.strip():
                        continue  # Read to the end, so that the connection can be used again.
                    is_done = event.data.strip() == "[DONE]"
                    is_of_the_reply = is_done or self._take(event.data, reader, headers)
                    if is_done:
                        reader.done()
                    now = anyio.current_time()
                    if is_done or reader.ended:
                        seconds = END_SECONDS if is_done or reader.over else TAIL_SECONDS
                        scope.deadline = min(scope.deadline, now + seconds)
                    elif is_of_the_reply:
                        scope.deadline = now + self._stall_seconds
            finally:
                await _unwind(events)
        if reader.complete:
            return
        if scope.cancelled_caught and not reader.ended:
            raise self._failures.stalled(self._stall_seconds, headers)
        raise self._failures.incomplete(headers)

    def _take(self, data: str, reader: EventReader, headers: Mapping[str, str]) -> bool:
        event = self._decode(data, headers)
        reader.read(event)  # Also one that says what went wrong: it may say what the request took.
        if says_error(event):
            raise self._failures.broken_off(event, headers)
        return not is_keep_alive(event)

    def _decode(self, data: str, headers: Mapping[str, str]) -> dict[str, JsonValue]:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            raise self._failures.not_json(data, headers)
        return event

    def _unreached(self, error: httpx.RequestError, headers: Mapping[str, str]) -> AttemptError:
        read = self._timeout.read if self._timeout is not None else None
        reason = self._failures.scrub(str(error), 200) or type(error).__name__
        if isinstance(error, httpx.ReadTimeout):
            seconds = f"{read:g} s" if read is not None else "too long"
            text = f"{self.base_url} sent nothing of the reply for {seconds}. If the model needs longer, give timeout=…"
        elif isinstance(error, httpx.PoolTimeout):
            text = "the http_client had no free connection; give it more: httpx.Limits(max_connections=None)"
        elif isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout)):
            text = f"cannot reach {self.base_url}: {reason}. Does the server run there, and is base_url right?"
        elif isinstance(error, httpx.LocalProtocolError):
            # Its text quotes header values.
            text = f"the request to {self.base_url} cannot be sent: a header or the address is not valid HTTP"
        else:
            text = f"the connection to {self.base_url} broke off: {reason}. Check the network, a proxy, and base_url"
        again = isinstance(error, httpx.TransportError) and not isinstance(
            error, (httpx.UnsupportedProtocol, httpx.LocalProtocolError)
        )
        failure = ProviderError(text, request_id=self._failures.request_id(headers))
        failure.charged = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
        return AttemptError(failure, again=again)


async def _unwind(events: AsyncGenerator[httpx_sse.ServerSentEvent, None]) -> None:
    # Generators that read for one another are closed from the inside out by a cancelled read; left to the garbage
    # collector, each would be closed later, in another task, with a warning on trio.
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            async for _ in events:
                pass
        except (httpx.HTTPError, httpx.StreamError):
            pass


def _parse(base_url: str) -> httpx.URL:
    example = 'base_url="http://localhost:8000/v1"'
    try:
        url = httpx.URL(base_url)
    except (httpx.InvalidURL, TypeError):
        # Their text may quote a part of a password that holds a "/".
        raise ConfigError(f"base_url is not an address. Write it like this: {example}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError(f"base_url begins with http:// or https:// and a host: {example}")
    if url.port is not None and not 0 < url.port < 65_536:
        raise ConfigError(f"base_url has the port {url.port}, and ports go from 1 to 65535: {example}")
    if url.query or url.fragment:
        raise ConfigError(
            "base_url has a part after ? or #, which would end up in logs. Leave it out; parameters that each request "
            "needs go into http_client=httpx.AsyncClient(params={…})"
        )
    return url


def _basic(url: httpx.URL) -> str:
    return base64.b64encode(f"{url.username}:{url.password}".encode()).decode("ascii")


def _authorization(url: httpx.URL, key: str | None, key_hint: str, key_header: str | None) -> tuple[str, str]:
    if key is None:
        return "Authorization", f"Basic {_basic(url)}"
    if url.userinfo:
        raise ConfigError("base_url holds a name or password and there is a key too; only one of them can be sent")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise AuthError(f"the key in {key_hint} has blanks or characters that no key has; copy it again")
    return (key_header, key) if key_header else ("Authorization", f"Bearer {key}")


def _timeout(read: float | None, *, has_own: bool) -> httpx.Timeout | None:
    if read is None and has_own:
        return None
    if read is None:
        read = READ_SECONDS
    given: object = read
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0 < given < math.inf:
        raise ConfigError(f"timeout is {read!r}; it is the seconds a server may send nothing: timeout=120.0")
    return httpx.Timeout(
        read=read, connect=min(read, CONNECT_SECONDS), write=min(read, WRITE_SECONDS), pool=POOL_SECONDS
    )
