"""Stores whose leases break a rule. A docstring says what the author did."""

from __future__ import annotations

from typing import Any

from broken.base import Broken, changed

from alpineagents import StateConflictError, StateInfo, Store
from alpineagents.stores import Lease


class FreesWithoutLease(Broken):
    """Takes no lease for one of 0 seconds."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        landed = await super().append(key, events, header=header, **options)
        if header.lease is None:
            self._kept[self.key(key)].hold(Lease("", 0))
        return landed


class KeepsNoLeases(Broken):
    """Overrides `renew` and keeps no lease in `append`."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        return await super().append(key, events, header=changed(header, lease=None), **options)

    async def renew(self, key: Any, lease: Lease) -> bool:
        return True


class RefusesWithoutRenew(Broken):
    """Keeps leases in `append`, and leaves `renew` as it is in `Store`."""

    renew = Store.renew


class ComparesTheRevisionFirst(Broken):
    """Says that a claim came too late, where a run owns the State."""

    async def append(self, key: Any, events: Any, *, expected: int, header: Any, append_id: Any = None) -> int:
        there = len(self.rows(key))
        if 0 < expected < there and append_id not in [row.append_id for row in self.rows(key)]:
            raise StateConflictError(self.key(key).id, expected, there)
        return await super().append(key, events, expected=expected, header=header, append_id=append_id)


class NeverEndsLeases(Broken):
    """Takes seconds for hours."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        if header.lease is not None:
            header = changed(header, lease=Lease(header.lease.run_id, header.lease.seconds * 3600))
        return await super().append(key, events, header=header, **options)


class NeverGivesUp(Broken):
    """Sees nothing special in 0 seconds."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        if header.lease is not None and header.lease.seconds == 0:
            header = changed(header, lease=Lease(header.lease.run_id, 60.0))
        return await super().append(key, events, header=header, **options)


class RenewsNothing(Broken):
    """Says True, and does nothing."""

    async def renew(self, key: Any, lease: Lease) -> bool:
        return True


class RenewsByRenewOnly(Broken):
    """Keeps the end that the first append of a run has set."""

    async def append(self, key: Any, events: Any, *, header: Any, **options: Any) -> int:
        kept = self._kept.get(self.key(key))
        if (
            header.lease is not None
            and kept is not None
            and kept.run_id == header.lease.run_id
            and header.lease.seconds
        ):
            header = changed(header, lease=None)
        return await super().append(key, events, header=header, **options)


class HidesOwners(Broken):
    """Does not say who owns a State."""

    async def info(self, id: Any) -> StateInfo:
        return (await super().info(id)).model_copy(update={"run_id": None, "lease_until": None})


class LeavesLeases(Broken):
    """Keeps leases in a place of their own, which delete forgets."""

    async def delete(self, id: Any) -> None:
        kept = self._kept[self.key(id)]
        await super().delete(id)
        self.left = {**getattr(self, "left", {}), self.key(id): (kept.run_id, kept.lease_until)}

    async def append(self, key: Any, events: Any, *, expected: int, **options: Any) -> int:
        landed = await super().append(key, events, expected=expected, **options)
        if expected == 0 and self.key(key) in getattr(self, "left", {}):
            kept = self._kept[self.key(key)]
            kept.run_id, kept.lease_until = self.left[self.key(key)]
        return landed
