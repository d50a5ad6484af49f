"""
What a crash leaves: histories cut off at every byte, and real processes killed at every system call of every write.

Nothing acknowledged is lost, nothing is half there, and the State can be used again at once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from alpineagents import FileStore, Message, State, StateDamagedError, StateNotFoundError
from alpineagents.stores.file.folder import Folder
from alpineagents.stores.file.format import decode_lines
from alpineagents.stores.header import StateKey

APPENDS = (("one",), ("two", "three", "four"), ("five",))
WORDS = [word for words in APPENDS for word in words]


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "agent-runs")


async def written(store: FileStore) -> tuple[list[int], list[bytes]]:
    """Save a State in three appends; return the size of its history behind each, and each `info.json`."""
    state = State(id="s")
    sizes, infos = [0], []
    for words in APPENDS:
        for word in words:
            state.add_message(Message.user(word))
        await store.save(state)
        folder = folder_of(store)
        sizes.append(folder.events.stat().st_size)
        infos.append(folder.info.read_bytes())
    return sizes, infos


def folder_of(store: FileStore) -> Folder:
    return store._folder(StateKey("", "s"))


def found(store: FileStore) -> tuple[list[str] | None, int | None]:
    """Return what was said, as the files have it, and the revision that is damaged; None: there is no State."""
    opened = folder_of(store).history(0)
    if opened is None:
        return None, None
    head, place = opened
    read = folder_of(store).lines(place, head.revision)
    assert read is not None
    events, damage = decode_lines(read[0], 0, "s")
    words = [event.message.text for event in events]
    if damage is None and len(words) < head.revision:
        damage = StateDamagedError("s", len(words) + 1, "missing")
    return words, damage and damage.revision


def whole_appends(sizes: list[int], size: int) -> int:
    return max(place for place, end in enumerate(sizes) if end <= size)


def words_of(appends: int) -> list[str]:
    return [word for words in APPENDS[:appends] for word in words]


# ------------------------------------------------------------------------------------------------ every byte


@pytest.mark.parametrize("known", [0, 1, 2])
async def test_a_history_that_was_cut_off_has_its_whole_appends(store: FileStore, known: int) -> None:
    """At every byte behind what `info.json` knows of: an append is there whole, or not at all."""
    sizes, infos = await written(store)
    folder = folder_of(store)
    data = folder.events.read_bytes()

    for size in range(sizes[known], len(data) + 1):
        folder.events.write_bytes(data[:size])
        folder.info.write_bytes(infos[known - 1]) if known else folder.info.unlink(missing_ok=True)
        appends = whole_appends(sizes, size)

        assert found(store) == (words_of(appends) or None, None), size


async def test_a_history_that_lost_what_its_header_knows_of_is_damaged(store: FileStore) -> None:
    """At every byte: what is left is a beginning of what was there, and the error says where it ends."""
    await written(store)
    folder = folder_of(store)
    data = folder.events.read_bytes()

    for size in range(len(data)):
        folder.events.write_bytes(data[:size])
        words, damaged = found(store)

        assert words == WORDS[: len(words or ())], size
        # Only the line that commits the last append may be missing: then every Event is there.
        assert damaged == (len(words) + 1 if len(words) < len(WORDS) else None), size


@pytest.mark.parametrize("known", [0, 1, 2])
async def test_an_append_cuts_off_what_never_happened(store: FileStore, known: int) -> None:
    """What it writes stands behind the last whole append."""
    sizes, infos = await written(store)
    folder = folder_of(store)
    data = folder.events.read_bytes()

    for size in range(max(sizes[known], sizes[1]), len(data) + 1, 37):
        folder.events.write_bytes(data[:size])
        folder.info.write_bytes(infos[known - 1]) if known else folder.info.unlink(missing_ok=True)
        words = words_of(whole_appends(sizes, size))

        assert await store.post("s", Message.user("more")) == len(words) + 1
        assert found(store) == ([*words, "more"], None)
        assert (await store.info("s")).revision == len(words) + 1


async def test_a_first_append_that_was_cut_off_leaves_the_id_free(store: FileStore) -> None:
    """There is no State yet, and it can be made."""
    sizes, _ = await written(store)
    folder = folder_of(store)
    data = folder.events.read_bytes()

    for size in range(0, sizes[1], 29):
        folder.info.unlink()
        folder.events.write_bytes(data[:size])
        assert not await store.exists("s")
        assert await store.list() == []
        with pytest.raises(StateNotFoundError):
            await store.load("s")

        await store.save(State(id="s", messages=[Message.user("again")]))
        assert found(store) == (["again"], None)


async def test_an_append_that_reached_the_disk_in_parts_never_happened(store: FileStore) -> None:
    """A disk without power may have kept the end of an append and not its beginning: its sum tells."""
    sizes, infos = await written(store)
    folder = folder_of(store)
    data = folder.events.read_bytes()
    folder.info.write_bytes(infos[1])
    events = data.rindex(b'{"format":')

    for place in range(sizes[2], events):
        folder.events.write_bytes(data[:place] + b"\0" + data[place + 1 :])

        assert found(store) == (words_of(2), None), place


async def test_a_lost_header_is_made_again(store: FileStore) -> None:
    """`info.json` says the same afterwards, whatever was in it."""
    await written(store)
    folder = folder_of(store)
    before, info = await store.info("s"), folder.info.read_bytes()

    for lost in (None, b"", info[:-10], b"null", b"[]", b"\xff\xfe", b'{"format":1}'):
        folder.info.unlink(missing_ok=True)
        if lost is not None:
            folder.info.write_bytes(lost)
        assert await store.info("s") == before
        assert await store.list() == [before]

    assert await store.post("s", Message.user("more")) == 6


async def test_a_header_of_a_stale_write_is_overtaken_by_the_history(store: FileStore) -> None:
    """Status, times and owner are those of the last append, and an append goes on from there."""
    _, infos = await written(store)
    now = await store.info("s")
    folder_of(store).info.write_bytes(infos[0])

    assert await store.info("s") == now
    assert await store.list() == [now]
    assert await store.post("s", Message.user("more")) == 6


# ------------------------------------------------------------------------------------------------ every system call

KILLER = """
import asyncio, os, shutil, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from alpineagents import FileStore, Message, State
from alpineagents.events import AgentInfo, MessageAdded, RunStarted
from alpineagents.stores.header import Lease

work, base = Path(sys.argv[2]), Path(sys.argv[3])
CALLS = ("open", "write", "fsync", "ftruncate", "replace", "mkdir", "unlink", "rmdir", "close", "lseek")
killed_at, count = 0, 0

def armed(name, real):
    def call(*args, **options):
        global count
        count += 1
        if count == killed_at:
            if name == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)
    return call

async def create(store):
    await store.save(State(id="s", messages=[Message.user("one"), Message.user("two")]))

async def append(store):
    state = await store.load("s")
    for word in ("three", "four"):
        state.add_message(Message.user(word))
    await store.save(state)

async def renew(store):
    assert await store.renew("s", Lease("r1", 900.0))

async def delete(store):
    await store.delete("s")

async def main(store, name):
    # The library's own threads and files are there before anything is counted.
    await store.list()
    for call in CALLS:
        setattr(os, call, armed(call, getattr(os, call)))
    await globals()[name](store)

def child(folder, name):
    asyncio.run(main(FileStore(folder / "agent-runs"), name))
    os._exit(0)

number = 0
while True:
    number += 1
    folder = work / str(number)
    shutil.copytree(base, folder)
    pid = os.fork()
    if pid == 0:
        killed_at = number
        try:
            child(folder, sys.argv[1])
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
    else:
        assert os.waitstatus_to_exitcode(status) == 0
        break
"""


def killed(work: str, tmp_path: Path) -> list[Path]:
    """Do the work in processes that are killed at their 1st, 2nd … system call; the last one comes to its end."""
    (tmp_path / "work").mkdir()
    arguments = [sys.executable, "-c", KILLER, work, str(tmp_path / "work"), str(tmp_path / "base")]
    process = subprocess.run(arguments, timeout=100, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return sorted((tmp_path / "work").iterdir(), key=lambda path: int(path.name))


async def base(tmp_path: Path, prepare: Callable[[Folder], None] | None = None) -> None:
    """Make the store that each process gets a copy of: a State of two Events, which run `r1` owns."""
    from alpineagents.stores.header import Lease

    (tmp_path / "base").mkdir()
    store = FileStore(tmp_path / "base" / "agent-runs")
    await store.save_with(State(id="s", messages=[Message.user("one"), Message.user("two")]), Lease("r1", 600.0))
    if prepare is not None:
        prepare(folder_of(store))


def tear(folder: Folder) -> None:
    data = folder.events.read_bytes()
    folder.events.write_bytes(data + data[: len(data) // 3])


def lose_info(folder: Folder) -> None:
    folder.info.unlink()


def vanish(folder: Folder) -> None:
    shutil.rmtree(folder.path)


CASES: dict[str, tuple[str, Callable[[Folder], None] | None, list[str] | None, list[str] | None]] = {
    "create": ("create", vanish, None, ["one", "two"]),
    "create the store": ("create", lambda folder: shutil.rmtree(folder.root), None, ["one", "two"]),
    "append": ("append", None, ["one", "two"], ["one", "two", "three", "four"]),
    "append behind a torn line": ("append", tear, ["one", "two"], ["one", "two", "three", "four"]),
    "append without a header": ("append", lose_info, ["one", "two"], ["one", "two", "three", "four"]),
    "renew": ("renew", None, ["one", "two"], ["one", "two"]),
    "delete": ("delete", None, ["one", "two"], None),
    "delete behind a torn line": ("delete", tear, ["one", "two"], None),
}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.parametrize("case", CASES)
async def test_a_kill_at_any_system_call_leaves_all_or_nothing(tmp_path: Path, case: str) -> None:
    """What was there is there, or what was to be; the list says the same; and the State can be used at once."""
    work, prepare, before, after = CASES[case]
    await base(tmp_path, prepare)

    outcomes = []
    for path in killed(work, tmp_path):
        store = FileStore(path / "agent-runs")
        words, damaged = found(store)
        assert damaged is None
        assert words in (before, after)
        outcomes.append(words)
        infos = await store.list()
        assert [info.revision for info in infos] == ([] if words is None else [len(words)])
        if words is None:
            await store.save(State(id="s", messages=[Message.user("again")]))
            assert found(store) == (["again"], None)
        else:
            assert await store.info("s") == infos[0]
            assert infos[0].run_id == ("r1" if work != "create" else None)
            assert await store.post("s", Message.user("more")) == len(words) + 1
            assert found(store) == ([*words, "more"], None)

    assert len(outcomes) > 8
    assert outcomes[0] == before
    # The last process was not killed. Once it has happened, a later kill does not undo it.
    assert outcomes[-1] == after
    assert outcomes == sorted(outcomes, key=lambda words: words == after)
