"""
Reading: what comes back is what was written, in the order of revisions, at every revision.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alpineagents.errors import StateNotFoundError
from alpineagents.events import MessageAdded
from alpineagents.messages import Message, TextBlock, ToolCall
from alpineagents.patch import same
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.stores.header import header_of
from alpineagents.testing.rules.base import Rules, fresh, refused, said, saved
from alpineagents.testing.rules.story import TEXTS, VALUES, told

CODEC = (
    "keep `encode(event, append_id)` of alpineagents.stores.codec as it is (its payload is plain ASCII), its time to "
    "the microsecond, and give back `decode(row)`"
)


class HistoryRules(Rules):
    """Rules of `read` and of what is stored."""

    async def test_a_state_comes_back_at_every_revision(self, store: Store) -> None:
        """Saved Event by Event and loaded after each, in the middle of turns too, it is what it was in memory."""
        for state in told(State(id=fresh("contract"))):
            await store.save(state)

            loaded = await store.load(state.id)
            assert loaded.snapshot() == state.snapshot(), (
                f"loaded after revision {state.revision} ({state.history[-1].kind}), the State is another one: {CODEC}"
            )

    async def test_every_earlier_revision_can_be_loaded(self, store: Store) -> None:
        """Of a history that was saved in one piece."""
        state = State(id=fresh("contract"))
        values = [each.snapshot() for each in told(state)]
        landed = await store.save(state)
        assert landed == len(values), (
            f"an append of {len(values)} Events came to {landed!r}: return expected + len(events)"
        )

        found = [event.revision async for event in store.read(state.id)]
        assert found == [*range(1, landed + 1)], (
            f"of {landed} Events {len(found)} came back: append() must write all Events"
        )

        for value in values:
            loaded = await store.load(state.id, revision=value.revision)
            assert loaded.snapshot() == value, (
                f"load(id, revision={value.revision}) gives another State than there was, at revision "
                f"{loaded.revision}: read(until=n) must give the first n Events"
            )

    async def test_the_history_comes_back(self, store: Store) -> None:
        """Event by Event, with revisions, runs, and times to the microsecond."""
        state = State(id=fresh("contract"))
        list(told(state))
        await store.save(state)

        history = (await store.load(state.id)).history

        for found, written in zip(history, state.history, strict=False):
            assert found == written, f"revision {written.revision} came back as {found!r}, not as {written!r}: {CODEC}"
        count = len(history)
        assert count == state.revision, f"of {state.revision} Events {count} came back: append() must write all of them"

    async def test_the_order_is_that_of_revisions(self, store: Store) -> None:
        """The times of Events come from many clocks: they may run backwards, or all be the same."""
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        for name, days in (("backwards", -1), ("equal", 0)):
            state = said(*map(str, range(12)))
            events = [
                MessageAdded(revision=n + 1, at=begin + timedelta(days=days * n), message=Message.user(str(n)))
                for n in range(12)
            ]
            await store.append(state.id, events, expected=0, header=header_of(state.snapshot()))

            found = [event.revision async for event in store.read(state.id)]

            assert found == [*range(1, 13)], f"with times that are {name}, read() gave {found}: sort by revision alone"

    async def test_a_part_of_the_history_can_be_read(self, store: Store) -> None:
        """Behind one revision and up to another; beyond the end there is nothing."""
        state = await saved(store, *"abcde")
        parts: list[tuple[int, int | None, list[int]]] = [
            (0, None, [1, 2, 3, 4, 5]),
            (1, 4, [2, 3, 4]),
            (3, None, [4, 5]),
            (4, 9, [5]),
            (5, None, []),
            (7, None, []),
        ]

        for after, until, wanted in parts:
            found = [event.revision async for event in store.read(state.id, after=after, until=until)]
            assert found == wanted, (
                f"read(after={after}, until={until}) of five Events gave the revisions {found}, not {wanted}: those "
                "with after < revision <= until"
            )

    async def test_a_revision_that_is_not_there_is_not_found(self, store: Store) -> None:
        """Load does not give an earlier one for it."""
        state = await saved(store, "one", "two")

        with refused(
            StateNotFoundError, "read(until=3) of two Events gives two, and load() sees that there are too few"
        ):
            await store.load(state.id, revision=3)

    async def test_a_long_history_comes_back(self, store: Store) -> None:
        """However a backend cuts it into pages, and wherever one begins to read."""
        state = said(*map(str, range(1_200)))
        await store.save(state)

        loaded = await store.load(state.id)

        assert loaded.revision == 1_200, f"of 1,200 Events {loaded.revision} came back: read() must give all pages"
        assert loaded.snapshot() == state.snapshot(), f"a history of 1,200 Events came back changed: {CODEC}"
        tail = [event.revision async for event in store.read(state.id, after=1_100)]
        assert tail == [*range(1_101, 1_201)], f"read(after=1100) gave {len(tail)} Events, not the last 100"

    async def test_a_tail_begins_at_the_last_change_of_the_context(self, store: Store) -> None:
        """At every revision, and what is loaded from there on is the same State."""
        self.needs(store, "last_context_change", "load(id, tail=True) reads the whole history")
        state = said("one", "two")
        for number in range(2):
            state.compact(f"summary {number}")
            state.add_message(Message.user(f"after {number}"))
        await store.save(state)

        for revision, change in ((2, 0), (3, 3), (4, 3), (5, 5), (6, 5), (None, 5)):
            found = await store.last_context_change(state.id, until=revision)
            assert found == change, (
                f"last_context_change(until={revision}) gave {found}, where the context changed at 3 and 5: the last "
                f"revision of kind 'context_changed' that is no later, or 0"
            )
            loaded, whole = await store.load(state.id, revision, tail=True), await store.load(state.id, revision)
            assert loaded.snapshot() == whole.snapshot(), f"load({revision}, tail=True) gives another State: {CODEC}"

    @pytest.mark.parametrize("kind", TEXTS)
    async def test_a_text_comes_back_as_it_was(self, store: Store, kind: str) -> None:
        """In a message, a call's name and arguments, the extra data and an answer."""
        text = TEXTS[kind]
        state = State(id=fresh("contract"), messages=[Message.user("x" + text)], extra_data={"x" + text: text})
        call = ToolCall(id="c", name=text, args={"x" + text: [text]})
        state.add_message(Message(role="assistant", content=(TextBlock(text=text), call)))
        state.finish(text)
        await store.save(state)

        loaded = await store.load(state.id)

        found = loaded.messages[0].text
        assert found == "x" + text, f"the text {'x' + text!a} ({kind}) came back as {found!a}: {CODEC}"
        assert loaded.snapshot() == state.snapshot(), f"the text {text!a} ({kind}) came back changed: {CODEC}"

    @pytest.mark.parametrize("kind", VALUES)
    async def test_a_value_comes_back_as_it_was(self, store: Store, kind: str) -> None:
        """As extra data, arguments and answer, without a change of type or of the order of keys."""
        value: Any = VALUES[kind]
        state = State(id=fresh("contract"), messages=[Message.user("x")], extra_data={"v": value})
        state.add_message(Message(role="assistant", content=(ToolCall(id="c", name="t", args={"v": value}),)))
        state.finish(value)
        await store.save(state)

        loaded = await store.load(state.id)

        for found in (loaded.extra_data["v"], loaded.pending_calls[0].args["v"], loaded.answer):
            assert same(found, value), f"{kind} came back as {repr(found)[:200]}, not as {repr(value)[:200]}: {CODEC}"
            assert str(found) == str(value), f"the keys of {value!a} came back in another order, {found!a}: {CODEC}"
