"""A store in more than one event loop, in threads, after a fork, and in another time zone."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from alpineagents import Message, SQLStore, State, StateConflictError, StoreError
from alpineagents.stores.sql.migrate import async_url
from tests.contract.backends import Backend, execute, new_state, saved, words_in


def test_one_store_in_two_loops_one_after_the_other(shared: Backend) -> None:
    """As `asyncio.run` twice in a script: each loop has connections of its own."""
    store = shared.open()

    async def first() -> None:
        await saved(store, "s", "one")

    async def second() -> list[str]:
        await store.post("s", Message.user("two"))
        words = await words_in(store)
        await store.aclose()
        return words

    with asyncio.Runner() as runner:
        runner.run(first())
        with asyncio.Runner() as other:
            words = other.run(second())
        # The first loop did not run, so what it holds could not be closed from the second.
        runner.run(store.aclose())
    # A connection that was left open would say so here.
    gc.collect()

    assert words == ["one", "two"]


def test_one_store_in_two_threads_at_once(shared: Backend) -> None:
    """Each with a loop of its own; both write, and nothing is lost."""
    store = shared.open()
    asyncio.run(close_after(store, saved(store, "s", "begin")))
    store = shared.open()
    start = Barrier(2)
    errors: list[BaseException] = []

    async def work(name: str) -> None:
        start.wait(timeout=30)
        for number in range(20):
            await store.post("s", Message.user(f"{name} {number}"))
        if isinstance(store, SQLStore):
            # A loop gives back what is its own; the store is closed for both at the end.
            await store._databases.by_loop[asyncio.get_running_loop()].close()

    def run(name: str) -> None:
        try:
            asyncio.run(work(name))
        except BaseException as error:  # noqa: BLE001  # told to the test
            errors.append(error)

    threads = [Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    again = shared.open()
    words: Any = asyncio.run(close_after(again, words_in(again)))
    for name in "ab":
        assert [word for word in words if word.startswith(f"{name} ")] == [f"{name} {number}" for number in range(20)]
    assert len(words) == 41


async def close_after(store: Any, work: Any) -> Any:
    """Do one thing with a store and close it."""
    try:
        return await work
    finally:
        await store.aclose()


def test_an_engine_of_the_apps_own_is_refused_in_a_second_loop(database: Backend) -> None:
    """It belongs to the loop that used it; the error says so before harm is done, and the first loop goes on."""
    assert database.url is not None
    engine = create_async_engine(async_url(database.url))
    store = SQLStore(engine)

    async def second() -> None:
        with pytest.raises(StoreError, match="another event loop"):
            await store.list()

    with asyncio.Runner() as runner:
        runner.run(saved(store, "s", "one"))
        with asyncio.Runner() as other:
            other.run(second())
        assert runner.run(words_in(store)) == ["one"]
        runner.run(engine.dispose())


def test_an_engine_of_the_apps_own_stays_open(database: Backend) -> None:
    """Closing the store closes what is the store's."""
    assert database.url is not None
    engine = create_async_engine(async_url(database.url))

    async def main() -> int:
        async with SQLStore(engine) as store:
            await saved(store, "s", "one")
        async with engine.connect() as connection:
            found = await connection.exec_driver_sql("SELECT count(*) FROM agent_events")
            count: int = found.scalar_one()
        await engine.dispose()
        return count

    assert asyncio.run(main()) == 1


def test_a_database_in_memory_is_refused_in_a_second_loop() -> None:
    """It lives in its connection; an empty one in its place would be a loss that nobody notices."""
    store = SQLStore(":memory:")

    async def second() -> None:
        with pytest.raises(StoreError, match="in memory"):
            await store.list()

    with asyncio.Runner() as runner:
        runner.run(saved(store, "s", "one"))
        with asyncio.Runner() as other:
            other.run(second())
        assert runner.run(words_in(store)) == ["one"]
        runner.run(store.aclose())


FORKS = {
    "sync door": """
store.save_sync(State(id="parent", messages=[Message.user("parent")]))
pid = os.fork()
if pid == 0:
    store.save_sync(State(id="child", messages=[Message.user("child")]))
    assert len(store.list_sync()) == 2
    # What was inherited may be collected at any time, and must not take the parent's connections with it.
    gc.collect()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
store.post_sync("parent", Message.user("again"))
assert {info.id for info in store.list_sync()} == {"parent", "child"}
""",
    "loops of their own": """
asyncio.run(store.save(State(id="parent", messages=[Message.user("parent")])))
pid = os.fork()
if pid == 0:
    asyncio.run(store.save(State(id="child", messages=[Message.user("child")])))
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert {info.id for info in asyncio.run(store.list())} == {"parent", "child"}
""",
    "eight children at once": """
store.save_sync(State(id="parent", messages=[Message.user("parent")]))
children = []
for number in range(8):
    pid = os.fork()
    if pid == 0:
        for _ in range(10):
            store.post_sync("parent", Message.user(str(number)))
        os._exit(0)
    children.append(pid)
for _ in range(10):
    store.post_sync("parent", Message.user("parent"))
for pid in children:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert store.info_sync("parent").revision == 91
""",
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.parametrize("fork", FORKS)
def test_a_store_goes_on_after_a_fork(shared: Backend, fork: str) -> None:
    """In the child with connections of its own, in the parent with those it had."""
    code = f"""
import asyncio, gc, os, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from alpineagents import FileStore, Message, SQLStore, State
store = {shared.code}
{FORKS[fork]}
"""

    process = subprocess.run([sys.executable, "-c", code], timeout=20, capture_output=True, text=True)

    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


@pytest.fixture
def far_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this process live in another time zone."""
    monkeypatch.setenv("TZ", "Pacific/Apia")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def move_server(backend: Backend) -> None:
    """Let the database live in yet another one."""
    if backend.name == "postgres":
        async with backend.open() as store:
            name = (await execute(store, "SELECT current_database()"))[0][0]
            await execute(store, f"ALTER DATABASE \"{name}\" SET timezone TO 'Asia/Kathmandu'")
            await execute(store, f"ALTER DATABASE \"{name}\" SET datestyle TO 'German'")


@pytest.mark.usefixtures("far_away")
async def test_times_are_utc_wherever_process_and_server_are(backend: Backend) -> None:
    """Aware, to the microsecond, and the instant that was meant."""
    await move_server(backend)
    async with backend.open() as store:
        before = datetime.now(UTC)
        state = await saved(store)
        loaded = await store.load("s")
        info = await store.info("s")

        for at in (loaded.history[0].at, info.created_at, info.updated_at):
            assert at.utcoffset() == timedelta(0)
            assert before - timedelta(seconds=5) <= at <= datetime.now(UTC) + timedelta(seconds=5)
        assert loaded.history[0].at == state.history[0].at
        assert info.created_at == state.history[0].at


@pytest.mark.usefixtures("far_away")
async def test_a_lease_ends_when_it_should_wherever_process_and_server_are(backend: Backend) -> None:
    """A shifted clock would free a State hours too early, or never."""
    from alpineagents.events import AgentInfo, RunStarted
    from alpineagents.stores.header import Lease

    await move_server(backend)
    async with backend.open() as store:
        state = new_state()
        state.run_id = "r1"
        state.record(RunStarted, agent=AgentInfo(model="m"))
        await store.save_with(state, Lease("r1", 100))
        until = (await store.info("s")).lease_until

    assert until is not None
    assert timedelta(seconds=90) < until - datetime.now(UTC) < timedelta(seconds=110)


@pytest.mark.usefixtures("far_away")
async def test_pages_are_complete_wherever_process_and_server_are(backend: Backend) -> None:
    """The time of the last State of a page is compared as the instant that it is."""
    await move_server(backend)
    async with backend.open() as store:
        for number in range(5):
            await saved(store, str(number))
        first = await store.list(limit=2)
        last = first[-1].model_copy(
            update={"updated_at": first[-1].updated_at.astimezone(timezone(timedelta(hours=9)))}
        )

        assert [info.id for info in first] == ["4", "3"]
        assert [info.id for info in await store.list(limit=9, after=last)] == ["2", "1", "0"]


async def test_an_event_keeps_its_instant_although_its_clock_is_in_another_zone(backend: Backend) -> None:
    """It comes back in UTC, as the same instant to the microsecond."""
    from alpineagents.events import MessageAdded
    from alpineagents.stores.header import header_of

    at = datetime(2026, 3, 29, 2, 30, 0, 123457, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    event = MessageAdded(revision=1, at=at, message=Message.user("hello"))
    state = State.from_history("s", [event])
    async with backend.open() as store:
        await store.append("s", [event], expected=0, header=header_of(state.snapshot()))
        loaded = await store.load("s")
        info = await store.info("s")
        loaded.add_message(Message.user("more"))

        assert loaded.history[0].at == at
        assert loaded.history[0].at.utcoffset() == timedelta(0)
        assert info.created_at == at
        assert await store.save(loaded) == 2


async def test_a_loop_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """A server that makes a loop a request does not gather engines."""
    store = SQLStore(tmp_path / "agents.db")

    def one_request() -> None:
        async def work() -> None:
            try:
                await saved(store, f"s{time.monotonic_ns()}")
            finally:
                await store._databases.here().close()

        asyncio.run(work())

    threads = [Thread(target=one_request) for _ in range(5)]
    for thread in threads:
        thread.start()
        thread.join()
    gc.collect()

    assert len(store._databases.by_loop) <= 1
    assert len(await store.list()) == 5
    await store.aclose()


async def test_stale_writers_of_two_loops_are_refused_too(shared: Backend) -> None:
    """The revision decides, wherever the writer runs."""
    async with shared.open() as store:
        await saved(store, "s", "one")
        late = await store.load("s")
        late.add_message(Message.user("late"))

        def other_loop() -> None:
            other = shared.open()
            asyncio.run(close_after(other, other.post("s", Message.user("first"))))

        thread = Thread(target=other_loop)
        thread.start()
        thread.join()

        with pytest.raises(StateConflictError):
            await store.save(late)
