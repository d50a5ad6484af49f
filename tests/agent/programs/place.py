"""Where the programs of the tests keep their States, named on their command line."""

from __future__ import annotations

from alpineagents import FileStore, SQLStore, Store


def open_store(target: str) -> Store:
    """Return a store on a target: an address or the file of a database, else a folder."""
    is_sql = "://" in target or target.endswith(".db")
    return SQLStore(target) if is_sql else FileStore(target)
