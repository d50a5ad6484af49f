"""Stores whose headers and lists break a rule. A docstring says what the author did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, ClassVar

from broken.base import Broken, changed

from alpineagents import Event, StateInfo


class ExistsAlways(Broken):
    """Answers without looking."""

    async def exists(self, id: str) -> bool:
        return True


class KeepsTheFirstHeader(Broken):
    """Writes the header once."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        kept = self._kept.get(self.key(key))
        if kept is not None:
            header = changed(header, status=None, summary=None)
        return await super().append(key, events, header=header, **options)


class DropsSummaries(Broken):
    """Takes no summary for an empty one."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        landed = await super().append(key, events, header=header, **options)
        if header.summary is None:
            self._kept[self.key(key)].summary = '{"turn":77}'
        return landed


class TouchesOnRead(Broken):
    """Sets the time of the last change on reading, too."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        async for event in super().read(key, **options):
            yield event
        self._kept[self.key(key)].updated_at = self._clock()


class ForgetsParents(Broken):
    """Takes the parent from the last append."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        landed = await super().append(key, events, header=header, **options)
        self._kept[self.key(key)].parent_id = header.parent_id
        return landed


class ListsOldestFirst(Broken):
    """Sorts the wrong way."""

    async def list(self, *, limit: int = 50, **options: Any) -> list[StateInfo]:
        return (await super().list(limit=10_000, **options))[::-1][:limit]


class PagesByCount(Broken):
    """Keeps at which count a page ended, and begins the next one there."""

    ended: ClassVar[dict[str, int]] = {}

    async def list(self, *, limit: int = 50, after: Any = None, status: Any = None) -> list[StateInfo]:
        begin = 0 if after is None else self.ended[after.id if isinstance(after, StateInfo) else after]
        page = (await super().list(limit=10_000, status=status))[begin : begin + limit]
        self.ended.update({info.id: begin + n + 1 for n, info in enumerate(page)})
        return page


class IgnoresIdsInAfter(Broken):
    """Takes `after` for the info of a State only."""

    async def list(self, *, after: Any = None, **options: Any) -> list[StateInfo]:
        return await super().list(after=after if isinstance(after, StateInfo) else None, **options)


class FiltersAfterTheLimit(Broken):
    """Takes a page, and then those of the status."""

    async def list(self, *, status: Any = None, **options: Any) -> list[StateInfo]:
        return [info for info in await super().list(**options) if status in (None, info.status)]


class ListsLess(Broken):
    """Leaves out of a list what costs work."""

    async def list(self, **options: Any) -> list[StateInfo]:
        return [info.model_copy(update={"turn": 0, "stopped": None}) for info in await super().list(**options)]
