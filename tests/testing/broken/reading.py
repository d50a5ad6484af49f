"""Stores whose reads, keys or codecs break a rule. A docstring says what the author did."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import anyio
from broken.base import Broken

from alpineagents import Event, MemoryStore, State, StateInfo, StateKey, StateNotFoundError
from alpineagents.stores.codec import decode


class MissingIsEmpty(Broken):
    """Gives an empty history for a State that is not there."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        try:
            async for event in super().read(key, **options):
                yield event
        except StateNotFoundError:
            return


class FoldsCase(Broken):
    """Keeps ids in a column that does not tell large letters from small ones."""

    def key(self, id: Any) -> StateKey:
        key = super().key(id)
        return StateKey(key.namespace, key.id.lower())


class OrdersByTime(Broken):
    """Sorts the history by the times of its Events."""

    async def read(self, key: Any, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        await self.info(key)
        for row in sorted(self.rows(key)[after:until], key=lambda row: row.at):
            yield decode(row)


class BeginsOneTooEarly(Broken):
    """Takes `after` for the first revision wanted."""

    async def read(self, key: Any, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        async for event in super().read(key, after=max(after - 1, 0), until=until):
            yield event


class ClampsRevisions(Broken):
    """Gives the last revision for one that is not there."""

    async def load(self, id: str, revision: int | None = None, *, tail: bool = False) -> State:
        last = (await self.info(id)).revision
        return await super().load(id, None if revision is None else min(revision, last), tail=tail)


class FindsTheFirstChange(Broken):
    """Looks for a change of the context from the first Event on."""

    async def last_context_change(self, id: Any, *, until: int | None = None) -> int:
        return next((row.revision for row in self.rows(id)[:until] if row.kind == "context_changed"), 0)


class FindsLaterChanges(Broken):
    """Does not mind how far a State is to be loaded."""

    async def last_context_change(self, id: Any, *, until: int | None = None) -> int:
        return await super().last_context_change(id)


class ReadsOnePage(Broken):
    """Forgets the second page."""

    async def read(self, key: Any, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        async for event in super().read(key, after=after, until=min(until or after + 1000, after + 1000)):
            yield event


class LosesNUL(Broken):
    """Keeps payloads in a database that takes no NUL."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        await self.info(key)
        rows = self.rows(key)[options.get("after", 0) : options.get("until")]
        for row in rows:
            yield decode(row._replace(payload=row.payload.replace("\\u0000", "")))


class MakesFloats(Broken):
    """Keeps payloads through a JSON codec whose numbers are floats."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        await self.info(key)
        for row in self.rows(key)[options.get("after", 0) : options.get("until")]:
            payload = json.dumps(json.loads(row.payload, parse_int=lambda text: float(text[:300])))
            yield decode(row._replace(payload=payload))


class SortsKeys(Broken):
    """Keeps payloads in a column of JSON that sorts keys."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        await self.info(key)
        for row in self.rows(key)[options.get("after", 0) : options.get("until")]:
            yield decode(row._replace(payload=json.dumps(json.loads(row.payload), sort_keys=True)))


class CutsTimes(Broken):
    """Keeps times to the second."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        async for event in super().read(key, **options):
            yield event.model_copy(update={"at": event.at.replace(microsecond=0)})


class SwallowsNamespaces(Broken):
    """Keeps States under their ids alone."""

    def key(self, id: Any) -> StateKey:
        return StateKey("", id.id if isinstance(id, StateKey) else super().key(id).id)

    async def list(self, **options: Any) -> list[StateInfo]:
        return await MemoryStore.list(MemoryStore.scoped(self, ""), **options)


class TrustsKeys(Broken):
    """Takes a key as it comes."""

    def key(self, id: Any) -> StateKey:
        return id if isinstance(id, StateKey) else super().key(id)


class RaisesWhenCancelled(Broken):
    """Makes an error of its own of a cancellation."""

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        try:
            await anyio.sleep(0)
        except anyio.get_cancelled_exc_class():
            raise ConnectionError("cancelled") from None
        async for event in super().read(key, **options):
            yield event


class LeaksLocks(Broken):
    """Gives a lock back only where nothing is raised."""

    def __init__(self) -> None:
        super().__init__()
        self.busy = False

    async def read(self, key: Any, **options: Any) -> AsyncIterator[Event]:
        assert not self.busy, "the lock was not given back"
        await self.info(key)
        self.busy = True
        events = [event async for event in super().read(key, **options)]
        self.busy = False
        for event in events:
            yield event


class InventsHeaders(Broken):
    """Describes a State that is not there as an empty one, and one that was made again as the one before."""

    made_at: dict[Any, datetime]

    async def info(self, id: Any) -> StateInfo:
        try:
            info = await super().info(id)
        except StateNotFoundError:
            other = await super().info((await self.list())[0].id)
            return other.model_copy(update={"id": self.key(id).id, "revision": 2})
        self.made_at = getattr(self, "made_at", {})
        return info.model_copy(update={"created_at": self.made_at.setdefault(self.key(id), info.created_at)})
