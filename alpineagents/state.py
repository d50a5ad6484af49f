"""
A State: one conversation in memory, its history and the value folded from it.

A method validates first and then adds an Event; a refused call changes nothing. Nothing here is saved: a store appends
what is `unsaved`, and says with `mark_saved` how far it came.

All of a State is in this one class, and most of its lines say what a method does: what people read, what they call,
and at the end what stores and runs use.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from pydantic import JsonValue

from alpineagents import clock, patch
from alpineagents.checkpoint import start_of, with_checkpoint
from alpineagents.edit import Edit
from alpineagents.errors import ConfigError, EventOrderError, StateConflictError, StateIdError
from alpineagents.events import AgentInfo, ContextChanged, DataChanged, Event, Finished, MessageAdded
from alpineagents.fold import apply, fold
from alpineagents.frozen import FrozenList
from alpineagents.messages import Block, Message, TextBlock, ToolCall, ToolResultBlock
from alpineagents.snapshot import StateSnapshot, Status
from alpineagents.stopped import Stopped
from alpineagents.usage import Usage
from alpineagents.values import storable

EventT = TypeVar("EventT", bound=Event)

_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")

CLEARED = "[the result was cleared to make room; call the tool again if it is needed]"


def check_id(state_id: object) -> str:
    """
    Return the id if a State can have it.

    Raises:
        StateIdError: it cannot.
    """
    if not isinstance(state_id, str) or _ID.fullmatch(state_id) is None:
        raise StateIdError(state_id)
    return state_id


def check_namespace(namespace: object) -> str:
    """
    Return the namespace if there can be one of that name; `""` is the default one.

    Raises:
        ConfigError: there cannot.
    """
    if namespace != "" and (not isinstance(namespace, str) or _ID.fullmatch(namespace) is None):
        raise ConfigError(
            f"{namespace!r} cannot be a namespace: use 1 to 128 letters, digits, '_' and '-', "
            f'as in store.scoped("tenant-a")'
        )
    return str(namespace)


class State:
    """
    One conversation.

    Args:
        id: 1 to 128 letters, digits, `_` and `-`; a random one if none is given.
        namespace: separates tenants that share a store.
        messages: what was said so far.
        extra_data: JSON values of your own, saved with the State and never shown to a model.

    Raises:
        StateIdError: the id is not one.
        ConfigError: the messages are not Messages.
        EventOrderError: the messages are in an order that no provider accepts.
        ValueNotStorableError: the extra data is not JSON.

    Example:
        >>> state = State(messages=[Message.user("Which peaks are over 4,000 m?")])
        >>> state.revision, state.status
        (1, 'ready')
    """

    def __init__(
        self,
        *,
        id: str | None = None,
        namespace: str = "",
        messages: Iterable[Message] = (),
        extra_data: dict[str, JsonValue] | None = None,
    ) -> None:
        self._id = clock.new_id() if id is None else check_id(id)
        self._namespace = check_namespace(namespace)
        self._history: FrozenList[Event] = FrozenList()
        self._history_after = 0
        self._value = self._saved_value = StateSnapshot()
        # The value after each unsaved Event, so that a save in the middle of them has nothing to compute.
        self._unsaved_values: dict[int, StateSnapshot] = {}
        self._append_id: str | None = None
        # A sync tool may add an Event from its thread while the event loop adds another.
        self._writing = threading.RLock()
        # The Agent that saved a loaded State, until one has run it here.
        self.saved_by: AgentInfo | None = None
        self.parent_id: str | None = None
        # The saved State whose blobs a fork takes over when it is saved itself.
        self.blobs_of: str | None = None
        self.run_id: str | None = None
        if isinstance(messages, (str, Message)):
            raise ConfigError('messages is a list: State(messages=[Message.user("…")])')
        for message in messages:
            self.add_message(message)
        if extra_data is not None:
            if not isinstance(extra_data, dict):
                raise ConfigError(f"extra_data is a dict, not a {type(extra_data).__name__}: State(extra_data={{…}})")
            with self.edit_extra_data() as data:
                data.update(extra_data)

    # -------------------------------------------------------------------------------------------- what it is

    @property
    def id(self) -> str:
        """The id, the same for ever."""
        return self._id

    @property
    def namespace(self) -> str:
        """The namespace; `""` unless another was given."""
        return self._namespace

    @property
    def revision(self) -> int:
        """The number of Events; each gets the next."""
        return self._value.revision

    @property
    def history(self) -> Sequence[Event]:
        """
        Every Event behind `history_after`, oldest first. It never changes; a later call gives a longer one.
        """
        return self._history

    @property
    def history_after(self) -> int:
        """
        The revision behind which `history` begins: 0 for all of it, more where it was loaded with `tail=True`.

        What is before comes from `store.read(state.id, until=state.history_after)`.
        """
        return self._history_after

    @property
    def messages(self) -> Sequence[Message]:
        """The context, as a model sees it next."""
        return self._value.messages

    @property
    def pending_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the open turn that have no result yet, in the order asked."""
        return self._value.pending_calls

    @property
    def turn(self) -> int:
        """How many replies there were."""
        return self._value.turn

    @property
    def usage(self) -> Usage:
        """The sum over all requests."""
        return self._value.usage

    @property
    def extra_data(self) -> dict[str, JsonValue]:
        """The extra data; it refuses change, which is made with `edit_extra_data`."""
        return self._value.extra_data

    @property
    def answer(self) -> JsonValue:
        """What `finish` was given, else the model's last words; None while it owes an answer."""
        return self._value.answer

    @property
    def stopped(self) -> Stopped | None:
        """How the last run ended; None before the first, and while one goes on."""
        return self._value.stopped

    @property
    def status(self) -> Status:
        """What the State is doing, in a word that lists show."""
        return self._value.status

    @property
    def finished(self) -> bool:
        """Whether `finish` was called and nothing has come in since."""
        return self._value.finished

    @property
    def is_child(self) -> bool:
        """Whether it serves a call of another State, which carries it on: see `snapshot().parent`."""
        parent = self._value.parent
        # A store of one's own may keep no parents; then what the history says is all that is known.
        return parent is not None and self.parent_id in (None, parent.state_id)

    @property
    def is_fork(self) -> bool:
        """Whether it was forked from the State `parent_id`, and goes its own way."""
        return self.parent_id is not None and not self.is_child

    @property
    def is_new_fork(self) -> bool:
        """Whether it is a fork that has not run yet: what is open in it was begun in the State `parent_id`."""
        return self.is_fork and self._value.forked_as != self._id

    def snapshot(self) -> StateSnapshot:
        """Return the value of the State as it is now; it costs nothing and never changes."""
        return self._value

    def __repr__(self) -> str:
        unsaved = f" unsaved={len(self.unsaved)}" if self.unsaved else ""
        return f"<State {self._id!r} revision={self.revision} status={self.status} turn={self.turn}{unsaved}>"

    # -------------------------------------------------------------------------------------------- what one does

    def add_message(self, message: Message) -> None:
        """
        Add a message. While a turn is open it waits, and enters the context after the turn.

        Raises:
            ConfigError: it is not a Message.
            EventOrderError: it is a reply or a result that cannot stand here.

        Example:
            >>> state = State()
            >>> state.add_message(Message.user("Hello"))
            >>> state.messages[-1].text
            'Hello'
        """
        if not isinstance(message, Message):
            raise ConfigError(
                f"a {type(message).__name__} is not a Message: state.add_message(Message.user({str(message)[:40]!r}))"
            )
        if message.role == "assistant":
            message = self.with_unique_ids(message)
        self.record(MessageAdded, message=message)

    def finish(self, answer: JsonValue = None) -> None:
        """
        Say that the work is done; a run stops after this turn.

        Args:
            answer: any JSON value, given back by `run` and by `answer`.

        Raises:
            ValueNotStorableError: the answer is not JSON.
            EventOrderError: a model was asked and has not replied.
        """
        self.record(Finished, answer=storable(answer, "answer"))

    def edit_extra_data(self) -> Edit:
        """
        Change the extra data, all of it or nothing: an exception in the block leaves it as it was.

        What others change meanwhile, such as another tool of the same turn, is kept too.

        Raises:
            ValueNotStorableError: what it holds at the end is not JSON.
            StateConflictError: another has changed the same place meanwhile; the block has changed nothing.

        Example:
            >>> state = State()
            >>> with state.edit_extra_data() as data:
            ...     data["order"] = 1042
            >>> state.extra_data
            {'order': 1042}
        """
        return Edit(self)

    def compact(self, summary: str) -> None:
        """
        Put a summary in the place of the context; the history keeps what it was.

        Raises:
            EventOrderError: a turn is open.
        """
        if self._value.requesting:
            # Within a run this would count as the model's reply.
            reason = "a model was asked and has not replied"
            raise EventOrderError(self._id, "context_changed", self.revision + 1, reason)
        self.record(ContextChanged, reason="compact", messages=(Message.notice(summary),))

    def clear_tool_results(self, *, keep: int = 0) -> None:
        """
        Take the content out of tool results in the context; the history keeps it.

        Args:
            keep: how many of the last messages with results stay as they are.

        Raises:
            ConfigError: `keep` is no such number.
            EventOrderError: a turn is open.
        """
        if type(keep) is not int or keep < 0:
            raise ConfigError(f"keep={keep!r} is not a number of messages: state.clear_tool_results(keep=3)")
        with_results = [index for index, message in enumerate(self.messages) if message.tool_results]
        cleared = set(with_results[: max(0, len(with_results) - keep)])
        messages = tuple(
            _cleared(message) if index in cleared else message for index, message in enumerate(self.messages)
        )
        self.record(ContextChanged, reason="clear", messages=messages)

    def fork(self, *, id: str | None = None) -> Self:
        """
        Return a new State with the same history, to try another way from here.

        Raises:
            ConfigError: the State was loaded with `tail=True`, so it has not the whole history.

        Example:
            >>> state = State(messages=[Message.user("Hello")])
            >>> other = state.fork()
            >>> other.messages == state.messages, other.id == state.id
            (True, False)
        """
        if self._history_after:
            raise ConfigError(
                f"State {self._id!r} was loaded with tail=True, and a fork begins with the whole history: "
                f"await store.fork({self._id!r}, new_id), or state = await store.load({self._id!r})"
            )
        fork = type(self)(id=id, namespace=self._namespace)
        fork._history, fork._value = self._history, self._value
        fork._unsaved_values = {fork.revision: fork._value}
        fork.parent_id = self._id
        fork.blobs_of = self._id if self.saved_revision else self.blobs_of
        return fork

    def restore(self, snapshot: StateSnapshot) -> None:
        """
        Go back to the context and the extra data of a snapshot; the history keeps what came between.

        Raises:
            EventOrderError: a turn is open, here or in the snapshot; a fork at that revision can go on all the same.
        """
        if not isinstance(snapshot, StateSnapshot):
            raise ConfigError(
                f"a {type(snapshot).__name__} is not a snapshot: state.restore(earlier), "
                "with earlier = state.snapshot()"
            )
        for value, where in ((self._value, "here"), (snapshot, "in the snapshot")):
            if ids := [call.id for call in value.pending_calls]:
                raise EventOrderError(
                    self._id,
                    "context_changed",
                    self.revision + 1,
                    f"{where}, the calls {ids} have no result yet. Restore between turns what was taken between turns, "
                    f"or go on from there in a fork: await store.fork({self._id!r}, new_id, {snapshot.revision})",
                )
        messages = (*snapshot.messages, *snapshot.queued)
        self.record(ContextChanged, reason="restore", messages=messages, extra_data=snapshot.extra_data)

    # -------------------------------------------------------------------------------------------- for stores and runs

    @property
    def saved_revision(self) -> int:
        """The revision up to which a store has the history."""
        return self._saved_value.revision

    @property
    def follows(self) -> datetime | None:
        """The time of the last Event that a store has, which names it to the next append."""
        saved = self.saved_revision
        return self.between(saved - 1, saved)[0].at if saved else None

    @property
    def unsaved(self) -> tuple[Event, ...]:
        """The Events that no store has."""
        return self.between(self.saved_revision, self.revision)

    def between(self, after: int, until: int) -> tuple[Event, ...]:
        """Return the Events behind a revision, up to another; `history_after` is the first to begin behind."""
        assert after >= self._history_after, "these Events were not loaded"
        return self._history[after - self._history_after : until - self._history_after]

    def record(self, kind: type[EventT], **fields: Any) -> EventT:
        """
        Add an Event with the next revision. This is how runs write; people use the methods above.

        Raises:
            EventOrderError: it cannot follow.
        """
        with self._writing:
            event = kind(revision=self.revision + 1, at=clock.now(), run_id=self.run_id, **fields)
            event = with_checkpoint(event, self._value)
            self._value = apply(self._value, event, state_id=self._id)
            self._unsaved_values[event.revision] = self._value
            self._history = self._history.adding(event)
        return event

    def change_extra_data(self, before: StateSnapshot, data: object) -> None:
        """Record what an edit has changed since it began, if that is not what another has changed meanwhile."""
        began = before._data
        if not (steps := patch.diff(began, storable(data, "extra_data"))):
            return
        with self._writing:
            place = patch.clash(began, steps, patch.diff(began, self._value._data))
            if place is not None:
                hint = (
                    f"extra_data at {place!r} was changed by another inside this block, which has changed nothing. Do "
                    "not nest edit_extra_data(), and await nothing in it that changes the same place"
                )
                raise StateConflictError(self._id, before.revision, self.revision, hint=hint)
            self.record(DataChanged, patch=tuple(steps))

    def with_unique_ids(self, message: Message) -> Message:
        """
        Return the message with another id for each call whose id this State has seen: providers do repeat them.

        Of a State that has not its whole history, any id may have been seen.
        """
        seen: set[str] = set()
        content: list[Block] = []
        for place, block in enumerate(message.content):
            if isinstance(block, ToolCall):
                tries = 0
                name = block.id if not self._history_after else f"{block.id[:23]}_{clock.new_id()[:16]}"
                while name in seen or self._value.has_call_id(name):
                    name = f"{block.id[:36]}_{self.revision + 1}_{place}{'x' * tries}"
                    tries += 1
                seen.add(name)
                content.append(block if name == block.id else block.model_copy(update={"id": name}))
            else:
                content.append(block)
        return message.model_copy(update={"content": tuple(content)})

    @classmethod
    def from_history(
        cls,
        id: str,
        history: Iterable[Event],
        *,
        namespace: str = "",
        parent_id: str | None = None,
        value: StateSnapshot | None = None,
    ) -> Self:
        """
        Replay a history that a store has, from its first Event or from a change of the context on.

        Args:
            value: what the history folds to, where the caller has folded it.

        Raises:
            EventOrderError: the Events do not follow each other.
        """
        state = cls(id=id, namespace=namespace)
        state._history = FrozenList(history)
        state._history_after = state._history[0].revision - 1 if state._history else 0
        state._value = value or fold(start_of(state._history), state._history, state_id=id)
        state._saved_value = state._value
        state.parent_id = parent_id
        state.saved_by = state._value.agent
        return state

    def mark_saved(self, revision: int) -> None:
        """Say that a store has the history up to a revision."""
        with self._writing:
            for event in self.between(self.saved_revision, revision):
                after = self._unsaved_values.pop(event.revision, None)
                self._saved_value = after or apply(self._saved_value, event, state_id=self._id)
            self._append_id = None

    @property
    def append_id(self) -> str:
        """Names the append that will save the next unsaved Event, over all attempts at it."""
        if self._append_id is None:
            self._append_id = os.urandom(16).hex()
        return self._append_id

    def drop_unsaved(self, run_id: str) -> None:
        """Take back the unsaved Events of a run, which stand at the end."""
        with self._writing:
            kept = self.saved_revision + sum(event.run_id != run_id for event in self.unsaved)
            self._value = self._unsaved_values.get(kept, self._saved_value)
            self._history = FrozenList(self.between(self._history_after, kept))
            self._unsaved_values = {at: value for at, value in self._unsaved_values.items() if at <= kept}
            # If they had landed after all, what is saved next must not be taken for them by its id.
            self._append_id = None

    def take_in(self, events: Sequence[Event]) -> None:
        """
        Put Events that another writer saved before the unsaved ones, which get later revisions.

        Raises:
            EventOrderError: an unsaved Event cannot follow them; nothing is taken in.
        """
        with self._writing:
            saved = fold(self._saved_value, events, state_id=self._id)
            newcomers = tuple(event.message for event in events if isinstance(event, MessageAdded))
            mine: list[Event] = []
            values = [saved]
            for event in self.unsaved:
                change: dict[str, Any] = {"revision": event.revision + len(events)}
                if isinstance(event, ContextChanged):
                    # A context that was made without knowing of these messages must not drop them. While a model is
                    # asked for a summary they wait by themselves.
                    waiting = {id(message) for message in values[-1].queued}
                    entered = [message for message in newcomers if id(message) not in waiting]
                    change["messages"] = (*event.messages, *entered)
                mine.append(with_checkpoint(event.model_copy(update=change), values[-1]))
                values.append(apply(values[-1], mine[-1], state_id=self._id))
            before = self.between(self._history_after, self.saved_revision)
            self._history = FrozenList((*before, *events, *mine))
            self._value, self._saved_value = values[-1], saved
            self._unsaved_values = {value.revision: value for value in values[1:]}


def _cleared(message: Message) -> Message:
    content = tuple(
        block.model_copy(update={"content": (TextBlock(text=CLEARED),)})
        if isinstance(block, ToolResultBlock)
        else block
        for block in message.content
    )
    return message.model_copy(update={"content": content})
