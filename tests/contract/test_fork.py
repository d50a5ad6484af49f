"""Forks in a store: beside writers, after a lost reply, of what a run has open, and of no more than was asked for."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from alpineagents import (
    Agent,
    ConfigError,
    FileStore,
    Message,
    SQLStore,
    State,
    StateDamagedError,
    StateExistsError,
    StateIdError,
    StateNotFoundError,
    Store,
    StoreUnavailableError,
    ToolContext,
    ToolFinished,
    ToolStarted,
    tool,
)
from alpineagents.events import AgentInfo, RunStarted
from alpineagents.stores.base import append_unsaved
from alpineagents.stores.header import Lease, StateKey
from alpineagents.stores.sql.database import Database
from alpineagents.stores.verify import verify
from alpineagents.testing import FakeModel, tool_call
from tests.contract.backends import change_row, execute, rows_of, saved, words_in


async def test_forks_beside_writers_are_whole(store: Store) -> None:
    """Whatever the moment, a fork has a history without gaps, and a header that fits it."""
    await saved(store, "s", "0")
    names = [f"f{n}" for n in range(20)]

    async def write() -> None:
        for n in range(20):
            await store.post("s", Message.user(str(n + 1)))

    async def fork() -> None:
        for name in names:
            await store.fork("s", name)

    async with anyio.create_task_group() as group:
        group.start_soon(write)
        group.start_soon(fork)

    for name in names:
        loaded, info = await store.load(name), await store.info(name)
        assert loaded.revision == info.revision
        assert [message.text for message in loaded.messages] == [str(n) for n in range(info.revision)]


async def test_one_of_many_forks_gets_the_id(store: Store) -> None:
    """The others are told that it is taken."""
    await saved(store, "a", "of a")
    await saved(store, "b", "of b")
    won: list[str] = []

    async def fork(origin: str) -> None:
        try:
            await store.fork(origin, "f")
            won.append(origin)
        except StateExistsError:
            pass

    async with anyio.create_task_group() as group:
        for origin in ("a", "b") * 4:
            group.start_soon(fork, origin)

    assert len(won) == 1
    assert await words_in(store, "f") == [f"of {won[0]}"]


@pytest.mark.parametrize("revision", [0, -1, True, "1", 1.0])
async def test_what_is_no_revision_is_refused(store: Store, revision: Any) -> None:
    """As by load."""
    await saved(store, "s")

    with pytest.raises(ConfigError, match="is not a revision"):
        await store.fork("s", "f", revision)
    assert not await store.exists("f")


async def test_what_is_no_id_is_refused(store: Store) -> None:
    """Before anything is read."""
    with pytest.raises(StateIdError):
        await store.fork("s", "no/id")


async def test_a_fork_whose_reply_is_lost_is_made_once(sql_store: SQLStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found again, and not taken for another's."""
    await saved(sql_store, "s", "a", "b")
    kind: Any = type(sql_store._databases.here())
    below, tries = kind.fork, 0

    async def lose(database: Database, fork: Any) -> int | None:
        nonlocal tries
        tries += 1
        landed: int | None = await below(database, fork)
        if tries == 1:
            raise StoreUnavailableError("the reply was lost")
        return landed

    monkeypatch.setattr(kind, "fork", lose)

    assert await sql_store.fork("s", "f") == 2
    assert (tries, await words_in(sql_store, "f")) == (2, ["a", "b"])


async def test_a_fork_sends_no_history(sql_store: SQLStore) -> None:
    """The database copies it: the rows of the fork are those of the origin, byte for byte."""
    await saved(sql_store, "s", *["x" * 1_000] * 100)
    sent: list[str] = []

    class Counting(SQLStore):
        async def _page(self, *args: Any) -> Any:
            sent.append("page")
            return await super()._page(*args)

    sql_store.__class__ = Counting
    await sql_store.fork("s", "f")

    assert sent == []
    assert [row[::2] for row in await rows_of(sql_store, "f")] == [row[::2] for row in await rows_of(sql_store, "s")]


async def test_a_header_is_not_put_on_another_states_rows(sql_store: SQLStore) -> None:
    """A State that is deleted and made again, while its fork is under way, is another one."""
    await saved(sql_store, "s", "a", "b")

    class Slow(SQLStore):
        async def _forked_at(self, *args: Any) -> Any:
            header = await super()._forked_at(*args)
            await self.delete("s")
            await saved(self, "s", "c", "d")
            return header

    sql_store.__class__ = Slow

    with pytest.raises(StateNotFoundError):
        await sql_store.fork("s", "f", 1)
    assert not await sql_store.exists("f")


async def test_a_file_that_is_damaged_is_not_forked(tmp_path: Any) -> None:
    """It says where; what came before can be forked."""
    async with FileStore(tmp_path / "runs") as store:
        await saved(store, "s", "a", "b", "c")
        await change_row(store, "s", 2, payload="[")

        with pytest.raises(StateDamagedError):
            await store.fork("s", "f", 2)
        assert await store.fork("s", "g", 1) == 1
        assert await words_in(store, "g") == ["a"]


async def test_an_unreadable_header_can_be_forked(store: Store) -> None:
    """The history is the truth."""
    from tests.contract.backends import change_header

    await saved(store, "s", "a")
    await change_header(store, "s", status="dreaming")

    assert await store.fork("s", "f", 1) == 1
    assert (await store.info("f")).status == "ready"


entered: list[tuple[str, str]] = []


@tool(read_only=True)
async def look(context: ToolContext) -> str:
    """Look."""
    entered.append((context.state_id, "look"))
    return "seen"


@tool(idempotent=True)
async def put(context: ToolContext) -> str:
    """Put."""
    entered.append((context.state_id, "put"))
    return "put"


async def test_a_fork_does_not_repeat_what_its_origin_began(store: Store) -> None:
    """A call that was started before the fork has its effect there; only one that changes nothing is made again."""
    entered.clear()
    calls = [tool_call("look"), tool_call("put")]
    agent = Agent(FakeModel([calls, "done", "done"]), tools=[look, put], store=store)
    await agent.run("Go", id="s")
    last = [event for event in (await store.load("s")).history if isinstance(event, ToolStarted)][-1]

    await store.fork("s", "f", last.revision)
    assert await agent.resume("f") == "done"

    fork = await store.load("f")
    outcomes = {event.call_id: event.outcome for event in fork.history if isinstance(event, ToolFinished)}
    assert outcomes == {calls[0].id: "ok", calls[1].id: "unknown"}
    assert sorted(entered) == [("f", "look"), ("s", "look"), ("s", "put")]
    assert (await store.load("s")).answer == "done"


async def test_a_fork_of_a_running_state_can_be_run(store: Store) -> None:
    """What the run has open is closed in the fork by its own run; the run itself goes on undisturbed."""

    @tool
    async def fork_me(context: ToolContext) -> str:
        """Fork the State."""
        await store.fork(context.state_id, "f")
        assert await agent.copy(model=FakeModel(["in the fork"])).resume("f") == "in the fork"
        return "forked"

    agent = Agent(FakeModel([tool_call("fork_me"), "done"]), tools=[fork_me], store=store)

    assert await agent.run("Go", id="s") == "done"

    fork = await store.load("f")
    assert [result.outcome for message in fork.messages for result in message.tool_results] == ["unknown"]
    assert (fork.status, fork.parent_id, fork.answer) == ("stopped", "s", "in the fork")


async def test_a_fork_within_a_run_is_ready(store: Store) -> None:
    """Nobody runs it and it owes an answer, so lists name it to who looks for work, and `resume` goes on at once."""
    listed: dict[str, str] = {}

    @tool
    async def fork_me(context: ToolContext) -> str:
        """Fork the State, all of it, up to here, and from memory."""
        assert context.state is not None
        await store.fork(context.state_id, "all")
        await store.fork(context.state_id, "here", context.state.revision)
        await store.save(context.state.fork(id="memory"))
        listed.update({info.id: info.status for info in await store.list()})
        return "forked"

    agent = Agent(FakeModel([tool_call("fork_me"), *["done"] * 4]), tools=[fork_me], store=store)
    await agent.run("Go", id="s")

    assert listed == {"s": "running", "all": "ready", "here": "ready", "memory": "ready"}
    assert {info.id for info in await store.list(status="ready")} == {"all", "here", "memory"}
    assert [checked.problems async for checked in verify(store)] == [()] * 4
    for name in ("all", "here", "memory"):
        assert await agent.resume(name) == "done"
        assert (await store.info(name)).status == "stopped"


async def test_a_message_to_a_fork_within_a_run_leaves_it_ready(store: Store) -> None:
    """Whether it is posted or saved; once a run of its own dies, it counts as running like any other."""
    origin = State(id="s", messages=[Message.user("Go")])
    origin.run_id = "r"
    origin.record(RunStarted, agent=AgentInfo(model="m"))
    await store.save(origin)
    await store.fork("s", "f")

    await store.post("f", Message.user("posted"))
    assert (await store.info("f")).status == "ready"
    fork = await store.load("f")
    fork.add_message(Message.user("saved"))
    await store.save(fork)
    assert (await store.info("f")).status == "ready"

    fork.run_id = "dead"
    fork.record(RunStarted)
    await append_unsaved(store.append, StateKey("", "f"), fork, Lease("dead", 0.01))
    assert (await store.info("f")).status == "running"


async def test_usage_of_a_fork_begins_with_that_of_its_origin(store: Store) -> None:
    """It is the sum over its history; what it took by itself is the difference."""
    agent = Agent(FakeModel(lambda request: "x" * 400), store=store)
    await agent.run("Go", id="s")
    before = (await store.load("s")).snapshot()

    await store.fork("s", "f")
    await agent.resume("f", "And now?")

    fork = (await store.load("f")).snapshot()
    assert fork.usage.requests == 2
    assert before.diff(fork).usage.requests == 1


async def test_rows_of_a_fork_go_with_it(sql_store: Store) -> None:
    """And those of its origin stay."""
    await saved(sql_store, "s", "a", "b")
    await sql_store.fork("s", "f")

    await sql_store.delete("f")

    found = await execute(sql_store, "SELECT state_id, count(*) FROM agent_events GROUP BY state_id")
    assert [tuple(row) for row in found] == [("s", 2)]


def test_the_sync_door_forks() -> None:
    """In a script."""
    from alpineagents import MemoryStore

    store = MemoryStore()
    store.save_sync(State(id="s", messages=[Message.user("Hello")]))

    assert store.fork_sync("s", "f") == 1
