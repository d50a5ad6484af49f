"""What the broken stores share: the store in memory, to break one thing of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from alpineagents import Event, MemoryStore
from alpineagents.stores import StateHeader
from alpineagents.stores.codec import encode
from alpineagents.stores.memory import _Kept


class Broken(MemoryStore):
    """The store in memory, to break one thing of."""

    def rows(self, key: Any) -> list[Any]:
        kept = self._kept.get(self.key(key))
        return [] if kept is None else kept.rows

    def write(self, key: Any, events: Sequence[Event], header: StateHeader, append_id: str | None) -> int:
        """Write Events behind whatever is there, without looking."""
        kept = self._kept.setdefault(self.key(key), _Kept(header.created_at, header.parent_id))
        numbered = [event.model_copy(update={"revision": kept.revision + n}) for n, event in enumerate(events, start=1)]
        kept.add([encode(event, append_id) for event in numbered], header, self._clock())
        return kept.revision


def changed(header: StateHeader, **fields: Any) -> StateHeader:
    return dataclasses.replace(header, **fields)
