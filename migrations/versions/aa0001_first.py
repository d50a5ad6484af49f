"""
The first schema: States, their Events, and what is too large for a row.

Revision: aa0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "aa0001"
down_revision = None
branch_labels = None
depends_on = None

# A server may be built without lz4, which packs a history as well as the default does and several times faster.
# The server decides, so that a script written with --sql holds for any.
COMPRESS_WITH_LZ4 = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)) THEN
        ALTER TABLE agent_events ALTER COLUMN payload SET COMPRESSION lz4;
    END IF;
END $$
"""


def upgrade() -> None:
    create_states()
    create_events()
    create_blobs()
    if op.get_context().dialect.name == "postgresql":
        op.execute(COMPRESS_WITH_LZ4)


def create_states() -> None:
    op.create_table(
        "agent_states",
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("first_message", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("parent_id", sa.Text),
        sa.Column("run_id", sa.Text),
        sa.Column("lease_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("namespace", "id", name="pk_agent_states"),
        postgresql_with={"fillfactor": 70},
    )
    op.create_index("ix_agent_states_updated", "agent_states", ["namespace", "updated_at", "id"])
    leased, child = sa.text("lease_until IS NOT NULL"), sa.text("parent_id IS NOT NULL")
    op.create_index(
        "ix_agent_states_lease", "agent_states", ["lease_until"], sqlite_where=leased, postgresql_where=leased
    )
    op.create_index(
        "ix_agent_states_parent", "agent_states", ["namespace", "parent_id"], sqlite_where=child, postgresql_where=child
    )


def create_events() -> None:
    op.create_table(
        "agent_events",
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("state_id", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("append_id", sa.Text),
        sa.Column("payload", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "state_id", "revision", name="pk_agent_events"),
        sa.ForeignKeyConstraint(
            ["namespace", "state_id"],
            ["agent_states.namespace", "agent_states.id"],
            name="fk_agent_events_state",
            ondelete="CASCADE",
        ),
    )


def create_blobs() -> None:
    op.create_table(
        "agent_blobs",
        sa.Column("namespace", sa.Text, nullable=False),
        sa.Column("state_id", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("namespace", "state_id", "sha256", name="pk_agent_blobs"),
        sa.ForeignKeyConstraint(
            ["namespace", "state_id"],
            ["agent_states.namespace", "agent_states.id"],
            name="fk_agent_blobs_state",
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    """Drop the tables, with every State in them."""
    op.drop_table("agent_blobs")
    op.drop_table("agent_events")
    op.drop_table("agent_states")
