"""Stores whose blobs break a rule. A docstring says what the author did."""

from __future__ import annotations

from typing import Any, ClassVar

from broken.base import Broken


class MakesTextOfBlobs(Broken):
    """Keeps them in a column of text."""

    async def read_blob(self, id: Any, sha256: str) -> bytes | None:
        found = await super().read_blob(id, sha256)
        return found and found.decode("utf-8", "replace").encode()


class SharesBlobs(Broken):
    """Keeps them by their hash alone."""

    kept: ClassVar[dict[str, bytes]] = {}

    async def write_blob(self, id: Any, data: bytes) -> str:
        name = await super().write_blob(id, data)
        self.kept[name] = data
        return name

    async def read_blob(self, id: Any, sha256: str) -> bytes | None:
        return self.kept.get(sha256)


class LeavesBlobs(SharesBlobs):
    """Keeps them in a place that delete forgets."""


class ListsBlobsOfAll(SharesBlobs):
    """Says the names of all blobs that there are."""

    async def blobs(self, id: Any) -> list[str]:
        return list(self.kept)


class ForksNoBlobs(Broken):
    """Copies the rows only."""

    async def fork(self, id: Any, new_id: Any, revision: Any = None) -> int:
        landed = await super().fork(id, new_id, revision)
        self._kept[self.key(new_id)].blobs.clear()
        return landed
