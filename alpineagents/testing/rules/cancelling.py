"""
Cancellation: a task may be cancelled at every await, and the store is whole afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import sniffio

from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.testing.rules.base import Rules, patience, saved, words_in
from alpineagents.testing.rules.steps import cancelled_at

MOST_STEPS = 2_000
"""A call has fewer; more would mean that it does not end."""

Call = Callable[[State], Coroutine[Any, Any, object]]


class CancelRules(Rules):
    """Rules of native cancellation, as of `asyncio.timeout` and of web servers whose client went away."""

    async def test_a_save_that_is_cancelled_anywhere_is_whole(self, store: Store) -> None:
        """All of it is stored or nothing, what was acknowledged is there, and the State can be saved again."""
        async for step, state, acknowledged in self._cancel(store, store.save):
            words = await words_in(store, state.id)
            whole = [["one", "two", "three"]] if acknowledged else [["one"], ["one", "two", "three"]]
            assert words in whole, (
                f"cancelled at step {step}, save() {'returned' if acknowledged else 'was stopped'} and left {words}: "
                "an append is one transaction. `settled` in alpineagents.shield awaits it to its end"
            )
            state.add_message(Message.user("four"))
            with patience():
                landed = await store.save(state)
            words = await words_in(store, state.id)
            assert (landed, words) == (4, ["one", "two", "three", "four"]), (
                f"after a save() that was cancelled at step {step}, the next came to revision {landed!r} with {words}"
            )

    async def test_a_load_that_is_cancelled_anywhere_leaves_the_store_usable(self, store: Store) -> None:
        """What it had taken, such as a connection or a lock, is given back."""
        async for step, state, _ in self._cancel(store, lambda state: store.load(state.id)):
            with patience():
                landed = await store.save(state)
                words = await words_in(store, state.id)
            assert (landed, words) == (3, ["one", "two", "three"]), (
                f"after a load() that was cancelled at step {step}, save() came to revision {landed!r} with {words}: "
                "give back in `finally` what a call holds"
            )

    async def _cancel(self, store: Store, call: Call) -> Any:
        """Cancel a call at its first step, its second and so on, until it is over before."""
        if sniffio.current_async_library() != "asyncio":
            pytest.skip("Task.cancel is asyncio's: anyio_backend names another event loop")
        for step in range(MOST_STEPS):
            state = await saved(store, "one")
            state.add_message(Message.user("two"))
            state.add_message(Message.user("three"))
            with patience():
                outcome = await cancelled_at(step, lambda: call(state))  # noqa: B023  # awaited here
            assert outcome.error is None, (
                f"cancelled at step {step}, a call raised {outcome.error!r}, not CancelledError"
            )
            yield step, state, outcome.returned
            if not outcome.was_cancelled:
                return
        raise AssertionError(f"a call takes more than {MOST_STEPS} steps")
