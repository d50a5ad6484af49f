"""The SQL store on SQLite and Postgres."""

from alpineagents.stores.sql.store import SQLStore

__all__ = ["SQLStore"]
