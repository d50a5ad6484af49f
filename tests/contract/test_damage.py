"""Rows that are damaged, missing, or of a newer release: a clear error for that State, and the rest goes on."""

from __future__ import annotations

from typing import Any

import pytest

from alpineagents import EventFormatError, MemoryStore, Message, SQLStore, StateDamagedError, Store
from tests.contract.backends import change_header, change_row, drop_row, engine_of, execute, saved, words_in

DAMAGES: dict[str, dict[str, Any]] = {
    "cut off": {"payload": '{"message":{"role":"us'},
    "empty": {"payload": ""},
    "no JSON": {"payload": "not JSON"},
    "not an object": {"payload": "[1]"},
    "two objects": {"payload": "{}{}"},
    "another field": {"payload": '{"message":{"role":"user","content":[],"is_notice":false},"more":1}'},
    "a field missing": {"payload": "{}"},
    "a wrong type": {"payload": '{"message":5}'},
    "a wrong role": {"payload": '{"message":{"role":"king","content":[],"is_notice":false}}'},
    "another kind's payload": {"kind": "tool_finished"},
    "an Event that cannot stand there": {"kind": "run_stopped", "payload": '{"stopped":{"kind":"limit","turns":1}}'},
    "an old version that never was": {"version": 0},
    "nested without end": {"payload": '{"message":' + "[" * 100_000 + "]" * 100_000 + "}"},
}

NEWER: dict[str, tuple[dict[str, Any], str]] = {
    "a kind that is not known": ({"kind": "message_sung"}, "'message_sung'"),
    "a newer version": ({"version": 2}, "2"),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_damaged_row_says_where(store: Store, damage: str) -> None:
    """The error names State and revision, and the line that loads what is before it; that works."""
    await saved(store, "s", *"abc")
    await change_row(store, "s", 2, **DAMAGES[damage])

    with pytest.raises(StateDamagedError, match=r"await store\.load\('s', revision=1\)") as damaged:
        await store.load("s")

    assert (damaged.value.state_id, damaged.value.revision) == ("s", 2)
    assert [message.text for message in (await store.load("s", revision=1)).messages] == ["a"]


@pytest.mark.parametrize("newer", NEWER)
async def test_a_row_of_a_newer_release_says_what_is_needed(store: Store, newer: str) -> None:
    """The Event is not dropped, and the error is of its own kind."""
    change, named = NEWER[newer]
    await saved(store, "s", *"abc")
    await change_row(store, "s", 3, **change)

    with pytest.raises(EventFormatError, match="upgrade alpineagents") as newest:
        await store.load("s")

    assert newest.value.revision == 3
    assert named in str(newest.value)
    assert [message.text for message in (await store.load("s", revision=2)).messages] == ["a", "b"]


async def test_a_payload_cannot_say_what_its_columns_say(store: Store) -> None:
    """A payload that names a run, a time or a revision of its own was not written by the library."""
    for extra in ('"run_id":"r9"', '"at":"2020-01-01T00:00:00Z"', '"revision":2', '"kind":"message_added"'):
        await saved(store, "s", "a", "b")
        await change_row(
            store,
            "s",
            2,
            payload='{"message":{"role":"user","content":[{"type":"text","text":"b"}],"is_notice":false},'
            + extra
            + "}",
        )

        with pytest.raises(StateDamagedError):
            await store.load("s")
        await store.delete("s")


async def test_a_number_that_json_has_not_is_damage(store: Store) -> None:
    """NaN was never written, since it is refused where it enters."""
    state = await saved(store)
    state.finish(1)
    await store.save(state)
    await change_row(store, "s", 2, payload='{"answer":NaN}')

    with pytest.raises(StateDamagedError):
        await store.load("s")


async def test_other_states_are_not_concerned(store: Store) -> None:
    """Lists show the damaged one too, and the others load."""
    await saved(store, "good", "hello")
    await saved(store, "bad", "a", "b")
    await change_row(store, "bad", 1, payload="not JSON")

    assert [info.id for info in await store.list()] == ["bad", "good"]
    assert (await store.info("bad")).revision == 2
    assert await words_in(store, "good") == ["hello"]


async def test_a_damaged_state_can_be_written_to_and_deleted(store: Store) -> None:
    """Its id is not blocked: a message is kept, and the State can be taken away and made again."""
    await saved(store, "s", "a")
    await change_row(store, "s", 1, payload="not JSON")

    assert await store.post("s", Message.user("b")) == 2
    await store.delete("s")
    await saved(store, "s", "again")

    assert await words_in(store) == ["again"]


async def test_a_row_that_is_missing_in_the_middle_is_damage(store: Store) -> None:
    """A history with a gap is not taken for a whole one."""
    await saved(store, "s", *"abcd")
    await drop_row(store, "s", 3)

    with pytest.raises(StateDamagedError, match="missing") as damaged:
        await store.load("s")

    assert damaged.value.revision == 3
    assert (await store.load("s", revision=2)).revision == 2


async def test_a_row_that_is_missing_at_the_beginning_is_damage(store: Store) -> None:
    """There is nothing before it to load, so the error shows no line for that."""
    await saved(store, "s", *"abc")
    await drop_row(store, "s", 1)

    with pytest.raises(StateDamagedError, match="missing") as damaged:
        await store.load("s")

    assert damaged.value.revision == 1
    assert "revision=0" not in str(damaged.value)


async def test_rows_that_are_missing_at_the_end_are_damage(store: Store) -> None:
    """The header knows how many there were."""
    if isinstance(store, MemoryStore):
        pytest.skip("its revision is the number of its rows")
    await saved(store, "s", *"abcd")
    await drop_row(store, "s", 4)
    await drop_row(store, "s", 3)

    with pytest.raises(StateDamagedError, match="missing") as damaged:
        await store.load("s")

    assert damaged.value.revision == 3
    assert (await store.load("s", revision=2)).revision == 2


async def test_a_state_whose_rows_are_all_missing_is_damaged(store: Store) -> None:
    """It is not taken for an empty one, nor for one that is not there."""
    if isinstance(store, MemoryStore):
        pytest.skip("its revision is the number of its rows")
    await saved(store, "s", "a", "b")
    await drop_row(store, "s", 1)
    await drop_row(store, "s", 2)

    with pytest.raises(StateDamagedError) as damaged:
        await store.load("s")

    assert damaged.value.revision == 1


@pytest.mark.parametrize(
    "columns",
    [
        {"summary": '{"stopped":{"kind":"sleep","hours":8},"turn":3,"usage":{},"agent":null}'},
        {"summary": "not JSON"},
        {"status": "dreaming"},
    ],
    ids=["a stop that is not known", "no JSON", "a status that is not known"],
)
async def test_a_list_goes_on_past_a_header_that_cannot_be_read(store: Store, columns: dict[str, str]) -> None:
    """A newer release wrote it, as happens while servers are upgraded one by one; the others are listed."""
    await saved(store, "one")
    await saved(store, "strange")
    await saved(store, "two")
    await change_header(store, "strange", **columns)

    listed = [info.id for info in await store.list()]

    assert [id for id in listed if id != "strange"] == ["two", "one"]


async def test_a_strange_header_does_not_block_its_state(store: Store) -> None:
    """The history is the truth: it loads, and the next save writes a header that can be read."""
    await saved(store)
    await change_header(store, "s", summary="not JSON")

    state = await store.load("s")
    state.add_message(Message.user("more"))
    await store.save(state)

    assert (await store.info("s")).revision == 2


async def test_a_time_that_cannot_be_read_is_no_bar_to_a_list(store: Store) -> None:
    """Somebody wrote into the table by hand; the State is listed as one whose header is not known, and loads."""
    if not isinstance(store, SQLStore) or engine_of(store).url.get_backend_name() != "sqlite":
        pytest.skip("only SQLite takes any text for a time")
    await saved(store, "one")
    await saved(store, "strange")
    await execute(store, "UPDATE agent_states SET created_at = 'zz', lease_until = 'never' WHERE id = 'strange'")

    listed = {info.id: info.status for info in await store.list()}

    assert listed == {"one": "ready", "strange": "unknown"}
    assert (await store.info("strange")).revision == 1
    assert (await store.load("strange")).revision == 1
