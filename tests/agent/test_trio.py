"""Runs on trio: the Agent, the store in memory and the store of files stand on anyio alone."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from alpineagents import (
    Agent,
    ConfigError,
    FileStore,
    MemoryStore,
    Message,
    SQLStore,
    State,
    StateBusyError,
    StoppedByCancel,
    Store,
    SyncInsideLoopError,
    tool,
)
from alpineagents.testing import FakeModel, tool_call
from tests.agent.parts import check_closed, kinds, results, wait_for

pytestmark = pytest.mark.parametrize("anyio_backend", ["trio"])


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Each store that runs on trio."""
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "agent-runs")


async def test_a_run_with_tools_in_the_loop_and_in_threads(store: Store) -> None:
    """The same Events as on asyncio."""

    @tool
    async def here() -> str:
        """Work in the loop."""
        await anyio.lowlevel.checkpoint()
        return "here"

    @tool
    def there() -> str:
        """Work in a thread."""
        return "there"

    state = State(id="s", messages=[Message.user("Go")])
    model = FakeModel([[tool_call("here"), tool_call("there")], "done"])

    assert await Agent(model, tools=[here, there], store=store).run(state) == "done"

    assert results(state) == ["here", "there"]
    await check_closed(store, state)


async def test_a_stream_is_read_and_left(store: Store) -> None:
    """Leaving the block ends the run and records it."""

    async def stall(request: object) -> str:
        await anyio.sleep_forever()
        return "never"

    async with Agent(FakeModel(stall), store=store).stream("Hello", id="s") as items:
        async for item in items:
            if item.kind == "model_requested":
                break

    assert items.state.stopped == StoppedByCancel()
    await check_closed(store, items.state)


async def test_a_second_run_is_refused_and_a_request_to_cancel_is_obeyed(store: Store) -> None:
    """Leases and heartbeats."""
    asked, model = anyio.Event(), FakeModel(["never"])

    async def stall(request: object) -> str:
        asked.set()
        await anyio.sleep_forever()
        return "never"

    state = State(id="s", messages=[Message.user("Hello")])
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            group.start_soon(Agent(FakeModel(stall), store=store, lease=0.4).run, state)
            await wait_for(asked)
            with pytest.raises(StateBusyError):
                await Agent(model, store=store).resume("s")
            await store.cancel("s", by="Ada")

    assert state.stopped == StoppedByCancel(by="Ada")
    assert model.requests == []
    await check_closed(store, state)


async def test_sync_calls_are_refused() -> None:
    """They would block trio's loop as they would asyncio's."""
    with pytest.raises(SyncInsideLoopError):
        Agent(FakeModel(["never"])).run_sync("Hello")


async def test_a_sql_store_says_that_it_needs_asyncio() -> None:
    """Before anything is done, in words of this library."""
    model, state = FakeModel(["never"]), State(id="s", messages=[Message.user("Hello")])

    with pytest.raises(ConfigError, match="asyncio"):
        await Agent(model, store=SQLStore(":memory:")).run(state)

    assert (model.requests, kinds(state)) == ([], ["message_added"])
