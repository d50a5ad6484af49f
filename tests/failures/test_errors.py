"""Whatever fails, a call raises an error of the library: it names the database, and nowhere its password."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable

import anyio
import pytest
from sqlalchemy import make_url

from alpineagents import Agent, Message, SQLStore, StoreError, StoreUnavailableError
from alpineagents.stores.header import Lease
from alpineagents.testing import FakeModel
from tests.failures.histories import connections_out, new_state
from tests.failures.proxy import Proxy


async def within_a_transaction(store: SQLStore) -> None:
    async with store.transaction() as transaction:
        await transaction.connection.exec_driver_sql("SELECT 1")


CALLS: dict[str, Callable[[SQLStore], Awaitable[object]]] = {
    "save": lambda store: store.save(new_state("t")),
    "load": lambda store: store.load("s"),
    "list": lambda store: store.list(),
    "next page": lambda store: store.list(after="s"),
    "info": lambda store: store.info("s"),
    "exists": lambda store: store.exists("s"),
    "post": lambda store: store.post("s", Message.user("two")),
    "approve": lambda store: store.approve("s", "call", by="me"),
    "deny": lambda store: store.deny("s", "call", by="me", reason="no"),
    "cancel": lambda store: store.cancel("s"),
    "delete": lambda store: store.delete("s"),
    "renew": lambda store: store.renew("s", Lease("r1", 60)),
    "namespaces": lambda store: store.namespaces(),
    "transaction": within_a_transaction,
    "run": lambda store: Agent(FakeModel(["Hi."]), store=store).run("Hello"),
    "open": lambda store: store.__aenter__(),
}


def check_error(error: BaseException, url: str) -> None:
    """Hold an error to what a person may see of a database: its place, without the password."""
    target = make_url(url)
    shown = "".join(traceback.format_exception(error)) + repr(error)

    assert type(error).__module__ == "alpineagents.errors"
    assert f"{target.host}" in str(error)
    assert f"{target.database}" in str(error)
    assert target.password is not None
    assert target.password not in shown


@pytest.mark.parametrize("call", [call for call in CALLS if call != "open"])
async def test_a_server_that_refuses_is_told_by_name(proxy: Proxy, hasty: SQLStore, call: str) -> None:
    """Every call of a store that worked before raises the one error that says to try again."""
    await hasty.save(new_state("s", "one"))
    proxy.refuse()

    with pytest.raises(StoreUnavailableError) as raised:
        await CALLS[call](hasty)

    check_error(raised.value, proxy.url)
    assert connections_out(hasty) == 0


@pytest.mark.parametrize("call", CALLS)
async def test_a_first_call_to_a_server_that_refuses_is_told_by_name(proxy: Proxy, call: str) -> None:
    """As it is with a wrong address."""
    proxy.refuse()

    with anyio.fail_after(10), pytest.raises(StoreUnavailableError) as raised:
        await CALLS[call](SQLStore(proxy.url, patience=1000))

    check_error(raised.value, proxy.url)


@pytest.mark.parametrize(
    "change",
    [
        {"password": "wr0ng-s3cret"},
        {"username": "nobody-at-all"},
        {"database": "no_such_database"},
        {"host": "no-such-host.invalid"},
        {"port": 1},
        {"query": {"ssl": "require"}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_wrong_url_is_told_without_its_password(migrated_postgres_url: str, change: dict[str, str]) -> None:
    """The error says at once what the server or the system said."""
    url = make_url(migrated_postgres_url).set(**change).render_as_string(hide_password=False)

    with anyio.fail_after(10), pytest.raises(StoreError) as raised:
        await SQLStore(url, patience=1000).list()

    check_error(raised.value, url)


async def test_a_statement_that_fails_is_told_without_the_password(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """An error of the server's is no outage: it is raised at once, and says what it was."""
    await direct.save(new_state("s", "one"))
    async with direct._databases.here().engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE agent_events ADD CONSTRAINT short CHECK (revision < 2)")

    with pytest.raises(StoreError, match="short") as raised:
        await hasty.post("s", Message.user("two"))

    check_error(raised.value, proxy.url)
    assert not isinstance(raised.value, StoreUnavailableError)
    assert (await direct.info("s")).revision == 1


async def test_the_tables_dropped_under_a_store_are_told_with_the_command(proxy: Proxy, hasty: SQLStore) -> None:
    """Whoever dropped them can make them again."""
    async with hasty._databases.here().engine.begin() as connection:
        await connection.exec_driver_sql("DROP TABLE agent_blobs, agent_events, agent_states")

    with pytest.raises(StoreError, match="alpineagents db upgrade") as raised:
        await hasty.save(new_state())

    check_error(raised.value, proxy.url)


async def test_too_many_calls_for_the_pool_are_told_by_name(proxy: Proxy, hasty: SQLStore) -> None:
    """A call that gets no connection in time says so, and the next one works."""
    engine = hasty._databases.here().engine
    taken = [await engine.connect() for _ in range(15)]

    with pytest.raises(StoreUnavailableError) as raised:
        await hasty.list()

    check_error(raised.value, proxy.url)
    for connection in taken:
        await connection.close()
    assert await hasty.list() == []
