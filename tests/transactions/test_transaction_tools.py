"""Tools whose effect and result are one commit: both are kept, or neither, whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from alpineagents import (
    Agent,
    ConfigError,
    MemoryStore,
    Message,
    SQLStore,
    State,
    StateBusyError,
    StateConflictError,
    StoreError,
    Tool,
    ToolContext,
    ToolError,
    tool,
)
from alpineagents.stores.sql.migrate import async_url, upgrade
from alpineagents.testing import FakeModel, tool_call

PAYER = Path(__file__).with_name("payer.py")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        path = str(tmp_path / "agents.db")
        upgrade(path)
        return path
    migrated: str = request.getfixturevalue("migrated_postgres_url")
    return migrated


@pytest.fixture
async def engine(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(async_url(url))
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE payments (amount INTEGER NOT NULL)"))
    yield engine
    await engine.dispose()


@pytest.fixture
async def store(url: str, engine: AsyncEngine) -> AsyncIterator[SQLStore]:
    async with SQLStore(url) as store:
        yield store


async def payments(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT amount FROM payments ORDER BY amount"))).scalars())


@tool(transaction=True)
async def pay(amount: int, context: ToolContext, then: str = "") -> str:
    """Pay an amount."""
    assert context.connection is not None
    await context.connection.execute(text("INSERT INTO payments (amount) VALUES (:amount)"), {"amount": amount})
    if then == "refuse":
        raise ToolError("the account is closed")
    if then == "fail":
        raise ValueError("a bug")
    return f"paid {amount}"


async def test_effect_and_result_are_kept_together(store: SQLStore, engine: AsyncEngine) -> None:
    """Two calls of one turn are made one after the other, each with its own commit."""
    model = FakeModel([[tool_call("pay", amount=1), tool_call("pay", amount=2)], "Done."])
    state = State(messages=[Message.user("Pay")])

    assert await Agent(model, tools=[pay], store=store).run(state) == "Done."

    assert await payments(engine) == [1, 2]
    assert [result.text for result in model.requests[1].messages[-1].tool_results] == ["paid 1", "paid 2"]
    assert (await store.load(state.id)).snapshot() == state.snapshot()


async def test_a_refusal_takes_the_effect_back_and_is_told(store: SQLStore, engine: AsyncEngine) -> None:
    """A ToolError rolls back what the tool wrote; the run goes on."""
    model = FakeModel([tool_call("pay", amount=1, then="refuse"), "It was refused."])

    answer = await Agent(model, tools=[pay], store=store).run("Pay")

    assert answer == "It was refused."
    assert await payments(engine) == []
    assert model.requests[1].messages[-1].tool_results[0].outcome == "error"


async def test_an_exception_takes_the_effect_back(store: SQLStore, engine: AsyncEngine) -> None:
    """Any other exception ends the run, with nothing of the tool's kept."""
    model = FakeModel([tool_call("pay", amount=1, then="fail")])
    state = State(messages=[Message.user("Pay")])

    with pytest.raises(ValueError, match="a bug"):
        await Agent(model, tools=[pay], store=store).run(state)

    assert await payments(engine) == []
    assert (await store.load(state.id)).messages[-1].tool_results[0].outcome == "error"


async def test_a_cancelled_tool_takes_its_effect_back(store: SQLStore, engine: AsyncEngine) -> None:
    """Cancelled inside the transaction: nothing is kept, nothing stays locked."""
    entered = asyncio.Event()

    @tool(transaction=True)
    async def pay_slowly(amount: int, context: ToolContext) -> str:
        """Pay an amount."""
        assert context.connection is not None
        await context.connection.execute(text("INSERT INTO payments (amount) VALUES (:amount)"), {"amount": amount})
        entered.set()
        await asyncio.Event().wait()
        return "never"

    state = State(messages=[Message.user("Pay")])
    agent = Agent(FakeModel([tool_call("pay_slowly", amount=1)]), tools=[pay_slowly], store=store)
    running = asyncio.create_task(agent.run(state))
    await entered.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert await payments(engine) == []
    loaded = await store.load(state.id)
    assert loaded.status == "cancelled"
    assert loaded.messages[-1].tool_results[0].outcome == "interrupted"
    await store.post(state.id, Message.user("Still there?"))


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
async def test_a_run_that_lost_its_state_keeps_no_effect(store: SQLStore, engine: AsyncEngine) -> None:
    """
    Another run took the State while the tool worked: its result cannot be saved, so its effect is taken back.

    On SQLite the open transaction keeps every other writer out, so this cannot come about there.
    """
    entered, taken = asyncio.Event(), asyncio.Event()

    @tool(transaction=True)
    async def pay_late(amount: int, context: ToolContext) -> str:
        """Pay an amount."""
        assert context.connection is not None
        if context.attempt == 1:
            entered.set()
            await taken.wait()
        await context.connection.execute(text("INSERT INTO payments (amount) VALUES (:amount)"), {"amount": amount})
        return f"paid at attempt {context.attempt}"

    agent = Agent(FakeModel([tool_call("pay_late", amount=1), "Done."]), tools=[pay_late], store=store, lease=600)
    state = State(messages=[Message.user("Pay")])
    loser = asyncio.create_task(agent.run(state))
    await entered.wait()
    async with engine.begin() as connection:
        await connection.execute(text("UPDATE agent_states SET lease_until = now() - interval '1 hour'"))

    assert await agent.resume(state.id) == "Done."
    taken.set()
    with pytest.raises(StateConflictError):
        await loser

    assert await payments(engine) == [1]
    assert (await store.load(state.id)).messages[2].tool_results[0].text == "paid at attempt 2"


async def test_a_tool_that_commits_by_itself_is_found_out(store: SQLStore, engine: AsyncEngine, url: str) -> None:
    """Its result could not be kept together with its effect any more, so the run fails and says why."""

    @tool(transaction=True)
    async def commit(context: ToolContext) -> str:
        """Commit."""
        assert context.connection is not None
        if url.startswith("postgres"):
            await context.connection.commit()
        else:
            await context.connection.exec_driver_sql("COMMIT")
        return "committed"

    with pytest.raises(StoreError, match="leave commit and rollback to the library"):
        await Agent(FakeModel([tool_call("commit")]), tools=[commit], store=store).run("Go")


async def test_no_connection_is_left_out(store: SQLStore, engine: AsyncEngine, url: str) -> None:
    """However a transaction ends, its connection is back in the pool or thrown away."""
    apps_own = create_async_engine(async_url(url))
    shared = SQLStore(apps_own)
    for then in ("", "refuse", "fail"):
        agent = Agent(FakeModel([tool_call("pay", amount=1, then=then), "Done."]), tools=[pay], store=shared)
        with contextlib.suppress(ValueError):
            await agent.run("Pay")
        assert apps_own.sync_engine.pool.checkedout() == 0
    await apps_own.dispose()


async def test_a_savepoint_keeps_an_error_from_the_transaction(store: SQLStore, engine: AsyncEngine) -> None:
    """What a tool did before and after a statement that failed in a savepoint is kept."""

    @tool(transaction=True)
    async def pay_twice(context: ToolContext) -> str:
        """Pay around an error."""
        assert context.connection is not None
        await context.connection.execute(text("INSERT INTO payments (amount) VALUES (1)"))
        with pytest.raises(IntegrityError):
            async with context.connection.begin_nested():
                await context.connection.execute(text("INSERT INTO payments (amount) VALUES (2)"))
                await context.connection.execute(text("INSERT INTO payments (amount) VALUES (NULL)"))
        await context.connection.execute(text("INSERT INTO payments (amount) VALUES (3)"))
        return "paid"

    await Agent(FakeModel([tool_call("pay_twice"), "Done."]), tools=[pay_twice], store=store).run("Pay")

    assert await payments(engine) == [1, 3]


@tool(transaction=True)
async def pay_for_ever(context: ToolContext) -> str:
    """Pay, and come to no end."""
    assert context.connection is not None
    await context.connection.execute(text("INSERT INTO payments (amount) VALUES (1)"))
    await asyncio.Event().wait()
    return "never"


@tool(transaction=True)
async def count_for_ever(context: ToolContext) -> str:
    """Make a statement that comes to no end."""
    assert context.connection is not None
    await context.connection.execute(text("INSERT INTO payments (amount) VALUES (1)"))
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    await context.connection.execute(text(endless))
    return "never"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "endless, patience, lease, seconds",
    [
        (pay_for_ever, 20.0, 2.0, "0.5"),
        (count_for_ever, 20.0, 2.0, "0.5"),
        (pay_for_ever, 4.0, 600.0, "2"),
        (pay_for_ever, 0.0, 600.0, "1"),
    ],
    ids=["lease", "lease, in a statement", "patience", "no patience"],
)
async def test_a_tool_that_keeps_a_sqlite_file_locked_is_ended(
    url: str, store: SQLStore, engine: AsyncEngine, endless: Tool, patience: float, lease: float, seconds: str
) -> None:
    """After half of the patience or a quarter of the lease its effect is undone, and the model is told."""
    model = FakeModel([tool_call(endless.name), "It took too long."])
    async with SQLStore(url, patience=patience) as hasty:
        with anyio.fail_after(15):
            assert await Agent(model, tools=[endless], store=hasty, lease=lease).run("Pay") == "It took too long."

    result = model.requests[1].messages[-1].tool_results[0]
    assert (result.outcome, result.text) == (
        "error",
        (
            f"{endless.name} took longer than the {seconds} seconds that it may take in a transaction. "
            "It was stopped, and what it did in the database was undone."
        ),
    )
    assert await payments(engine) == []


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_tools_own_timeout_counts_where_it_is_shorter(store: SQLStore, engine: AsyncEngine) -> None:
    """It may ask for less than it would have."""
    hurried = pay_for_ever.copy(timeout=0.05)
    model = FakeModel([tool_call("pay_for_ever"), "Too long."])

    await Agent(model, tools=[hurried], store=store).run("Pay")

    assert "longer than the 0.05 seconds" in model.requests[1].messages[-1].tool_results[0].text


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_run_beside_long_transactions_keeps_its_state(url: str, store: SQLStore, engine: AsyncEngine) -> None:
    """Its heartbeats get through between them, although they last longer than its lease; so do messages to it."""
    entered, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        entered.set()
        await ended.wait()
        return "waited"

    patient = Agent(FakeModel([tool_call("wait"), "Waited."]), tools=[wait], store=store, lease=2.0)
    running = asyncio.create_task(patient.run("Wait", id="patient"))
    await entered.wait()
    async with SQLStore(url, patience=4.0) as other:
        calls = [tool_call("pay_for_ever") for _ in range(5)]
        blocking = Agent(FakeModel([calls, "Too long."]), tools=[pay_for_ever], store=other, lease=2.0)
        with anyio.fail_after(30):
            _, revision = await asyncio.gather(blocking.run("Pay"), other.post("patient", Message.user("Hurry")))

        assert revision > 1
        with pytest.raises(StateBusyError):
            await Agent(FakeModel([]), tools=[wait], store=other).resume("patient")
        ended.set()
        assert await running == "Waited."


def test_only_on_sqlite_a_transaction_is_bounded(tmp_path: Path) -> None:
    """On Postgres it holds the rows that the tool touched, and those alone."""
    assert SQLStore(tmp_path / "agents.db").transaction_seconds == 10.0
    assert SQLStore("postgresql://bob@localhost/agents").transaction_seconds is None


@pytest.mark.parametrize("moment", ["entered", "paid", "committed"])
async def test_a_killed_process_pays_exactly_once(url: str, engine: AsyncEngine, moment: str) -> None:
    """Killed before the effect, between effect and commit, or after it: the next process brings it to one payment."""
    killed = await asyncio.to_thread(payer, url, moment)
    paid_by_then = await payments(engine)
    ended = await asyncio.to_thread(payer, url, "never")

    assert killed.returncode == -9
    assert paid_by_then == ([5] if moment == "committed" else [])
    assert (ended.returncode, ended.stdout) == (0, "All is paid.\n"), ended.stderr
    assert await payments(engine) == [5]


def payer(url: str, moment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PAYER), url, "payment", moment]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("store", [None, MemoryStore(), SQLStore(":memory:")], ids=["none", "memory", "sqlite-memory"])
def test_an_agent_without_a_database_on_disk_is_refused(store: MemoryStore | None) -> None:
    """It is told when the Agent is built, before anything is paid."""
    with pytest.raises(ConfigError, match="'pay' is a transaction tool"):
        Agent(FakeModel([]), tools=[pay], store=store)


async def test_other_runs_wait_their_turn(store: SQLStore, engine: AsyncEngine) -> None:
    """States that run beside a transaction come to their end: none deadlocks, none fails."""
    agents = [Agent(FakeModel([tool_call("pay", amount=n), "Done."]), tools=[pay], store=store) for n in range(8)]

    answers = await asyncio.gather(*(agent.run("Pay") for agent in agents))

    assert answers == ["Done."] * 8
    assert await payments(engine) == list(range(8))
