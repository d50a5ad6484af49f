"""The codec's errors, and how rows of older releases are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Literal

import pytest

from alpineagents import EventFormatError, StateDamagedError
from alpineagents.events import KINDS, CancelRequested, Finished
from alpineagents.stores import codec
from alpineagents.stores.codec import EventRow, Payload, decode, encode

AT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)


def row(payload: str, **columns: Any) -> EventRow:
    base = EventRow(7, "finished", 1, AT, "r", "a", payload)
    return base._replace(**columns)


def test_a_row_has_what_one_filters_on_in_columns() -> None:
    """And the Event's own fields in the payload."""
    event = CancelRequested(revision=3, at=AT, run_id="r", by="é", reason="no")

    assert encode(event, "a") == EventRow(3, "cancel_requested", 1, AT, "r", "a", '{"by":"\\u00e9","reason":"no"}')


def test_a_kind_that_is_not_known_says_what_is_needed() -> None:
    """It is a damaged State to who catches that, and tells more to who looks."""
    with pytest.raises(EventFormatError, match="upgrade alpineagents") as newer:
        decode(row("{}", kind="sung"), state_id="s")

    assert (newer.value.state_id, newer.value.revision) == ("s", 7)
    assert isinstance(newer.value, StateDamagedError)
    assert "'sung'" in str(newer.value)


def test_a_newer_version_says_what_is_needed() -> None:
    """And up to which version this release reads."""
    with pytest.raises(EventFormatError, match="upgrade alpineagents") as newer:
        decode(row("{}", version=2), state_id="s")

    assert "2" in str(newer.value)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        " ",
        "null",
        "1",
        "[]",
        "not JSON",
        '{"answer":',
        '{"answer":1',
        '{"answer":1}{}',
        '{"answer":1},',
        '{"answer":1,}',
        '{"answer":1,"more":2}',
        '{"answer":"\\ud800',
        "{'answer':1}",
        '{"answer":' + "9" * 5000 + "}",
        '{"answer":' + "[" * 10_000 + "]" * 10_000 + "}",
        '{"answer":NaN}',
        '{"answer":-Infinity}',
        '{"answer":1,"run_id":"another"}',
        '{"answer":1,"revision":8}',
        '{"answer":1,"kind":"finished"}',
        '{"answer":1,"version":1}',
        '{"answer":1,"at":"2020-01-01T00:00:00Z"}',
    ],
)
def test_a_payload_that_was_not_written_is_damage(payload: str) -> None:
    """The error names State and revision, and never is one of a JSON reader."""
    with pytest.raises(StateDamagedError, match="'finished'") as damaged:
        decode(row(payload), state_id="s")

    assert (damaged.value.state_id, damaged.value.revision) == ("s", 7)
    assert not isinstance(damaged.value, EventFormatError)


def test_a_damaged_payload_is_not_quoted() -> None:
    """It may hold secrets, and errors end up in logs."""
    with pytest.raises(StateDamagedError) as damaged:
        decode(row('{"answer":"hunter2","more":"hunter2"}'), state_id="s")

    assert "hunter2" not in str(damaged.value)


def test_white_space_in_a_payload_is_no_damage() -> None:
    """Tools that copy databases may write JSON anew."""
    event = decode(row('{ "answer" :\n1 }'))

    assert event == Finished(revision=7, at=AT, run_id="r", answer=1)


def test_a_field_that_a_release_added_has_its_default() -> None:
    """What an older release wrote without it is read as it was meant."""
    event = decode(row('{"by":"Heidi"}', kind="cancel_requested"))

    assert event == CancelRequested(revision=7, at=AT, run_id="r", by="Heidi", reason="")


def test_times_are_utc_in_the_row() -> None:
    """Whatever the zone of the clock that made the Event, the instant is kept."""
    at = AT.astimezone(timezone(timedelta(hours=9)))

    written = encode(Finished(revision=1, at=at))

    assert written.at == AT
    assert decode(written).at == AT


class SungV3(Finished):
    """An Event whose third format has a field that the first had under another name."""

    version: Literal[3] = 3
    kind: Literal["sung"] = "sung"
    song: str


@pytest.fixture
def sung(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let there be a kind of Event that has had three formats; give the versions that were upcast."""
    upcast: list[int] = []

    def from_1(payload: Payload) -> Payload:
        upcast.append(1)
        return {"title": payload["name"]}

    def from_2(payload: Payload) -> Payload:
        upcast.append(2)
        return {"song": payload["title"], "answer": None}

    monkeypatch.setitem(KINDS, "sung", SungV3)
    monkeypatch.setitem(codec.UPCASTERS, ("sung", 1), from_1)
    monkeypatch.setitem(codec.UPCASTERS, ("sung", 2), from_2)
    return upcast


def test_an_old_format_is_upcast_version_by_version(sung: list[int]) -> None:
    """Each step knows the next format only, and the columns stay what they are."""
    event = decode(row('{"name":"Lueget"}', kind="sung", version=1))

    assert event == SungV3(revision=7, at=AT, run_id="r", song="Lueget")
    assert sung == [1, 2]


def test_a_format_in_the_middle_takes_the_rest_of_the_way(sung: list[int]) -> None:
    """Not the whole."""
    event = decode(row('{"title":"Lueget"}', kind="sung", version=2))

    assert isinstance(event, SungV3)
    assert event.song == "Lueget"
    assert sung == [2]


def test_the_newest_format_is_read_as_it_is(sung: list[int]) -> None:
    """Without a step."""
    event = decode(row('{"song":"Lueget"}', kind="sung", version=3))

    assert isinstance(event, SungV3)
    assert sung == []


def test_a_damaged_payload_of_an_old_format_is_damage(sung: list[int]) -> None:
    """Whatever a step stumbles over."""
    for payload in ('{"other":1}', "[]", "not JSON", '{"name":5}'):
        with pytest.raises(StateDamagedError):
            decode(row(payload, kind="sung", version=1))


def test_a_lone_surrogate_of_an_old_format_is_kept(sung: list[int]) -> None:
    """It takes another way through the reader."""
    event = decode(row('{"name":"a\\ud800"}', kind="sung", version=1))

    assert isinstance(event, SungV3)
    assert event.song == "a\ud800"


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_damage(version: int) -> None:
    """No step leads from it."""
    with pytest.raises(StateDamagedError):
        decode(row('{"answer":1}', version=version))
