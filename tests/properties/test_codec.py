"""Laws of the codec: an Event is in a store what it was in memory."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from alpineagents.events import Event, Finished
from alpineagents.patch import same
from alpineagents.stores.codec import decode, encode
from alpineagents.values import MAX_DEPTH, storable
from tests.properties import values
from tests.properties.driver import Driver, drivers


@given(values.events)
def test_every_event_survives_encode_and_decode(event: Event) -> None:
    """Whatever its kind and whatever it holds, the same Event comes back."""
    back = decode(encode(event))

    assert type(back) is type(event)
    assert back == event


@given(values.events)
def test_what_came_back_is_written_as_the_same_bytes(event: Event) -> None:
    """No part of an Event changes its form on the way, such as 1 and 1.0, which are equal in Python."""
    row = encode(event, "append")

    assert encode(decode(row), "append")._replace(at=row.at) == row


@given(values.events)
def test_a_payload_is_plain_ascii_without_nul(event: Event) -> None:
    """Any database takes it in any encoding, and a JSON reader of anyone's reads it."""
    payload = encode(event).payload

    assert payload.isascii()
    assert min(payload) >= " "
    assert isinstance(json.loads(payload), dict)


@given(values.events)
def test_columns_are_not_in_the_payload(event: Event) -> None:
    """What has a column of its own is kept once."""
    row = encode(event)

    assert not {"revision", "kind", "version", "at", "run_id"} & json.loads(row.payload).keys()
    assert (row.revision, row.kind, row.version, row.at, row.run_id) == (
        event.revision,
        event.kind,
        event.version,
        event.at,
        event.run_id,
    )


@given(drivers())
def test_a_stored_history_folds_to_the_same_value(driver: Driver) -> None:
    """A replay from rows gives the value that was in memory."""
    history = [decode(encode(event)) for event in driver.state.history]

    assert history == list(driver.state.history)
    assert type(driver.state).from_history("driven", history).snapshot() == driver.state.snapshot()


def nested(depth: int, inner: object) -> object:
    for _ in range(depth):
        inner = [inner]
    return inner


@given(values.json_values)
@example(nested(MAX_DEPTH, 1))
@example(10**4299 - 1)
@example(-(10**4299) + 1)
@example(-0.0)
@example(1e16)
@example(5e-324)
@example({"1": 1, "1.0": 1.0, "true": True, "": None})
def test_a_json_value_comes_back_as_it_was(value: object) -> None:
    """What may be stored at all is given back exactly, at the limits too."""
    event = Finished(revision=1, at="2026-01-01T00:00:00Z", answer=value)

    back = decode(encode(event))

    assert isinstance(back, Finished)
    assert same(back.answer, storable(value, "answer"))


@given(st.text(st.sampled_from("a\ud83d\ude00\ud800\udfff\U0001f600"), max_size=6))
def test_any_text_that_is_taken_comes_back(text: str) -> None:
    """Two halves of a surrogate pair beside each other too: what the Event holds is what a store gives back."""
    event = Finished(revision=1, at="2026-01-01T00:00:00Z", answer=text)

    assert decode(encode(event)) == event
