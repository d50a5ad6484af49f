"""
Watching: the history and then what comes, each Event once and in order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from alpineagents.errors import StateNotFoundError
from alpineagents.events import Event
from alpineagents.messages import Message
from alpineagents.stores.base import Store
from alpineagents.testing.rules.base import Rules, fresh, patience, refused, said, saved

READ = "read(after=n) must give what lies behind revision n, in order"


async def next_texts(events: AsyncIterator[Event], count: int) -> list[str]:
    """Return what the next messages say."""
    with patience():
        found = [await anext(events) for _ in range(count)]
    return [getattr(event, "message", Message.notice(event.kind)).text for event in found]


class WatchRules(Rules):
    """Rules of `watch`, which stands on `info` and `read`."""

    async def test_a_watcher_gets_the_history_and_then_what_comes(self, store: Store) -> None:
        """Each Event once, whoever adds it."""
        state = await saved(store, "one", "two")

        async with store.watch(state.id) as events:
            texts = await next_texts(events, 2)
            await store.post(state.id, Message.user("three"))
            texts += await next_texts(events, 1)
            await store.post(state.id, Message.user("four"))
            await store.post(state.id, Message.user("five"))
            texts += await next_texts(events, 2)

        assert texts == ["one", "two", "three", "four", "five"], f"the watcher got {texts}: {READ}"

    async def test_a_watcher_that_comes_back_misses_nothing(self, store: Store) -> None:
        """It names the revision that it saw last."""
        state = await saved(store, "one", "two", "three")

        async with store.watch(state.id, after=2) as events:
            texts = await next_texts(events, 1)

        assert texts == ["three"], f"behind revision 2 the watcher got {texts}: {READ}"

    async def test_only_what_is_there_can_be_watched(self, store: Store) -> None:
        """A State or a revision that is not there is an error at once, not a wait without an end."""
        state = await saved(store, "one")

        with patience():
            with refused(StateNotFoundError, "info() must raise it for a State that is not there"):
                async with store.watch(fresh("nobody")):
                    pass
            with refused(StateNotFoundError, "info().revision must be that of the last Event"):
                async with store.watch(state.id, after=2):
                    pass

    async def test_a_watcher_hears_that_the_state_was_deleted(self, store: Store) -> None:
        """Also where another State has its id by then: that one's Events are not told as if they went on."""
        state = await saved(store, "one")

        async with store.watch(state.id) as events:
            await next_texts(events, 1)
            await store.delete(state.id)
            await store.save(said("another", "and more", id=state.id, namespace=store.namespace))
            with patience(), refused(StateNotFoundError, "info() and read() must know nothing of a deleted State"):
                await anext(events)
