"""
How a SQL database is asked for headers, and how what it says becomes what lists show.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from alpineagents.stores.header import StateInfo, StateKey, describe

_COLUMNS = """namespace, id, revision, status, created_at, updated_at, first_message, summary, parent_id, run_id,
       lease_until"""

ONE = f"SELECT {_COLUMNS} FROM {{states}} WHERE namespace = :namespace AND id = :id"  # noqa: S608  # parts of this file only

NAMESPACES = "SELECT DISTINCT namespace FROM {states} ORDER BY namespace"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def newest(*, of_status: bool, behind: bool) -> str:
    """
    Return SQL for a page of a list, the most recently updated first.

    Args:
        of_status: only those of a `:status`.
        behind: only those behind the State that was updated `:at` and has the id `:last`.
    """
    conditions = ["namespace = :namespace"]
    if of_status:
        conditions.append("status = :status")
    if behind:
        conditions.append("(updated_at, id) < (CAST(:at AS {time}), :last)")
    where = " AND ".join(conditions)
    order = "ORDER BY updated_at DESC, id DESC LIMIT :limit"
    return f"SELECT {_COLUMNS} FROM {{states}} WHERE {where} {order}"  # noqa: S608  # parts of this file only


def info_of(row: Sequence[Any]) -> StateInfo:
    """Return a State as lists show it. One whose header cannot be read is listed too: its history may be whole."""
    namespace, state_id, revision, status, *times, first_message, summary, parent_id, run_id, lease_until = row
    times.append(lease_until)
    for place, at in enumerate(times):
        if isinstance(at, str):
            # SQLite gives its times as the text that they are, without a zone; all that is stored is UTC.
            try:
                times[place] = datetime.fromisoformat(at + "+00:00")
            except ValueError:
                times[place], status = _EPOCH, "unknown"
    return describe(
        StateKey(namespace, state_id),
        summary,
        revision=revision,
        status=status,
        created_at=times[0],
        updated_at=times[1],
        first_message=first_message,
        parent_id=parent_id,
        run_id=run_id,
        lease_until=times[2],
    )
