"""How the databases find a page of a list: in the order of an index, and never by sorting what there is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import insert, text

from alpineagents import SQLStore
from alpineagents.stores.sql.tables import make_tables
from tests.contract.backends import Backend, engine_of, reads_of

STATES = 5_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


async def fill(store: SQLStore) -> None:
    """Put headers into the database, each updated a second after the one before."""
    names = ("status", "first_message", "summary")
    rows = [
        {
            "namespace": "",
            "id": f"s{number}",
            "revision": 1,
            "created_at": BEGIN,
            "updated_at": BEGIN + timedelta(seconds=number),
            **dict(zip(names, ("ready", "hello", "{}"), strict=True)),
        }
        for number in range(STATES)
    ]
    async with engine_of(store).begin() as connection:
        await connection.execute(insert(make_tables().states), rows)
        await connection.execute(text("ANALYZE"))


async def plan_of_list(store: SQLStore, backend: Backend, **arguments: Any) -> str:
    """List, and return the plan of the statement that did it."""
    with reads_of(store) as reads:
        assert len(await store.list(**arguments)) == 50
    explain = "EXPLAIN QUERY PLAN " if backend.name == "sqlite" else "EXPLAIN (FORMAT JSON) "
    async with engine_of(store).connect() as connection:
        rows = (await connection.exec_driver_sql(explain + reads[-1])).all()
    return json.dumps([str(column) for row in rows for column in row])


@pytest.mark.parametrize("page", [0, 50, 99])
async def test_a_page_is_read_from_an_index(database: Backend, page: int) -> None:
    """The first, one in the middle and the last: no sort, and no State before it is looked at."""
    async with database.open() as store:
        assert isinstance(store, SQLStore)
        await store.list()
        await fill(store)
        after = None if page == 0 else f"s{STATES - page * 50}"

        plan = await plan_of_list(store, database, after=after)

        assert "ix_agent_states_updated" in plan
        assert "Sort" not in plan
        assert "TEMP B-TREE" not in plan
        if page:
            # The place of the page is a part of the search in the index, not a filter behind it.
            assert "(updated_at,id)<(?,?)" in plan or ("Index Cond" in plan and "ROW(updated_at, id) <" in plan)
            assert "Filter" not in plan
        assert [info.id for info in await store.list(after=after, limit=2)] == [
            f"s{STATES - 1 - page * 50}",
            f"s{STATES - 2 - page * 50}",
        ]
