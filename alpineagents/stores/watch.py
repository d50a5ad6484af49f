"""Following a State as it grows, whichever process adds to it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import anyio

from alpineagents.errors import StateNotFoundError
from alpineagents.events import Event
from alpineagents.stores.header import StateInfo, StateKey

if TYPE_CHECKING:
    from alpineagents.stores.base import Store

SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.25
"""
How long a watcher waits between two looks at the header: doubled from the first to the second while nothing comes.

It looks instead of being told, since a database behind a pooler tells nobody, and a file neither.
"""


PAGE = 1_000
"""How many Events of a long history are read at once."""


async def follow(store: Store, key: StateKey, info: StateInfo, after: int) -> AsyncGenerator[Event, None]:
    """
    Return the Events behind a revision, and then each new one, without an end.

    Args:
        info: the State as it was found; another one that has its id later is not followed.

    Raises:
        StateNotFoundError: the State was deleted.
    """
    made_at = info.created_at
    pause = SHORTEST_PAUSE_SECONDS
    while True:
        # A page at a time and each to its end, so that a reader who leaves leaves no half-read history behind.
        until = min(info.revision, after + PAGE)
        new = [event async for event in store.read(key, after=after, until=until)] if until > after else []
        for event in new:
            yield event
        if new:
            after, pause = new[-1].revision, SHORTEST_PAUSE_SECONDS
        else:
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        info = await store.info(key)
        if info.created_at != made_at or info.revision < after:
            raise StateNotFoundError(key.id, hint="It was deleted while it was watched, and another State has its id")
