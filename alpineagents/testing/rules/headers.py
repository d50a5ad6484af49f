"""
Headers: what `exists`, `info` and `list` say, which is what the fold says.
"""

from __future__ import annotations

from alpineagents.messages import Message
from alpineagents.snapshot import Status
from alpineagents.state import State
from alpineagents.stores.base import Store
from alpineagents.stores.header import StateInfo, header_of
from alpineagents.testing.rules.base import Rules, fresh, patience, saved
from alpineagents.testing.rules.story import told

NO_LIST = "it cannot show which States it holds"
ENOUGH_PAGES = 10_000


class HeaderRules(Rules):
    """Rules of `exists`, `info` and `list`."""

    async def test_exists_tells_what_is_there(self, store: Store) -> None:
        """Of this id, before and after the first save."""
        name = fresh("contract")

        before = await store.exists(name)
        await saved(store, "one", id=name)
        after = await store.exists(name)

        assert (before, after) == (False, True), f"exists() said {before} before the first save and {after} after it"

    async def test_info_says_what_the_fold_says(self, store: Store) -> None:
        """At every revision."""
        for state in told(State(id=fresh("contract"))):
            await store.save(state)

            info, value = await store.info(state.id), state.snapshot()
            wanted = {
                "id": state.id,
                "revision": value.revision,
                "status": value.status,
                "first_message": header_of(value).first_message,
                "created_at": value.created_at,
                "stopped": value.stopped,
                "turn": value.turn,
                "usage": value.usage,
                "agent": None if value.agent is None else value.agent.name,
            }
            for name, expected in wanted.items():
                found = getattr(info, name)
                assert found == expected, (
                    f"at revision {value.revision} ({state.history[-1].kind}) info() says {name}={found!r}, not "
                    f"{expected!r}: keep what header says with each append (where status or summary is None, what was "
                    "there stays)"
                )

    async def test_info_is_right_after_a_post(self, store: Store) -> None:
        """A post has no summary and may have no status, since it has not read the history: these stay as they are."""
        state = await saved(store, "one")
        state.finish("done")
        await store.save(state)
        before = await store.info(state.id)

        with patience():
            await store.post(state.id, Message.user("two"))

        info, loaded = await store.info(state.id), await store.load(state.id)
        found = (info.revision, info.status, info.first_message, info.turn, info.usage)
        wanted = (3, loaded.status, "one", before.turn, before.usage)
        assert found == wanted, (
            f"after a post info() says {found}, not {wanted}: take status and first_message from header"
        )

    async def test_reading_changes_nothing(self, store: Store) -> None:
        """Neither what is said of a State, nor the time of its last change."""
        state = await saved(store, "one")
        before = await store.info(state.id)

        await store.load(state.id)
        await store.load(state.id, revision=1)

        after = await store.info(state.id)
        assert after == before, f"load() changed the header from {before!r} to {after!r}"

    async def test_a_fork_knows_its_parent(self, store: Store) -> None:
        """From the first append on; later ones do not change it."""
        self.needs(
            store, "info", "it cannot say which State another was forked from, and reads the history to describe one"
        )
        origin = await saved(store, "one")
        fork = (await store.load(origin.id)).fork(id=fresh("fork"))
        await store.save(fork)
        with patience():
            await store.post(fork.id, Message.user("two"))

        parent = (await store.info(fork.id)).parent_id

        assert parent == origin.id, f"info().parent_id is {parent!r}: keep header.parent_id of the first append"

    async def test_the_newest_comes_first(self, store: Store) -> None:
        """By the last append, not by the first."""
        self.needs(store, "list", NO_LIST)
        ids = [(await saved(store, "one")).id for _ in range(3)]
        with patience():
            await store.post(ids[0], Message.user("again"))

        found = [info.id for info in await store.list(limit=3)]

        wanted = [ids[0], ids[2], ids[1]]
        assert found == wanted, (
            f"list(limit=3) gave {found}, not {wanted}: sort by the time of the last append, newest first, which the "
            "store sets itself and never twice the same"
        )

    async def test_pages_are_complete_and_do_not_overlap(self, store: Store) -> None:
        """Whatever their size, and although a State comes to the top meanwhile."""
        self.needs(store, "list", NO_LIST)
        ids = [(await saved(store, "one")).id for _ in range(11)]

        for limit in (1, 4, 11, 50):
            pages = await self._pages(store, limit)
            assert all(len(page) == limit for page in pages[:-1]), f"a page of list(limit={limit}) is shorter than that"
            found = [info.id for page in pages for info in page if info.id in ids]
            assert found == ids[::-1], f"pages of {limit} give {found}, not {ids[::-1]}: after= is the last one seen"

        first = await store.list(limit=5)
        await saved(store, "new")
        second = await store.list(limit=5, after=first[-1])
        seen = [info.id for info in (*first, *second)]
        assert seen == ids[:0:-1], (
            f"a new State moved the pages: {seen}, not {ids[:0:-1]}. A page begins behind the place of `after` in the "
            "order (updated_at and id), not at a count"
        )

    async def test_a_page_can_begin_behind_an_id(self, store: Store) -> None:
        """A web page keeps just that."""
        self.needs(store, "list", NO_LIST)
        ids = [(await saved(store, "one")).id for _ in range(3)]

        found = [info.id for info in await store.list(limit=1, after=ids[1])]

        assert found == [ids[0]], f"list(after={ids[1]!r}) begins with {found}, not with {ids[0]!r}"

    async def test_a_list_can_be_of_one_status(self, store: Store) -> None:
        """With full pages of its own."""
        self.needs(store, "list", NO_LIST)
        ids: dict[Status, list[str]] = {"finished": [], "ready": []}
        for number in range(6):
            state = await saved(store, "one")
            if number % 2:
                state.finish("done")
                await store.save(state)
            ids[state.status].append(state.id)

        for status, wanted in ids.items():
            found = [info.id for info in await store.list(status=status, limit=3)]
            assert found == wanted[::-1], f"list(status={status!r}, limit=3) gave {found}, not {wanted[::-1]}"

    async def test_a_list_says_what_info_says(self, store: Store) -> None:
        """And no more of a State once it is deleted."""
        self.needs(store, "list", NO_LIST)
        state = State(id=fresh("contract"))
        list(told(state))
        await store.save(state)

        [listed] = await store.list(limit=1)
        info = await store.info(state.id)
        await store.delete(state.id)
        left = [each.id for page in await self._pages(store, 50) for each in page]

        assert listed == info, f"list() shows {listed!r}, info() {info!r}"
        assert state.id not in left, "list() shows a State that was deleted"

    async def _pages(self, store: Store, limit: int) -> list[list[StateInfo]]:
        pages: list[list[StateInfo]] = []
        last: StateInfo | None = None
        while page := await store.list(limit=limit, after=last):
            assert len(page) <= limit, f"list(limit={limit}) gave {len(page)} States"
            assert len(pages) < ENOUGH_PAGES, f"list(limit={limit}, after=…) gives pages without an end"
            pages.append(page)
            last = page[-1]
        return pages
