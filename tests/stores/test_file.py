"""What is particular to files: where they lie, who may read them, what stands in them, and what can go wrong."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from filelock import FileLock

from alpineagents import (
    EventFormatError,
    FileStore,
    Message,
    State,
    StateDamagedError,
    StateNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
)
from alpineagents.stores.file import folder as folders
from alpineagents.stores.file.format import folder_name, name_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a store can be."""
    return tmp_path / "agent-runs"


@pytest.fixture
def store(path: Path) -> FileStore:
    """An empty store."""
    return FileStore(path)


async def saved(store: FileStore, id: str = "s", *words: str) -> State:
    state = State(id=id, namespace=store.namespace, messages=[Message.user(word) for word in words or ("hello",)])
    await store.save(state)
    return state


async def words_in(store: FileStore, id: str = "s") -> list[str]:
    return [message.text for message in (await store.load(id)).messages]


def files_in(path: Path) -> list[str]:
    """Return the files of all States, without the locks."""
    files = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
    return sorted(file for file in files if not file.startswith("@locks"))


# ------------------------------------------------------------------------------------------------ the folders


async def test_each_state_has_a_folder(store: FileStore, path: Path) -> None:
    """Under its namespace, with a history and a header."""
    await saved(store, "order-1042")
    await saved(store.scoped("tenant-a"), "order-1042")

    assert files_in(path) == [
        "@default/order-1042/events.jsonl",
        "@default/order-1042/info.json",
        "tenant-a/order-1042/events.jsonl",
        "tenant-a/order-1042/info.json",
    ]


async def test_a_line_is_an_event(store: FileStore, path: Path) -> None:
    """Both files are JSON in plain ASCII, and a person can read what was said."""
    state = await saved(store, "s", "é", "two")

    lines = [json.loads(line) for line in (path / "@default/s/events.jsonl").read_bytes().decode("ascii").splitlines()]
    info = json.loads((path / "@default/s/info.json").read_bytes().decode("ascii"))

    assert [line.get("kind") for line in lines] == ["message_added", "message_added", None]
    assert lines[0]["payload"]["message"]["content"][0]["text"] == "é"
    assert (lines[2]["format"], lines[2]["revision"]) == (1, 2)
    assert (info["revision"], info["status"], info["first_message"]) == (2, state.status, "é")
    assert info["size"] == (path / "@default/s/events.jsonl").stat().st_size


async def test_an_append_leaves_what_is_there_as_it_is(store: FileStore, path: Path) -> None:
    """The history is only ever written at its end, and by what is new."""
    await saved(store, "s", "x" * 100_000)
    before = (path / "@default/s/events.jsonl").read_bytes()

    await store.post("s", Message.user("more"))

    after = (path / "@default/s/events.jsonl").read_bytes()
    assert after[: len(before)] == before
    assert len(after) - len(before) < 2_000


NAMES = ["order", "Order", "ORDER", "oRDER", "A", "a", "a-1", "a_1", "_", "-", "0", "default"]
NAMES += ["x" * 128, "X" * 128, "aB" * 64]


def test_names_that_differ_by_case_only_have_different_folders() -> None:
    """Also where the file system does not tell case apart; and each folder gives its name back."""
    folders = [folder_name(name) for name in ["", *NAMES]]

    assert len({folder.lower() for folder in folders}) == len(folders)
    assert [name_of(folder) for folder in folders] == ["", *NAMES]
    assert max(map(len, folders)) < 255
    assert not {"@locks", ".", ".."} & set(folders)


@pytest.mark.parametrize(
    "folder", ["@locks", ".git", "a.b.c", "a.0", "a.00", "a.01", "order.20", "1.1", "Order", "", "a."]
)
def test_a_folder_of_another_name_is_no_states(folder: str) -> None:
    """One that the store would not have made is not taken for one."""
    assert name_of(folder) is None


async def test_states_whose_ids_differ_by_case_only_are_two(store: FileStore) -> None:
    """The same for namespaces."""
    for name in ("order", "Order"):
        await saved(store, name, name)
        await saved(store.scoped(name), "s", name)

    assert {info.id for info in await store.list()} == {"order", "Order"}
    assert await words_in(store, "Order") == ["Order"]
    assert await words_in(store.scoped("order")) == ["order"]
    assert await store.namespaces() == ["", "Order", "order"]


async def test_what_others_put_there_is_left_alone(store: FileStore, path: Path) -> None:
    """A list goes past files and folders that are not of the store; a deleted State leaves them."""
    await saved(store)
    (path / "README").write_text("notes")
    (path / "@default" / "notes").mkdir()
    (path / "@default" / "notes.txt").write_text("notes")
    (path / "@default" / "plain").write_text("a file where a folder of a State could be")
    (path / "@default" / "s" / "notes.txt").write_text("notes")

    assert [info.id for info in await store.list()] == ["s"]
    assert await store.namespaces() == [""]
    await store.delete("s")

    assert not await store.exists("s")
    assert await store.list() == []
    assert (path / "@default" / "s" / "notes.txt").exists()
    await saved(store, "s", "again")
    assert await words_in(store) == ["again"]


async def test_nothing_is_made_before_the_first_save(store: FileStore, path: Path) -> None:
    """Asking a store for what it has not leaves no trace."""
    assert await store.list() == []
    assert await store.namespaces() == []
    assert not await store.exists("s")
    for ask in (store.load, store.info, store.delete):
        with pytest.raises(StateNotFoundError):
            await ask("s")

    assert not path.exists()


async def test_a_deleted_state_leaves_no_folder(store: FileStore, path: Path) -> None:
    """Nor a lock of its own."""
    for number in range(3):
        await saved(store, f"s{number}")
        await store.delete(f"s{number}")

    assert files_in(path) == []
    assert list((path / "@default").iterdir()) == []


async def test_a_relative_path_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may change its folder."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    store = FileStore(".agent-runs")
    await saved(store)
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert await store.exists("s")
    assert (tmp_path / ".agent-runs").is_dir()


def test_a_store_shows_its_path(path: Path) -> None:
    """And the namespace that it sees."""
    assert repr(FileStore(".agent-runs")) == "FileStore('.agent-runs')"
    assert repr(FileStore(path).scoped("tenant-a")) == f"FileStore({str(path)!r}, namespace='tenant-a')"


# ------------------------------------------------------------------------------------------------ who may read


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the process takes away from the rights of new files, from nothing on."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
async def test_only_the_owner_may_read(store: FileStore, path: Path) -> None:
    """Whatever the process grants to others otherwise."""
    await saved(store)
    await store.post("s", Message.user("more"))

    modes = {file: stat.S_IMODE(file.stat().st_mode) for file in [path, *path.rglob("*")]}

    assert {modes[file] for file in modes if file.is_dir()} == {0o700}
    assert {modes[file] for file in modes if file.is_file()} == {0o600}


# ------------------------------------------------------------------------------------------------ both loops


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_it_runs_on_asyncio_and_on_trio(store: FileStore, anyio_backend: str) -> None:
    """With many calls at once."""
    await saved(store, "s", "0")

    async with anyio.create_task_group() as group:
        for number in range(1, 25):
            group.start_soon(store.post, "s", Message.user(str(number)))

    words = await words_in(store)
    assert words[0] == "0"
    assert sorted(map(int, words)) == list(range(25))


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_cancelled_append_comes_to_its_end(store: FileStore, anyio_backend: str) -> None:
    """It happens whole or not at all, and the State is free for the next one."""
    await saved(store, "s", "0")

    for number in range(1, 10):
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(store.post, "s", Message.user(str(number)))
                await anyio.lowlevel.checkpoint()
                scope.cancel()

    words = await words_in(store)
    assert words == sorted(words)
    assert await store.post("s", Message.user("last")) == len(words) + 1


async def test_files_wait_for_no_tool(store: FileStore) -> None:
    """Tools may use up every thread that anyio has; a heartbeat is written all the same."""
    limiter = anyio.to_thread.current_default_thread_limiter()
    before, limiter.total_tokens = limiter.total_tokens, 1
    try:
        async with limiter:
            with anyio.fail_after(10):
                await saved(store)
    finally:
        limiter.total_tokens = before


# ------------------------------------------------------------------------------------------------ cost


async def long_history(store: FileStore, path: Path) -> Path:
    """Save a State of 300 Events and spoil its first half without changing its length."""
    await saved(store, "s", *(f"{number:0>1000}" for number in range(300)))
    file = path / "@default/s/events.jsonl"
    data = file.read_bytes()
    file.write_bytes(b"?" * (len(data) // 2) + data[len(data) // 2 :])
    return file


async def test_an_append_reads_no_history(store: FileStore, path: Path) -> None:
    """So a step costs the same however much there is: what was spoiled is not noticed."""
    await long_history(store, path)

    assert await store.post("s", Message.user("more")) == 301
    assert (await store.info("s")).revision == 301


async def test_what_is_new_is_read_from_the_end(store: FileStore, path: Path) -> None:
    """A run that takes in a message does not read all that went before."""
    await long_history(store, path)

    for after in (200, 290, 299, 300, 400):
        assert [event.revision async for event in store.read("s", after=after)] == list(range(after + 1, 301))


async def test_a_part_from_the_middle_is_read(store: FileStore) -> None:
    """From any revision to any other, whatever the length of the lines."""
    await saved(store, "s", *("x" * (number * 997 % 9000 + 1) for number in range(60)))

    for after in range(0, 62, 3):
        for until in (1, 7, 30, 59, 60, 99, None):
            found = [event.revision async for event in store.read("s", after=after, until=until)]
            assert found == list(range(after + 1, min(until or 60, 60) + 1))


# ------------------------------------------------------------------------------------------------ damage


async def test_a_list_goes_on_past_a_damaged_state(store: FileStore, path: Path) -> None:
    """It is shown as far as it can be read, and where nothing can, with the status `unknown`."""
    for name in ("a", "b", "c", "d"):
        await saved(store, name, "one", "two")
    (path / "@default/b/info.json").write_text("not JSON")
    (path / "@default/c/info.json").write_text("not JSON")
    (path / "@default/c/events.jsonl").write_text('garbage\n{"format":garbage\n')
    (path / "@default/d/events.jsonl").unlink()

    infos = {info.id: info for info in await store.list()}

    assert infos["a"].status == infos["b"].status == infos["d"].status == "ready"
    assert (infos["b"].revision, infos["b"].first_message) == (2, "one")
    assert infos["c"].status == "unknown"
    for name, revision in (("c", 1), ("d", 1)):
        with pytest.raises(StateDamagedError) as damaged:
            await store.load(name)
        assert damaged.value.revision == revision
        await store.delete(name)
        await saved(store, name, "again")
    assert await words_in(store, "b") == ["one", "two"]


async def test_files_of_a_newer_release_are_left_as_they_are(store: FileStore, path: Path) -> None:
    """The error says what is needed; the list shows them."""
    await saved(store)
    for file in (path / "@default/s").iterdir():
        file.write_text(file.read_text().replace('{"format":1', '{"format":2'))
    before = [file.read_bytes() for file in sorted((path / "@default/s").iterdir())]

    for ask in (lambda: store.load("s"), lambda: store.post("s", Message.user("more"))):
        with pytest.raises(EventFormatError, match="upgrade alpineagents"):
            await ask()

    assert [file.read_bytes() for file in sorted((path / "@default/s").iterdir())] == before
    assert [info.id for info in await store.list()] == ["s"]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
async def test_a_list_goes_on_past_a_folder_that_may_not_be_read(store: FileStore, path: Path) -> None:
    """One that another user made."""
    await saved(store, "mine")
    await saved(store, "theirs")
    (path / "@default/theirs").chmod(0)

    assert [info.id for info in await store.list()] == ["mine"]
    (path / "@default/theirs").chmod(0o700)


# ------------------------------------------------------------------------------------------------ what can go wrong


async def test_a_path_that_is_a_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    """The file stays as it is."""
    (tmp_path / "notes.txt").write_text("notes")
    store = FileStore(tmp_path / "notes.txt")

    for ask in (lambda: saved(store), store.list, lambda: store.load("s")):
        with pytest.raises(StoreUnavailableError, match=r"notes\.txt.*file"):
            await ask()

    assert (tmp_path / "notes.txt").read_text() == "notes"


async def test_a_folder_around_it_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    """No folder is made for a path that was perhaps written wrongly."""
    with pytest.raises(StoreUnavailableError, match=r"missing.*make that folder"):
        await saved(FileStore(tmp_path / "missing" / "agent-runs"))

    assert not (tmp_path / "missing").exists()


@pytest.mark.parametrize(
    "number, words", [(errno.ENOSPC, "disk is full"), (errno.EROFS, "read only"), (errno.EIO, "Input/output error")]
)
@pytest.mark.parametrize("name", ["write", "fsync"])
async def test_a_disk_that_fails_is_an_error_that_says_so(
    store: FileStore, monkeypatch: pytest.MonkeyPatch, name: str, number: int, words: str
) -> None:
    """Nothing of the append is kept, the State in memory has it still, and can be saved when there is room again."""
    state = await saved(store, "s", "one")
    state.add_message(Message.user("two"))
    real = getattr(os, name)

    def fail(file: int, *data: Any) -> Any:
        if name == "write":
            real(file, data[0][:10])
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(folders.os, name, fail)
    with pytest.raises(StoreUnavailableError, match=f"agent-runs.*{words}"):
        await store.save(state)
    monkeypatch.undo()

    assert await words_in(store) == ["one"]
    assert await store.save(state) == 2
    assert await words_in(store) == ["one", "two"]


async def test_a_header_that_cannot_be_kept_is_made_good(store: FileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The append has happened: it is acknowledged, and every call sees it."""
    await saved(store, "s", "one")

    def fail(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(folders.Folder, "_keep", fail)
        for number in (2, 3, 4):
            assert await store.post("s", Message.user(str(number))) == number

    assert (await store.info("s")).revision == 4
    assert [info.revision for info in await store.list()] == [4]
    assert await words_in(store) == ["one", "2", "3", "4"]
    assert await store.post("s", Message.user("5")) == 5


async def test_a_lock_that_is_not_let_go_is_an_error_in_bounded_time(
    store: FileStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading goes on meanwhile."""
    await saved(store)
    monkeypatch.setattr(folders, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(folders, "LOCK_FILES", 1)

    with FileLock(path / "@locks" / "000.lock"):
        with pytest.raises(StoreUnavailableError, match="let go"):
            await store.post("s", Message.user("more"))
        assert await words_in(store) == ["hello"]
        assert len(await store.list()) == 1

    assert await store.post("s", Message.user("more")) == 2


async def test_a_closed_store_says_so(store: FileStore) -> None:
    """Also through a view of it, and to a run's heartbeat."""
    from alpineagents.stores.header import Lease

    view = store.scoped("tenant-a")
    await saved(view)
    await store.aclose()
    await store.aclose()

    for ask in (lambda: view.load("s"), view.list, lambda: view.renew("s", Lease("r", 1.0)), lambda: saved(view, "t")):
        with pytest.raises(StoreClosedError, match=r"FileStore.*is closed"):
            await ask()
