"""
What a store is: three primitives that a backend implements, and all the rest built on them.

A backend keeps, for each State, a header and the rows of its history. `append` is the only write: it compares the
revision and sets it, so exactly one of two writers at the same revision succeeds. `read` gives the history back.

The file is long on purpose: it is the one page that the author of a backend reads, what to implement first, then what
comes with it, then the twins of it for scripts.
"""

from __future__ import annotations

import copy
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, get_args

import anyio.lowlevel
from pydantic import JsonValue

from alpineagents import clock
from alpineagents.approvals import PendingApproval
from alpineagents.checkpoint import start_of
from alpineagents.errors import (
    ConfigError,
    EventOrderError,
    StateConflictError,
    StateDamagedError,
    StateNotFoundError,
    StoreError,
    StoreFeatureError,
)
from alpineagents.events import Always, CancelRequested, Event, MessageAdded, RunStopped, ToolFinished
from alpineagents.fold import FIRST_MESSAGE_LENGTH, fold, header_status
from alpineagents.messages import Message
from alpineagents.shield import settled
from alpineagents.snapshot import StateSnapshot, Status
from alpineagents.state import State, check_id, check_namespace
from alpineagents.stores import standing
from alpineagents.stores.codec import encode
from alpineagents.stores.deciding import decide, waiting_in
from alpineagents.stores.header import (
    Lease,
    Names,
    StateHeader,
    StateInfo,
    StateInfos,
    StateKey,
    column_text,
    describe,
    header_of,
    summary_of,
)
from alpineagents.stores.watch import follow
from alpineagents.sync import run_sync

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection


MAX_LISTED = 1_000_000

_SHA256 = re.compile("[0-9a-f]{64}")

# Inside a class that has a method of that name, `list` would mean the method.
Approvals = list[PendingApproval]
StandingApprovals = list[standing.AlwaysAllowed]

FOLDED_AT_ONCE = 1_000
"""How many Events are folded before other tasks have a turn."""


class Transaction(Protocol):
    """
    A transaction that goes on.

    Attributes:
        connection: an `AsyncConnection` of SQLAlchemy inside it.
    """

    @property
    def connection(self) -> AsyncConnection: ...

    async def append(
        self,
        key: StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        """Do what `Store.append` does; it lasts if the transaction does."""
        ...


class Store:
    """
    Where States are kept.

    A backend of one's own implements `append`, `read` and `delete`; with `info` and `list` as well it has all.

    Example:
        >>> from alpineagents import MemoryStore
        >>> store = MemoryStore()
        >>> state = State(id="demo", messages=[Message.user("Hello")])
        >>> store.save_sync(state)
        1
        >>> store.load_sync("demo").snapshot() == state.snapshot()
        True
    """

    namespace: str = ""
    _is_view: bool = False

    has_transactions: bool = False
    """Whether `transaction` works, so that tools made with `@tool(transaction=True)` can be used."""

    @property
    def transaction_seconds(self) -> float | None:
        """How long a tool may hold a transaction, since it holds up all other writers; None where it does not."""
        return None

    # -------------------------------------------------------------------------------------------- what a backend does

    async def append(
        self,
        key: str | StateKey,
        events: Sequence[Event],
        *,
        expected: int,
        header: StateHeader,
        append_id: str | None = None,
    ) -> int:
        """
        Write events at the end of a State, all or none.

        Two writers that folded up to the same revision race here. The header's revision lets one in; the other must
        read on and decide again, so no lock is held while a model thinks.

        Args:
            expected: revision the caller folded up to; 0 for a new State.
            header: what the header says afterwards. Its `follows` names the Event at `expected` by its time.
            append_id: names this append over all attempts at it.

        Returns:
            The new revision, `expected + len(events)`; if this append had landed before, the revision it landed at.

        Raises:
            StateConflictError: the State has moved on; nothing was written.
            StateExistsError: `expected` is 0 and there is such a State.
            StateNotFoundError: `expected` is not 0 and there is no such State.
            StateBusyError: `header.lease` claims a State that another run owns.
            StoreUnavailableError: no answer in time. The append may have landed: try it again with its id.
        """
        raise StoreFeatureError(type(self).__name__, "append")

    def read(self, key: str | StateKey, *, after: int = 0, until: int | None = None) -> AsyncIterator[Event]:
        """
        Read the history, oldest first.

        Args:
            after: the revision to begin behind.
            until: the last revision wanted; None for the newest.

        Raises:
            StateNotFoundError: there is no such State, or it was deleted while it was read.
            StateDamagedError: an Event cannot be read; those before it were given out.
        """
        raise StoreFeatureError(type(self).__name__, "read")

    async def delete(self, id: str | StateKey) -> None:
        """
        Delete a State and all that belongs to it.

        Raises:
            StateNotFoundError: there is no such State.
        """
        raise StoreFeatureError(type(self).__name__, "delete")

    async def list(
        self, *, status: Status | None = None, limit: int = 50, after: StateInfo | str | None = None
    ) -> StateInfos:
        """
        List States, the most recently updated first; no history is read.

        Args:
            status: only those of this status.
            limit: how many at most.
            after: the last one of the page before, or its id.

        Example:
            >>> from alpineagents import MemoryStore
            >>> MemoryStore().list_sync()
            []
        """
        raise StoreFeatureError(type(self).__name__, "list")

    async def info(self, id: str | StateKey) -> StateInfo:
        """
        Describe a State without reading its history, where the backend can.

        Raises:
            StateNotFoundError: there is no such State.
        """
        state = await self.load(self.key(id).id)
        value = state.snapshot()
        return describe(
            self.key(id),
            summary_of(value),
            first_message=column_text(value.first_message),
            created_at=value.created_at,
            updated_at=state.history[-1].at,
            status=value.status,
            revision=state.revision,
            run_id=value.run_id,
        )

    async def last_context_change(self, id: str | StateKey, *, until: int | None = None) -> int:
        """
        Return the revision of the last `ContextChanged`, at which `load(tail=True)` begins to read.

        Args:
            until: the last revision that counts; None for the newest.

        Returns:
            0 where there is none, or no such State, or the backend cannot tell: then the whole history is read.
        """
        return 0

    async def renew(self, key: str | StateKey, lease: Lease) -> bool:
        """
        Hold a State for longer without writing an Event.

        Returns:
            Whether the run still owns it. A backend that keeps no leases says True: the revision guards it anyway.
        """
        return True

    async def write_blob(self, id: str, data: bytes) -> str:
        """
        Keep what is too large for an Event, such as the whole of a long result; it goes with the State.

        Returns:
            Its SHA-256 in hex, to read it by.

        Raises:
            StateNotFoundError: there is no such State.
        """
        raise StoreFeatureError(type(self).__name__, "write_blob")

    async def read_blob(self, id: str, sha256: str) -> bytes | None:
        """Return what `write_blob` has kept; None if there is no such thing."""
        raise StoreFeatureError(type(self).__name__, "read_blob")

    async def blobs(self, id: str) -> Names:
        """
        Return the names of the blobs that a State has, so that a fork which was made in memory can take them over.

        A backend that does not say so says that there are none.
        """
        return []

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """
        Open a transaction for a tool's own statements and the append of its result: both are kept, or neither.

        Raises:
            StoreFeatureError: the store is no SQL database.
        """
        raise StoreFeatureError(type(self).__name__, "transaction")

    async def aclose(self) -> None:
        """Give back all that the store holds open."""

    # -------------------------------------------------------------------------------------------- what one calls

    def key(self, id: str | StateKey) -> StateKey:
        """
        Return the key of an id in this store's namespace.

        Raises:
            StateIdError: no State can have the id.
            ConfigError: the key is of another namespace.
        """
        if not isinstance(id, StateKey):
            return StateKey(self.namespace, check_id(id))
        if id.namespace != self.namespace:
            raise ConfigError(f"this view sees the namespace {self.namespace!r}: store.scoped({id.namespace!r})")
        return id

    def scoped(self, namespace: str) -> Self:
        """
        Return a view of the store that sees one namespace only, and shares all else with it.

        Raises:
            ConfigError: there cannot be a namespace of that name.
        """
        view = copy.copy(self)
        view.namespace = check_namespace(namespace)
        view._is_view = True
        return view

    def check_scope(self, state: State) -> None:
        """
        Refuse a State of another namespace.

        Raises:
            ConfigError: it is one.
        """
        if state.namespace != self.namespace:
            raise ConfigError(
                f"State {state.id!r} is of namespace {state.namespace!r}, the store sees {self.namespace!r}: "
                f"State(id={state.id!r}, namespace={self.namespace!r}), or store.scoped({state.namespace!r})"
            )

    async def save(self, state: State) -> int:
        """
        Write what is unsaved of a State.

        Returns:
            Its revision.

        Raises:
            StateConflictError: another writer was first; load it again and repeat the change.
            StateExistsError: the State is new and its id is taken.
            StateNotFoundError: the State was deleted, or is of another store.
            ConfigError: it has no Event yet, or belongs to another namespace.
        """
        if not isinstance(state, State):
            raise ConfigError(f"a {type(state).__name__} is not a State: await store.save(state)")
        return await settled(lambda: self.save_with(state, None))

    async def save_with(self, state: State, lease: Lease | None) -> int:
        """
        Write what is unsaved and change who owns the State; `save` shields it from cancellation.

        Args:
            lease: the change of ownership; with None it stays as it is.
        """
        self.check_scope(state)
        if not state.history:
            raise ConfigError(
                f"State {state.id!r} has nothing to save yet. Give it a message first: "
                'state.add_message(Message.user("…"))'
            )
        while unsaved := state.unsaved:
            ended = [event for event in unsaved if isinstance(event, RunStopped)]
            if lease is None and ended and ended[-1].run_id is not None:
                # The end of a run that could not be saved when it came gives the State up now.
                lease = Lease(ended[-1].run_id, 0.0)
            state.mark_saved(await append_unsaved(self.append, self.key(state.id), state, lease))
        await self.take_over_blobs(state)
        return state.saved_revision

    async def take_over_blobs(self, state: State) -> None:
        """Copy what a fork that was made in memory names and its origin has kept: it needs its origin no more then."""
        if state.blobs_of is None:
            return
        if kept := set(await self.blobs(state.blobs_of)):
            told = [event for event in state.history if isinstance(event, (ToolFinished, MessageAdded))]
            kept &= {name for event in told for name in _SHA256.findall(encode(event).payload)}
        for name in kept:
            data = await self.read_blob(state.blobs_of, name)
            if data is not None:
                await self.write_blob(state.id, data)
        state.blobs_of = None

    async def load(self, id: str, revision: int | None = None, *, tail: bool = False) -> State:
        """
        Replay a State; nothing is changed.

        Args:
            revision: how far; None for all.
            tail: read only from the last change of the context on. The State is the same and goes on the same, but
                its `history` begins there, behind `state.history_after`. Where that cannot be done, all is read.

        Raises:
            StateNotFoundError: there is no such State, or it has no such revision.
            StateDamagedError: its history cannot be read.
        """
        if revision is not None and (type(revision) is not int or revision < 1):
            raise ConfigError(f"{revision!r} is not a revision: they are 1, 2, 3 …")
        key = self.key(id)
        after = max(await self.last_context_change(key, until=revision) - 1, 0) if tail else 0
        history, parent_id = await self._history(key, after, revision)
        start = start_of(history)
        if after and not start.revision:
            # No checkpoint, or another State that was made under this id since the change was looked for.
            history, parent_id = await self._history(key, 0, revision)
        last = history[-1].revision if history else 0
        if revision is not None and last < revision:
            raise StateNotFoundError(key.id, revision=revision, hint=f"Its last one is {last}")
        try:
            value = await _folded(start, history, key.id)
        except EventOrderError as error:
            reason = f"{error.kind} cannot stand there: {error.reason}"
            raise StateDamagedError(key.id, error.revision, reason) from error
        return State.from_history(key.id, history, namespace=key.namespace, parent_id=parent_id, value=value)

    async def fork(self, id: str, new_id: str, revision: int | None = None) -> int:
        """
        Make a new State with the history of another, to try another way from there.

        The databases copy the rows themselves. The fork is a State of its own: no lease goes with it, and what a run of
        the first State has open is closed by the fork's next run. Its usage begins with that of the first.

        Args:
            id: of the State to begin from.
            new_id: of the fork.
            revision: how much of the history it gets; None for all.

        Returns:
            The revision of the fork.

        Raises:
            StateNotFoundError: there is no such State, or it has no such revision.
            StateExistsError: the new id is taken.
            StateDamagedError: the history cannot be read.
        """
        return await self.save((await self.load(id, revision)).fork(id=new_id))

    async def _forked_at(self, key: StateKey, revision: int | None) -> tuple[int | None, StateHeader | None]:
        """Return where to fork, and what the fold says there; None and None for the end, where its own header does."""
        if revision is None and (await self.info(key)).status != "waiting":
            return None, None
        state = await self.load(key.id, revision)
        return state.revision, header_of(
            state.snapshot(), follows=state.history[-1].at, parent_id=key.id, is_new_fork=True
        )

    async def _history(self, key: StateKey, after: int, until: int | None) -> tuple[Sequence[Event], str | None]:
        """Return the history and the id of the parent, which backends that keep one can give without another read."""
        return [event async for event in self.read(key, after=after, until=until)], None

    async def exists(self, id: str) -> bool:
        """Tell whether there is such a State."""
        try:
            await self.info(id)
        except StateNotFoundError:
            return False
        return True

    @asynccontextmanager
    async def watch(self, id: str, *, after: int = 0) -> AsyncIterator[AsyncIterator[Event]]:
        """
        Hand out the history behind a revision, and then each Event that any process adds, until the block is left.

        Whoever comes back names the last revision that it saw, and misses nothing. What is new is seen within a
        quarter of a second.

        Args:
            after: revision of the last Event that is known; 0 for the whole history.

        Raises:
            StateNotFoundError: there is no such State or revision, or the State was deleted meanwhile.

        Example:
            >>> from alpineagents import MemoryStore, Message, State
            >>> async def main():
            ...     store, state = MemoryStore(), State(id="s", messages=[Message.user("Hello")])
            ...     await store.save(state)
            ...     async with store.watch("s") as events:
            ...         async for event in events:
            ...             return event.message.text
            >>> anyio.run(main)
            'Hello'
        """
        if type(after) is not int or after < 0:
            raise ConfigError(f"after={after!r} is not a revision: store.watch({id!r}, after=0)")
        key = self.key(id)
        info = await self.info(key)
        if info.revision < after:
            raise StateNotFoundError(key.id, revision=after, hint=f"Its last one is {info.revision}")
        async with aclosing(follow(self, key, info, after)) as events:
            yield events

    async def post(self, id: str, message: Message) -> int:
        """
        Add a message to a State at any time, also while a run goes on; the history is not read.

        Args:
            message: made with `Message.user` or `Message.notice`.

        Returns:
            The message's revision.

        Raises:
            StateNotFoundError: there is no such State.
            ConfigError: it is not a message of a person or a program.
        """
        if not isinstance(message, Message) or not message.is_plain:
            raise ConfigError('only what people and programs say can be posted: store.post(id, Message.user("…"))')
        return await self._post(id, MessageAdded, message=message)

    async def approvals(self) -> Approvals:
        """
        Show what waits for a person, over all States that wait, the oldest question first.

        That is also what a run asked whose process died, once its lease is over.

        A State that cannot be read is left out, and logged: the others can be decided on.

        Example:
            >>> from alpineagents import MemoryStore
            >>> MemoryStore().approvals_sync()
            []
        """
        return await waiting_in(self)

    async def approve(
        self,
        id: str,
        call_id: str,
        *,
        by: str,
        note: str = "",
        args: Mapping[str, JsonValue] | None = None,
        always: Always = "",
        digest: str | None = None,
    ) -> int:
        """
        Allow a call that waits; the next run makes it. Of several decisions the first counts.

        A call of a State that serves a call of this one can be named by either State's id.

        Args:
            by: who decides.
            note: why, kept in the history.
            args: all arguments, instead of the model's; the model is told of the change.
            always: `"state"` allows every later call of this tool in this State as well; `"all"` in each State of this
                store, of Agents of the same name, until `revoke`.
            digest: that of the `PendingApproval` which the person saw, so that nothing else is approved where the State
                was deleted and made again meanwhile.

        Returns:
            The revision of the decision.

        Raises:
            AlreadyDecidedError: somebody decided before.
            ApprovalError: there is no such call, it does not wait, it asks for something else, or its time is over.
            StateNotFoundError: there is no such State.
            StateDamagedError: with `always="all"`, what is allowed in all States cannot be read; nothing was decided.
        """
        said: dict[str, Any] = {"by": by, "note": note, "args": args, "always": always, "digest": digest}
        return await decide(self, id, call_id, approved=True, **said)

    async def deny(self, id: str, call_id: str, *, by: str, reason: str, digest: str | None = None) -> int:
        """
        Refuse a call that waits; the next run tells the model so. Of several decisions the first counts.

        Args:
            by: who decides.
            reason: told to the model.
            digest: as for `approve`.

        Returns:
            The revision of the decision.

        Raises:
            StateError: as `approve` does.
        """
        return await decide(self, id, call_id, approved=False, by=by, note=reason, digest=digest)

    async def always_allowed(self) -> StandingApprovals:
        """
        Show which tools people have allowed for all States, the oldest first.

        Example:
            >>> from alpineagents import MemoryStore
            >>> MemoryStore().always_allowed_sync()
            []
        """
        return await standing.listed(self)

    async def revoke(self, tool: str, *, by: str) -> StandingApprovals:
        """
        Take back that a tool is allowed for all States; its next call asks a person again.

        Args:
            tool: its name.
            by: who takes it back, kept in the history of the list.

        Returns:
            What was taken back.

        Raises:
            ConfigError: nothing of the kind is allowed, any more: of several people at once, one takes it back.
            StateDamagedError: what is allowed cannot be read.
        """
        return await standing.revoke(self, tool, by)

    async def cancel(self, id: str, *, by: str = "", reason: str = "") -> int:
        """
        Ask the run that goes on, in whatever process, to stop.

        Raises:
            StateNotFoundError: there is no such State.
        """
        return await self._post(id, CancelRequested, by=by, reason=reason)

    async def _post(self, id: str, kind: type[Event], **fields: Any) -> int:
        key = self.key(id)
        append_id = uuid.uuid4().hex
        while True:
            info = await self.info(key)
            event = kind(revision=info.revision + 1, at=clock.now(), **fields)
            words = event.message.text[:FIRST_MESSAGE_LENGTH] if isinstance(event, MessageAdded) else ""
            header = StateHeader(
                status=None if info.status == "unknown" else header_status(info.status, event),
                created_at=info.created_at,
                first_message=info.first_message or column_text(words),
                summary=None,
            )
            expected = info.revision
            try:
                return await settled(
                    lambda: self.append(key, [event], expected=expected, header=header, append_id=append_id)  # noqa: B023  # awaited here
                )
            except StateConflictError:
                # Whoever was first has moved the State on, so this ends; no turn is lost by giving way once.
                await anyio.lowlevel.checkpoint()

    # -------------------------------------------------------------------------------------------- for scripts

    def save_sync(self, state: State) -> int:
        """Do what `save` does, in a script."""
        return run_sync(self.save(state), called="save_sync", instead="await store.save(state)")

    def load_sync(self, id: str, revision: int | None = None, *, tail: bool = False) -> State:
        """Do what `load` does, in a script."""
        return run_sync(self.load(id, revision, tail=tail), called="load_sync", instead="await store.load(id)")

    def list_sync(
        self, *, status: Status | None = None, limit: int = 50, after: StateInfo | str | None = None
    ) -> StateInfos:
        """Do what `list` does, in a script."""
        listing = self.list(status=status, limit=limit, after=after)
        return run_sync(listing, called="list_sync", instead="await store.list()")

    def delete_sync(self, id: str) -> None:
        """Do what `delete` does, in a script."""
        run_sync(self.delete(id), called="delete_sync", instead="await store.delete(id)")

    def info_sync(self, id: str) -> StateInfo:
        """Do what `info` does, in a script."""
        return run_sync(self.info(id), called="info_sync", instead="await store.info(id)")

    def exists_sync(self, id: str) -> bool:
        """Do what `exists` does, in a script."""
        return run_sync(self.exists(id), called="exists_sync", instead="await store.exists(id)")

    def post_sync(self, id: str, message: Message) -> int:
        """Do what `post` does, in a script."""
        return run_sync(self.post(id, message), called="post_sync", instead="await store.post(id, message)")

    def fork_sync(self, id: str, new_id: str, revision: int | None = None) -> int:
        """Do what `fork` does, in a script."""
        return run_sync(self.fork(id, new_id, revision), called="fork_sync", instead="await store.fork(id, new_id)")

    def approvals_sync(self) -> Approvals:
        """Do what `approvals` does, in a script."""
        return run_sync(self.approvals(), called="approvals_sync", instead="await store.approvals()")

    def approve_sync(
        self,
        id: str,
        call_id: str,
        *,
        by: str,
        note: str = "",
        args: Mapping[str, JsonValue] | None = None,
        always: Always = "",
        digest: str | None = None,
    ) -> int:
        """Do what `approve` does, in a script."""
        decision = self.approve(id, call_id, by=by, note=note, args=args, always=always, digest=digest)
        return run_sync(decision, called="approve_sync", instead="await store.approve(id, call_id, by=…)")

    def deny_sync(self, id: str, call_id: str, *, by: str, reason: str, digest: str | None = None) -> int:
        """Do what `deny` does, in a script."""
        decision = self.deny(id, call_id, by=by, reason=reason, digest=digest)
        return run_sync(decision, called="deny_sync", instead="await store.deny(id, call_id, by=…, reason=…)")

    def always_allowed_sync(self) -> StandingApprovals:
        """Do what `always_allowed` does, in a script."""
        return run_sync(self.always_allowed(), called="always_allowed_sync", instead="await store.always_allowed()")

    def revoke_sync(self, tool: str, *, by: str) -> StandingApprovals:
        """Do what `revoke` does, in a script."""
        return run_sync(self.revoke(tool, by=by), called="revoke_sync", instead="await store.revoke(tool, by=…)")

    def close_sync(self) -> None:
        """Do what `aclose` does, in a script."""
        run_sync(self.aclose(), called="close_sync", instead="await store.aclose()")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A view shares all it has with the store that it is of.
        if not self._is_view:
            await self.aclose()


Append = Callable[..., Awaitable[int]]
"""`Store.append`, or that of a transaction."""


async def append_unsaved(append: Append, key: StateKey, state: State, lease: Lease | None) -> int:
    """
    Append what is unsaved of a State, once; `state.mark_saved` is the caller's to call when it lasts.

    Returns:
        The revision up to which the store has the history now.

    Raises:
        StateError: as `Store.append` does.
        StoreError: the backend returned no new revision, which would have the append tried for ever.
    """
    unsaved, expected = state.unsaved, state.saved_revision
    header = header_of(
        state.snapshot(),
        follows=state.follows,
        parent_id=state.parent_id,
        lease=lease,
        is_new_fork=state.is_new_fork,
    )
    landed = await append(key, unsaved, expected=expected, header=header, append_id=state.append_id)
    if landed <= expected:
        name = type(getattr(append, "__self__", append)).__name__
        raise StoreError(f"append of {name} returned {landed!r}, where the new revision is due")
    return landed


async def _folded(value: StateSnapshot, history: Sequence[Event], state_id: str) -> StateSnapshot:
    for start in range(0, len(history), FOLDED_AT_ONCE):
        value = fold(value, history[start : start + FOLDED_AT_ONCE], state_id=state_id)
        await anyio.lowlevel.checkpoint()
    return value


def check_listing(status: object, limit: object) -> int:
    """
    Return how many States a list may hold.

    Raises:
        ConfigError: the limit is not a positive whole number, or there is no such status.
    """
    if status is not None and status not in get_args(Status):
        raise ConfigError(f"{status!r} is no status: use one of {', '.join(map(repr, get_args(Status)))}")
    if type(limit) is not int or not 1 <= limit <= MAX_LISTED:
        raise ConfigError(f"{limit!r} is not a number of States to list, 1 to {MAX_LISTED:,}: store.list(limit=50)")
    return limit
