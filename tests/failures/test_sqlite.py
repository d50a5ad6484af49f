"""What can go wrong with a SQLite file: another process, the disk, the folder."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from alpineagents import Message, SQLStore, State, StoreError, StoreUnavailableError
from tests.failures.histories import check_saved, connections_out, new_state, texts

HOLDER = Path(__file__).with_name("sqlite_holder.py")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "agents.db"


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SQLStore]:
    """A store in a file that holds one State."""
    file.parent.mkdir()
    async with SQLStore(file) as store:
        await store.save(new_state("s", "one"))
        yield store


class Holder:
    """A process that holds the write lock."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    async def let_go(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert await anyio.to_thread.run_sync(self.process.stdout.readline) == "let go\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def held(file: Path) -> Iterator[Holder]:
    """Hold the write lock of a file in another process."""
    process = subprocess.Popen(
        [sys.executable, str(HOLDER), str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield Holder(process)
        finally:
            process.kill()


def lock_is_free(file: Path) -> bool:
    """Tell whether another connection gets the write lock at once."""
    database = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        database.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        database.close()
    return True


async def test_a_writer_waits_for_one_of_another_process(store: SQLStore, file: Path) -> None:
    """It has its turn when the other has let go, and nothing of either is lost."""
    with held(file) as holder:
        task = asyncio.create_task(store.post("s", Message.user("two")))
        _, waiting = await asyncio.wait({task}, timeout=0.3)
        assert waiting == {task}

        await holder.let_go()

        assert await task == 2
    assert await texts(store) == ["one", "two"]
    assert (await store.info("s")).parent_id == "held"


async def test_a_writer_goes_on_when_the_other_is_killed(store: SQLStore, file: Path) -> None:
    """A dead process holds no lock, and what it had not committed is gone."""
    with held(file) as holder:
        task = asyncio.create_task(store.post("s", Message.user("two")))
        _, waiting = await asyncio.wait({task}, timeout=0.3)
        assert waiting == {task}

        holder.kill()

        assert await task == 2
    assert (await store.info("s")).parent_id is None


async def test_a_reader_is_not_kept_by_a_writer(store: SQLStore, file: Path) -> None:
    """It sees what was there before, at once, in a store that was open and in one that opens now."""
    with held(file):
        async with SQLStore(file, patience=0) as other:
            for reader in (store, other):
                assert await texts(reader) == ["one"]
                assert [info.parent_id for info in await reader.list()] == [None]


async def test_a_lock_that_is_never_given_up_is_told_by_name(store: SQLStore, file: Path) -> None:
    """After `patience` the call says which file is locked; the State keeps what is not saved."""
    state = await store.load("s")
    state.add_message(Message.user("two"))
    async with SQLStore(file, patience=0.2) as hasty:
        with held(file) as holder:
            with (
                anyio.fail_after(10),
                pytest.raises(StoreUnavailableError, match="locked by another process") as raised,
            ):
                await hasty.save(state)

            assert str(file) in str(raised.value)
            assert connections_out(hasty) == 0
            await holder.let_go()
            assert await hasty.save(state) == 2
        await check_saved(hasty, state)


async def test_a_cancelled_writer_waits_for_its_turn_and_ends(store: SQLStore, file: Path) -> None:
    """The append is settled before the cancellation goes on, and no lock is left behind."""
    state = await store.load("s")
    state.add_message(Message.user("two"))
    with held(file) as holder:
        task = asyncio.create_task(store.save(state))
        await asyncio.wait({task}, timeout=0.1)
        task.cancel()
        _, waiting = await asyncio.wait({task}, timeout=0.1)
        assert waiting == {task}

        await holder.let_go()

        with pytest.raises(asyncio.CancelledError):
            await task
    assert lock_is_free(file)
    assert connections_out(store) == 0
    await check_saved(store, state)


async def test_a_full_disk_writes_nothing_by_halves(store: SQLStore, file: Path) -> None:
    """The error names the file; once there is room, the same save succeeds."""
    before = await pages(store)
    await set_most_pages(store, before + 4)
    state = new_state("large", "one", *(f"{number}" * 20_000 for number in range(9)))

    with pytest.raises(StoreError, match="full") as raised:
        await store.save(state)

    assert str(file) in str(raised.value)
    assert lock_is_free(file)
    assert not await store.exists("large")
    assert len(state.unsaved) == 10
    await set_most_pages(store, before + 4_000)
    assert await store.save(state) == 10
    await check_saved(store, state)


async def pages(store: SQLStore) -> int:
    async with store._databases.here().engine.connect() as connection:
        return int((await connection.exec_driver_sql("PRAGMA page_count")).scalar_one())


async def set_most_pages(store: SQLStore, number: int) -> None:
    """Limit the file as a full disk does; the store has one connection, and keeps it."""
    async with store._databases.here().engine.connect() as connection:
        await connection.exec_driver_sql(f"PRAGMA max_page_count = {number}")


async def test_a_file_that_may_not_be_written_can_be_read(store: SQLStore, file: Path) -> None:
    """A write says so and names the file."""
    async with SQLStore(f"sqlite:///file:{file}?mode=ro&uri=true") as reader:
        assert await texts(reader) == ["one"]
        with pytest.raises(StoreError, match="readonly") as raised:
            await reader.post("s", Message.user("two"))

    assert str(file) in str(raised.value)
    assert await store.post("s", Message.user("two")) == 2


@pytest.mark.parametrize("call", ["save", "load", "list", "post"])
async def test_a_folder_that_was_deleted_is_told_by_name(store: SQLStore, file: Path, call: str) -> None:
    """An open file lives on unseen: what is written to it would be acknowledged and be gone."""
    state = await store.load("s")
    state.add_message(Message.user("two"))
    shutil.rmtree(file.parent)
    calls = {
        "save": lambda: store.save(state),
        "load": lambda: store.load("s"),
        "list": store.list,
        "post": lambda: store.post("s", Message.user("two")),
    }

    with pytest.raises(StoreError, match="deleted") as raised:
        await calls[call]()

    assert str(file) in str(raised.value)
    assert len(state.unsaved) == 1


async def test_a_file_that_was_replaced_is_not_written_unseen(store: SQLStore, file: Path, tmp_path: Path) -> None:
    """A backup was put in its place: an open store would go on in the file that nobody sees any more."""
    async with SQLStore(tmp_path / "backup.db") as backup:
        await backup.save(new_state("s", "of the backup"))
    (tmp_path / "backup.db").replace(file)

    with pytest.raises(StoreError, match="replaced"):
        await store.post("s", Message.user("two"))

    for left in ("-wal", "-shm"):
        Path(f"{file}{left}").unlink(missing_ok=True)
    async with SQLStore(file) as again:
        assert await texts(again) == ["of the backup"]


async def test_a_folder_that_is_not_there_is_told_by_name(tmp_path: Path) -> None:
    """The first call says what to look for, at once."""
    file = tmp_path / "missing" / "agents.db"

    with anyio.fail_after(5), pytest.raises(StoreUnavailableError, match="Is there such a folder") as raised:
        await SQLStore(file, patience=1000).save(new_state())

    assert str(file) in str(raised.value)


async def test_what_is_no_database_is_told_by_name(tmp_path: Path) -> None:
    """A text file stays as it was."""
    file = tmp_path / "notes.txt"
    file.write_text("These are my notes. " * 100)

    with pytest.raises(StoreError) as raised:
        await SQLStore(file).save(new_state())

    assert str(file) in str(raised.value)
    assert file.read_text().startswith("These are my notes.")


@pytest.mark.parametrize("refused_revision", [2, 3])
async def test_an_error_inside_a_transaction_leaves_nothing_behind(
    store: SQLStore, file: Path, refused_revision: int
) -> None:
    """Neither the header nor the Events before the one that failed, nor the lock."""
    async with store._databases.here().engine.connect() as connection:
        await connection.exec_driver_sql(
            f"CREATE TRIGGER refuse BEFORE INSERT ON agent_events WHEN NEW.revision = {refused_revision} "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END"
        )
    state = await store.load("s")
    before = await store.info("s")
    state.add_message(Message.user("two"))
    state.add_message(Message.user("three"))

    with pytest.raises(StoreError, match="not this one"):
        await store.save(state)

    assert lock_is_free(file)
    assert await store.info("s") == before
    assert await texts(store) == ["one"]
    async with store._databases.here().engine.connect() as connection:
        await connection.exec_driver_sql("DROP TRIGGER refuse")
    assert await store.save(state) == 3
    await check_saved(store, state)


async def test_eight_writers_of_a_file_never_meet_a_lock(file: Path) -> None:
    """Stores of their own, as processes have them: each waits its turn."""
    file.parent.mkdir()
    stores = [SQLStore(file) for _ in range(8)]
    await stores[0].save(State(id="s", messages=[Message.user("begin")]))

    async def write(store: SQLStore, name: int) -> None:
        for number in range(5):
            await store.post("s", Message.user(f"{name}.{number}"))

    await asyncio.gather(*(write(store, name) for name, store in enumerate(stores)))

    assert sorted(await texts(stores[0])) == sorted(["begin", *(f"{a}.{b}" for a in range(8) for b in range(5))])
    for store in stores:
        await store.aclose()
