"""A State that is watched while it grows."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from alpineagents import Agent, ConfigError, MemoryStore, Message, State, Store
from alpineagents.testing import FakeModel
from tests.contract.backends import Backend, saved

POSTER = """
import asyncio
from alpineagents import FileStore, Message, SQLStore
async def main():
    async with STORE as store:
        for number in range(20):
            await store.post("s", Message.user(str(number)))
asyncio.run(main())
"""


async def test_a_watcher_sees_what_another_process_adds(shared: Backend) -> None:
    """Each Event once and in order, and the history before."""
    async with shared.open() as store:
        await saved(store, "s", "begin")
        async with store.watch("s") as events:
            poster = subprocess.Popen([sys.executable, "-c", POSTER.replace("STORE", shared.code)])
            try:
                with anyio.fail_after(60):
                    seen = [await anext(events) for _ in range(21)]
            finally:
                assert poster.wait(timeout=60) == 0

    assert [event.revision for event in seen] == list(range(1, 22))
    assert [event.message.text for event in seen] == ["begin", *map(str, range(20))]


async def test_a_watcher_sees_a_run_to_its_end(store: Store) -> None:
    """What it was given is the history, Event by Event, while the run goes on."""
    state = State(id="s", messages=[Message.user("Hello")])
    await store.save(state)
    kinds: list[str] = []

    async with anyio.create_task_group() as group:
        group.start_soon(Agent(FakeModel(["Good day."]), store=store).run, state)
        with anyio.fail_after(60):
            async with store.watch("s") as events:
                async for event in events:
                    kinds.append(event.kind)
                    if event.kind == "run_stopped":
                        break

    assert kinds == [event.kind for event in state.history]


async def test_two_watchers_see_the_same(store: Store) -> None:
    """One does not take from the other, and leaving one leaves the other."""
    await saved(store, "s", "one")

    async with store.watch("s") as left:
        async with store.watch("s") as right:
            first = [await anext(left), await anext(right)]
        await store.post("s", Message.user("two"))
        with anyio.fail_after(60):
            second = await anext(left)

    assert first[0] == first[1]
    assert second.revision == 2


async def test_a_watcher_can_be_cancelled_while_it_waits(store: Store) -> None:
    """A reader that goes away leaves nothing behind: the store goes on."""
    await saved(store, "s", "one")

    with anyio.move_on_after(0.1) as scope:
        async with store.watch("s", after=1) as events:
            await anext(events)

    assert scope.cancelled_caught
    assert await store.post("s", Message.user("two")) == 2


@pytest.mark.parametrize("after", [-1, "1", True, None])
async def test_a_watcher_names_a_revision(after: object) -> None:
    """Anything else is refused before the store is asked."""
    with pytest.raises(ConfigError, match="after="):
        async with MemoryStore().watch("s", after=after):
            pass


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_a_watcher_works_on_trio(anyio_backend: str) -> None:
    """As all that needs no database."""
    store = MemoryStore()
    await saved(store, "s", "one")

    async with store.watch("s") as events:
        await anext(events)
        await store.post("s", Message.user("two"))
        with anyio.fail_after(60):
            assert (await anext(events)).revision == 2
