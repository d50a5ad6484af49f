"""
How a run writes: an Event is folded into the State in memory, then appended to the store.

This is the only module that knows the expected revision. Where the store has moved on, it reads what came between. If
all of it is inbox Events, they are folded in before the run's own and the append is tried again; anything else means
that another run has taken the State, and this one must do nothing more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import anyio

from alpineagents.errors import StateBusyError, StateConflictError
from alpineagents.events import Event, is_inbox
from alpineagents.repair import Step
from alpineagents.shield import settled
from alpineagents.state import EventT, State
from alpineagents.stores.base import Store
from alpineagents.stores.header import Lease, StateKey, header_of


class Journal:
    """
    Writes the Events of one run.

    Args:
        store: None keeps them in memory.
        lease: seconds for which each append claims the State.
        saved: called with each Event once it is saved, those of others included.
    """

    def __init__(
        self, state: State, store: Store | None, *, run_id: str, lease: float, saved: Callable[[Event], None]
    ) -> None:
        self.state, self.run_id = state, run_id
        self.lost: StateConflictError | None = None
        self._store, self._lease, self._saved = store, lease, saved
        self._key = StateKey(state.namespace, state.id)
        self._writing = anyio.Lock()
        self._told = state.saved_revision
        self._claimed = False

    def add(self, kind: type[EventT], **fields: Any) -> EventT:
        """Fold an Event in; `commit` saves it."""
        return self.state.record(kind, **fields)

    async def record(self, kind: type[EventT], **fields: Any) -> EventT:
        """
        Fold an Event in and save it.

        Raises:
            StateConflictError: another run has taken the State.
            StoreUnavailableError: the database is away; the State keeps the Event.
        """
        event = self.add(kind, **fields)
        await self.commit()
        return event

    async def record_all(self, steps: Iterable[Step]) -> None:
        """Fold several Events in and save them in one append."""
        for kind, fields in steps:
            self.add(kind, **fields)
        await self.commit()

    async def commit(self) -> None:
        """Save what is unsaved. Work in parallel that waits meanwhile goes down with the next append, all at once."""
        wanted = self.state.revision
        async with self._writing:
            if self.state.saved_revision < wanted or self._store is None:
                await settled(self._write)

    async def renew(self) -> None:
        """
        Hold the State for longer, and take in what came in meanwhile.

        Raises:
            StateConflictError: another run has taken the State.
        """
        if self._store is None:
            return
        if not await self._store.renew(self._key, Lease(self.run_id, self._lease)):
            self._lose((await self._store.info(self._key)).revision)
        if (await self._store.info(self._key)).revision > self.state.saved_revision:
            async with self._writing:
                await settled(self._take_in)

    async def _write(self) -> None:
        if self.lost is not None:
            raise self.lost
        if self._store is None:
            self.state.mark_saved(self.state.revision)
        while self._store is not None and (unsaved := self.state.unsaved):
            value = self.state.snapshot()
            seconds = self._lease if value.run_id == self.run_id else 0.0
            header = header_of(value, parent_id=self.state.parent_id, lease=Lease(self.run_id, seconds))
            expected = self.state.saved_revision
            try:
                landed = await self._store.append(
                    self._key, unsaved, expected=expected, header=header, append_id=self.state.append_id
                )
            except StateConflictError:
                await self._take_in()
            except StateBusyError as error:
                if not self._claimed:
                    raise
                self._lose((await self._store.info(self._key)).revision, error)
            else:
                self._claimed = True
                self.state.mark_saved(landed)
        self._tell()

    async def _take_in(self) -> None:
        assert self._store is not None
        revision = self.state.saved_revision
        between = [event async for event in self._store.read(self._key, after=revision)]
        if not between or not all(is_inbox(event) for event in between):
            self._lose((await self._store.info(self._key)).revision)
        self.state.take_in(between)

    def _lose(self, actual: int, cause: Exception | None = None) -> None:
        hint = "Another run has taken the State; this one has stopped"
        error = StateConflictError(self.state.id, self.state.saved_revision, actual, hint=hint if self._claimed else "")
        if self._claimed:
            self.lost = error
        raise error from cause

    def _tell(self) -> None:
        for event in self.state.history[self._told : self.state.saved_revision]:
            self._saved(event)
        self._told = self.state.saved_revision
