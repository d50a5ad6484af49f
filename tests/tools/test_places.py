"""The places of a tool: who waits for one, and how long."""

from __future__ import annotations

import math

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint

from alpineagents.tools.places import Place, Places

pytestmark = pytest.mark.anyio


async def given_up(places: Places) -> Place:
    """Return the place of a call that nobody waits for, whose thread still runs."""
    place = Place(places)
    assert await place.take(math.inf)
    assert place.thread_begins()
    place.leave()
    return place


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_patience_counts_only_while_every_call_was_given_up(anyio_backend: str) -> None:
    """One call that goes on, from the start or since, and the queue waits for it, however long it takes."""
    places, patience = Places("climb", 2), 0.2
    first, live = await given_up(places), Place(places)
    assert await live.take(patience)
    taken: list[Place] = []

    async def wait() -> None:
        place = Place(places)
        assert await place.take(patience)
        taken.append(place)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for _ in range(2):
                group.start_soon(wait)
            await anyio.sleep(2 * patience)
            assert taken == []  # behind the live one
            assert live.thread_begins()
            live.leave()
            await wait_all_tasks_blocked()  # stuck now
            assert first.thread_ends()
            first.free()
            while not taken:
                await checkpoint()
            await anyio.sleep(2 * patience)
            assert len(taken) == 1  # the other waits behind it
            taken[0].leave()

    assert len(taken) == 2


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_who_waits_already_is_told_when_the_last_call_is_given_up(anyio_backend: str) -> None:
    """And so is who comes after; a place that is free again is taken."""
    places = Places("climb", 1)
    live = Place(places)
    assert await live.take(math.inf)
    answers: list[bool] = []

    async def wait() -> None:
        answers.append(await Place(places).take(0.01))

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await wait_all_tasks_blocked()
            assert live.thread_begins()
            live.leave()
        await wait()
        assert live.thread_ends()
        live.free()
        await wait()

    assert answers == [False, False, True]
