"""
Blobs: what is too large for an Event, kept beside the history of its State.
"""

from __future__ import annotations

from hashlib import sha256

from alpineagents.errors import StateNotFoundError
from alpineagents.stores.base import Store
from alpineagents.testing.rules.base import Rules, fresh, refused, saved

NO_BLOBS = "of a result that is too long for the model, the rest is lost"
BYTES = bytes(range(256)) * 4_000


class BlobRules(Rules):
    """Rules of `write_blob` and `read_blob`."""

    async def test_a_blob_comes_back(self, store: Store) -> None:
        """Byte for byte, by the SHA-256 of it; the same once more is the same."""
        self.needs(store, "write_blob", NO_BLOBS)
        state = await saved(store, "one")

        names = [await store.write_blob(state.id, each) for each in (BYTES, b"", BYTES)]

        wanted = [sha256(each).hexdigest() for each in (BYTES, b"", BYTES)]
        assert names == wanted, f"write_blob() returned {names}, not the SHA-256 in hex, {wanted}"
        found = [await store.read_blob(state.id, name) for name in names]
        assert found == [BYTES, b"", BYTES], "read_blob() gives back other bytes than write_blob() was given"

    async def test_a_blob_is_of_its_state(self, store: Store) -> None:
        """Another State does not find it, and what is not there is None."""
        self.needs(store, "write_blob", NO_BLOBS)
        one, two = await saved(store, "one"), await saved(store, "two")
        name = await store.write_blob(one.id, BYTES)

        nobody = fresh("nobody")
        for state_id, each in ((two.id, name), (one.id, "0" * 64), (one.id, "../events.jsonl"), (nobody, name)):
            found = await store.read_blob(state_id, each)
            assert found is None, (
                f"read_blob({state_id!r}, {each!r}) gave {len(found)} bytes, where there is no such blob"
            )
        with refused(StateNotFoundError, "write_blob() for an id that the store has not"):
            await store.write_blob(fresh("nobody"), BYTES)

    async def test_a_blob_goes_with_its_state(self, store: Store) -> None:
        """A State that is made again under its id has none of the old ones."""
        self.needs(store, "write_blob", NO_BLOBS)
        state = await saved(store, "one")
        name = await store.write_blob(state.id, BYTES)

        await store.delete(state.id)
        await saved(store, "another", id=state.id)

        assert await store.read_blob(state.id, name) is None, "delete() must take the blobs of the State away, too"

    async def test_blobs_are_listed(self, store: Store) -> None:
        """By their names, each once; a State that is not there has none."""
        self.needs(store, "write_blob", NO_BLOBS)
        self.needs(store, "blobs", "a fork that is made in memory does not get the blobs of its origin")
        state = await saved(store, "one")
        wanted = sorted([await store.write_blob(state.id, each) for each in (BYTES, b"", BYTES)][:2])

        found = (sorted(await store.blobs(state.id)), await store.blobs(fresh("nobody")))

        assert found == (wanted, []), f"blobs() returned {found[0]} and {found[1]}, where {wanted} and [] are due"

    async def test_a_fork_has_the_blobs(self, store: Store) -> None:
        """Of its own, so they stay when its origin goes."""
        self.needs(store, "write_blob", NO_BLOBS)
        origin, name = await saved(store, "one"), fresh("fork")
        blob = await store.write_blob(origin.id, BYTES)

        await store.fork(origin.id, name)
        await store.delete(origin.id)

        assert await store.read_blob(name, blob) == BYTES, "fork() must copy the blobs"
