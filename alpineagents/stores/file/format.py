"""
What stands in the files of a State, and what their folders are called.

A history is written at its end only. An append is a line for each Event and one that commits them, with the header:

    {"revision":1,"kind":"message_added","version":1,"at":"…","run_id":null,"append_id":"…","payload":{…}}
    {"format":1,"revision":1,"status":"ready",…,"sum":<CRC-32 of the append's lines before this one>,"size":0}

`info.json` is such a line too, with the size of the history up to it: what is before was there when it was written.
What is behind counts if it is whole and its sum is right, so an append that was cut off anywhere never happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import BytesIO
from zlib import crc32

from pydantic import AwareDatetime, BaseModel, ConfigDict, JsonValue

from alpineagents.errors import StateDamagedError
from alpineagents.events import Event
from alpineagents.stores.codec import EventRow, ascii_json, decode_all, from_json
from alpineagents.stores.header import Lease, StateHeader, StateInfo, StateKey, Summary, describe, status_of_fork

FORMAT = 1
"""Stands in each header. A release that reads a newer one leaves the State as it is."""

DEFAULT = "@default"
"""The folder of the namespace that has no name."""

_REVISION = re.compile(rb'^\{"revision":(\d{1,18}),', re.MULTILINE)
_CONTEXT_CHANGE = re.compile(_REVISION.pattern + rb'"kind":"context_changed",', re.MULTILINE)
_COMMIT, _PAYLOAD = b'{"format":', b',"payload":'


def folder_name(name: str) -> str:
    """
    Return the folder of an id or a namespace: another for each, also where the file system does not tell case apart.

    Behind a dot, which no id has, a number in base 16 has a bit for the place of each capital.

    Example:
        >>> folder_name("order-1042"), folder_name("Order-1042"), folder_name("oRDer"), folder_name("")
        ('order-1042', 'order-1042.1', 'order.6', '@default')
    """
    capitals = sum(1 << place for place, letter in enumerate(name) if letter.isupper())
    return (name.lower() + (f".{capitals:x}" if capitals else "")) or DEFAULT


def name_of(folder: str) -> str | None:
    """
    Return the id or namespace of a folder; None for a folder that is not of one.

    Example:
        >>> name_of("order-1042.1"), name_of("@default"), name_of("@locks"), name_of(".git")
        ('Order-1042', '', None, None)
    """
    found = re.fullmatch(r"([a-z0-9_-]{1,128})(?:\.([0-9a-f]{1,32}))?", folder)
    if found is None:
        return "" if folder == DEFAULT else None
    capitals = int(found[2] or "0", 16)
    name = "".join(letter.upper() if capitals >> place & 1 else letter for place, letter in enumerate(found[1]))
    return name if folder_name(name) == folder else None


# ------------------------------------------------------------------------------------------------ the header


class Head(BaseModel):
    """
    The header of a State.

    Attributes:
        last_at: time of the last Event, which names it to the next append.
        sum: CRC-32 of the lines of the last append.
        size: of the history up to here; the next append begins there.
    """

    model_config = ConfigDict(frozen=True)

    format: int = FORMAT
    revision: int
    status: str
    created_at: AwareDatetime
    updated_at: AwareDatetime
    last_at: AwareDatetime | None = None
    first_message: str = ""
    summary: JsonValue = None
    parent_id: str | None = None
    run_id: str | None = None
    lease_until: AwareDatetime | None = None
    sum: int = 0
    size: int = 0

    @property
    def owner(self) -> str | None:
        """The run whose lease is alive, by this machine's clock."""
        return self.run_id if self.lease_until is not None and self.lease_until > datetime.now(UTC) else None

    def fits(self, expected: int, header: StateHeader) -> bool:
        """Tell whether an append may follow."""
        free = header.lease is None or self.owner in (None, header.lease.run_id)
        follows = None in (header.follows, self.last_at) or header.follows == self.last_at
        return expected == self.revision > 0 and free and follows

    def moved(self, rows: Sequence[EventRow], lines: bytes, header: StateHeader) -> Head:
        """Return the header behind an append."""
        changes = {
            "revision": self.revision + len(rows),
            "status": header.status or self.status,
            "updated_at": max(datetime.now(UTC), self.updated_at + timedelta(microseconds=1)),
            "last_at": rows[-1].at if rows else self.last_at,
            "first_message": header.first_message,
            "summary": self.summary if header.summary is None else json.loads(ascii_json(header.summary)),
            "sum": crc32(lines),
            "size": 0,
        }
        return self.held(header.lease).model_copy(update=changes)

    def held(self, lease: Lease | None) -> Head:
        """Return the header with another end of the lease, or without one."""
        if lease is None:
            return self
        until = datetime.now(UTC) + timedelta(seconds=max(lease.seconds, 0))
        run_id, lease_until = (lease.run_id, until) if lease.seconds > 0 else (None, None)
        return self.model_copy(update={"run_id": run_id, "lease_until": lease_until})

    def at(self, size: int) -> Head:
        """Return the header of a history of this size."""
        return self.model_copy(update={"size": size})

    def header(self, key: StateKey) -> StateHeader:
        """Return what a fork's header says: the same, without the lease."""
        info = self.info(key)
        status = None if info.status == "unknown" else status_of_fork(info.status)
        summary = Summary(stopped=info.stopped, turn=info.turn, usage=info.usage, agent=info.agent)
        return StateHeader(status, info.created_at, info.first_message, summary, parent_id=key.id)

    def info(self, key: StateKey) -> StateInfo:
        """Return the State as lists show it."""
        shown = ("first_message", "created_at", "updated_at", "revision", "parent_id", "run_id", "lease_until")
        columns = {name: getattr(self, name) for name in shown}
        return describe(key, json.dumps(self.summary), status=self.status, **columns)


def head_line(head: Head) -> bytes:
    """Return the line of a header."""
    return (ascii_json(head) + "\n").encode("ascii")


def read_head(line: bytes) -> Head | None:
    """Return the header of a line, or None if it is none."""
    with suppress(ValueError):
        return from_json(Head, line.decode("ascii"))
    return None


def last_head(data: bytes, start: int, *, checked: bool, at: datetime) -> Head | None:
    """
    Return the header behind the last append in a part of a history, or None if there is none in it.

    Args:
        start: where in the history the part begins.
        checked: whether to take whole appends only. Otherwise nothing else vouches for them, and one that was damaged
            later is an append still: its header, if it cannot be read, is made up, with the status `unknown`.
        at: the time for a header that is made up.
    """
    last: Head | None = None
    events = begin = position = 0
    for line in BytesIO(data):
        position += len(line)
        if line.startswith(_COMMIT) and line.endswith(b"\n"):
            head = read_head(line)
            if head is None and not checked:
                blank = last or Head(revision=0, status="unknown", created_at=at, updated_at=at)
                head = blank.model_copy(update={"revision": events, "status": "unknown", "last_at": None})
            if head is not None and (not checked or head.sum == crc32(data[begin : position - len(line)])):
                last = head.at(start + position)
            begin = position
        else:
            events += 1
    return last


# ------------------------------------------------------------------------------------------------ the history


class _Columns(BaseModel):
    """The line of an Event up to its payload."""

    revision: int
    kind: str
    version: int
    at: AwareDatetime
    run_id: str | None
    append_id: str | None


def to_line(row: EventRow) -> bytes:
    """Return the line of a row."""
    columns = ascii_json(_Columns(**{name: getattr(row, name) for name in _Columns.model_fields}))
    return f'{columns[:-1]},"payload":{row.payload}}}\n'.encode("ascii")


def from_line(line: bytes) -> EventRow | None:
    """Return the row of a line, or None if it is none."""
    # A quote inside a string is escaped, so the first such key is the line's own; the payload stays byte for byte.
    columns, _, payload = line.partition(_PAYLOAD)
    with suppress(ValueError):
        if payload.endswith(b"}"):
            read = from_json(_Columns, columns.decode("ascii") + "}")
            return EventRow(**dict(read), payload=payload[:-1].decode("ascii"))
    return None


def first_event(part: bytes) -> tuple[int, int] | None:
    """Return the revision and the place of the first Event whose line begins in a part of a history, if one does."""
    line_end = part.find(b"\n")
    found = _REVISION.search(part, line_end + 1) if line_end >= 0 else None
    return None if found is None else (int(found[1]), found.start())


def is_event(line: bytes) -> bool:
    """Tell whether a line is an Event's, be it whole or damaged."""
    return not line.startswith(_COMMIT) and line != b"\n"


def revision_of(line: bytes, before: int) -> int:
    """Return the revision of an Event's line; one that cannot be read is taken to stand behind the one before."""
    found = _REVISION.match(line)
    return before + 1 if found is None else int(found[1])


def last_context_change(part: bytes, until: int | None) -> int:
    """Return the revision of the last change of the context up to another one, in the last part of a history, or 0."""
    revisions = [int(found[1]) for found in _CONTEXT_CHANGE.finditer(part)]
    return max((revision for revision in revisions if until is None or revision <= until), default=0)


def read_rows(lines: Sequence[bytes], after: int, state_id: str) -> list[EventRow]:
    """
    Return the rows of lines that follow a revision.

    Raises:
        StateDamagedError: one of them cannot be read.
    """
    rows, damage = _rows(lines, after, state_id)
    if damage is not None:
        raise damage
    return rows


def decode_lines(lines: Sequence[bytes], after: int, state_id: str) -> tuple[list[Event], StateDamagedError | None]:
    """Return the Events of lines that follow a revision; behind them the error of the first that cannot be read."""
    rows, damage = _rows(lines, after, state_id)
    events, error = decode_all(rows, state_id=state_id)
    return events, error or damage


def _rows(lines: Sequence[bytes], after: int, state_id: str) -> tuple[list[EventRow], StateDamagedError | None]:
    rows: list[EventRow] = []
    for place, line in enumerate(lines, start=after + 1):
        row = from_line(line)
        if row is None or row.revision != place:
            reason = "its line in events.jsonl cannot be read" if row is None else "its line in events.jsonl is missing"
            return rows, StateDamagedError(state_id, place, reason)
        rows.append(row)
    return rows, None
