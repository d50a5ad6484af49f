"""The database hangs: no call waits for ever, a cancellation waits until what it met is settled, nothing stays held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import Agent, Message, SQLStore, StoreUnavailableError, ToolContext, tool
from alpineagents.stores.sql import postgres
from alpineagents.stores.sql.urls import async_url
from alpineagents.testing import FakeModel, tool_call
from tests.failures.conftest import LITTLE
from tests.failures.histories import (
    check_nothing_is_held,
    check_saved,
    connections_out,
    end_leases,
    new_state,
    query,
    texts,
)
from tests.failures.proxy import Proxy

SOON = 0.3
"""How long a statement may take in the tests that wait for it."""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a statement, and a connection that is being made, little time."""
    monkeypatch.setattr(postgres, "STATEMENT_SECONDS", SOON)
    monkeypatch.setattr(postgres, "CONNECT_SECONDS", SOON)


async def cancelled_while_held(proxy: Proxy, work: Awaitable[object], number: int = 1) -> bool:
    """
    Cancel the work while the n-th reply to it is on its way, and wait for its end.

    Returns:
        Whether there was such a reply.
    """
    proxy.hold_replies(number)
    task = asyncio.ensure_future(work)
    held = asyncio.ensure_future(proxy.held.wait())
    await asyncio.wait([task, held], return_when=asyncio.FIRST_COMPLETED)
    was_held = held.done()
    held.cancel()
    if was_held:
        task.cancel()
        # Whatever the cancellation sets off happens now, while the reply is still away.
        for _ in range(20):
            await asyncio.sleep(0)
    proxy.release()
    with suppress(asyncio.CancelledError):
        await task
    assert task.cancelled() == was_held
    return was_held


async def sweep(proxy: Proxy, work: Callable[[str], Awaitable[object]], check: Callable[[str], Awaitable[None]]) -> int:
    """Cancel the work while its first, second, … reply is on its way; return how many there were."""
    for number in range(1, 100):
        state_id = f"held-{number}"
        was_held = await cancelled_while_held(proxy, work(state_id), number)
        await check(state_id)
        if not was_held:
            return number - 1
    raise AssertionError("there was no end of replies")


async def test_a_cancelled_save_is_settled_first(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """When the cancellation comes out, the State knows what of it is stored."""
    states = {}

    async def work(id: str) -> int:
        states[id] = new_state(id, "one", "two")
        return await store.save(states[id])

    async def check(id: str) -> None:
        assert connections_out(store) == 0
        await check_saved(direct, states[id])

    assert await sweep(proxy, work, check) >= 1


async def test_a_cancelled_post_is_settled_first(
    proxy: Proxy, store: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """The message is there or not, and nobody is locked out by it."""

    async def work(id: str) -> int:
        await direct.save(new_state(id, "one"))
        return await store.post(id, Message.user("two"))

    async def check(id: str) -> None:
        assert connections_out(store) == 0
        await check_nothing_is_held(migrated_postgres_url)
        assert await texts(direct, id) in (["one"], ["one", "two"])

    assert await sweep(proxy, work, check) >= 2


async def test_a_cancelled_run_is_settled_first(
    proxy: Proxy, store: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """Its end is recorded, nothing stays held, and the State runs again to the end."""
    states, done = {}, {}

    def agent(id: str, model: FakeModel) -> Agent:
        @tool
        async def send(letter: str) -> str:
            """Send a letter."""
            done.setdefault(id, []).append(letter)
            return f"sent {letter}"

        return Agent(model, tools=[send], store=store)

    async def work(id: str) -> object:
        states[id] = new_state(id, "Send all.")
        calls = [tool_call("send", letter=letter) for letter in "abc"]
        return await agent(id, FakeModel([calls, "All sent."])).run(states[id])

    async def check(id: str) -> None:
        assert connections_out(store) == 0
        await check_saved(direct, states[id])
        assert (await direct.info(id)).lease_until is None
        await check_nothing_is_held(migrated_postgres_url)

        assert await agent(id, FakeModel(["Done."] * 2)).resume(id, "Go on.") == "Done."
        assert len(done.get(id, [])) == len(set(done.get(id, [])))

    assert await sweep(proxy, work, check) >= 5


async def test_a_cancelled_transaction_tool_has_paid_or_not(
    proxy: Proxy, store: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """At whichever reply it was cancelled, the payment and its result are both stored, or neither is."""
    await query(migrated_postgres_url, "CREATE TABLE payments (state_id TEXT)")

    @tool(transaction=True)
    async def pay(ctx: ToolContext) -> str:
        """Pay."""
        assert ctx.connection is not None
        await ctx.connection.execute(text("INSERT INTO payments VALUES (:id)"), {"id": ctx.state_id})
        return "paid"

    async def work(id: str) -> object:
        return await Agent(FakeModel([tool_call("pay"), "Paid."]), tools=[pay], store=store).run(new_state(id, "Pay."))

    async def check(id: str) -> None:
        assert connections_out(store) == 0
        await check_nothing_is_held(migrated_postgres_url)
        paid = await query(migrated_postgres_url, "SELECT count(*) FROM payments WHERE state_id = :id", id=id)
        stored = [
            event
            for event in ((await direct.load(id)).history if await direct.exists(id) else [])
            if event.kind == "tool_finished" and event.outcome == "ok"
        ]
        assert paid[0][0] == len(stored)

    assert await sweep(proxy, work, check) >= 8


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("call", ["save", "load", "list", "info", "post", "delete"])
async def test_a_call_to_a_database_that_hangs_ends_in_time(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore, call: str
) -> None:
    """It says that the database does not answer, and gives its connection back."""
    await direct.save(new_state("s", "one"))
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "save": lambda: hasty.save(new_state("t")),
        "load": lambda: hasty.load("s"),
        "list": hasty.list,
        "info": lambda: hasty.info("s"),
        "post": lambda: hasty.post("s", Message.user("two")),
        "delete": lambda: hasty.delete("s"),
    }
    proxy.hold_replies()

    with anyio.fail_after(10), pytest.raises(StoreUnavailableError, match="does not answer"):
        await calls[call]()

    assert connections_out(hasty) == 0
    proxy.release()
    assert [info.id for info in await hasty.list()] in (["s"], ["t", "s"], [])


@pytest.mark.usefixtures("impatient")
async def test_a_save_that_hung_is_repeated_without_harm(proxy: Proxy, hasty: SQLStore, direct: SQLStore) -> None:
    """The server had written it, so the later save writes nothing twice."""
    state = new_state("s", "one", "two")
    await hasty.save(new_state("warm"))
    proxy.hold_replies()
    with pytest.raises(StoreUnavailableError):
        await hasty.save(state)
    proxy.release()
    state.add_message(Message.user("three"))

    assert await hasty.save(state) == 3

    await check_saved(direct, state)


@pytest.mark.usefixtures("impatient")
async def test_connections_that_died_unseen_are_replaced(proxy: Proxy, hasty: SQLStore, direct: SQLStore) -> None:
    """A firewall has forgotten them and nobody says so: the call takes longer and succeeds, with any patience."""
    await hasty.save(new_state("s", "one"))
    proxy.strand()

    assert await hasty.post("s", Message.user("two")) == 2

    assert await texts(direct) == ["one", "two"]


@pytest.mark.usefixtures("impatient")
async def test_a_connection_that_hangs_while_it_is_made_ends_in_time(proxy: Proxy) -> None:
    """At whichever reply of the server's it is; the driver and SQLAlchemy exchange several before one may use it."""
    for number in range(1, 100):
        proxy.hold_replies(number)
        store = SQLStore(proxy.url, patience=LITTLE)
        try:
            with anyio.fail_after(10):
                await store.list()
        except StoreUnavailableError:
            assert proxy.held.is_set()
            assert connections_out(store) == 0
        else:
            assert not proxy.held.is_set()
            break
        finally:
            proxy.release()
            await store.aclose()
    assert number > 5


@pytest.mark.usefixtures("impatient")
async def test_a_cancelled_call_to_a_database_that_hangs_ends_in_time(
    proxy: Proxy, hasty: SQLStore, direct: SQLStore
) -> None:
    """The cancellation waits for the database, but not for ever, and then goes on."""
    state = new_state("s", "one")
    proxy.hold_replies()
    task = asyncio.ensure_future(hasty.save(state))
    await proxy.held.wait()
    start = time.monotonic()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    assert time.monotonic() - start < 10
    assert connections_out(hasty) == 0
    proxy.release()
    assert await hasty.save(state) == 1
    await check_saved(direct, state)


@asynccontextmanager
async def row_locked(url: str, id: str) -> AsyncIterator[None]:
    """Hold a lock on the header of a State in a session of its own."""
    engine = create_async_engine(async_url(url), poolclass=NullPool)
    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT FROM agent_states WHERE id = :id FOR UPDATE"), {"id": id})
            yield
    finally:
        await engine.dispose()


@pytest.mark.parametrize("others", [0, 3], ids=["alone", "in a group"])
async def test_a_row_that_stays_locked_is_waited_for_no_longer_than_patience(
    direct: SQLStore, migrated_postgres_url: str, others: int
) -> None:
    """Where the server answers and a lock does not go away: two tries, a text that names the lock, others are saved."""
    state = new_state("s", "one")
    await direct.save(state)
    state.add_message(Message.user("two"))
    async with SQLStore(migrated_postgres_url, patience=1.0) as store:
        async with row_locked(migrated_postgres_url, "s"):
            start = time.monotonic()
            with anyio.fail_after(30):
                saved = await asyncio.gather(
                    *(store.save(new_state(f"other-{number}", "one")) for number in range(others)),
                    store.save(state),
                    return_exceptions=True,
                )
            took = time.monotonic() - start

        assert saved[:-1] == [1] * others
        assert isinstance(saved[-1], StoreUnavailableError)
        assert "another session may hold a lock" in str(saved[-1])
        assert 1.0 <= took < 10
        assert connections_out(store) == 0
        assert await store.save(state) == 2
        await check_saved(direct, state)


async def test_a_timeout_around_a_call_is_kept(proxy: Proxy, store: SQLStore, direct: SQLStore) -> None:
    """The scope ends once the save is settled, and the State knows how far it came."""
    state = new_state("s", "one")
    proxy.hold_replies()

    async def release_after_the_timeout(scope: anyio.CancelScope) -> None:
        while not scope.cancel_called:
            await asyncio.sleep(0.01)
        proxy.release()

    with anyio.move_on_after(0.05) as scope:
        helper = asyncio.ensure_future(release_after_the_timeout(scope))
        await store.save(state)
        await anyio.lowlevel.checkpoint()
    await helper

    assert scope.cancelled_caught
    await check_saved(direct, state)


async def test_a_state_that_was_run_while_the_database_hung_is_free_again(
    proxy: Proxy, store: SQLStore, direct: SQLStore, migrated_postgres_url: str
) -> None:
    """Its run was cancelled before it began; another may begin at once."""
    await direct.save(new_state("s", "Hello"))
    state = await direct.load("s")
    assert await cancelled_while_held(proxy, Agent(FakeModel(["Hi."]), store=store).run(state))
    await end_leases(migrated_postgres_url)

    assert await Agent(FakeModel(["Hi."]), store=direct).resume("s") == "Hi."
