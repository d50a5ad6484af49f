"""
What a store keeps beside the Events: the header of a State, computed from the fold, for lists and locks.

The header holds no truth of its own. Its revision is what writers race for, its lease says which run owns the State.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from alpineagents.errors import StateBusyError, StateConflictError, StateExistsError, StateNotFoundError
from alpineagents.snapshot import StateSnapshot, Status
from alpineagents.stopped import Stopped
from alpineagents.usage import Usage
from alpineagents.values import sendable


class StateKey(NamedTuple):
    """What names a State in a store."""

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class Lease:
    """
    What an append does to the ownership of a State, beside writing Events.

    Attributes:
        run_id: the run that claims the State or owns it already.
        seconds: how long from now on, by the store's clock; 0 gives the State up.
    """

    run_id: str
    seconds: float


class Summary(BaseModel):
    """
    What lists show of a State beyond its header's own columns.

    Attributes:
        agent: name of the Agent of the last run.
    """

    model_config = ConfigDict(frozen=True)

    stopped: Stopped | None = None
    turn: int = 0
    usage: Usage = Usage()
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class StateHeader:
    """
    The header of a State after an append: the fold's value, as far as lists and locks need it.

    Attributes:
        created_at: time of the first Event. It tells a State from another that had the same id before.
        lease: the change of ownership; None leaves it as it is.
    """

    status: Status
    created_at: datetime
    first_message: str
    summary: Summary
    parent_id: str | None = None
    lease: Lease | None = None


class StateInfo(BaseModel):
    """
    A State as lists show it, without its history.

    Attributes:
        first_message: its first message, cut at 200 characters.
        updated_at: time of the last append.
        agent: name of the Agent of the last run.
        run_id: the run that owns it, or owned it when its process died.
        lease_until: until when; None while no run owns it.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    namespace: str = ""
    first_message: str
    created_at: datetime
    updated_at: datetime
    stopped: Stopped | None
    status: Status
    revision: int
    turn: int
    usage: Usage
    agent: str | None = None
    parent_id: str | None = None
    run_id: str | None = None
    lease_until: datetime | None = None


def describe(key: StateKey, summary: Summary, **columns: Any) -> StateInfo:
    """Return a State as lists show it, from the columns of its header."""
    parts = {name: getattr(summary, name) for name in Summary.model_fields}
    return StateInfo(id=key.id, namespace=key.namespace, **parts, **columns)


# Inside a class that has a method of that name, `list` would mean the method.
StateInfos = list[StateInfo]


def column_text(text: str) -> str:
    """Return a text as any database takes it in a column: without NUL, which Postgres refuses, and lone surrogates."""
    return sendable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def header_of(value: StateSnapshot, *, parent_id: str | None = None, lease: Lease | None = None) -> StateHeader:
    """Return the header that belongs to a value."""
    assert value.created_at is not None, "a State without Events has no header"
    agent = None if value.agent is None else value.agent.name
    return StateHeader(
        status=value.status,
        created_at=value.created_at,
        first_message=column_text(value.first_message),
        summary=Summary(stopped=value.stopped, turn=value.turn, usage=value.usage, agent=agent),
        parent_id=parent_id,
        lease=lease,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a backend found where an append did not fit.

    Attributes:
        owner: the run whose lease is alive, if any.
        landed: the last revision that has the append's id behind `expected`; None if there is none.
    """

    revision: int
    created_at: datetime
    owner: str | None
    landed: int | None


def settle_refusal(key: StateKey, expected: int, header: StateHeader, found: Found | None) -> int:
    """
    Say why an append did not fit, the same in every backend.

    Returns:
        The revision where the append had landed before: its acknowledgement was lost, and it is no conflict.

    Raises:
        StateError: as `Store.append` says.
    """
    if found is None:
        raise StateNotFoundError(
            key.id, hint="It was deleted, or the State is of another store; state.fork() makes a new one of it"
        )
    if found.landed is not None:
        return found.landed
    if expected == 0:
        raise StateExistsError(key.id)
    if header.lease is not None and found.owner not in (None, header.lease.run_id):
        raise StateBusyError(key.id, found.owner)
    if found.created_at != header.created_at:
        raise StateConflictError(
            key.id,
            expected,
            found.revision,
            hint="The State that you loaded was deleted, and this is another of the same id: "
            f"state = await store.load({key.id!r})",
        )
    raise StateConflictError(key.id, expected, found.revision)
