"""What every release wrote is read by this one, and means what it meant. The files are frozen: add, never change."""

from __future__ import annotations

import json

import pytest

from alpineagents import MemoryStore, State
from alpineagents.checkpoint import RULES, start_at
from alpineagents.events import KINDS, Checkpoint, ContextChanged, Event
from alpineagents.fold import apply, fold
from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.codec import EventRow, decode, encode
from alpineagents.stores.header import header_of
from tests.corpus.reading import VERSIONS, folded, readable, rows

ALL = [pytest.param(row, id=f"{version}-{row.revision}-{row.kind}") for version in VERSIONS for row in rows(version)]


def history_of(version: str) -> list[Event]:
    return [decode(row) for row in rows(version)]


@pytest.mark.parametrize("row", ALL)
def test_every_row_decodes(row: EventRow) -> None:
    """To an Event of its kind, with what its columns say."""
    event = decode(row)

    assert (event.kind, event.revision, event.at, event.run_id) == (row.kind, row.revision, row.at, row.run_id)


@pytest.mark.parametrize("row", ALL)
def test_a_row_of_the_newest_format_is_written_as_the_same_bytes(row: EventRow) -> None:
    """Nothing of it is lost, added or put in another order."""
    if row.version < KINDS[row.kind].model_fields["version"].default:
        pytest.skip("a newer format of this kind is written now")

    assert encode(decode(row), row.append_id) == row


@pytest.mark.parametrize("version", VERSIONS)
def test_a_history_folds_to_the_value_it_had(version: str) -> None:
    """As it was written down by the release that wrote the rows."""
    value = fold(StateSnapshot(), history_of(version))

    assert readable(value) == folded(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_history_can_follow_itself_event_by_event(version: str) -> None:
    """No Event of it is refused now that was taken then."""
    value = StateSnapshot()

    for event in history_of(version):
        value = apply(value, event)

    assert value.revision == len(rows(version))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_history_can_be_begun_at_its_checkpoints(version: str) -> None:
    """From what these rules have kept, the rest folds to the same as the whole; what others kept counts for nothing."""
    history = history_of(version)
    changes = [event for event in history if isinstance(event, ContextChanged) and event.checkpoint is not None]

    for change in changes:
        start = start_at(change)
        assert change.checkpoint is not None
        assert (start is not None) == (change.checkpoint.rules == RULES)
        if start is not None:
            assert fold(start, history[start.revision :]) == fold(StateSnapshot(), history)
    assert changes or version not in ("v1-checkpoint", "v1-summary")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_state_of_the_corpus_can_be_stored_and_goes_on(version: str) -> None:
    """An old State is not only to be looked at."""
    history = history_of(version)
    state = State.from_history("old", history)
    store = MemoryStore()
    await store.append("old", history, expected=0, header=header_of(state.snapshot()))

    loaded = await store.load("old")
    with loaded.edit_extra_data() as data:
        data["again"] = True
    await store.save(loaded)

    assert (await store.load("old")).extra_data["again"] is True


def test_every_kind_is_in_the_corpus() -> None:
    """A new kind gets its rows with the release that brings it."""
    assert {row.kind for version in VERSIONS for row in rows(version)} == set(KINDS)


def test_every_format_is_in_the_corpus() -> None:
    """Each version of each kind, so that no way to read an old one is untried."""
    there = {(row.kind, row.version) for version in VERSIONS for row in rows(version)}
    newest = {kind: event.model_fields["version"].default for kind, event in KINDS.items()}

    assert there == {(kind, version) for kind, last in newest.items() for version in range(1, last + 1)}


def test_every_field_of_every_kind_is_in_the_corpus() -> None:
    """With a value that is not its default in some row, but for those that have one value only."""
    filled: dict[str, set[str]] = {}
    for version in VERSIONS:
        for event in history_of(version):
            changed = event.model_dump(exclude_defaults=True)
            filled.setdefault(event.kind, set()).update(name for name in changed)

    for kind, event_class in KINDS.items():
        optional = {name for name in event_class.model_fields if name not in ("version", "kind", "run_id")}
        assert optional <= filled[kind], kind


def test_every_field_of_a_checkpoint_is_in_the_corpus() -> None:
    """With a value that is not its default in some row, but for the rules, of which there is one set."""
    filled: set[str] = set()
    for version in VERSIONS:
        for event in history_of(version):
            if isinstance(event, ContextChanged) and event.checkpoint is not None:
                filled |= set(event.checkpoint.model_dump(exclude_defaults=True))

    assert filled | {"rules"} == set(Checkpoint.model_fields)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_rows_are_plain_ascii_json(version: str) -> None:
    """Any reader of JSON can read them, without the library."""
    for row in rows(version):
        assert row.payload.isascii()
        assert isinstance(json.loads(row.payload), dict)
