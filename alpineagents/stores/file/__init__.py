"""The file store: how its files are written, one State's folder, and the store."""

from alpineagents.stores.file.store import FileStore

__all__ = ["FileStore"]
