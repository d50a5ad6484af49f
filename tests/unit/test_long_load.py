"""How a long history is loaded beside other tasks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from alpineagents import Event, MemoryStore, Message, State, StateSnapshot
from alpineagents.fold import fold
from alpineagents.stores import base


async def test_a_long_history_is_folded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a history is, other tasks have a turn after each thousand of its Events."""
    store, state = MemoryStore(), State(id="long", messages=[Message.user("Hello")])
    for number in range(2_499):
        state.add_message(Message.user(f"message {number}"))
    await store.save(state)
    slices: list[int] = []

    def counted(value: StateSnapshot, events: Iterable[Event], *, state_id: str = "") -> StateSnapshot:
        events = list(events)
        slices.append(len(events))
        return fold(value, events, state_id=state_id)

    monkeypatch.setattr(base, "fold", counted)

    loaded = await store.load("long")

    assert slices == [1_000, 1_000, 500]
    assert loaded.snapshot() == state.snapshot()
