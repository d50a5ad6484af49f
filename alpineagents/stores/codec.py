"""
Event ↔ row. The payload is the Event's own fields as JSON in plain ASCII, so that every database gives back the same
bytes: NUL, lone surrogates and the order of keys survive, whatever the encoding of the connection.

    ToolFinished(revision=7, at=…, run_id="r1", call_id="c1", outcome="ok", content=(TextBlock(text="é"),))
    revision 7 · kind tool_finished · version 1 · at … · run_id r1 · payload {"call_id":"c1","outcome":"ok","content":
                                                                          [{"type":"text","text":"\\u00e9"}]}
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple, TypeVar

import pydantic_core
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import PydanticSerializationError

from alpineagents.errors import EventFormatError, StateDamagedError
from alpineagents.events import KINDS, Event

FactT = TypeVar("FactT", bound=BaseModel)
Payload = dict[str, JsonValue]


class EventRow(NamedTuple):
    """An Event as a store keeps it; `append_id` is that of the append that wrote it."""

    revision: int
    kind: str
    version: int
    at: datetime
    run_id: str | None
    append_id: str | None
    payload: str


UPCASTERS: dict[tuple[str, int], Callable[[Payload], Payload]] = {}
"""For a kind and an old version: the payload as the next version has it."""

_COLUMNS = {"revision", "kind", "version", "at", "run_id"}
_NOT_GIVEN = {"kind", "version"}
_NO_REVISION, _NO_TIME = 2**60, datetime(1, 1, 1, tzinfo=UTC)
_COLUMNS_OF_NONE = f'{{"revision":{_NO_REVISION},"at":"{_NO_TIME.isoformat()}","run_id":null,'


def encode(event: Event, append_id: str | None = None) -> EventRow:
    """
    Return the row of an Event.

    Example:
        >>> from alpineagents.events import CancelRequested
        >>> encode(CancelRequested(revision=3, at=datetime.now(UTC), by="é")).payload
        '{"by":"\\\\u00e9","reason":""}'
    """
    payload = ascii_json(event, exclude=_COLUMNS)
    at = event.at.astimezone(UTC)
    return EventRow(event.revision, event.kind, event.version, at, event.run_id, append_id, payload)


def ascii_json(fact: BaseModel, *, exclude: set[str] | None = None) -> str:
    """Return a frozen value as JSON in plain ASCII."""
    try:
        return fact.model_dump_json(exclude=exclude, ensure_ascii=True)
    except PydanticSerializationError:
        # A lone surrogate: UTF-8 has none, JSON in ASCII has.
        return json.dumps(fact.model_dump(exclude=exclude, mode="python"), default=_iso, separators=(",", ":"))


def from_json(fact: type[FactT], text: str) -> FactT:
    """
    Return the frozen value that `ascii_json` wrote.

    Raises:
        ValueError: it is not one.
    """
    try:
        return fact.model_validate_json(text)
    except ValidationError:
        # It may have what pydantic's reader cannot take.
        return fact.model_validate(_parsed(text))


def decode(row: EventRow, *, state_id: str = "") -> Event:
    """
    Return the Event of a row, whatever release wrote it.

    Raises:
        EventFormatError: a newer release wrote it.
        StateDamagedError: the payload is not what was written.
    """
    kind = KINDS.get(row.kind)
    if kind is None:
        raise EventFormatError(
            state_id, row.revision, f"its kind {row.kind!r} is not known to this release: upgrade alpineagents"
        )
    newest = _newest(kind)
    if row.version > newest:
        raise EventFormatError(
            state_id,
            row.revision,
            f"its version of {row.kind!r} is {row.version}, this release reads up to {newest}: upgrade alpineagents",
        )
    try:
        return _event_of(kind, row, newest)
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StateDamagedError(state_id, row.revision, f"its payload is not a {row.kind!r} ({_why(error)})") from error


def decode_all(rows: Iterable[EventRow], *, state_id: str = "") -> tuple[list[Event], StateDamagedError | None]:
    """
    Return the Events of many rows; behind them the error of the first row that cannot be read, if there is one.

    The cyclic garbage collector rests meanwhile: Events hold no circles, and each of its passes would walk over all
    that was decoded so far.
    """
    events: list[Event] = []
    was_on = gc.isenabled()
    gc.disable()
    try:
        for row in rows:
            events.append(decode(row, state_id=state_id))  # noqa: PERF401  # what was read before a damaged row is kept
    except StateDamagedError as error:
        return events, error
    finally:
        if was_on:
            gc.enable()
    return events, None


@cache
def _newest(kind: type[Event]) -> int:
    version: int = kind.model_fields["version"].default
    return version


def _event_of(kind: type[Event], row: EventRow, newest: int) -> Event:
    if row.version == newest:
        # In one pass, with columns that no State has. Where they are not there afterwards the payload names its own.
        try:
            event: Event = kind.__pydantic_validator__.validate_json(_COLUMNS_OF_NONE + row.payload[1:])
        except ValidationError:
            pass  # below it is refused with its reason, or has what pydantic's reader cannot take
        else:
            columns = vars(event)
            as_given = columns["revision"] == _NO_REVISION and columns["at"] == _NO_TIME and columns["run_id"] is None
            if as_given and _NOT_GIVEN.isdisjoint(event.model_fields_set):
                columns["revision"], columns["at"], columns["run_id"] = row.revision, row.at, row.run_id
                return event
    payload = _parsed(row.payload)
    for version in range(row.version, newest):
        payload = UPCASTERS[row.kind, version](payload)
    if not isinstance(payload, dict):
        raise ValueError("it is no JSON object")
    if not _COLUMNS.isdisjoint(payload):
        raise ValueError("it names a revision, a time, a run or a kind of its own")
    payload["revision"], payload["at"], payload["run_id"] = row.revision, row.at, row.run_id
    return kind.model_validate(payload)


def _parsed(text: str) -> Any:
    try:
        return pydantic_core.from_json(text)
    except ValueError:
        # A lone surrogate, which pydantic's reader refuses; if it is no JSON at all, this one says so too.
        return json.loads(text)


def _iso(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"a {type(value).__name__} in an Event")  # pragma: no cover  # no Event has another such field


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc']) or 'JSON'}: {first['msg']}"
    return str(error) or type(error).__name__
