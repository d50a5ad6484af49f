"""
An append as a SQL database gets it: its parameters, and the statements that move a header.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpineagents.stores.codec import EventRow, ascii_json
from alpineagents.stores.header import Found, StateHeader, StateKey

Outcome = int | Found | None
"""The new revision of a State; else what was found where the append did not fit, None for no such State."""

Outcomes = Mapping[StateKey, Outcome]
"""What came of several appends. One that has no outcome was not written, and is to be tried alone."""


@dataclass(frozen=True, slots=True)
class Append:
    """One append."""

    key: StateKey
    rows: Sequence[EventRow]
    expected: int
    header: StateHeader
    append_id: str | None

    @property
    def revision(self) -> int:
        """The revision that it leads to."""
        return self.expected + len(self.rows)

    @property
    def size(self) -> int:
        """The characters of its payloads."""
        return sum(len(row.payload) for row in self.rows)

    def params(self) -> dict[str, object]:
        """Return the parameters of the statements below."""
        lease = self.header.lease
        return {
            "namespace": self.key.namespace,
            "id": self.key.id,
            "expected": self.expected,
            "revision": self.revision,
            "status": self.header.status,
            "created_at": self.header.created_at,
            "follows": self.header.follows,
            "first_message": self.header.first_message,
            "summary": None if self.header.summary is None else ascii_json(self.header.summary),
            "parent_id": self.header.parent_id,
            "run_id": None if lease is None else lease.run_id,
            "seconds": None if lease is None else float(lease.seconds),
            "append_id": self.append_id,
        }


STATE_COLUMNS = """(namespace, id, revision, status, created_at, updated_at, first_message, summary, parent_id,
                    run_id, lease_until)"""

STATE_VALUES = """
:namespace, :id, :revision, :status, :created_at, {updated}, :first_message, :summary, :parent_id,
CASE WHEN {seconds} > 0 THEN :run_id END, CASE WHEN {seconds} > 0 THEN {lease_end} END
"""

INSERT_STATE = f"""
INSERT INTO {{states}} {STATE_COLUMNS} VALUES ({STATE_VALUES}) ON CONFLICT (namespace, id) DO NOTHING
"""  # noqa: S608  # parts of this file only

MOVED_STATE = """
revision = :revision, status = COALESCE(:status, s.status), updated_at = {updated}, first_message = :first_message,
summary = COALESCE(:summary, s.summary),
run_id = CASE WHEN {seconds} IS NULL THEN s.run_id WHEN {seconds} > 0 THEN :run_id END,
lease_until = CASE WHEN {seconds} IS NULL THEN s.lease_until WHEN {seconds} > 0 THEN {lease_end} END
"""

# The revision lets one of two writers in, the Event at that revision keeps out whoever read another State of the same
# id, and the lease keeps a second run from claiming a State that another owns.
FITS = """
s.namespace = :namespace AND s.id = :id AND s.revision = :expected
AND (CAST(:follows AS {time}) IS NULL OR EXISTS (
    SELECT 1 FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision = :expected
    AND e.at = CAST(:follows AS {time})))
AND ({seconds} IS NULL OR s.run_id IS NULL OR s.run_id = :run_id OR s.lease_until IS NULL OR s.lease_until <= {now})
"""

UPDATE_STATE = f"UPDATE {{states}} AS s SET {MOVED_STATE} WHERE {FITS}"  # noqa: S608  # parts of this file only

FIND_STATE = """
SELECT revision,
       (SELECT e.at FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision = :expected),
       CASE WHEN lease_until > {now} THEN run_id END,
       (SELECT max(e.revision) FROM {events} e
        WHERE e.namespace = :namespace AND e.state_id = :id AND e.revision > :expected AND e.append_id = :append_id)
FROM {states} WHERE namespace = :namespace AND id = :id
"""

# The primary key is read from its end on, until there is one.
LAST_CONTEXT_CHANGE = """
SELECT revision FROM {events} WHERE namespace = :namespace AND state_id = :id AND revision <= :until
  AND kind = 'context_changed' ORDER BY revision DESC LIMIT 1
"""

RENEW_LEASE = """
UPDATE {states} SET lease_until = {lease_end} WHERE namespace = :namespace AND id = :id AND run_id = :run_id
"""


def of_given(sql: str) -> str:
    """Return SQL of one append as SQL of many: its parameters become the columns of a table `given`."""
    return re.sub(r":(\w+)", r"given.\1", sql)
