"""Stores whose forks break a rule. A docstring says what the author did."""

from __future__ import annotations

from typing import Any

from broken.base import Broken


class ForksTheLastHeader(Broken):
    """Copies the header as it is, whatever the revision."""

    async def _forked_at(self, key: Any, revision: Any) -> Any:
        at, _ = await super()._forked_at(key, revision)
        return at, None


class ForksOnePage(Broken):
    """Copies the first thousand rows."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        landed = await super().fork(id, new_id, revision)
        del self.rows(new_id)[1_000:]
        return landed


class SharesRows(Broken):
    """Lets the fork have the list of the origin."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        landed = await super().fork(id, new_id, revision)
        self._kept[self.key(new_id)].rows = self.rows(id)
        return landed


class ForksOverOthers(Broken):
    """Sets the key, whether it is there or not."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        if id != new_id:
            self._kept.pop(self.key(new_id), None)
        return await super().fork(id, new_id, revision)


class ForksWhatThereIs(Broken):
    """Copies as many rows as there are."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        return await super().fork(id, new_id, revision and min(revision, len(self.rows(id)) or revision))


class ForksLeases(Broken):
    """Copies all columns."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        landed = await super().fork(id, new_id, revision)
        origin, fork = self._kept[self.key(id)], self._kept[self.key(new_id)]
        fork.run_id, fork.lease_until = origin.run_id, origin.lease_until
        return landed


class ForksOrphans(Broken):
    """Copies the parent, too."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        landed = await super().fork(id, new_id, revision)
        self._kept[self.key(new_id)].parent_id = self._kept[self.key(id)].parent_id
        return landed
