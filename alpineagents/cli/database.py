"""`alpineagents db …`: the tables of a database, by hand."""

from __future__ import annotations

from alpineagents.cli.states import shown_store
from alpineagents.cli.terminal import OUT, say


def upgrade(target: str, schema: str | None) -> None:
    """Make or upgrade the tables."""
    from alpineagents.stores.sql import migrate

    before = migrate.current(target, schema=schema)
    after = migrate.upgrade(target, schema=schema)
    if before == after:
        OUT.out(f"{shown_store(target)} is at {after} already")
    else:
        OUT.out(f"{shown_store(target)} is at {after} now" + (f", it was at {before}" if before else ""))


def check(target: str, schema: str | None) -> None:
    """
    Say whether the tables are those of this release.

    Raises:
        StoreSchemaError: they are not.
    """
    from alpineagents.stores.sql import migrate

    migrate.check(target, schema=schema)
    OUT.out(f"{shown_store(target)} is at {migrate.head()}, as this release needs it")


def current(target: str, schema: str | None) -> None:
    """Say at which revision the tables are."""
    from alpineagents.stores.sql import migrate

    found = migrate.current(target, schema=schema)
    OUT.out(found or "none")
    if found is None:
        say(f"{shown_store(target)} has no tables of alpineagents yet: alpineagents db upgrade {shown_store(target)}")
