"""
How a run writes: an Event is folded into the State in memory, then appended to the store.

This is the only module that knows the expected revision. Where the store has moved on, it reads what came between. If
all of it is inbox Events, they are folded in before the run's own and the append is tried again; anything else means
that another run has taken the State, and this one must do nothing more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

import anyio

from alpineagents.errors import AlpineAgentsError, StateBusyError, StateConflictError, StoreUnavailableError
from alpineagents.events import Event, MessageAdded, RunStopped, is_inbox
from alpineagents.repair import Step
from alpineagents.shield import settled
from alpineagents.state import EventT, State
from alpineagents.stopped import Stopped
from alpineagents.stores.base import Append, Store, append_unsaved
from alpineagents.stores.header import Lease, StateKey

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


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
        # Without a pass through the event loop where nobody else writes, which is the rule.
        self._writing = anyio.Lock(fast_acquire=True)
        self._told = state.saved_revision if store is not None else _end_of_last_run(state)
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
        if self._store is None:
            self._tell(wanted)
            return
        if self.state.saved_revision >= wanted:
            return
        async with self._writing:
            if self.state.saved_revision < wanted:
                await settled(self._write)

    async def transact(self, work: Callable[[AsyncConnection], Awaitable[Iterable[Step]]]) -> None:
        """
        Await the work inside a transaction, and save what it returns in the same one: both are kept, or neither.

        Raises:
            Exception: whatever the work raised; nothing of it is kept.
            StateConflictError: another run has taken the State; nothing is kept.
        """
        assert self._store is not None
        async with self._writing:
            try:
                async with self._store.transaction() as transaction:
                    for kind, fields in await work(transaction.connection):
                        self.add(kind, **fields)
                    landed = await settled(lambda: self._append_with(transaction.append))
            except BaseException as error:
                # A commit that was cancelled, or whose acknowledgement was lost, has happened or not; the store knows.
                if not await settled(self._has_landed):
                    self.state.drop_unsaved(self.run_id)
                    raise
                landed = self.state.revision
                if not isinstance(error, StoreUnavailableError):
                    self._mark(landed)
                    raise
            self._mark(landed)

    async def _has_landed(self) -> bool:
        assert self._store is not None
        unsaved = self.state.unsaved
        if not unsaved:
            return False
        try:
            stored = [event async for event in self._store.read(self._key, after=self.state.saved_revision)]
        except AlpineAgentsError:
            return False
        return tuple(stored[: len(unsaved)]) == unsaved

    def _mark(self, landed: int) -> None:
        self.state.mark_saved(landed)
        self._tell(landed)

    async def renew(self) -> None:
        """
        Hold the State for longer, and take in what came in meanwhile.

        Raises:
            StateConflictError: another run has taken the State.
        """
        if self._store is None:
            return
        lease = Lease(self.run_id, self._lease)
        kept = await self._store.renew(self._key, lease)
        if kept and await self._store_revision() <= self.state.saved_revision:
            return
        # Looked at again with no append of this run's own under way, which may have landed unacknowledged meanwhile.
        async with self._writing:
            if self.state.snapshot().run_id == self.run_id:
                await settled(lambda: self._look(lease))

    async def _look(self, lease: Lease) -> None:
        assert self._store is not None
        if not await self._store.renew(self._key, lease):
            self._lose(await self._store_revision())
        await self._take_in(expected=False)

    async def end(self, stopped: Stopped, *, give_way: bool) -> bool:
        """
        Record that the run stopped.

        Args:
            give_way: where a message came in since the loop looked, do not stop behind it.

        Returns:
            Whether it is recorded; False if the run is to go on.
        """
        async with self._writing:
            await self._write()
            self.add(RunStopped, stopped=stopped)
            if self._store is None or not give_way:
                await self._write()
                return True
            landed = await self._append_with(self._store.append, give_way=True)
            if landed:
                self._mark(landed)
            else:
                self._tell(self.state.saved_revision)
            return landed > 0

    async def _write(self) -> None:
        if self.lost is not None:
            raise self.lost
        if self._store is None:
            self._tell(self.state.revision)
        else:
            # An append whose reply was lost may have landed without what was added since.
            while self.state.unsaved:
                self._mark(await self._append_with(self._store.append))

    async def _append_with(self, append: Append, *, give_way: bool = False) -> int:
        """Append what is unsaved behind what came in meanwhile; if told to, take it back for a message and say 0."""
        while True:
            # The run's own end gives the State up.
            seconds = self._lease if self.state.snapshot().run_id == self.run_id else 0.0
            try:
                landed = await append_unsaved(append, self._key, self.state, Lease(self.run_id, seconds))
            except StateConflictError:
                if await self._take_in() and give_way:
                    self.state.drop_unsaved(self.run_id)
                    return 0
            except StateBusyError as error:
                if not self._claimed:
                    raise
                self._lose(await self._store_revision(), error)
            else:
                self._claimed = True
                return landed

    async def _store_revision(self) -> int:
        assert self._store is not None
        return (await self._store.info(self._key)).revision

    async def _take_in(self, *, expected: bool = True) -> bool:
        """
        Fold in what the store has behind the saved Events.

        Args:
            expected: there must be something, since an append was refused.

        Returns:
            Whether a message is among it.
        """
        assert self._store is not None
        revision = self.state.saved_revision
        between = [event async for event in self._store.read(self._key, after=revision)]
        if (expected and not between) or not all(is_inbox(event) for event in between):
            self._lose(await self._store_revision())
        if not between:
            return False
        self.state.take_in(between)
        self._tell(self.state.saved_revision)
        return any(isinstance(event, MessageAdded) for event in between)

    def _lose(self, actual: int, cause: Exception | None = None) -> None:
        hint = "Another run has taken the State; this one has stopped"
        error = StateConflictError(self.state.id, self.state.saved_revision, actual, hint=hint if self._claimed else "")
        if self._claimed:
            self.lost = error
        raise error from cause

    def _tell(self, revision: int) -> None:
        for event in self.state.between(self._told, revision):
            self._saved(event)
        self._told = max(self._told, revision)


def _end_of_last_run(state: State) -> int:
    return next(
        (event.revision for event in reversed(state.history) if event.kind == "run_stopped"), state.history_after
    )
