"""Cancelled at every point where a call waits: nothing half-written, nothing locked, no connection left out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from alpineagents import Message, SQLStore, Store
from tests.contract.backends import Backend, engine_of, new_state, rows_of, saved
from tests.contract.stepping import cancelled_at

ENOUGH = 400
"""More points than any call has."""

Call = Callable[[Store], Coroutine[Any, Any, Any]]


async def save_more(store: Store) -> None:
    state = await store.load("s")
    state.add_message(Message.user("more"))
    state.add_message(Message.user("and more"))
    await store.save(state)


async def save_new(store: Store) -> None:
    await store.save(new_state("new", "a", "b"))


CALLS: dict[str, Call] = {
    "save": save_more,
    "save of a new State": save_new,
    "load": lambda store: store.load("s"),
    "post": lambda store: store.post("s", Message.user("posted")),
    "list": lambda store: store.list(),
    "info": lambda store: store.info("s"),
    "delete": lambda store: store.delete("s"),
}


async def check_whole(store: Store) -> None:
    """Whatever happened, the store works, holds whole appends only, and has all its connections."""
    if isinstance(store, SQLStore) and hasattr(engine_of(store).pool, "checkedout"):
        assert engine_of(store).pool.checkedout() == 0
    with anyio.fail_after(20):
        for info in await store.list():
            state = await store.load(info.id)
            assert [row[0] for row in await rows_of(store, info.id)] == list(range(1, info.revision + 1))
            assert state.revision == info.revision
        await store.save(new_state("probe"))
        await store.delete("probe")


@pytest.mark.parametrize("call", CALLS)
async def test_a_cancel_at_any_point_leaves_the_store_whole(store: Store, call: str) -> None:
    """By the task's own cancel, as a web server does it. An append is there whole or not at all."""
    await saved(store, "s", "hello")

    for point in range(1, ENOUGH):
        revision = (await store.info("s")).revision if await store.exists("s") else 0
        ended = await cancelled_at(CALLS[call](store), point)
        await check_whole(store)
        await restore(store)
        if ended == "done":
            assert point > 1
            return
        now = (await store.info("s")).revision
        assert now - revision in (0, 1, 2)
    raise AssertionError("the call never came to its end")


async def restore(store: Store) -> None:
    if await store.exists("new"):
        await store.delete("new")
    if not await store.exists("s"):
        await saved(store, "s", "hello")


async def test_what_was_acknowledged_is_there_after_cancels(store: Store) -> None:
    """The history is what the callers were told, and at most one append more for each that was cancelled."""
    await saved(store, "s", "0")
    acknowledged: list[str] = []
    cancelled: list[str] = []

    for point in range(1, 40):
        words = f"at {point}"

        async def post(words: str = words) -> None:
            await store.post("s", Message.user(words))
            acknowledged.append(words)

        if await cancelled_at(post(), point) == "cancelled" and words not in acknowledged:
            cancelled.append(words)

    words_there = [message.text for message in (await store.load("s")).messages][1:]
    assert [word for word in words_there if word in acknowledged] == acknowledged
    assert set(words_there) <= {*acknowledged, *cancelled}
    assert len(words_there) == len(set(words_there))


async def test_a_state_that_was_cancelled_in_its_save_can_be_saved_again(store: Store) -> None:
    """Nothing is stored twice, whether the append had landed or not."""
    for point in range(1, ENOUGH):
        state = new_state(f"s{point}", "one")
        await store.save(state)
        state.add_message(Message.user("two"))
        ended = await cancelled_at(store.save(state), point)
        state.add_message(Message.user("three"))

        assert await store.save(state) == 3
        assert [message.text for message in (await store.load(state.id)).messages] == ["one", "two", "three"]
        if ended == "done":
            return
    raise AssertionError("the call never came to its end")


async def test_a_save_settles_before_its_cancellation_goes_on(store: Store) -> None:
    """The State in memory knows what the store has."""
    for point in range(1, ENOUGH):
        state = new_state(f"s{point}", "one")
        ended = await cancelled_at(store.save(state), point)
        there = (await store.info(state.id)).revision if await store.exists(state.id) else 0

        assert state.saved_revision == there
        if ended == "done":
            return
    raise AssertionError("the call never came to its end")


def timeout_of_asyncio() -> Any:
    return asyncio.timeout(0)


def timeout_of_anyio() -> Any:
    return anyio.fail_after(0)


def cancelled_scope() -> Any:
    scope = anyio.CancelScope()
    scope.cancel()
    return scope


@pytest.mark.parametrize("within", [timeout_of_asyncio, timeout_of_anyio, cancelled_scope])
async def test_every_way_to_cancel_leaves_the_store_whole(store: Store, within: Callable[[], Any]) -> None:
    """Timeouts of asyncio and of anyio, and scopes that are cancelled already."""
    await saved(store, "s", "hello")

    for call in CALLS.values():
        try:
            scope = within()
            if hasattr(scope, "__aenter__"):
                async with scope:
                    await call(store)
            else:
                with scope:
                    await call(store)
        except TimeoutError:
            pass
        await check_whole(store)
        await restore(store)


async def test_the_first_use_can_be_cancelled_at_any_point(shared: Backend) -> None:
    """The schema is looked at then, or made; the next call finds all in order."""
    for point in range(1, ENOUGH):
        store = shared.open()
        ended = await cancelled_at(store.list(), point)
        await check_whole(store)
        await store.aclose()
        if ended == "done":
            return
    raise AssertionError("the call never came to its end")


async def test_many_cancels_at_once_leave_the_store_whole(store: Store) -> None:
    """Twenty writers, each cancelled at another point, while others go on."""
    await saved(store, "s", "hello")
    told: list[str] = []

    async def post(words: str) -> None:
        await store.post("s", Message.user(words))
        told.append(words)

    cancelled: list[Awaitable[str]] = [cancelled_at(post(f"cancelled {point}"), point) for point in range(1, 21)]
    await asyncio.gather(*cancelled, *(post(f"whole {number}") for number in range(10)))

    await check_whole(store)
    words = [message.text for message in (await store.load("s")).messages]
    assert len(words) == len(set(words))
    assert set(told) <= set(words)
    assert {f"whole {number}" for number in range(10)} <= set(words)
