"""The connections to a model API: a pool for each event loop, or the client that the caller gave."""

from __future__ import annotations

import functools
import os
import ssl
from collections.abc import AsyncGenerator

import anyio.lowlevel
import httpx

from alpineagents.errors import ConfigError


class Pool:
    """
    Gives out the client for the event loop that asks, since a connection belongs to its loop.

    A client is closed with `aclose`, or else by its loop as that ends.

    Args:
        given: the caller's own, who closes it.

    Raises:
        ConfigError: what was given is no async client.
    """

    def __init__(self, given: httpx.AsyncClient | None) -> None:
        if given is not None and not isinstance(given, httpx.AsyncClient):
            raise ConfigError(
                f"http_client is a {type(given).__name__}; it is an async client: http_client=httpx.AsyncClient()"
            )
        self._given = given
        self._held: dict[object, tuple[httpx.AsyncClient, AsyncGenerator[httpx.AsyncClient, None]]] = {}

    @property
    def is_own(self) -> bool:
        """Whether the connections are its own, and not the caller's."""
        return self._given is None

    async def client(self) -> httpx.AsyncClient:
        """
        Return an open client.

        Raises:
            ConfigError: the caller has closed the one that was given.
        """
        if self._given is not None:
            if self._given.is_closed:
                raise ConfigError("the http_client given to this model is closed; keep it open as long as the model")
            return self._given
        token = anyio.lowlevel.current_token().native_token
        held = self._held.get(token)
        if held is None or held[0].is_closed:
            for other, (client, _keeper) in list(self._held.items()):
                if client.is_closed:
                    self._held.pop(other, None)
            keeper = _keep_client()
            held = self._held[token] = (await anext(keeper), keeper)
        return held[0]

    async def aclose(self) -> None:
        """Close the connections; a later request opens new ones. A given client stays open."""
        held = self._held.pop(anyio.lowlevel.current_token().native_token, None)
        # The pools of other loops are closed over there, by the hook that loops have for abandoned generators.
        self._held.clear()
        if held is not None:
            await held[1].aclose()


async def _keep_client() -> AsyncGenerator[httpx.AsyncClient, None]:
    # A loop that ends closes the async generators it has started, and one that finds an abandoned generator closes
    # that: so no connection outlives its loop, also where nobody calls aclose.
    client = httpx.AsyncClient(
        verify=_ssl_context(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")),
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=50, keepalive_expiry=30.0),
    )
    try:
        yield client
    finally:
        await client.aclose()


@functools.cache
def _ssl_context(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    # Reading the certificates takes tens of milliseconds, in which the event loop stands still: once is enough for
    # each pair of variables by which httpx finds them.
    return httpx.create_ssl_context()
