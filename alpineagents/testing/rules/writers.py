"""
Many writers: of those that race for a revision one is let in, and nothing is lost.
"""

from __future__ import annotations

from contextlib import suppress

import anyio
import anyio.lowlevel

from alpineagents.errors import StateConflictError, StateExistsError, StateNotFoundError
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.testing.rules.appending import APPEND_ID
from alpineagents.testing.rules.base import Rules, fresh, patience, said, saved, words_in
from alpineagents.testing.rules.inbox import ATOMIC

ROUNDS = 30
WRITERS = 4
EACH = 8
MANY = 20
APPENDS = 5

ONE_STEP = (
    "append() must make all of its Events visible in one step. In a database write them in one transaction; in memory "
    "put them in with no await in between"
)


class WriterRules(Rules):
    """Rules of `append` under concurrency, in one event loop."""

    async def test_exactly_one_of_two_writers_wins(self, store: Store) -> None:
        """In every round one is let in and one gets the conflict; the history has what was let in."""
        state = await saved(store, "begin")
        wins: list[str] = []
        conflicts: list[str] = []

        async def write(mine: State, words: str) -> None:
            mine.add_message(Message.user(words))
            try:
                await store.save(mine)
                wins.append(words)
            except StateConflictError:
                conflicts.append(words)

        for number in range(ROUNDS):
            one, other = await store.load(state.id), await store.load(state.id)
            async with anyio.create_task_group() as group:
                group.start_soon(write, one, f"{number} one")
                group.start_soon(write, other, f"{number} other")
            counts = len(wins), len(conflicts)
            assert counts == (number + 1, number + 1), (
                f"after {number + 1} rounds of two writers (let in, refused) are {counts}: {ATOMIC}"
            )

        words = await words_in(store, state.id)
        assert words == ["begin", *wins], f"let in were {wins}, and the store has {words}: {ATOMIC}"

    async def test_one_of_many_new_states_with_one_id_is_let_in(self, store: Store) -> None:
        """The first append is raced for like any other."""
        name, wins = fresh("contract"), []
        taken: list[str] = []

        async def create(words: str) -> None:
            try:
                await store.save(said(words, id=name))
                wins.append(words)
            except StateExistsError:
                taken.append(words)

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(create, str(number))

        counts = len(wins), len(taken)
        assert counts == (1, 7), f"of 8 new States with one id (let in, refused) are {counts}: {ATOMIC}"
        assert await words_in(store, name) == wins, f"the store has another State than the one it let in: {ATOMIC}"

    async def test_many_writers_that_try_again_lose_nothing(self, store: Store) -> None:
        """Each loads, adds and saves until it is let in: the State ends at exactly the sum of their Events."""
        state = await saved(store, "begin")

        async def write(name: str) -> None:
            for number in range(EACH):
                while True:
                    mine = await store.load(state.id)
                    mine.add_message(Message.user(f"{name} {number}"))
                    try:
                        await store.save(mine)
                        break
                    except StateConflictError:
                        continue

        with patience():
            async with anyio.create_task_group() as group:
                for number in range(WRITERS):
                    group.start_soon(write, f"w{number}")

        words = await words_in(store, state.id)
        wanted = [f"w{writer} {number}" for writer in range(WRITERS) for number in range(EACH)]
        assert sorted(words[1:]) == sorted(wanted), (
            f"{WRITERS} writers of {EACH} Events each left {len(words) - 1} of {len(wanted)}: {ATOMIC}"
        )

    async def test_a_reader_sees_none_or_all_of_an_append(self, store: Store) -> None:
        """While many Events are appended, a reader beside the writer finds the State before them or behind them."""
        state, seen, done = said(*["one"] * MANY), set[int](), anyio.Event()

        async def read() -> None:
            while not done.is_set():
                with suppress(StateNotFoundError):
                    seen.add(len([event async for event in store.read(state.id)]))
                await anyio.lowlevel.checkpoint()

        async def write() -> None:
            for _ in range(APPENDS):
                await store.save(state)
                for _ in range(MANY):
                    state.add_message(Message.user("more"))
            done.set()

        with patience():
            async with anyio.create_task_group() as group:
                group.start_soon(read)
                group.start_soon(write)

        partial = sorted(count for count in seen if count % MANY)
        assert not partial, f"beside appends of {MANY} Events each a reader saw {partial} Events: {ONE_STEP}"

    async def test_two_saves_of_one_state_at_once_store_it_once(self, store: Store) -> None:
        """The same Events come with the same append id."""
        await self.needs_append_id(store)
        state = await saved(store, "one")
        state.add_message(Message.user("two"))

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(store.save, state)

        words = await words_in(store, state.id)
        assert words == ["one", "two"], f"four saves at once of one State left {words}: {APPEND_ID}"
