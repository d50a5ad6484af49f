"""The life of a store: opened, closed, and used through the sync door."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from alpineagents import (
    Message,
    SQLStore,
    StateNotFoundError,
    Store,
    StoreClosedError,
    StoreSchemaError,
    StoreUnavailableError,
)
from tests.contract.backends import Backend, engine_of, new_state, saved, words_in


async def test_a_closed_store_refuses_every_call(backend: Backend) -> None:
    """With an error that says so, in memory as in a database."""
    store = backend.open()
    state = await saved(store)
    state.add_message(Message.user("more"))
    await store.aclose()

    async def read() -> None:
        async for _ in store.read("s"):
            pass

    calls: list[Any] = [
        lambda: store.save(state),
        lambda: store.load("s"),
        store.list,
        lambda: store.info("s"),
        lambda: store.exists("s"),
        lambda: store.delete("s"),
        lambda: store.post("s", Message.user("hello")),
        read,
    ]
    for call in calls:
        with pytest.raises(StoreClosedError, match="is closed"):
            await call()
    assert len(state.unsaved) == 1


async def test_closing_twice_is_no_error(backend: Backend) -> None:
    """Whoever cleans up need not know who did before."""
    store = backend.open()
    await saved(store)

    await store.aclose()
    await store.aclose()


async def test_a_store_that_was_never_used_can_be_closed(backend: Backend) -> None:
    """No connection is made for it."""
    await backend.open().aclose()


async def test_closing_a_store_closes_its_views(backend: Backend) -> None:
    """They share its connections."""
    store = backend.open()
    view = store.scoped("tenant-a")
    await saved(view)
    await store.aclose()

    with pytest.raises(StoreClosedError):
        await view.load("s")


async def test_leaving_the_block_closes_the_store(backend: Backend) -> None:
    """Also when an exception leaves it, which goes on."""
    with pytest.raises(ValueError, match="from inside"):
        async with backend.open() as store:
            await saved(store)
            raise ValueError("from inside")

    with pytest.raises(StoreClosedError):
        await store.list()


async def test_what_was_saved_is_there_in_another_store(shared: Backend) -> None:
    """A second store on the same place sees the same States."""
    async with shared.open() as one:
        state = await saved(one, "s", "hello")

    async with shared.open() as other:
        assert (await other.load("s")).snapshot() == state.snapshot()


async def test_two_stores_on_one_place_see_each_other(shared: Backend) -> None:
    """At once, without a cache between."""
    async with shared.open() as one, shared.open() as other:
        await saved(one, "s", "one")
        await other.post("s", Message.user("two"))
        assert await words_in(one) == ["one", "two"]
        await one.delete("s")
        with pytest.raises(StateNotFoundError):
            await other.load("s")


async def test_no_connection_is_left_out(sql_store: Store) -> None:
    """After any call, refused ones too, the pool has all back."""
    await saved(sql_store)
    late = await sql_store.load("s")
    late.add_message(Message.user("late"))
    await sql_store.post("s", Message.user("first"))
    for call in (lambda: sql_store.save(late), lambda: sql_store.save(new_state("s")), lambda: sql_store.load("none")):
        with pytest.raises(Exception):  # noqa: B017, PT011  # which error is another test's business
            await call()

    assert engine_of(sql_store).pool.checkedout() == 0


async def test_a_read_that_is_left_half_way_holds_no_connection(sql_store: Store) -> None:
    """Nor does one that waits between two Events."""
    await saved(sql_store, "s", *"abc")
    events = sql_store.read("s")
    await anext(events)

    assert engine_of(sql_store).pool.checkedout() == 0
    await events.aclose()


async def test_the_sync_twins_do_the_same(backend: Backend) -> None:
    """In a thread without an event loop, as in a script."""

    def script() -> None:
        store = backend.open()
        state = new_state("s", "one")
        assert store.save_sync(state) == 1
        assert store.post_sync("s", Message.user("two")) == 2
        assert [message.text for message in store.load_sync("s").messages] == ["one", "two"]
        assert store.load_sync("s", revision=1).snapshot() == state.snapshot()
        assert [info.id for info in store.list_sync()] == ["s"]
        assert store.list_sync(status="failed") == []
        assert store.info_sync("s").revision == 2
        assert store.exists_sync("s")
        store.delete_sync("s")
        assert not store.exists_sync("s")
        store.close_sync()

    await anyio.to_thread.run_sync(script)


async def test_a_store_of_the_sync_door_can_be_used_in_a_loop_too(shared: Backend) -> None:
    """One module-level store serves a script and a server."""
    store = shared.open()
    await anyio.to_thread.run_sync(lambda: store.save_sync(new_state("s", "from a script")))

    assert await words_in(store) == ["from a script"]

    await store.aclose()


async def test_a_folder_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    """No folder is made for a path that was perhaps written wrongly."""
    store = SQLStore(tmp_path / "missing" / "agents.db")

    with pytest.raises(StoreUnavailableError, match="folder"):
        await store.list()

    assert not (tmp_path / "missing").exists()
    await store.aclose()


async def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    """The error names the file."""
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but long enough to be looked at as one" * 100)
    before = file.read_bytes()
    store = SQLStore(file)

    with pytest.raises(Exception, match=r"notes\.txt") as refused:
        await store.list()

    assert type(refused.value).__module__ == "alpineagents.errors"
    assert file.read_bytes() == before
    await store.aclose()


async def test_a_server_that_is_not_migrated_is_an_error_with_the_command(postgres_url: str) -> None:
    """At the first use, and nothing is made."""
    store = SQLStore(postgres_url)

    with pytest.raises(StoreSchemaError, match="alpineagents db upgrade"):
        await store.list()

    await store.aclose()


async def test_a_server_is_migrated_at_first_use_where_that_is_wanted(postgres_url: str) -> None:
    """With one word."""
    async with SQLStore(postgres_url, migrate=True) as store:
        await saved(store)

        assert await words_in(store) == ["hello"]


async def test_a_server_that_is_not_there_is_an_error_in_bounded_time() -> None:
    """Without the password in it."""
    store = SQLStore("postgresql://me:hunter2@127.0.0.1:1/none")

    with pytest.raises(StoreUnavailableError) as refused:
        await store.list()

    assert "127.0.0.1" in str(refused.value)
    assert "hunter2" not in str(refused.value) + repr(store) + repr(refused.value)
    await store.aclose()


SCRIPTS = {
    "sync door, not closed": """
store.save_sync(state)
""",
    "sync door, closed": """
store.save_sync(state)
store.close_sync()
""",
    "a loop of its own, not closed": """
asyncio.run(store.save(state))
""",
    "two loops, not closed": """
asyncio.run(store.save(state))
asyncio.run(store.list())
""",
    "sync door in a thread": """
import threading
thread = threading.Thread(target=store.save_sync, args=(state,))
thread.start()
thread.join()
""",
    "an error at the end": """
store.save_sync(state)
raise SystemExit(0)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS)
def test_a_process_ends_by_itself(shared: Backend, script: str) -> None:
    """Whatever it left open: no thread of a driver keeps it, and it says nothing on its way out."""
    code = f"""
import asyncio
from alpineagents import FileStore, Message, SQLStore, State
store = {shared.code}
state = State(id="s", messages=[Message.user("hello")])
{SCRIPTS[script]}
"""

    process = subprocess.run([sys.executable, "-c", code], timeout=30, capture_output=True, text=True)

    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_process_ends_by_itself_while_its_state_is_saved(shared: Backend) -> None:
    """What was acknowledged is there afterwards."""
    code = f"""
from alpineagents import FileStore, Message, SQLStore, State
store = {shared.code}
state = State(id="s", messages=[Message.user("0")])
for number in range(1, 20):
    store.save_sync(state)
    state.add_message(Message.user(str(number)))
"""

    subprocess.run([sys.executable, "-c", code], timeout=30, check=True)

    store = shared.open()
    assert [message.text for message in store.load_sync("s").messages] == [str(number) for number in range(19)]
    store.close_sync()
