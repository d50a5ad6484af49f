"""
What stores share that read a history a page at a time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from alpineagents.events import Event
from alpineagents.stores.base import Store
from alpineagents.stores.header import StateKey


class PageHead(Protocol):
    """What is needed of the header that a page was read with."""

    @property
    def parent_id(self) -> str | None: ...


Pages = AsyncIterator[tuple[PageHead, list[Event]]]


class PagedStore(Store):
    """A store whose `_pages` gives a history in parts."""

    async def read(self, key: str | StateKey, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        async for _, events in self._pages(self.key(key), after, until):
            for event in events:
                yield event

    async def _history(self, key: StateKey, after: int, until: int | None) -> tuple[Sequence[Event], str | None]:
        history: list[Event] = []
        parent_id = None
        async for head, events in self._pages(key, after, until):
            history += events
            parent_id = head.parent_id
        return history, parent_id

    def _pages(self, key: StateKey, after: int, until: int | None) -> Pages:
        """Return the parts of a history behind a revision, each with the header that it was read with."""
        raise NotImplementedError  # by each of them
