"""
The file store: States in folders that one can look into, safe for several processes of one machine.

    <path>/@default/order-1042/events.jsonl    the history: the truth
    <path>/@default/order-1042/blobs/<sha256>  results that are too large for an Event
    <path>/@default/order-1042/info.json       the header: for lists, and to append without reading the history
    <path>/tenant-a/order.1/…                  namespace "tenant-a", id "Order": see `format.folder_name`
    <path>/@locks/3fa.lock                     held while one of these is changed: see `folder.LOCKS`
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar
from filelock import Timeout

from alpineagents.errors import (
    StateDamagedError,
    StateExistsError,
    StateNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from alpineagents.events import Event
from alpineagents.shield import settled
from alpineagents.snapshot import Status
from alpineagents.stores.base import check_listing
from alpineagents.stores.codec import encode
from alpineagents.stores.file.folder import PATIENCE_SECONDS, Folder, Place
from alpineagents.stores.file.format import Head, decode_lines, folder_name, name_of
from alpineagents.stores.header import Lease, Names, StateHeader, StateInfo, StateInfos, StateKey, settle_refusal
from alpineagents.stores.paged import PagedStore, Pages

T = TypeVar("T")

PAGE = 1_000
"""How many Events are decoded at a time."""

THREADS = 16
"""How many threads an event loop has for files. Tools have others: a heartbeat must not wait for them."""

# Inside the class, `list` would mean the method.
Heads = list[tuple[StateKey, Head]]

_Page = tuple[int, Place, list[Event], StateDamagedError | None]
"""How many lines were read, the place behind them, and what they are."""

_threads: RunVar[anyio.CapacityLimiter] = RunVar("alpineagents.stores.file")

_REASONS = {
    errno.ENOSPC: "the disk is full. Make room and save again",
    errno.EDQUOT: "the quota of the disk is used up. Make room and save again",
    errno.EACCES: "it may not be read or written. Give this user the right to it, or name another folder",
    errno.EPERM: "it may not be read or written. Give this user the right to it, or name another folder",
    errno.EROFS: "the disk can be read only. Name a folder on another",
    errno.ENOTDIR: 'it is, or lies in, a file. Name a folder: FileStore(".agent-runs")',
    errno.ENOENT: "the folder that it lies in is not there. Is the path right? If so, make that folder",
    errno.ENOSYS: "its file system has no locks. Name a folder on a local disk",
}


class FileStore(PagedStore):
    """
    Keeps each State in a folder of its own: `events.jsonl` has its history, a line an Event, `info.json` its header.

    Several processes of one machine may use the same path. Files can be read by their owner only. Works on asyncio and
    trio, off the event loop's thread.

    Args:
        path: the folder of the store, made at the first save; the folder around it must be there.

    Example:
        >>> import tempfile
        >>> from alpineagents import Message, State
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = FileStore(Path(folder) / "agent-runs")
        ...     store.save_sync(State(id="demo", messages=[Message.user("Hello")]))
        ...     store.load_sync("demo").messages[0].text
        ...     sorted(file.name for file in Path(folder).glob("agent-runs/@default/demo/*"))
        1
        'Hello'
        ['events.jsonl', 'info.json']
    """

    def __init__(self, path: str | os.PathLike[str] = ".agent-runs") -> None:
        self.path = Path(path)
        # A program that changes its folder later keeps its States where they are.
        self._root = self.path.absolute()
        self._closed = threading.Event()

    def __repr__(self) -> str:
        scope = f", namespace={self.namespace!r}" if self.namespace else ""
        return f"FileStore({str(self.path)!r}{scope})"

    async def append(
        self,
        key: str | StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        key = self.key(key)
        rows = [encode(event, append_id) for event in events]
        outcome = await self._settled(lambda: self._folder(key).append(rows, expected, header, append_id))
        return outcome if isinstance(outcome, int) else settle_refusal(key, expected, header, outcome)

    async def fork(self, id: str, new_id: str, revision: int | None = None) -> int:
        key, new = self.key(id), self.key(new_id)
        revision, header = await self._forked_at(key, revision)
        landed = await self._settled(lambda: self._folder(new).fork_of(self._folder(key), revision, header))
        if landed is None:
            raise (
                StateNotFoundError(key.id)
                if await self._call(self._folder(key).look) is None
                else StateExistsError(new.id)
            )
        return landed

    async def last_context_change(self, id: str | StateKey, *, until: int | None = None) -> int:
        folder = self._folder(self.key(id))
        return await self._call(lambda: folder.last_context_change(until))

    async def _pages(self, key: StateKey, after: int, until: int | None) -> Pages:
        folder = self._folder(key)
        found = await self._call(lambda: folder.history(after))
        if found is None:
            raise StateNotFoundError(key.id)
        head, place = found
        last = head.revision if until is None else min(head.revision, until)
        while after < last:
            read = await self._call(partial(_page, folder, place, after, min(PAGE, last - after)))
            if read is None:
                raise StateNotFoundError(key.id, hint="It was deleted while it was read")
            count, place, events, damage = read
            yield head, events
            if damage is not None:
                raise damage
            if count < min(PAGE, last - after):
                reason = f"its line in events.jsonl is missing, where the State is at revision {head.revision}"
                raise StateDamagedError(key.id, after + count + 1, reason)
            after += count

    async def delete(self, id: str | StateKey) -> None:
        key = self.key(id)
        if not await self._settled(self._folder(key).delete):
            raise StateNotFoundError(key.id)

    async def renew(self, key: str | StateKey, lease: Lease) -> bool:
        key = self.key(key)
        renewed = await self._settled(lambda: self._folder(key).renew(lease))
        if renewed is None:
            raise StateNotFoundError(key.id)
        return renewed

    async def write_blob(self, id: str, data: bytes) -> str:
        key, name = self.key(id), sha256(data).hexdigest()
        if not await self._settled(lambda: self._folder(key).write_blob(name, data)):
            raise StateNotFoundError(key.id)
        return name

    async def read_blob(self, id: str, sha256: str) -> bytes | None:
        key = self.key(id)
        return await self._call(lambda: self._folder(key).read_blob(sha256))

    async def blobs(self, id: str) -> Names:
        key = self.key(id)
        return await self._call(lambda: self._folder(key).blob_names())

    async def info(self, id: str | StateKey) -> StateInfo:
        key = self.key(id)
        head = await self._call(self._folder(key).look)
        if head is None:
            raise StateNotFoundError(key.id)
        return head.info(key)

    async def list(
        self, *, status: Status | None = None, limit: int = 50, after: StateInfo | str | None = None
    ) -> StateInfos:
        check_listing(status, limit)
        last = await self.info(after) if isinstance(after, str) else after
        mine = await self._call(self._heads)
        mine.sort(key=lambda item: (item[1].updated_at, item[0].id), reverse=True)
        if last is not None:
            mine = [item for item in mine if (item[1].updated_at, item[0].id) < (last.updated_at, last.id)]
        infos = (head.info(key) for key, head in mine)
        return [*islice((info for info in infos if status in (None, info.status)), limit)]

    def _heads(self) -> Heads:
        heads: Heads = []
        for name in _names(self._root / folder_name(self.namespace)):
            key = StateKey(self.namespace, name)
            # Deleted meanwhile, or of another user: the others are listed all the same.
            with suppress(FileNotFoundError, PermissionError):
                if (head := self._folder(key).look(wait=False)) is not None:
                    heads.append((key, head))
        return heads

    async def namespaces(self) -> Sequence[str]:
        """Return every namespace that has States, for who looks after the whole store."""
        return await self._call(self._namespaces)

    def _namespaces(self) -> Sequence[str]:
        views = [self.scoped(namespace) for namespace in _names(self._root)]
        return sorted(view.namespace for view in views if view._heads())

    async def aclose(self) -> None:
        self._closed.set()

    def _folder(self, key: StateKey) -> Folder:
        return Folder(self._root, key)

    async def _settled(self, work: Callable[[], T]) -> T:
        return await settled(lambda: self._call(work))

    async def _call(self, work: Callable[[], T]) -> T:
        if self._closed.is_set():
            raise StoreClosedError(repr(self))
        try:
            limiter = _threads.get()
        except LookupError:
            limiter = anyio.CapacityLimiter(THREADS)
            _threads.set(limiter)
        with self._translated():
            return await anyio.to_thread.run_sync(work, limiter=limiter)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Timeout as error:
            reason = f"another process did not let go of a State for {PATIENCE_SECONDS:.0f} seconds. Try again"
            raise StoreUnavailableError(f"{self!r} cannot be used now: {reason}") from error
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, f"{type(error).__name__}: {error}")
            at = f" ({error.filename})" if error.filename else ""
            raise StoreUnavailableError(f"{self!r} cannot be used now{at}: {reason}") from error


def _page(folder: Folder, place: Place, after: int, count: int) -> _Page | None:
    if (read := folder.lines(place, count)) is None:
        return None
    lines, behind = read
    return len(lines), behind, *decode_lines(lines, after, folder.key.id)


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [name for entry in entries if (name := name_of(entry.name)) is not None and entry.is_dir()]
    except FileNotFoundError:
        return []
