"""
The time and the ids that Events, States and runs get. Tests hold both still with `alpineagents.testing.frozen`.

What keeps writers apart does not come from here: leases use the store's clock, and an append's id is always another.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Protocol


class Source(Protocol):
    """Where they come from."""

    def now(self) -> datetime:
        """Return the time, in UTC."""
        ...

    def new_id(self) -> str:
        """Return an id that no other has."""
        ...


class _Real:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def new_id(self) -> str:
        return uuid.uuid4().hex


_sources: list[Source] = [_Real()]


def now() -> datetime:
    """Return the time, in UTC."""
    return _sources[-1].now()


def new_id() -> str:
    """Return an id that no other has."""
    return _sources[-1].new_id()


def put(source: Source) -> None:
    """Take both from this source, until `take_back`."""
    _sources.append(source)


def take_back(source: Source) -> None:
    """Take them from where they came before."""
    _sources.remove(source)
