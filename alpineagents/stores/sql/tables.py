"""
The schema, one for SQLite and Postgres; alembic keeps it, and a test compares the two.

    agent_states   the header of a State: what lists show and what locks need, computed from its Events
    agent_events   the history: one row an Event, the only truth
    agent_blobs    what is too large for a row
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

VERSION_TABLE = "alpineagents_version"
"""Where alembic notes which migrations have run; the app's own `alembic_version` is left alone."""

TABLE_NAMES = frozenset({"agent_states", "agent_events", "agent_blobs", VERSION_TABLE})
"""Every table of the library: what an app's own autogenerate leaves out."""


@dataclass(frozen=True, slots=True)
class Tables:
    """The tables in one schema."""

    metadata: MetaData
    states: Table
    events: Table
    blobs: Table


def make_tables(schema: str | None = None) -> Tables:
    """
    Return the tables.

    Args:
        schema: the Postgres schema that holds them; None for the first of the connection's search path.
    """
    metadata = MetaData(schema=schema)
    states = Table(
        "agent_states",
        metadata,
        Column("namespace", Text, nullable=False),
        Column("id", Text, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("status", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("updated_at", DateTime(timezone=True), nullable=False),
        Column("first_message", Text, nullable=False),
        Column("summary", Text, nullable=False),
        Column("parent_id", Text),
        Column("run_id", Text),
        Column("lease_until", DateTime(timezone=True)),
        PrimaryKeyConstraint("namespace", "id", name="pk_agent_states"),
        # A header changes at every append: room for the new row on the same page spares the indexes.
        postgresql_with={"fillfactor": 70},
    )
    Index("ix_agent_states_updated", states.c.namespace, states.c.updated_at, states.c.id)
    leased = states.c.lease_until.is_not(None)
    Index("ix_agent_states_lease", states.c.lease_until, sqlite_where=leased, postgresql_where=leased)
    child = states.c.parent_id.is_not(None)
    Index("ix_agent_states_parent", states.c.namespace, states.c.parent_id, sqlite_where=child, postgresql_where=child)
    of_state = ["namespace", "state_id"]
    its_key = [states.c.namespace, states.c.id]
    events = Table(
        "agent_events",
        metadata,
        Column("namespace", Text, nullable=False),
        Column("state_id", Text, nullable=False),
        Column("revision", BigInteger, nullable=False),
        Column("kind", Text, nullable=False),
        Column("version", Integer, nullable=False),
        Column("at", DateTime(timezone=True), nullable=False),
        Column("run_id", Text),
        Column("append_id", Text),
        Column("payload", Text, nullable=False),
        PrimaryKeyConstraint("namespace", "state_id", "revision", name="pk_agent_events"),
        ForeignKeyConstraint(of_state, its_key, name="fk_agent_events_state", ondelete="CASCADE"),
    )
    blobs = Table(
        "agent_blobs",
        metadata,
        Column("namespace", Text, nullable=False),
        Column("state_id", Text, nullable=False),
        Column("sha256", Text, nullable=False),
        Column("media_type", Text, nullable=False),
        Column("size", BigInteger, nullable=False),
        Column("data", LargeBinary, nullable=False),
        PrimaryKeyConstraint("namespace", "state_id", "sha256", name="pk_agent_blobs"),
        ForeignKeyConstraint(of_state, its_key, name="fk_agent_blobs_state", ondelete="CASCADE"),
    )
    return Tables(metadata, states, events, blobs)
