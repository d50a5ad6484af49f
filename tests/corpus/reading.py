"""The corpus as it lies in its files: rows of a store, and what they fold to, in plain JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from alpineagents.snapshot import StateSnapshot
from alpineagents.stores.codec import EventRow

HERE = Path(__file__).parent
VERSIONS = (
    *("v1", "v1-approvals", "v1-subagents", "v1-sealed", "v1-fallbacks", "v1-asked", "v1-late", "v1-always"),
    *("v1-checkpoint", "v1-forks", "v1-summary"),
)


def rows(version: str) -> list[EventRow]:
    """Return the rows that a release wrote, one a line of its file."""
    lines = (HERE / f"{version}.jsonl").read_text(encoding="ascii").splitlines()
    found = []
    for line in lines:
        columns = json.loads(line)
        found.append(EventRow(**{**columns, "at": datetime.fromisoformat(columns["at"])}))
    return found


def folded(version: str) -> dict[str, Any]:
    """Return the value at the end of the history, as it was when the release wrote it."""
    value: dict[str, Any] = json.loads((HERE / f"{version}.folded.json").read_text(encoding="ascii"))
    return value


def readable(value: StateSnapshot) -> dict[str, Any]:
    """Write a value out as plain JSON."""

    def facts(models: Sequence[Any]) -> list[Any]:
        return [model.model_dump() for model in models]

    plain = {
        "revision": value.revision,
        "created_at": value.created_at and value.created_at.isoformat(),
        "messages": facts(value.messages),
        "calls": {
            call_id: {
                "call": call.call.model_dump(),
                "starts": call.starts,
                "approval": call.approval,
                "decided_by": call.decided_by,
                "note": call.note,
                "result": call.result and call.result.model_dump(),
            }
            for call_id, call in value.calls.items()
        },
        "queued": facts(value.queued),
        "requesting": value.requesting,
        "turn": value.turn,
        "usage": value.usage.model_dump(),
        "stopped": value.stopped and value.stopped.model_dump(),
        "status": value.status,
        "run_id": value.run_id,
        "agent": value.agent and value.agent.model_dump(),
        "cancelled_by": value.cancelled_by,
        "first_message": value.first_message,
        "extra_data": value.extra_data,
        "answer": value.answer,
        "finished": value.finished,
    }
    written: dict[str, Any] = json.loads(json.dumps(plain))
    return written
