"""The server stops and starts again, as it does for an upgrade or after a crash."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import anyio
import anyio.to_thread
import pytest
from sqlalchemy import text

from alpineagents import Agent, Message, SQLStore, State, StoreUnavailableError, ToolContext, tool
from alpineagents.models.base import Delta
from alpineagents.runner import Item
from alpineagents.stores.sql.migrate import upgrade
from alpineagents.testing import FakeModel, tool_call
from tests.conftest import in_a_thread
from tests.failures.histories import check_saved, connections_out, end_leases, new_state, query, texts
from tests.postgres_server import PostgresServer

PATIENCE = 30.0
"""More than a start of the server takes on a busy machine."""

TURNS = 8


@pytest.fixture
def server(postgres_server: PostgresServer) -> PostgresServer:
    """A server of the test's own, with the tables."""
    in_a_thread(lambda: upgrade(postgres_server.url))
    return postgres_server


@pytest.fixture
async def store(server: PostgresServer) -> AsyncIterator[SQLStore]:
    """A store that waits for its server."""
    async with SQLStore(server.url, patience=PATIENCE) as store:
        yield store


async def restart(server: PostgresServer) -> None:
    await anyio.to_thread.run_sync(server.stop_immediate)
    await anyio.to_thread.run_sync(server.start)


class Walk:
    """A run of several turns that steps on, and what it has told and done."""

    def __init__(self, store: SQLStore, id: str) -> None:
        self.state = new_state(id, "Walk.")
        self.told: list[Item] = []
        self.steps: list[int] = []
        self.under_way = asyncio.Event()

        @tool
        async def step(number: int) -> str:
            """Make a step."""
            self.steps.append(number)
            if number == 2:
                self.under_way.set()
            return f"step {number}"

        replies = [tool_call("step", number=number) for number in range(TURNS)]
        self.agent = Agent(FakeModel([*replies, "There."]), tools=[step], store=store, reporter=self.told.append)

    async def run(self) -> StoreUnavailableError | None:
        try:
            await self.agent.run(self.state)
        except StoreUnavailableError as error:
            return error
        return None

    async def check_told(self, store: SQLStore) -> None:
        """Hold the store to what was handed out."""
        stored = list((await store.load(self.state.id)).history)
        told = [item for item in self.told if not isinstance(item, Delta)]
        assert stored[: len(told)] == told
        assert len(self.steps) == len(set(self.steps))


async def test_runs_go_on_when_the_server_is_back(server: PostgresServer, store: SQLStore) -> None:
    """Several at once: each comes to its end, every step was made once, and all that was told is stored."""
    walks = [Walk(store, f"walk-{number}") for number in range(4)]
    tasks = [asyncio.create_task(walk.run()) for walk in walks]
    await walks[0].under_way.wait()

    await restart(server)

    assert await asyncio.gather(*tasks) == [None] * 4
    for walk in walks:
        assert walk.steps == list(range(TURNS))
        assert walk.state.answer == "There."
        await walk.check_told(store)
        await check_saved(store, walk.state)
    assert connections_out(store) == 0


async def test_runs_fail_in_time_and_go_on_later(server: PostgresServer) -> None:
    """The server stays away: each run says so soon, loses nothing that it told, and is saved and resumed later."""
    async with SQLStore(server.url, patience=0.3) as store:
        walks = [Walk(store, f"walk-{number}") for number in range(4)]
        tasks = [asyncio.create_task(walk.run()) for walk in walks]
        await walks[0].under_way.wait()

        start = time.monotonic()
        await anyio.to_thread.run_sync(server.stop_immediate)
        failures = await asyncio.gather(*tasks)

        # Once for the append and once for the end of the run.
        assert time.monotonic() - start < 10
        assert any(failures)
        await anyio.to_thread.run_sync(server.start)
        for walk, failure in zip(walks, failures, strict=True):
            if failure is not None:
                await store.save(walk.state)
            await walk.check_told(store)
            await check_saved(store, walk.state)
        await end_leases(server.url)
        for walk, failure in zip(walks, failures, strict=True):
            if failure is not None:
                there = walk.agent.copy(model=FakeModel(["There."] * 2))
                assert await there.resume(walk.state.id, "Go on.") == "There."


async def test_a_restart_between_two_calls_is_not_noticed(server: PostgresServer) -> None:
    """Every connection in the pool is dead; the caller waits for none of them, however little patience it has."""
    async with SQLStore(server.url, patience=0.0) as store:
        await store.save(new_state("s", "one"))
        await asyncio.gather(*(store.load("s") for _ in range(5)))

        await restart(server)

        assert await asyncio.gather(*(texts(store) for _ in range(5))) == [["one"]] * 5
        assert await store.post("s", Message.user("two")) == 2
        await restart(server)
        assert [info.id for info in await store.list()] == ["s"]


async def test_a_restart_before_a_transaction_tool_is_not_noticed(server: PostgresServer, store: SQLStore) -> None:
    """A transaction in which nothing was done yet begins again on a new connection."""
    await query(server.url, "CREATE TABLE payments (amount INTEGER)")

    @tool(transaction=True)
    async def pay(amount: int, ctx: ToolContext) -> str:
        """Pay."""
        assert ctx.connection is not None
        await ctx.connection.execute(text("INSERT INTO payments VALUES (:amount)"), {"amount": amount})
        return "paid"

    async def asked(_request: object) -> object:
        await restart(server)
        return tool_call("pay", amount=4)

    answer = await Agent(FakeModel([asked, "Paid."]), tools=[pay], store=store).run("Pay 4.")

    assert answer == "Paid."
    assert await query(server.url, "SELECT amount FROM payments") == [(4,)]


async def test_a_restart_during_a_long_call_is_not_noticed(
    server: PostgresServer, store: SQLStore, caplog: pytest.LogCaptureFixture
) -> None:
    """No connection is held while a model thinks; heartbeats go on as soon as they can."""
    caplog.set_level(logging.CRITICAL)
    state = new_state("s", "Hello")

    async def think(_request: object) -> str:
        assert connections_out(store) == 0
        before = (await store.info("s")).lease_until
        await restart(server)
        with anyio.fail_after(30):
            while (await store.info("s")).lease_until == before:
                await anyio.sleep(0.02)
        return "Hi."

    assert await Agent(FakeModel([think]), store=store, lease=2.0).run(state) == "Hi."
    await check_saved(store, state)


async def test_what_was_saved_is_there_after_a_crash(server: PostgresServer, store: SQLStore) -> None:
    """An acknowledged save survives a stop without a checkpoint."""
    states = [new_state(f"s{number}", "one", "two") for number in range(20)]
    await asyncio.gather(*(store.save(state) for state in states))

    await restart(server)

    for state in states:
        await check_saved(store, state)


async def test_a_first_call_does_not_wait_for_a_server_that_is_away(server: PostgresServer) -> None:
    """Its address may be wrong, so it says at once what it finds."""
    await anyio.to_thread.run_sync(server.stop_immediate)

    async with anyio.create_task_group() as group:
        with anyio.fail_after(5), pytest.raises(StoreUnavailableError, match="Is the server running"):
            await SQLStore(server.url, patience=1000.0).save(State(messages=[Message.user("hello")]))
        group.cancel_scope.cancel()
