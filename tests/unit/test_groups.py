"""How appends that wait are put into groups, with a write that only notes what it was given."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from alpineagents.stores.codec import EventRow
from alpineagents.stores.header import StateHeader, StateKey
from alpineagents.stores.sql import group
from alpineagents.stores.sql.append import Append, Outcomes
from alpineagents.stores.sql.group import Groups

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HEADER = StateHeader(status="ready", created_at=NOW, first_message="", summary=None)


def append(id: str, *, number: int = 0, payload: str = "{}") -> Append:
    row = EventRow(number + 1, "message_added", 1, NOW, None, None, payload)
    return Append(StateKey("", id), [row], number, HEADER, f"{id} {number}")


class Writer:
    """Notes each group, and waits to be let on."""

    def __init__(self) -> None:
        self.groups: list[list[str]] = []
        self.begun, self.let_on = asyncio.Event(), asyncio.Event()
        self.error: Exception | None = None

    async def __call__(self, appends: Sequence[Append]) -> Outcomes:
        self.groups.append([str(each.append_id) for each in appends])
        self.begun.set()
        await self.let_on.wait()
        error, self.error = self.error, None
        if error is not None:
            raise error
        return {each.key: each.revision for each in appends}


def added(groups: Groups, one: Append) -> asyncio.Task[Outcomes]:
    return asyncio.create_task(groups.append(one))


async def test_one_that_comes_alone_waits_for_nobody() -> None:
    """It is written in the next step of the event loop."""
    writer = Writer()
    waiting = added(Groups(writer), append("a"))

    # One for the task here, one for the task that leads.
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert writer.groups == [["a 0"]]
    writer.let_on.set()
    assert await waiting == {StateKey("", "a"): 1}


async def test_what_comes_while_a_group_is_written_forms_the_next() -> None:
    """In the order it came."""
    writer = Writer()
    groups = Groups(writer)
    first = added(groups, append("a"))
    await writer.begun.wait()
    rest = [added(groups, append(id)) for id in "bcd"]
    writer.let_on.set()

    await asyncio.gather(first, *rest)

    assert writer.groups == [["a 0"], ["b 0", "c 0", "d 0"]]


async def test_no_task_is_left_when_nothing_waits() -> None:
    """So there is none to stop; the next append brings one again."""
    writer = Writer()
    writer.let_on.set()
    groups = Groups(writer)
    before = asyncio.all_tasks()

    for number in range(2):
        await groups.append(append("a", number=number))
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before

    assert writer.groups == [["a 0"], ["a 1"]]


async def test_two_appends_of_one_state_are_in_two_groups() -> None:
    """The later one follows in the next group, ahead of what came behind it."""
    writer = Writer()
    writer.let_on.set()
    groups = Groups(writer)

    futures = [added(groups, append("a", number=number)) for number in range(3)] + [added(groups, append("b"))]
    await asyncio.gather(*futures)

    assert writer.groups == [["a 0", "b 0"], ["a 1"], ["a 2"]]


async def test_a_group_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In number and in size; one that is too large for any group is one of its own."""
    monkeypatch.setattr(group, "MOST_APPENDS", 3)
    monkeypatch.setattr(group, "MOST_CHARACTERS", 100)
    writer = Writer()
    writer.let_on.set()
    groups = Groups(writer)

    small = [added(groups, append(id)) for id in "abcd"]
    large = [added(groups, append("e", payload="x" * 1_000)), added(groups, append("f", payload="x" * 60))]
    await asyncio.gather(*small, *large)

    assert writer.groups == [["a 0", "b 0", "c 0"], ["d 0"], ["e 0"], ["f 0"]]


async def test_an_error_is_told_to_its_group_only() -> None:
    """The next group is written all the same."""
    writer = Writer()
    groups = Groups(writer)
    writer.error = KeyError("broken")
    failed = [added(groups, append(id)) for id in "ab"]
    await writer.begun.wait()
    next_one = added(groups, append("c"))
    writer.let_on.set()

    for future in failed:
        with pytest.raises(KeyError):
            await future
    assert await next_one == {StateKey("", "c"): 1}


async def test_a_waiter_that_goes_away_takes_nothing_with_it() -> None:
    """Its own append and its neighbours' are written; only then does its cancellation go on."""
    writer = Writer()
    groups = Groups(writer)
    first = added(groups, append("a"))
    await writer.begun.wait()
    gone, other = added(groups, append("b")), added(groups, append("c"))
    await asyncio.sleep(0)
    for _ in range(3):
        gone.cancel()
        await asyncio.sleep(0)
    assert not gone.done()
    writer.let_on.set()

    await asyncio.gather(first, other)
    with pytest.raises(asyncio.CancelledError):
        await gone

    assert writer.groups == [["a 0"], ["b 0", "c 0"]]


@pytest.mark.parametrize("steps", range(6))
async def test_a_cancellation_at_any_moment_of_a_write_comes_out(steps: int) -> None:
    """Also between the end of the write and the moment when its waiter hears of it."""
    writer = Writer()
    groups = Groups(writer)
    gone = added(groups, append("a"))
    await writer.begun.wait()
    writer.let_on.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    was_done = gone.done()
    gone.cancel()

    ended = await asyncio.wait([gone], timeout=5)

    assert ended[0] == {gone}
    assert gone.cancelled() != was_done
    assert await groups.append(append("a", number=1)) == {StateKey("", "a"): 2}


async def test_an_error_behind_a_cancellation_is_its_cause() -> None:
    """Who looks finds what went wrong."""
    writer = Writer()
    groups = Groups(writer)
    writer.error = KeyError("broken")
    gone = added(groups, append("a"))
    await writer.begun.wait()
    gone.cancel()
    await asyncio.sleep(0)
    writer.let_on.set()

    with pytest.raises(asyncio.CancelledError) as cancelled:
        await gone

    assert isinstance(cancelled.value.__cause__, KeyError)


def test_nobody_waits_for_a_group_of_an_event_loop_that_ends() -> None:
    """What is left when all tasks are cancelled is cancelled too, so the loop comes to its end."""
    tasks: list[asyncio.Task[Outcomes]] = []

    async def main() -> None:
        groups = Groups(Writer())
        tasks.extend(added(groups, append(id)) for id in "aa")
        await asyncio.sleep(0)

    asyncio.run(main())

    assert [task.cancelled() for task in tasks] == [True, True]
