"""
Where States are kept: the base class of all stores, memory, files, and SQL.

Files and SQL are imported at first use: SQLAlchemy alone takes longer than all else that a script starts with.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from alpineagents.stores.base import Store
from alpineagents.stores.header import Lease, StateHeader, StateInfo, StateKey, Summary
from alpineagents.stores.memory import MemoryStore
from alpineagents.stores.standing import AlwaysAllowed

__all__ = [
    "AlwaysAllowed",
    "FileStore",
    "Lease",
    "MemoryStore",
    "SQLStore",
    "StateHeader",
    "StateInfo",
    "StateKey",
    "Store",
    "Summary",
]

if TYPE_CHECKING:
    from alpineagents.stores.file import FileStore
    from alpineagents.stores.sql import SQLStore
else:
    # Not for the type checker, which would then take any name for one that is here.
    def __getattr__(name: str) -> type[Store]:
        if name not in ("FileStore", "SQLStore"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{'file' if name == 'FileStore' else 'sql'}")
        store = globals()[name] = getattr(module, name)
        return store

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
