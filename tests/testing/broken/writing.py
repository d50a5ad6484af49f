"""Stores whose appends break a rule. A docstring says what the author did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio.lowlevel
from broken.base import Broken, changed

from alpineagents import ApprovalDecided, Event, State
from alpineagents.stores.codec import decode


class IgnoresExpected(Broken):
    """Writes behind whatever is there."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        await anyio.lowlevel.checkpoint()
        return self.write(key, events, header, append_id)


class TakesWritersAhead(Broken):
    """Compares with `<` instead of `==`."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        there = len(self.rows(key))
        if there and expected > there:
            expected, header = there, changed(header, follows=None)
        return await super().append(key, events, expected=expected, header=header, append_id=append_id)


class OverwritesNew(Broken):
    """Sets the key, whether it is there or not."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        if expected == 0:
            self._kept.pop(self.key(key), None)
        return await super().append(key, events, expected=expected, header=header, append_id=append_id)


class ReturnsCount(Broken):
    """Returns how many Events were written."""

    async def append(self, key: Any, events: Any, **options: Any) -> int:
        await super().append(key, events, **options)
        return len(events)


class DeletesNothing(Broken):
    """Marks the State as deleted in a place where nobody looks."""

    async def delete(self, id: Any) -> None:
        await self.info(id)


class IgnoresFollows(Broken):
    """Compares the revision alone."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        return await super().append(key, events, header=changed(header, follows=None), **options)


class ForgetsAppendId(Broken):
    """Keeps no append_id."""

    async def append(self, key: Any, events: Any, *, append_id: Any = None, **options: Any) -> int:
        return await super().append(key, events, **options)


class RemembersLastAppendId(Broken):
    """Keeps the append_id of the last append only."""

    async def append(self, key: Any, events: Any, *, append_id: Any = None, **options: Any) -> int:
        landed = await super().append(key, events, append_id=append_id, **options)
        rows = self.rows(key)
        rows[:] = [row if row.append_id == append_id else row._replace(append_id=None) for row in rows]
        return landed


class TakesEqualEventsForTheSame(Broken):
    """Takes an append of equal Events for a second try, whatever its id."""

    async def append(self, key: Any, events: Any, *, expected: int, **options: Any) -> int:
        there = [decode(row) for row in self.rows(key)[expected : expected + len(events)]]
        if there == list(events):
            return expected + len(events)
        return await super().append(key, events, expected=expected, **options)


class LosesTheLastEvent(Broken):
    """Writes all but the last of several Events."""

    async def append(self, key: Any, events: Any, *, expected: int, **options: Any) -> int:
        await super().append(key, events[:-1] if len(events) > 1 else events, expected=expected, **options)
        return expected + len(events)


class IsRacy(Broken):
    """Compares, lets others in, and writes."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        if len(self.rows(key)) != expected:
            return await super().append(key, events, expected=expected, header=header, append_id=append_id)
        await anyio.lowlevel.checkpoint()
        return self.write(key, events, header, append_id)


class SetsTheWholeHistory(Broken):
    """Compares, lets others in, and sets the key to what it knew with its own Events behind."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        if len(self.rows(key)) != expected:
            return await super().append(key, events, expected=expected, header=header, append_id=append_id)
        await anyio.lowlevel.checkpoint()
        del self.rows(key)[expected:]
        return self.write(key, events, header, append_id)


class DropsTheInbox(Broken):
    """Says that what others add was written, and writes it for no one."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        if header.summary is None or isinstance(events[0], ApprovalDecided):
            return expected + len(events)
        return await super().append(key, events, expected=expected, header=header, append_id=append_id)


class TearsAppends(Broken):
    """Writes Event by Event, and can be cancelled between them."""

    async def save(self, state: State) -> int:
        return await self.save_with(state, None)

    async def append(
        self, key: Any, events: Sequence[Event], *, expected: int, header: Any, append_id: Any = None
    ) -> int:
        for n, event in enumerate(events):
            header = header if n == 0 else changed(header, follows=None)
            await super().append(key, [event], expected=expected + n, header=header, append_id=append_id)
        return expected + len(events)
