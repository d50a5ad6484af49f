"""
What a SQL database does beside appending: it copies a State, and keeps what is too large for an Event.
"""

from __future__ import annotations

from dataclasses import dataclass

from alpineagents.stores.codec import ascii_json
from alpineagents.stores.header import StateHeader, StateKey


@dataclass(frozen=True, slots=True)
class Fork:
    """
    A copy of a State, as a database gets it.

    Attributes:
        header: of an earlier revision; None for that of the last one.
        append_id: of all rows of the copy, to know them again where the reply was lost.
    """

    key: StateKey
    new_id: str
    revision: int | None
    header: StateHeader | None
    append_id: str

    def params(self) -> dict[str, object]:
        header = self.header
        return {
            "namespace": self.key.namespace,
            "id": self.key.id,
            "new_id": self.new_id,
            "revision": self.revision,
            "status": header and header.status,
            "first_message": header and header.first_message,
            "summary": None if header is None or header.summary is None else ascii_json(header.summary),
            "follows": header and header.follows,
            "append_id": self.append_id,
        }


# The Event at the revision keeps a header that was read from one State from being put on the rows of another.
FORK_STATE = """
INSERT INTO {states} (namespace, id, revision, status, created_at, updated_at, first_message, summary, parent_id,
                      run_id, lease_until)
SELECT s.namespace, CAST(:new_id AS TEXT), COALESCE(CAST(:revision AS BIGINT), s.revision),
       COALESCE(CAST(:status AS TEXT), CASE s.status WHEN 'running' THEN 'ready' ELSE s.status END), s.created_at,
       {updated},
       COALESCE(CAST(:first_message AS TEXT), s.first_message), COALESCE(CAST(:summary AS TEXT), s.summary), s.id,
       NULL, NULL
FROM {states} s WHERE s.namespace = :namespace AND s.id = :id
  AND (CAST(:follows AS {time}) IS NULL OR EXISTS (
      SELECT 1 FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id
      AND e.revision = CAST(:revision AS BIGINT) AND e.at = CAST(:follows AS {time})))
ON CONFLICT (namespace, id) DO NOTHING
"""

FORK_EVENTS = """
INSERT INTO {events} (namespace, state_id, revision, kind, version, at, run_id, append_id, payload)
SELECT e.namespace, CAST(:new_id AS TEXT), e.revision, e.kind, e.version, e.at, e.run_id, CAST(:append_id AS TEXT),
       e.payload
FROM {events} e WHERE e.namespace = :namespace AND e.state_id = :id
  AND e.revision <= (SELECT revision FROM moved)
"""

FORK_BLOBS = """
INSERT INTO {blobs} (namespace, state_id, sha256, media_type, size, data)
SELECT b.namespace, CAST(:new_id AS TEXT), b.sha256, b.media_type, b.size, b.data
FROM {blobs} b WHERE b.namespace = :namespace AND b.state_id = :id AND EXISTS (SELECT 1 FROM moved)
"""

INSERT_BLOB = """
INSERT INTO {blobs} (namespace, state_id, sha256, media_type, size, data)
SELECT s.namespace, s.id, CAST(:sha256 AS TEXT), CAST(:media_type AS TEXT), CAST(:size AS BIGINT), :data
FROM {states} s WHERE s.namespace = :namespace AND s.id = :id
ON CONFLICT (namespace, state_id, sha256) DO NOTHING
"""

BLOBS = "SELECT sha256 FROM {blobs} WHERE namespace = :namespace AND state_id = :id"

READ_BLOB = "SELECT data FROM {blobs} WHERE namespace = :namespace AND state_id = :id AND sha256 = :sha256"
