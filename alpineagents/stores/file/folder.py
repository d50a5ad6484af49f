"""
The folder of one State. Each call does all of its work in the thread that it is called in.

The order of writes makes a kill harmless wherever it falls: the history first, down to the disk, then `info.json`,
which can be made from it. A State is deleted the other way round, so it is whole until its history goes.

The file is long since what writes and what reads rely on that one order: they are to be read together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from filelock import FileLock

from alpineagents.errors import EventFormatError
from alpineagents.stores.codec import EventRow
from alpineagents.stores.file.format import (
    FORMAT,
    Head,
    first_event,
    folder_name,
    from_line,
    head_line,
    is_event,
    last_context_change,
    last_head,
    read_head,
    read_rows,
    revision_of,
    to_line,
)
from alpineagents.stores.header import Found, Lease, StateHeader, StateKey

LOCKS = "@locks"
"""The folder of the lock files: apart from the States, or a waiter could get the lock of a file that was deleted."""

LOCK_FILES = 4096
"""How many there can be. They stay for ever, so States share them; nothing is locked for long."""

PATIENCE_SECONDS = 20.0
"""How long a call waits for others to let go of a State."""

POLL_SECONDS = 0.005
BLOCK_BYTES = 65_536
BEGIN_BYTES = 256
"""What is kept of a history to know it again: its first Event's time and the id of the append are in it."""
_SHA256 = re.compile("[0-9a-f]{64}")
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0)


@dataclass(frozen=True, slots=True)
class Place:
    """
    Where to read on in a history that nobody holds open meanwhile.

    Attributes:
        begin: its first bytes: a State that was made again under the id has others.
        at: the place of the next line, and `end` the one behind the last that counts.
    """

    begin: bytes
    at: int
    end: int


class Folder:
    """The folder of a State that there may be or not."""

    def __init__(self, root: Path, key: StateKey) -> None:
        self.root, self.key = root, key
        self.path = root / folder_name(key.namespace) / folder_name(key.id)
        self.events, self.info = self.path / "events.jsonl", self.path / "info.json"
        self.blobs = self.path / "blobs"

    # -------------------------------------------------------------------------------------------- reading

    def look(self, *, wait: bool = True) -> Head | None:
        """
        Return the header, or None if there is no State; of the history only what `info.json` lacks is read.

        Args:
            wait: until an append that is under way has ended. Without, it may be seen before it is on the disk.
        """
        head, size = self._info_head(), self._size()
        if (head and head.size) == size:
            return head
        if not wait:
            return self._examine()
        with self._locked():
            return self._examine()

    def history(self, after: int) -> tuple[Head, Place] | None:
        """
        Return the header and where the Events behind a revision begin, or None if there is no State.

        Raises:
            EventFormatError: a newer release wrote the files.
        """
        while True:
            with self._opened() as file:
                head = self.look()
                # The State may have been deleted and made again meanwhile: then this is not its file.
                if self._is_current(file):
                    if head is None:
                        return None
                    self._check_format(head)
                    if file is None:
                        return head, Place(b"", 0, 0)
                    begin = file.read(BEGIN_BYTES)
                    return head, Place(begin, _place_behind(file, after, head.size), head.size)

    def lines(self, place: Place, count: int) -> tuple[list[bytes], Place] | None:
        """Return the lines of the next Events, at most so many, and the place behind; None: it is another State now."""
        with self._opened() as file:
            if file is None or file.read(len(place.begin)) != place.begin:
                return None if place.end else ([], place)
            lines, at = _next_lines(file, place.at, place.end, count)
            return lines, replace(place, at=at)

    def last_context_change(self, until: int | None) -> int:
        """Do what `Store.last_context_change` does; the history is read from its end on, as far as need be."""
        with self._opened() as file:
            if file is None:
                return 0
            size, length = file.seek(0, os.SEEK_END), BLOCK_BYTES
            while True:
                file.seek(max(size - length, 0))
                found = last_context_change(file.read(), until)
                if found or length >= size:
                    return found
                length *= 4

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO | None]:
        try:
            file = self.events.open("rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield file

    def _is_current(self, file: BinaryIO | None) -> bool:
        try:
            there = self.events.stat()
        except FileNotFoundError:
            return file is None
        return file is not None and os.path.samestat(there, os.fstat(file.fileno()))

    def _info_head(self) -> Head | None:
        try:
            return read_head(self.info.read_bytes())
        except FileNotFoundError:
            return None

    def _size(self) -> int | None:
        try:
            return self.events.stat().st_size
        except FileNotFoundError:
            return None

    def _examine(self) -> Head | None:
        """Return the header as both files together have it; its size is where the next append begins."""
        head = self._info_head()
        with self._opened() as file:
            if file is None:
                # The history was taken away; the header tells of it, so this is damage.
                return head and head.at(0)
            size = os.fstat(file.fileno()).st_size
            vouched = head.size if head is not None and _ends_line(file, head.size, size) else 0
            file.seek(vouched)
            part = file.read()
            written_at = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)
            last = last_head(part, vouched, checked=vouched > 0, at=written_at)
            if last is not None and (head is None or last.revision > head.revision):
                # Its writer may have died before it was on the disk, and what has been seen must not go any more.
                os.fsync(file.fileno())
                return last
        if head is None:
            return None
        if vouched or last is None or last.revision < head.revision:
            # Lines that the header knows of were changed or lost. What is left of them is kept.
            return head.at(vouched or part.rfind(b"\n") + 1)
        return head.at(last.size)

    def _check_format(self, head: Head) -> None:
        if head.format > FORMAT:
            reason = f"its files have format {head.format}, this release reads up to {FORMAT}: upgrade alpineagents"
            raise EventFormatError(self.key.id, 1, reason)

    # -------------------------------------------------------------------------------------------- writing

    def append(
        self, rows: Sequence[EventRow], expected: int, header: StateHeader, append_id: str | None
    ) -> int | Found | None:
        """Do what `Store.append` does. Where it does not fit, return what was found; None if there is no State."""
        head, size = self._info_head(), self._size()
        if expected and head is None and size is None:
            return None
        if expected and head is not None and head.size == size and head.revision > expected:
            # Too late already: whoever is refused need not wait for those who write.
            return self._found(head, expected, append_id)
        with self._locked():
            head = self._examine()
            if head is None and not expected:
                self._make()
                at = header.created_at
                head = Head(revision=0, status="ready", created_at=at, updated_at=at, parent_id=header.parent_id)
            elif head is None or not head.fits(expected, header):
                return None if head is None else self._found(head, expected, append_id)
            self._check_format(head)
            lines = b"".join(map(to_line, rows))
            moved = head.moved(rows, lines, header)
            size = self._write(lines + head_line(moved), head.size)
            # It has happened; a header that was not kept is found behind the history.
            with suppress(OSError):
                self._keep(moved.at(size))
            return moved.revision

    def fork_of(self, origin: Folder, revision: int | None, header: StateHeader | None) -> int | None:
        """Do what `Store.fork` does; None: there is no such State, or this one is there already."""
        found = origin.history(0)
        if found is None:
            return None
        head, place = found
        read = origin.lines(place, head.revision if revision is None else revision)
        if read is None:
            return None
        rows = read_rows(read[0], 0, origin.key.id)
        copied = self.append(rows, 0, header or head.header(origin.key), None)
        if not isinstance(copied, int):
            return None
        for name in origin.blob_names():
            self.write_blob(name, (origin.blobs / name).read_bytes())
        return copied

    def blob_names(self) -> list[str]:
        """Do what `Store.blobs` does."""
        return [blob.name for blob in self.blobs.glob("*") if _SHA256.fullmatch(blob.name)]

    def write_blob(self, name: str, data: bytes) -> bool:
        """Do what `Store.write_blob` does; tell whether there is such a State."""
        with self._locked():
            if self._examine() is None:
                return False
            _make_folder(self.blobs)
            self._replace(self.blobs / name, data)
            return True

    def read_blob(self, name: str) -> bytes | None:
        """Do what `Store.read_blob` does."""
        if not _SHA256.fullmatch(name):
            return None
        try:
            return (self.blobs / name).read_bytes()
        except FileNotFoundError:
            return None

    def renew(self, lease: Lease) -> bool | None:
        """Do what `Store.renew` does; None: there is no State."""
        if self.look(wait=False) is None:
            return None
        with self._locked():
            head = self._examine()
            if head is None:
                return None
            if head.run_id != lease.run_id:
                return False
            self._check_format(head)
            self._keep(head.held(lease))
            return True

    def delete(self) -> bool:
        """Delete the State; tell whether there was one."""
        if self.look(wait=False) is None:
            return False
        with self._locked():
            if self._examine() is None:
                return False
            # Without `info.json` it is whole still. Its absence must be on the disk first: alone it would be damage.
            self.info.unlink(missing_ok=True)
            _sync_folder(self.path)
            self._new_info.unlink(missing_ok=True)
            for blob in self.blobs.glob("*"):
                blob.unlink(missing_ok=True)
            with suppress(OSError):
                self.blobs.rmdir()
            self.events.unlink(missing_ok=True)
            _sync_folder(self.path)
            # Whoever keeps files of their own in it keeps the folder.
            with suppress(OSError):
                self.path.rmdir()
            return True

    def _found(self, head: Head, expected: int, append_id: str | None) -> Found:
        with self._opened() as file:
            begin = 0 if file is None else _place_behind(file, max(expected - 1, 0), head.size)
            lines = [] if file is None else _next_lines(file, begin, head.size, head.revision)[0]
        rows = [row for row in map(from_line, lines) if row is not None]
        at = next((row.at for row in rows if row.revision == expected), None)
        landed = [row.revision for row in rows if row.revision > expected and append_id and row.append_id == append_id]
        return Found(head.revision, at, head.owner, landed[-1] if landed else None)

    def _make(self) -> None:
        for folder in (self.path.parent, self.path):
            _make_folder(folder)
        # Another may have made one of them just now, and not yet seen it to the disk.
        for folder in (self.root.parent, self.root, self.path.parent):
            _sync_folder(folder)

    def _write(self, data: bytes, begin: int) -> int:
        """Write behind the history, down to the disk, and return its new size; after an error it is as before."""
        file = os.open(self.events, _WRITE, 0o600)
        try:
            try:
                os.ftruncate(file, begin)
                os.lseek(file, begin, os.SEEK_SET)
                _write_all(file, data)
                os.fsync(file)
                if not begin:
                    _sync_folder(self.path)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(file, begin)
                raise
        finally:
            os.close(file)
        return begin + len(data)

    @property
    def _new_info(self) -> Path:
        return self.path / "info.json.new"

    def _keep(self, head: Head) -> None:
        self._replace(self.info, head_line(head))

    def _replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(f"{path.name}.new")
        file = os.open(new, _WRITE | os.O_TRUNC, 0o600)
        try:
            _write_all(file, data)
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(path)
        _sync_folder(path.parent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        locks = self.root / LOCKS
        for folder in (self.root, locks):
            _make_folder(folder)
        place = crc32(f"{self.key.namespace}/{self.key.id}".encode()) % LOCK_FILES
        # A lock that is a file's existence would outlive a process that was killed, so there is no falling back to it.
        lock = FileLock(
            locks / f"{place:03x}.lock",
            timeout=PATIENCE_SECONDS,
            mode=0o600,
            poll_interval=POLL_SECONDS,
            fallback_to_soft=False,
        )
        with lock:
            yield


def _place_behind(file: BinaryIO, after: int, size: int) -> int:
    """Return where the lines behind a revision begin; the history is read from its end on, a block at a time."""
    at = size if after else 0
    revision = 0
    while at:
        at = max(at - BLOCK_BYTES, 0)
        file.seek(at)
        found = first_event(file.read(BLOCK_BYTES)) if at else None
        if found is not None and found[0] <= after + 1:
            revision, at = found[0] - 1, at + found[1]
            break
    file.seek(at)
    while after and at < size and (line := file.readline(size - at)):
        if is_event(line) and (revision := revision_of(line, revision)) > after:
            break
        at += len(line)
    return at


def _next_lines(file: BinaryIO, at: int, end: int, count: int) -> tuple[list[bytes], int]:
    """Return the lines of at most so many Events, and the place behind them."""
    lines: list[bytes] = []
    file.seek(at)
    while len(lines) < count and at < end and (line := file.readline(end - at)):
        at += len(line)
        if is_event(line):
            lines.append(line.removesuffix(b"\n"))
    return lines, at


def _ends_line(file: BinaryIO, place: int, size: int) -> bool:
    if not 0 < place <= size:
        return False
    file.seek(place - 1)
    return file.read(1) == b"\n"


def _make_folder(folder: Path) -> None:
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # pragma: no cover  # a folder cannot be opened there, and its entries are written at once
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
