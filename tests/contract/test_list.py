"""Lists: newest first, page by page, from headers alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alpineagents import ConfigError, Message, StateInfo, Store
from tests.contract.backends import (
    Backend,
    change_header,
    change_row,
    drop_row,
    engine_of,
    execute,
    new_state,
    reads_of,
    saved,
)


def ids(infos: list[StateInfo]) -> list[str]:
    return [info.id for info in infos]


async def pages(store: Store, limit: int, **options: Any) -> list[list[str]]:
    """Read a list page by page until there is no more."""
    found: list[list[str]] = []
    last: StateInfo | None = None
    while infos := await store.list(limit=limit, after=last, **options):
        found.append(ids(infos))
        last = infos[-1]
    return found


async def one_time(store: Store, *names: str) -> None:
    """Give States the same time of their last append."""
    at = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
    on_sqlite = type(store).__name__ == "SQLStore" and engine_of(store).dialect.name == "sqlite"
    for name in names:
        await change_header(store, name, updated_at=at.strftime("%Y-%m-%d %H:%M:%S.%f") if on_sqlite else at)


async def test_an_empty_store_lists_nothing(store: Store) -> None:
    """It is a list all the same."""
    assert await store.list() == []


async def test_the_newest_comes_first(store: Store) -> None:
    """By the last append, not by the first."""
    for name in ("a", "b", "c"):
        await saved(store, name)
    await store.post("a", Message.user("again"))

    assert ids(await store.list()) == ["a", "c", "b"]


async def test_the_order_is_that_of_the_appends_although_their_events_have_shuffled_times(store: Store) -> None:
    """The clocks of those who made the Events do not count."""
    from alpineagents.events import MessageAdded
    from alpineagents.stores.header import header_of

    for place, name in enumerate(("a", "b", "c")):
        state = new_state(name)
        at = datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=place)
        shuffled = MessageAdded(revision=1, at=at, message=Message.user("hello"))
        await store.append(name, [shuffled], expected=0, header=header_of(state.snapshot()))

    assert ids(await store.list()) == ["c", "b", "a"]


async def test_a_history_is_in_the_order_of_revisions_although_its_times_are_shuffled(store: Store) -> None:
    """Also where all times are the same, or run backwards."""
    from alpineagents.events import Event, MessageAdded
    from alpineagents.stores.header import header_of

    state = new_state("s", *map(str, range(12)))
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for name, at in (("backwards", lambda n: start - timedelta(days=n)), ("equal", lambda _: start)):
        events: list[Event] = [MessageAdded(revision=n + 1, at=at(n), message=Message.user(str(n))) for n in range(12)]
        await store.append(name, events, expected=0, header=header_of(state.snapshot()))

        assert [message.text for message in (await store.load(name)).messages] == [str(n) for n in range(12)]


async def test_a_limit_is_kept(store: Store) -> None:
    """And the newest are the ones that are shown."""
    for number in range(5):
        await saved(store, str(number))

    assert ids(await store.list(limit=2)) == ["4", "3"]


async def test_pages_are_complete_and_do_not_overlap(store: Store) -> None:
    """Whatever their size."""
    names = [f"s{number:02}" for number in range(23)]
    for name in names:
        await saved(store, name)

    for limit in (1, 5, 23, 50):
        found = await pages(store, limit)
        assert [name for page in found for name in page] == names[::-1]
        assert all(len(page) == limit for page in found[:-1])


async def test_pages_are_complete_although_all_times_are_the_same(store: Store) -> None:
    """The id decides then, so no State is skipped and none is shown twice."""
    names = ["a", "B", "c-1", "c_1", "c1", "Z", "9"]
    for name in names:
        await saved(store, name)
    await one_time(store, *names)

    for limit in (1, 2, 3, 7):
        found = [name for page in await pages(store, limit) for name in page]
        assert sorted(found) == sorted(names)


async def test_a_page_can_begin_behind_an_id(store: Store) -> None:
    """A web page keeps just that."""
    for name in ("a", "b", "c"):
        await saved(store, name)

    assert ids(await store.list(after="b")) == ["a"]


async def test_what_is_new_does_not_disturb_the_pages_behind(store: Store) -> None:
    """A State that comes to the top while one reads on is not among the older ones."""
    for number in range(6):
        await saved(store, str(number))
    first = await store.list(limit=3)
    await saved(store, "new")
    await store.post("5", Message.user("again"))

    second = await store.list(limit=3, after=first[-1])

    assert (ids(first), ids(second)) == (["5", "4", "3"], ["2", "1", "0"])


async def test_a_list_can_be_of_one_status(store: Store) -> None:
    """With pages of its own."""
    for number in range(6):
        state = new_state(str(number))
        if number % 2:
            state.finish("done")
        await store.save(state)

    assert ids(await store.list(status="finished")) == ["5", "3", "1"]
    assert await pages(store, 2, status="ready") == [["4", "2"], ["0"]]
    assert await store.list(status="failed") == []


async def test_a_limit_is_a_positive_integer(store: Store) -> None:
    """Nothing else is made into one."""
    wrong: list[Any] = [0, -1, "10", 1.5, True, None]

    for limit in wrong:
        with pytest.raises(ConfigError, match="limit=50"):
            await store.list(limit=limit)


async def test_a_status_that_there_is_not_is_refused(store: Store) -> None:
    """A word written wrongly does not look like an empty list."""
    with pytest.raises(ConfigError, match="finished"):
        await store.list(status="done")


async def test_a_list_reads_no_history(store: Store) -> None:
    """It shows States whose rows are damaged or gone, as it did before."""
    await saved(store, "a", "one", "two")
    await saved(store, "b", "one", "two")
    before = await store.list()
    await change_row(store, "a", 1, payload="not JSON")
    if type(store).__name__ == "SQLStore":
        await drop_row(store, "b", 1)
        await drop_row(store, "b", 2)

    assert await store.list() == before
    assert await store.info("a") == before[1]


async def test_a_list_is_one_statement_on_headers(sql_store: Store) -> None:
    """However many States there are, and no other table is touched."""
    for number in range(30):
        await saved(sql_store, str(number))

    with reads_of(sql_store) as statements:
        await sql_store.list(limit=20)

    assert len(statements) == 1
    assert "agent_states" in statements[0]
    assert "agent_events" not in statements[0]


async def test_a_list_walks_an_index(database: Backend) -> None:
    """A page deep in a long list costs as much as the first: no sorting of all, no scan of all."""
    async with database.open() as store:
        await saved(store, "s")
        sql = "SELECT * FROM agent_states WHERE namespace = '' AND (updated_at, id) < ('2026-01-01', 'x') "
        sql += "ORDER BY updated_at DESC, id DESC LIMIT 50"
        if database.name == "sqlite":
            plan = str(await execute(store, "EXPLAIN QUERY PLAN " + sql))
        else:
            async with engine_of(store).connect() as connection:
                # A table of one row is scanned whatever there is.
                await connection.exec_driver_sql("SET enable_seqscan = off")
                plan = str((await connection.exec_driver_sql("EXPLAIN " + sql)).all())
                await connection.rollback()

    assert "ix_agent_states_updated" in plan
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


async def test_a_list_shows_what_a_person_needs_to_choose(store: Store) -> None:
    """First message, times, status."""
    state = new_state("s", "What is in this folder?", "And in that one?")
    await store.save(state)

    [info] = await store.list()

    assert (info.first_message, info.status, info.revision) == ("What is in this folder?", "ready", 2)
    assert info.created_at == state.history[0].at
    assert info.created_at <= info.updated_at + timedelta(seconds=5)
    assert info.updated_at.utcoffset() == timedelta(0)


async def test_the_first_message_is_cut_at_200_characters(store: Store) -> None:
    """The header stays small whatever was pasted."""
    await saved(store, "s", "ä" * 500)

    assert (await store.info("s")).first_message == "ä" * 200
