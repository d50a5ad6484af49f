"""Where States are kept: the base class of all stores, memory, files, and SQL."""

from alpineagents.stores.base import Store
from alpineagents.stores.file import FileStore
from alpineagents.stores.header import Lease, StateHeader, StateInfo, StateKey, Summary
from alpineagents.stores.memory import MemoryStore
from alpineagents.stores.sql import SQLStore

__all__ = ["FileStore", "Lease", "MemoryStore", "SQLStore", "StateHeader", "StateInfo", "StateKey", "Store", "Summary"]
