"""
What people have allowed for all States of a store: kept as a State of its own, whose history says who did so and when.

An entry counts for the tool whose signature it names, in States of Agents of the name that the person dealt with. One
that cannot be read counts for nothing, so a person is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio.lowlevel
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from alpineagents import clock
from alpineagents.errors import (
    ConfigError,
    StateConflictError,
    StateDamagedError,
    StateExistsError,
    StateNotFoundError,
)
from alpineagents.events import ApprovalDecided
from alpineagents.messages import Message
from alpineagents.state import State
from alpineagents.values import Text

if TYPE_CHECKING:
    from alpineagents.stores.base import Store

log = logging.getLogger("alpineagents")

STATE_ID = "alpineagents-always-allowed"
"""The State that keeps the list, in each namespace that has one."""

_PLACE = "always_allowed"
_TITLE = "What people have allowed for all States: see store.always_allowed() and store.revoke(tool, by=…)"


class AlwaysAllowed(BaseModel):
    """
    A tool whose calls need no further approval, in any State of the store.

    Attributes:
        agent: name of the Agents that it counts for; "" for those without one.
        tool: the tool's name.
        signature: SHA-256 of the tool's name and its parameters.
        by: who allowed it, and `note` why.
        at: since when.
        state_id: the State in which they were asked, and `call_id` the call.
    """

    model_config = ConfigDict(frozen=True)

    agent: Text
    tool: Text
    signature: str
    by: Text
    note: Text = ""
    at: AwareDatetime
    state_id: str
    call_id: Text


async def listed(store: Store) -> list[AlwaysAllowed]:
    """Return what is allowed, the oldest first."""
    state = await _load(store)
    entries = {} if state is None else _readable(_kept(state, state.extra_data))
    return sorted(entries.values(), key=lambda entry: entry.at)


async def check_list(store: Store) -> None:
    """
    See to it that the list can be read, so that it can be added to.

    Raises:
        StateDamagedError: it cannot.
    """
    state = await _load(store)
    if state is not None:
        _kept(state, state.extra_data)


async def standing(store: Store, agent: str | None, signature: str) -> AlwaysAllowed | None:
    """Return what allows the calls of a tool of an Agent, if anything does."""
    try:
        state = await _load(store)
        return None if state is None else _readable(_kept(state, state.extra_data)).get(_key(agent or "", signature))
    except StateDamagedError as error:
        log.warning("what is allowed for all States cannot be read, so a person is asked: %s", error)
        return None


async def allow_always(store: Store, state: State, decision: ApprovalDecided) -> None:
    """Keep that a person, in a decision about a call of a State, allowed its tool everywhere."""
    value = state.snapshot()
    call = value.calls[decision.call_id]
    assert call.request is not None
    entry = AlwaysAllowed(
        agent=("" if value.agent is None else value.agent.name) or "",
        tool=call.call.name,
        signature=call.request.signature,
        by=decision.by,
        note=decision.note,
        at=clock.now(),
        state_id=state.id,
        call_id=decision.call_id,
    )

    def add(entries: dict[str, Any]) -> None:
        entries[_key(entry.agent, entry.signature)] = entry.model_dump(mode="json")

    await _change(store, add)


async def revoke(store: Store, tool: str, by: str) -> list[AlwaysAllowed]:
    """
    Take back what was allowed for a tool, of all Agents and signatures.

    Returns:
        What was taken back.

    Raises:
        ConfigError: nobody takes it back, or nothing of the kind is allowed, any more.
        StateDamagedError: the list cannot be read.
    """
    if not isinstance(by, str) or not by.strip():
        raise ConfigError(f'by={by!r} does not say who takes it back: await store.revoke("pay", by="Ada")')
    taken: dict[str, AlwaysAllowed] = {}

    def remove(entries: dict[str, Any]) -> None:
        # Looked for in what is about to be changed: of several people, one takes it back.
        allowed = _readable(entries)
        taken.clear()
        taken.update((key, entry) for key, entry in allowed.items() if entry.tool == tool)
        if not taken:
            names = ", ".join(sorted({repr(entry.tool) for entry in allowed.values()})) or "nothing"
            raise ConfigError(f"no tool {tool!r} is allowed for all States. What is: {names}")
        for key in taken:
            entries[key] = {**entries[key], "revoked_by": by}

    await _change(store, remove)
    return sorted(taken.values(), key=lambda entry: entry.at)


def _key(agent: str, signature: str) -> str:
    return f"{signature} {agent}"


async def _load(store: Store) -> State | None:
    try:
        return await store.load(STATE_ID)
    except StateNotFoundError:
        return None


def _kept(state: State, data: dict[str, Any]) -> dict[str, Any]:
    kept = data.get(_PLACE, {})
    if not isinstance(kept, dict):
        raise StateDamagedError(
            state.id,
            state.revision,
            f"its extra data {_PLACE!r} is not an object with what people have allowed. To begin another list, which "
            f"allows nothing: await store.delete({state.id!r})",
        )
    return kept


def _readable(entries: dict[str, Any]) -> dict[str, AlwaysAllowed]:
    found: dict[str, AlwaysAllowed] = {}
    for key, fields in entries.items():
        if isinstance(fields, dict) and "revoked_by" in fields:
            continue
        try:
            entry = AlwaysAllowed.model_validate(fields)
        except ValidationError:
            log.warning("an entry of State %s cannot be read, so it allows nothing", STATE_ID)
            continue
        if key == _key(entry.agent, entry.signature):
            found[key] = entry
    return found


async def _change(store: Store, change: Callable[[dict[str, Any]], None]) -> None:
    while True:
        state = await _load(store)
        if state is None:
            state = State(id=STATE_ID, namespace=store.namespace, messages=[Message.notice(_TITLE)])
        with state.edit_extra_data() as data:
            data.setdefault(_PLACE, {})
            change(_kept(state, data))
        if not state.finished:
            state.finish()  # no worker that looks for States with something to do finds one here
        try:
            await store.save(state)
        except (StateConflictError, StateExistsError):
            await anyio.lowlevel.checkpoint()  # another decision was first
        else:
            return
