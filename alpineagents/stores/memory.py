"""
A store in memory, for tests: the same rules and the same codec as the databases, so that what works here works there.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import anyio.lowlevel

from alpineagents.errors import StateDamagedError, StateExistsError, StateNotFoundError, StoreClosedError
from alpineagents.events import Event
from alpineagents.snapshot import Status
from alpineagents.stores.base import Store, check_listing
from alpineagents.stores.codec import EventRow, ascii_json, decode, encode
from alpineagents.stores.header import (
    Found,
    Lease,
    Names,
    StateHeader,
    StateInfo,
    StateInfos,
    StateKey,
    describe,
    settle_refusal,
    status_of_fork,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class _Kept:
    created_at: datetime
    parent_id: str | None
    updated_at: datetime = EPOCH
    status: Status = "ready"
    first_message: str = ""
    summary: str = ""
    run_id: str | None = None
    lease_until: datetime | None = None
    rows: list[EventRow] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def revision(self) -> int:
        return len(self.rows)

    def fits(self, expected: int, header: StateHeader) -> bool:
        free = header.lease is None or self.owner() in (None, header.lease.run_id)
        return expected == self.revision > 0 and free and header.follows in (None, self.rows[-1].at)

    def found(self, expected: int, append_id: str | None) -> Found:
        landed = [row.revision for row in self.rows[expected:] if append_id and row.append_id == append_id]
        at = self.rows[expected - 1].at if 0 < expected <= self.revision else None
        return Found(self.revision, at, self.owner(), landed[-1] if landed else None)

    def add(self, rows: Sequence[EventRow], header: StateHeader, at: datetime) -> None:
        self.rows += rows
        self.first_message, self.updated_at = header.first_message, at
        self.status = header.status or self.status
        self.summary = self.summary if header.summary is None else ascii_json(header.summary)
        if header.lease is not None:
            self.hold(header.lease)

    def owner(self) -> str | None:
        alive = self.lease_until is not None and self.lease_until > datetime.now(UTC)
        return self.run_id if alive else None

    def hold(self, lease: Lease) -> None:
        given_up = lease.seconds <= 0
        self.run_id = None if given_up else lease.run_id
        self.lease_until = None if given_up else datetime.now(UTC) + timedelta(seconds=lease.seconds)


class _Clock:
    """The time of an append; no two have the same, so the order of a list is that of the appends."""

    def __init__(self) -> None:
        self._last = EPOCH

    def __call__(self) -> datetime:
        self._last = max(datetime.now(UTC), self._last + timedelta(microseconds=1))
        return self._last


class MemoryStore(Store):
    """
    Keeps States in this process, until it ends.

    Example:
        >>> from alpineagents import Message, State
        >>> store = MemoryStore()
        >>> store.save_sync(State(id="demo", messages=[Message.user("Hello")]))
        1
        >>> store.list_sync()[0].first_message
        'Hello'
    """

    def __init__(self) -> None:
        self._kept: dict[StateKey, _Kept] = {}
        self._clock = _Clock()
        # Threads that each have an event loop may share the store; nothing is awaited while it is held.
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._kept)} States)"

    async def append(
        self,
        key: str | StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        await self._enter()
        key = self.key(key)
        rows = [encode(event, append_id) for event in events]
        with self._lock:
            kept = self._kept.get(key)
            if kept is None and expected == 0:
                kept = self._kept[key] = _Kept(header.created_at, header.parent_id)
            elif kept is None or not kept.fits(expected, header):
                found = None if kept is None else kept.found(expected, append_id)
                return settle_refusal(key, expected, header, found)
            kept.add(rows, header, self._clock())
            return kept.revision

    async def fork(self, id: str, new_id: str, revision: int | None = None) -> int:
        await self._enter()
        key, new = self.key(id), self.key(new_id)
        revision, header = await self._forked_at(key, revision)
        with self._lock:
            kept = self._find(key)
            if new in self._kept:
                raise StateExistsError(new.id)
            rows, at = kept.rows[:revision], self._clock()
            fork = replace(kept, parent_id=key.id, rows=rows, updated_at=at, run_id=None, lease_until=None)
            fork.status = status_of_fork(kept.status)
            fork.blobs = dict(kept.blobs)
            if header is not None:
                fork.first_message, fork.status = header.first_message, header.status or kept.status
                fork.summary = kept.summary if header.summary is None else ascii_json(header.summary)
            self._kept[new] = fork
            return fork.revision

    async def read(self, key: str | StateKey, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        await self._enter()
        key = self.key(key)
        for place, row in enumerate(self._find(key).rows[after:until], start=after + 1):
            if row.revision != place:
                raise StateDamagedError(key.id, place, "its row is missing")
            yield decode(row, state_id=key.id)

    async def last_context_change(self, id: str | StateKey, *, until: int | None = None) -> int:
        await self._enter()
        kept = self._kept.get(self.key(id))
        rows = [] if kept is None else kept.rows[:until]
        return next((row.revision for row in reversed(rows) if row.kind == "context_changed"), 0)

    async def _history(self, key: StateKey, after: int, until: int | None) -> tuple[Sequence[Event], str | None]:
        return [event async for event in self.read(key, after=after, until=until)], self._find(key).parent_id

    async def delete(self, id: str | StateKey) -> None:
        await self._enter()
        key = self.key(id)
        self._find(key)
        del self._kept[key]

    async def renew(self, key: str | StateKey, lease: Lease) -> bool:
        await self._enter()
        kept = self._find(self.key(key))
        with self._lock:
            if kept.run_id != lease.run_id:
                return False
            kept.hold(lease)
            return True

    async def write_blob(self, id: str, data: bytes) -> str:
        await self._enter()
        name = sha256(data).hexdigest()
        self._find(self.key(id)).blobs[name] = bytes(data)
        return name

    async def read_blob(self, id: str, sha256: str) -> bytes | None:
        await self._enter()
        kept = self._kept.get(self.key(id))
        return None if kept is None else kept.blobs.get(sha256)

    async def blobs(self, id: str) -> Names:
        await self._enter()
        kept = self._kept.get(self.key(id))
        return [] if kept is None else list(kept.blobs)

    async def info(self, id: str | StateKey) -> StateInfo:
        await self._enter()
        key = self.key(id)
        return _info(key, self._find(key))

    async def list(
        self, *, status: Status | None = None, limit: int = 50, after: StateInfo | str | None = None
    ) -> StateInfos:
        await self._enter()
        check_listing(status, limit)
        mine = [(key, kept) for key, kept in self._kept.items() if key.namespace == self.namespace]
        mine.sort(key=lambda item: (item[1].updated_at, item[0].id), reverse=True)
        if after is not None:
            last = after if isinstance(after, StateInfo) else await self.info(after)
            mine = [item for item in mine if (item[1].updated_at, item[0].id) < (last.updated_at, last.id)]
        return [_info(key, kept) for key, kept in mine if status in (None, kept.status)][:limit]

    async def aclose(self) -> None:
        self._closed.set()

    async def _enter(self) -> None:
        await anyio.lowlevel.checkpoint()
        if self._closed.is_set():
            raise StoreClosedError(repr(self))

    def _find(self, key: StateKey) -> _Kept:
        kept = self._kept.get(key)
        if kept is None:
            raise StateNotFoundError(key.id)
        return kept


def _info(key: StateKey, kept: _Kept) -> StateInfo:
    return describe(
        key,
        kept.summary,
        first_message=kept.first_message,
        created_at=kept.created_at,
        updated_at=kept.updated_at,
        status=kept.status,
        revision=kept.revision,
        parent_id=kept.parent_id,
        run_id=kept.run_id,
        lease_until=kept.lease_until,
    )
