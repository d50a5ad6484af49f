"""What waits for a person in the States of a store, and decisions about it, of which the first counts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio.lowlevel

from alpineagents.approvals import (
    PendingApproval,
    decided,
    is_concerned,
    pending_approval,
    pending_approvals,
    served_state_id,
    several_below,
    waiting_below,
)
from alpineagents.errors import (
    ApprovalError,
    StateConflictError,
    StateDamagedError,
    StateNotFoundError,
    StoreUnavailableError,
)
from alpineagents.events import ApprovalDecided
from alpineagents.snapshot import Status
from alpineagents.state import State
from alpineagents.stores.header import StateInfo
from alpineagents.stores.standing import allow_always, check_list

if TYPE_CHECKING:
    from alpineagents.stores.base import Store

log = logging.getLogger("alpineagents")

PAGE = 200
"""How many States that wait are listed at once."""


async def waiting_in(store: Store) -> list[PendingApproval]:
    """Return what waits over all States that no run works on, the oldest question first."""
    found = [pending async for state in _waiting(store) for pending in pending_approvals(state)]
    return sorted(found, key=lambda each: each.requested_at)


async def _waiting(store: Store) -> AsyncIterator[State]:
    """Load the States that wait, and those whose run died: its last step may have been a question."""
    seen: set[str] = set()
    # In this order, since a run that is alive may stop meanwhile, to wait.
    for status in ("running", "waiting"):
        async for info in _listed(store, status):
            if info.id in seen or (status == "running" and _is_alive(info)):
                continue
            seen.add(info.id)
            try:
                state = await store.load(info.id)
            except StateNotFoundError:
                continue  # deleted since it was listed
            except StateDamagedError as error:
                log.warning("what waits in State %s cannot be shown: %s", info.id, error)
                continue
            yield state


async def _listed(store: Store, status: Status) -> AsyncIterator[StateInfo]:
    last: StateInfo | None = None
    while infos := await store.list(status=status, limit=PAGE, after=last):
        for info in infos:
            yield info
        last = infos[-1]


def _is_alive(info: StateInfo) -> bool:
    """Tell whether a run owns a State; where clocks differ much, a question is shown that somebody is asked already."""
    return info.lease_until is not None and info.lease_until > datetime.now(UTC)


async def decide(store: Store, id: str, call_id: str, **said: Any) -> int:
    """
    Save a decision about a call that waits, here or in a State below, and return its revision.

    Args:
        said: what `approvals.decided` takes.

    Raises:
        ApprovalError: it was decided before, or nothing of the kind waits.
        StateDamagedError: with always="all", the list of what is allowed in all States cannot be read.
    """
    while True:
        state = await store.load(id)
        if (child_id := waiting_below(state, call_id)) is not None:
            child = await _serving(store, state, child_id, call_id)
            return await decide(store, child.id, call_id, **said)
        if not _has_asked(state, call_id) and (found := await _unheard_of(store, state, call_id)) is not None:
            return await decide(store, found, call_id, **said)
        event = state.record(ApprovalDecided, **decided(state, call_id, **said))
        if event.always == "all":
            await check_list(store)  # before anything is decided
        try:
            # At the revision at which the call was seen to wait, so of two decisions one lands.
            revision = await store.save(state)
        except StateConflictError:
            await anyio.lowlevel.checkpoint()
        else:
            await _tell_above(store, state, event)
            if event.always == "all":
                await allow_always(store, state, event)
            return revision


def _has_asked(state: State, call_id: str) -> bool:
    """Tell whether a call is one of this State about which a person was asked, or one that has ended."""
    call = state.snapshot().calls.get(call_id)
    return state.snapshot().has_call_id(call_id) if call is None else call.request is not None


async def _unheard_of(store: Store, state: State, call_id: str) -> str | None:
    """
    Return the State below in which a call waits that this one has not heard of, if there is one.

    While a run goes on, and where one of several children had the call of the run end, what waits below is not known
    here, or not all of it.

    Raises:
        ApprovalError: a call of that id waits in several such States.
    """
    found = [
        child.id
        async for child in _waiting(store)
        if pending_approval(child, call_id) is not None and await _serves(store, child, state.id)
    ]
    if len(found) > 1:
        raise several_below(state, call_id, found)
    return found[0] if found else None


async def _serves(store: Store, child: State, id: str) -> bool:
    """Tell whether a State serves a call of another one, or of one that does."""
    served_id = served_state_id(child)
    try:
        while served_id not in (None, id):
            served_id = served_state_id(await store.load(served_id))
    except (StateNotFoundError, StateDamagedError):
        return False
    return served_id == id


async def _serving(store: Store, state: State, child_id: str, call_id: str) -> State:
    """
    Return a State below that serves a call of this one, or of one that does.

    Raises:
        ApprovalError: it serves the State that this one was forked from, for which the decision would count.
    """
    child = served = await store.load(child_id)
    while (parent_id := served_state_id(served)) is not None:
        if parent_id == state.id:
            return child
        served = await store.load(parent_id)
    raise ApprovalError(
        state.id,
        call_id,
        f"it is a call of State {child_id!r}, which works for State {served.id!r} and not for this fork of it. To "
        f"decide there: await store.approve({served.id!r}, {call_id!r}, by=…)",
    )


async def _tell_above(store: Store, state: State, event: ApprovalDecided) -> None:
    """Let the States that a child works for know that a person has decided, so that they do not wait for it."""
    below = state
    said = event.model_dump(include={"call_id", "digest", "approved", "by", "note"})
    while (parent_id := served_state_id(below)) is not None:
        try:
            above = await store.load(parent_id)
            if not is_concerned(above, state.id):
                return
            above.record(ApprovalDecided, **said, child_id=state.id)
            await store.save(above)
        except StateConflictError:
            await anyio.lowlevel.checkpoint()
        except (StateNotFoundError, StateDamagedError, StoreUnavailableError) as error:
            # It counts all the same: the next run of the State above finds it.
            log.warning("State %s has not heard of a decision: %s", parent_id, error)
            return
        else:
            below = above
