"""
What the rules share: to tell what a backend lacks, and to say what is wrong with one that breaks a rule.
"""

from __future__ import annotations

import uuid
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ClassVar, Generic, NoReturn, Self, TypeVar

import anyio
import pytest

from alpineagents.errors import StateBusyError, StateConflictError, StateExistsError, StoreFeatureError
from alpineagents.events import AgentInfo, RunStarted
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.stores.header import Lease, header_of

E = TypeVar("E", bound=BaseException)

LONG = 600.0
"""Seconds of a lease that does not end during a test."""

PATIENCE_SECONDS = 30.0
"""How long a test waits for what must come."""


class Rules:
    """What is common to all rules."""

    complete: ClassVar[bool] = False

    def lacks(self, store: Store, what: str) -> NoReturn:
        """Skip the test, since the backend has no such thing; fail if it is meant to be complete."""
        reason = f"{type(store).__name__} {what}"
        if self.complete:
            pytest.fail(f"{reason} ({type(self).__name__} says complete = True)", pytrace=False)
        pytest.skip(reason)

    def needs(self, store: Store, method: str, otherwise: str) -> None:
        """Go on only if the backend implements an optional method."""
        if getattr(type(store), method, None) is getattr(Store, method):
            self.lacks(store, f"does not override {method}(): {otherwise}")

    async def needs_leases(self, store: Store) -> None:
        """Go on if the backend overrides `renew`, or refuses a second run without it."""
        if type(store).renew is not Store.renew:
            return
        state = said("probe")
        await claim(store, state, "probe-1")
        try:
            await claim(store, await store.load(state.id), "probe-2")
        except StateBusyError:
            raise AssertionError(
                "append() refuses the claim of a second run, but renew() is not overridden: a run that is longer than "
                "its lease is taken over although it is alive. Implement renew()"
            ) from None
        self.lacks(
            store,
            "keeps no leases: two runs of one State both begin, and the slower one fails at its next append. Keep "
            "run_id and the end of header.lease, refuse another run's claim with StateBusyError, and override renew()",
        )

    async def needs_append_id(self, store: Store) -> None:
        """Go on only if an append that is tried again at once with its id is found."""
        state = said("probe")
        await append(store, state, append_id="probe")
        try:
            await append(store, state, append_id="probe")
        except (StateConflictError, StateExistsError):
            self.lacks(
                store,
                "forgets append_id: an append whose acknowledgement was lost is taken for another writer's. Keep it "
                "with the rows, and look for it behind `expected` before refusing",
            )

    def scoped(self, store: Store, namespace: str) -> Store:
        """Return a view, unless the backend says that it has no namespaces."""
        try:
            return store.scoped(namespace)
        except StoreFeatureError as error:
            self.lacks(store, f"has no namespaces: {error}")


class refused(Generic[E]):  # noqa: N801  # read as `with refused(StateConflictError, "…"):`
    """
    Expect an error in the block.

    Args:
        kind: its class, or several.
        rule: what the backend must do, shown where it does not.

    Attributes:
        error: what was raised.
    """

    error: E

    def __init__(self, kind: type[E] | tuple[type[E], ...], rule: str) -> None:
        self.kinds = kind if isinstance(kind, tuple) else (kind,)
        self.rule = rule

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, self.kinds):
            self.error = error
            return True
        if error is not None and not isinstance(error, Exception):
            return False
        found = "nothing was raised" if error is None else f"{type(error).__name__} was raised ({error})"
        due = " or ".join(each.__name__ for each in self.kinds)
        raise AssertionError(f"{found} where {due} is due: {self.rule}") from error


def patience() -> AbstractContextManager[object]:
    """Return a block that ends what never ends in a broken backend, by TimeoutError."""
    return anyio.fail_after(PATIENCE_SECONDS)


def fresh(prefix: str) -> str:
    """Return a name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def said(*words: str, id: str | None = None, namespace: str = "") -> State:
    """Return a new State in which these words were said."""
    messages = [Message.user(each) for each in words]
    return State(id=fresh("contract") if id is None else id, namespace=namespace, messages=messages)


async def saved(store: Store, *words: str, id: str | None = None) -> State:
    """Return a State that the store has."""
    state = said(*words, id=id, namespace=store.namespace)
    landed = await store.save(state)
    assert landed == len(words), f"save() of {len(words)} new Events came to revision {landed!r}: see append()"
    return state


async def append(store: Store, state: State, *, append_id: str | None = None) -> int:
    """Append what is unsaved, while the State goes on to believe that it is not: the same once more is a second try."""
    header = header_of(state.snapshot(), follows=state.follows, parent_id=state.parent_id)
    expected = state.saved_revision
    return await store.append(state.id, state.unsaved, expected=expected, header=header, append_id=append_id)


async def claim(store: Store, state: State, run_id: str, seconds: float = LONG) -> int:
    """Begin a run on a State, as an Agent does."""
    state.run_id = run_id
    state.record(RunStarted, agent=AgentInfo(model="m"))
    return await store.save_with(state, Lease(run_id, seconds))


async def words_in(store: Store, id: str) -> list[str]:
    """Return what was said in a State, as the store has it."""
    return [message.text for message in (await store.load(id)).messages]
