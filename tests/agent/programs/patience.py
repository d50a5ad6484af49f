"""How long a program of the tests waits for a State that another one owned when it died."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from alpineagents import StateBusyError

T = TypeVar("T")

PATIENCE_SECONDS = 30.0


async def when_free(work: Callable[[], Awaitable[T]]) -> T:
    """Do the work as soon as the lease is over."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while True:
            try:
                return await work()
            except StateBusyError:
                await anyio.sleep(0.05)
