"""
Where a history can be begun: at a change of the context, from what its Event keeps of the State before it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar, cast

from alpineagents.events import Checkpoint, ContextChanged, Event
from alpineagents.snapshot import StateSnapshot, Status, last_said

EventT = TypeVar("EventT", bound=Event)

RULES = 2
"""Rises with each change of the fold after which a value means something else: what older rules computed is left."""

_SAME = (
    *("created_at", "queued", "turn", "usage", "stopped", "run_id", "agent", "cancelled_by", "unserved_cancel_by"),
    *("first_message", "parent", "forked_as"),
)
"""The fields that a checkpoint takes over as they are."""


def with_checkpoint(event: EventT, before: StateSnapshot) -> EventT:
    """
    Return the Event with what a reader needs who begins at it; any but a change of the context as it is.

    Args:
        before: the State as the Event finds it.
    """
    if not isinstance(event, ContextChanged):
        return event
    replied = before._replied
    checkpoint = Checkpoint.model_construct(
        rules=RULES,
        **{name: getattr(before, name) for name in _SAME},
        status=before.status,
        always_allowed=tuple(sorted(before.always_allowed)),
        decided_below=tuple(sorted(before.decided_below)),
        extra_data=None if isinstance(event.extra_data, dict) else before._data,
        stop_reason=replied[1] if replied is not None and last_said(event.messages) == replied[0] else "",
    )
    sealed = checkpoint.model_copy(update={"seal": _seal_of(checkpoint)})
    return event.model_copy(update={"checkpoint": sealed})


def start_at(event: Event) -> StateSnapshot | None:
    """
    Return what an Event is to be folded onto where nothing before it was read.

    Only the ids of earlier calls are not known there.

    Returns:
        None where that is not known: it is no change of the context, or one of a release that said nothing or had
        other rules, or its checkpoint was changed where it is stored.
    """
    known = event.checkpoint if isinstance(event, ContextChanged) else None
    if known is None or known.rules != RULES or known.seal != _seal_of(known):
        return None
    assert isinstance(event, ContextChanged)
    data, last = known.extra_data, last_said(event.messages)
    return StateSnapshot(
        revision=event.revision - 1,
        **{name: getattr(known, name) for name in _SAME},
        status=cast(Status, known.status),
        always_allowed=frozenset(known.always_allowed),
        decided_below=frozenset(known.decided_below),
        _data=data if isinstance(data, dict) else {},
        _replied=(last, known.stop_reason) if known.stop_reason and last is not None else None,
    )


def start_of(history: Sequence[Event]) -> StateSnapshot:
    """Return what a history is to be folded onto: a new State, where it does not begin at a change of the context."""
    later = history[0] if history and history[0].revision > 1 else None
    return (start_at(later) if later is not None else None) or StateSnapshot()


def _seal_of(checkpoint: Checkpoint) -> str:
    said = checkpoint.model_dump(exclude={"seal"})
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=_in_utc).encode("ascii")).hexdigest()


def _in_utc(value: object) -> str:
    assert isinstance(value, datetime)
    return value.astimezone(UTC).isoformat()
