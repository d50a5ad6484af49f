"""What a reader of a long history holds of it: a page, however long it is."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

import pytest

from alpineagents import Message, State, StateNotFoundError, Store
from tests.contract.backends import Backend, saved

WORDS = "x" * 1_000
SHORT, LONG = 3_000, 15_000


async def fill(store: Store, id: str, events: int) -> None:
    state = State(id=id)
    for _ in range(events):
        state.add_message(Message.user(WORDS))
    await store.save(state)


async def peak_of(store: Store, id: str, after: int, events: int) -> int:
    """Return how many bytes a reader held at most, who keeps nothing."""
    tracemalloc.start()
    try:
        count = 0
        async for _ in store.read(id, after=after):
            count += 1
        assert count == events - after
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("after", [0, 100])
async def test_a_reader_holds_a_page(shared: Backend, after: int) -> None:
    """Five times the history take no more memory to read, from its first Event on or from another."""
    async with shared.open() as store:
        await fill(store, "short", SHORT)
        await fill(store, "long", LONG)
        await peak_of(store, "short", after, SHORT)

        short, long = await peak_of(store, "short", after, SHORT), await peak_of(store, "long", after, LONG)

        assert long < short * 1.2


async def test_a_state_that_is_deleted_while_it_is_read_is_not_mixed_with_another(store: Store) -> None:
    """A reader is given what there was, or told that it is gone, and nothing of the State that has its id then."""
    await saved(store, "s", *(f"old {n}" for n in range(2_500)))
    words: list[str] = []

    with suppress(StateNotFoundError):
        async for event in store.read("s"):
            words.append(event.message.text)  # type: ignore[union-attr]
            if event.revision == 10:
                await store.delete("s")
                await saved(store, "s", *(f"new {n}" for n in range(2_500)))

    assert words == [f"old {n}" for n in range(len(words))]
    assert len(words) >= 10
