"""What the tests of runs share: places to save in, stores that can be watched, and what must hold of every State."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from alpineagents import (
    Delta,
    Event,
    MemoryStore,
    Message,
    ModelReplied,
    Progress,
    State,
    StateInfo,
    StateKey,
    StateNotFoundError,
    Store,
    StoreUnavailableError,
    Tool,
    ToolFinished,
    ToolStarted,
)
from alpineagents.runner import Item
from alpineagents.stores.header import Lease, StateHeader
from alpineagents.tools import places
from tests.agent.programs.place import open_store

PATIENCE_SECONDS = 20.0
"""How long a test waits for what must come; it comes at once, or never."""

Append = Callable[[], Awaitable[int]]
"""The append itself, to be awaited once, or not at all."""


@dataclass
class Place:
    """
    Where States are kept.

    Attributes:
        target: folder, file or address of a store; None for memory.
    """

    name: str
    target: str | None

    @property
    def has_transactions(self) -> bool:
        """Whether a tool may take part in the transaction of its result."""
        return self.name in ("sqlite", "postgres")

    def open(self, watched_by: Watcher | None = None) -> Store:
        """Return a new store on this place."""
        store = MemoryStore() if self.target is None else open_store(self.target)
        return store if watched_by is None else watch(store, watched_by)


class Watcher:
    """Sees each append and each renewal of a store; a test overrides what it wants to change."""

    async def append(self, events: Sequence[Event], land: Append) -> int:
        """Await `land` to let the append happen."""
        return await land()

    async def renew(self, land: Callable[[], Awaitable[bool]]) -> bool:
        """Await `land` to let the renewal happen."""
        return await land()

    async def info(self, land: Callable[[], Awaitable[StateInfo]]) -> StateInfo:
        """Await `land` to get what the store says of a State."""
        return await land()


def watch(store: Store, watcher: Watcher) -> Store:
    """Return the store, of a class that asks the watcher."""
    kind: Any = type(store)

    class Watched(kind):
        async def append(
            self,
            key: str | StateKey,
            events: Sequence[Event],
            *,
            expected: int,
            header: StateHeader,
            append_id: str | None = None,
        ) -> int:
            below = super().append
            return await watcher.append(
                events, lambda: below(key, events, expected=expected, header=header, append_id=append_id)
            )

        async def renew(self, key: str | StateKey, lease: Lease) -> bool:
            below = super().renew
            return await watcher.renew(lambda: below(key, lease))

        async def info(self, id: str | StateKey) -> StateInfo:
            below = super().info
            return await watcher.info(lambda: below(id))

    store.__class__ = Watched
    return store


@dataclass
class Failing(Watcher):
    """
    Fails at the n-th append, counted from 1.

    Attributes:
        landed: the append is written, and only its acknowledgement is lost.
        times: how many appends fail in a row.
    """

    at: int
    landed: bool = False
    times: int = 1
    appends: int = 0

    async def append(self, events: Sequence[Event], land: Append) -> int:
        self.appends += 1
        if not self.at <= self.appends < self.at + self.times:
            return await land()
        if self.landed:
            await land()
        raise StoreUnavailableError("the database is away")


@dataclass
class Items:
    """A reporter that keeps what it got."""

    items: list[Item] = field(default_factory=list)

    def __call__(self, item: Item) -> None:
        self.items.append(item)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the Events, without deltas."""
        return [item.kind for item in self.items if not isinstance(item, (Delta, Progress))]


def kinds(state: State) -> list[str]:
    """Return the kinds of the Events of a State."""
    return [event.kind for event in state.history]


def of(state: State, kind: type[Any]) -> list[Any]:
    """Return the Events of one kind."""
    return [event for event in state.history if isinstance(event, kind)]


def outcomes(state: State) -> dict[str, str]:
    """Return how each call ended, by the tool's name, which the tests use once a State."""
    names = {call.id: call.name for event in of(state, ModelReplied) for call in event.message.tool_calls}
    return {names[event.call_id]: event.outcome for event in of(state, ToolFinished)}


def results(state: State) -> list[str]:
    """Return the texts of the results in the context, in its order."""
    return [result.text for message in state.messages for result in message.tool_results]


def started(state: State) -> list[str]:
    """Return the ids of the calls that were started."""
    return [event.call_id for event in of(state, ToolStarted)]


def complaints(messages: Sequence[Message]) -> list[str]:
    """Return what a provider would refuse: each call has its answer in the next message, in order."""
    found: list[str] = []
    owed: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        given = [result.call_id for result in message.tool_results]
        if given != owed:
            found.append(f"message {place} answers {given} where {owed} were asked")
        owed = [call.id for call in message.tool_calls]
        found += [f"message {place} repeats the call id {call_id!r}" for call_id in owed if call_id in seen]
        seen |= set(owed)
    return found + [f"{call_id!r} is not answered" for call_id in owed]


async def check_saved(store: Store, state: State) -> None:
    """Check that the store has just what the State in memory says that it has."""
    try:
        stored = tuple((await store.load(state.id)).history)
    except StateNotFoundError:
        stored = ()
    assert tuple(state.history[: state.saved_revision]) == stored[: state.saved_revision]
    assert len(stored) >= state.saved_revision


async def check_closed(store: Store, state: State) -> None:
    """Check that a run has left a State whole: all saved, the same on reading, given up, and fit for a provider."""
    loaded = await store.load(state.id)
    assert not state.unsaved
    assert loaded.snapshot() == state.snapshot()
    assert loaded.history[-1].kind == "run_stopped"
    assert complaints(loaded.messages) == []
    assert (await store.info(state.id)).lease_until is None


async def wait_for(event: anyio.Event) -> None:
    """Wait for what must come."""
    with anyio.fail_after(PATIENCE_SECONDS):
        await event.wait()


async def at_once(*works: Awaitable[Any]) -> list[Any]:
    """Await several at the same time, and return what each gave or raised."""
    ends: list[Any] = [None] * len(works)

    async def note(place: int, work: Awaitable[Any]) -> None:
        try:
            ends[place] = await work
        except Exception as error:  # noqa: BLE001  # looked at by the test
            ends[place] = error

    async with anyio.create_task_group() as group:
        for place, work in enumerate(works):
            group.start_soon(note, place, work)
    return ends


def program(name: str) -> str:
    """Return the path of a program of the tests."""
    return str(Path(__file__).with_name("programs") / name)


async def wait_for_a_place(made: Tool) -> None:
    """Wait until a place of a tool is free: then a call that was given up has ended, and all is told."""
    place = places.Place(made.places)
    with anyio.fail_after(PATIENCE_SECONDS):
        await place.take(math.inf)
    place.leave()
