"""`alpineagents db …`: the tables of a database, by hand."""

from __future__ import annotations

import asyncio

from alpineagents.cli.states import open_store, shown_store
from alpineagents.cli.terminal import OUT, say

PROGRESS_EVERY = 1_000


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


def verify(target: str, schema: str | None) -> bool:
    """Check every State of every namespace, say what is wrong with which, and whether all are right."""
    return asyncio.run(_verify(target, schema))


async def _verify(target: str, schema: str | None) -> bool:
    from alpineagents.stores.verify import verify as check_all

    seen = wrong = 0
    async with open_store(target, migrate=False, schema=schema) as store:
        for namespace in await store.namespaces():
            async for checked in check_all(store.scoped(namespace)):
                seen += 1
                wrong += bool(checked.problems)
                for problem in checked.problems:
                    OUT.out(f"{namespace + ':' if namespace else ''}{checked.info.id}: {problem}")
                if seen % PROGRESS_EVERY == 0:
                    say(f"{seen} States so far, {wrong} with problems")
    OUT.out(f"{seen} States, {wrong} with problems")
    return not wrong
