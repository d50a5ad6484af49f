"""
What a store keeps beside the Events: the header of a State, computed from the fold, for lists and locks.

The header holds no truth of its own. Its revision is what writers race for, its lease says which run owns the State.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from alpineagents.errors import StateBusyError, StateConflictError, StateExistsError, StateNotFoundError
from alpineagents.snapshot import StateSnapshot, Status
from alpineagents.stopped import Stopped
from alpineagents.stores.codec import from_json
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

    model_config = ConfigDict(frozen=True, defer_build=True)

    stopped: Stopped | None = None
    turn: int = 0
    usage: Usage = Usage()
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class StateHeader:
    """
    The header of a State after an append: the fold's value, as far as lists and locks need it.

    Attributes:
        status: None leaves it as it is.
        created_at: time of the first Event.
        summary: None leaves it as it is.
        follows: time of the Event that the append follows, as its writer knows it; None for the first append, and for a
            writer that has not read the history. A State that was deleted and made again, or a database that was set
            back, may have another Event at that revision.
        lease: the change of ownership; None leaves it as it is.
    """

    status: Status | None
    created_at: datetime
    first_message: str
    summary: Summary | None
    follows: datetime | None = None
    parent_id: str | None = None
    lease: Lease | None = None


class StateInfo(BaseModel):
    """
    A State as lists show it, without its history.

    Attributes:
        first_message: its first message, cut at 200 characters.
        updated_at: time of the last append.
        status: `unknown` where a newer release wrote a header that this one cannot read, or it is damaged; the history
            may be whole.
        agent: name of the Agent of the last run.
        run_id: the run that owns it, or owned it when its process died.
        lease_until: until when; None while no run owns it.
    """

    model_config = ConfigDict(frozen=True, defer_build=True)

    id: str
    namespace: str = ""
    first_message: str
    created_at: datetime
    updated_at: datetime
    stopped: Stopped | None
    status: Status | Literal["unknown"]
    revision: int
    turn: int
    usage: Usage
    agent: str | None = None
    parent_id: str | None = None
    run_id: str | None = None
    lease_until: datetime | None = None


_STATUSES = frozenset(get_args(Status))


def describe(key: StateKey, summary: str | Summary, *, status: str, **columns: Any) -> StateInfo:
    """Return a State as lists show it, from the columns of its header; one that cannot be read is no bar to a list."""
    if isinstance(summary, str):
        try:
            summary = from_json(Summary, summary)
        except ValueError:
            status, summary = "", Summary()
    columns["status"] = status if status in _STATUSES else "unknown"
    return StateInfo(id=key.id, namespace=key.namespace, **vars(summary), **columns)


# Inside a class that has a method of that name, `list` would mean the method.
StateInfos = list[StateInfo]
Names = list[str]


def column_text(text: str) -> str:
    """Return a text as any database takes it in a column: without NUL, which Postgres refuses, and lone surrogates."""
    return sendable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")


def summary_of(value: StateSnapshot) -> Summary:
    """Return what lists show of a value."""
    agent = None if value.agent is None else value.agent.name
    return Summary(stopped=value.stopped, turn=value.turn, usage=value.usage, agent=agent)


def status_of_fork(status: Status) -> Status:
    """Return what lists say of a fork: what was running goes on elsewhere, so here nobody runs it."""
    return "ready" if status == "running" else status


def forked_status(value: StateSnapshot) -> Status:
    """
    Return what lists say of a fork that has not run yet.

    One that waits only for States which serve the State that it is of would wait for ever: nobody decides there for it.
    """
    waits = any(call.waits for call in value.calls.values())
    return "ready" if value.status == "waiting" and not waits else status_of_fork(value.status)


def header_of(
    value: StateSnapshot,
    *,
    follows: datetime | None = None,
    parent_id: str | None = None,
    lease: Lease | None = None,
    is_new_fork: bool = False,
) -> StateHeader:
    """
    Return the header that belongs to a value.

    Args:
        is_new_fork: whether it is that of a fork which has not run yet.
    """
    assert value.created_at is not None, "a State without Events has no header"
    return StateHeader(
        status=forked_status(value) if is_new_fork and not (lease and lease.seconds) else value.status,
        created_at=value.created_at,
        first_message=column_text(value.first_message),
        summary=summary_of(value),
        follows=follows,
        parent_id=parent_id,
        lease=lease,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """
    What a backend found where an append did not fit.

    Attributes:
        at: time of the Event at `expected`; None if there is none.
        owner: the run whose lease is alive, if any.
        landed: the last revision that has the append's id behind `expected`; None if there is none.
    """

    revision: int
    at: datetime | None
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
    if found.at is not None and header.follows not in (None, found.at):
        raise StateConflictError(
            key.id,
            expected,
            found.revision,
            hint="The State that you loaded was deleted and this is another of the same id, or its database was set "
            f"back. Load it again: state = await store.load({key.id!r})",
        )
    if header.lease is not None and found.revision == expected:
        # All fits now, so it was a lease that has ended since the append was refused.
        raise StateBusyError(key.id)
    raise StateConflictError(key.id, expected, found.revision)
