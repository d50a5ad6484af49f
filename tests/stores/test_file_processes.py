"""A store of files in several processes and threads at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alpineagents import (
    FileStore,
    Message,
    State,
    StateConflictError,
    StateExistsError,
    StateNotFoundError,
)
from alpineagents.stores.file import folder as folders

PROCESSES, LOOPS = 8, 50

WRITER = f"""
import asyncio, sys
from alpineagents import FileStore, Message, StateConflictError

async def main():
    store = FileStore(sys.argv[1])
    for number in range({LOOPS}):
        while True:
            state = await store.load("s")
            state.add_message(Message.user(f"{{sys.argv[2]}} {{number}} after {{state.revision}}"))
            try:
                await store.save(state)
                break
            except StateConflictError:
                pass

asyncio.run(main())
"""


def started(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


@pytest.mark.slow
def test_many_processes_write_one_state(tmp_path: Path) -> None:
    """Each reads, changes and appends, and begins again where another was first: no change is lost, none is doubled."""
    store = FileStore(tmp_path / "agent-runs")
    store.save_sync(State(id="s", messages=[Message.user("0")]))

    processes = [started(WRITER, tmp_path / "agent-runs", number) for number in range(PROCESSES)]
    outcomes = [ended(process) for process in processes]

    assert outcomes == [(0, "", "")] * PROCESSES
    words = [message.text for message in store.load_sync("s").messages][1:]
    assert len(words) == PROCESSES * LOOPS == 400
    # Each was made from the revision right before it, so nobody acted on what was stale.
    assert [int(word.rpartition(" ")[2]) for word in words] == list(range(1, 401))
    for number in range(PROCESSES):
        own = [word.split()[1] for word in words if word.split()[0] == str(number)]
        assert own == [str(loop) for loop in range(LOOPS)]


@pytest.mark.slow
def test_many_processes_make_one_state(tmp_path: Path) -> None:
    """In a store that is not there yet: exactly one of them makes it."""
    code = """
import sys
from alpineagents import FileStore, Message, State, StateExistsError
sys.stdin.readline()
try:
    FileStore(sys.argv[1]).save_sync(State(id="s", messages=[Message.user(sys.argv[2])]))
    print("made it", end="")
except StateExistsError:
    print("was late", end="")
"""
    arguments = [[sys.executable, "-c", code, str(tmp_path / "agent-runs"), str(number)] for number in range(PROCESSES)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(each, text=True, **pipes) for each in arguments]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate(timeout=100) for process in processes]

    assert sorted(said) == [("made it", ""), *[("was late", "")] * (PROCESSES - 1)]
    winner = said.index(("made it", ""))
    assert [message.text for message in FileStore(tmp_path / "agent-runs").load_sync("s").messages] == [str(winner)]


def test_a_killed_process_holds_no_lock(tmp_path: Path) -> None:
    """The system gives it back, so the next writer need not wait."""
    code = """
import sys
from pathlib import Path
from alpineagents import FileStore, Message, State, StateKey
store = FileStore(sys.argv[1])
store.save_sync(State(id="s", messages=[Message.user("one")]))
with store._folder(StateKey("", "s"))._locked():
    print("held", flush=True)
    sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "agent-runs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    store = FileStore(tmp_path / "agent-runs")
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(store.post_sync, "s", Message.user("two"))
        time.sleep(0.1)
        assert not waiting.done()

        process.send_signal(signal.SIGKILL)

        assert waiting.result(timeout=10) == 2
    process.communicate()


@pytest.mark.parametrize("waiter", ["post", "save", "create", "delete", "load"])
def test_a_state_may_be_deleted_while_another_waits(tmp_path: Path, waiter: str) -> None:
    """Whoever waited for its lock finds what is there then, and does not bring back a part of the old one."""
    store = FileStore(tmp_path / "agent-runs")
    store.save_sync(State(id="s", messages=[Message.user("old")]))
    stale = store.load_sync("s")
    stale.add_message(Message.user("late"))
    folder = store._folder(store.key("s"))
    calls = {
        "post": lambda: store.post_sync("s", Message.user("late")),
        "save": lambda: store.save_sync(stale),
        "create": lambda: store.save_sync(State(id="s", messages=[Message.user("new")])),
        "delete": lambda: store.delete_sync("s"),
        # Without its header a reader waits too.
        "load": lambda: (folder.info.unlink(), store.load_sync("s")),
    }
    release = threading.Event()

    def delete() -> None:
        with folder._locked():
            ready.set()
            release.wait(10)
            folder.info.unlink(missing_ok=True)
            folder.events.unlink()
            folder.path.rmdir()

    ready = threading.Event()
    with ThreadPoolExecutor() as pool:
        deleting = pool.submit(delete)
        ready.wait(10)
        waiting = pool.submit(calls[waiter])
        time.sleep(0.1)
        assert not waiting.done()
        release.set()
        deleting.result(timeout=10)

        if waiter == "create":
            assert waiting.result(timeout=10) == 1
            assert [message.text for message in store.load_sync("s").messages] == ["new"]
        else:
            with pytest.raises(StateNotFoundError):
                waiting.result(timeout=10)
            assert store.list_sync() == []


@pytest.mark.slow
def test_a_state_that_is_made_and_deleted_all_the_time_is_never_seen_in_parts(tmp_path: Path) -> None:
    """Readers see a State whole or not at all, and never one history under the header of another."""
    code = """
import sys, time
from alpineagents import FileStore, Message, State, StateNotFoundError
store, end = FileStore(sys.argv[1]), time.monotonic() + 3
while time.monotonic() < end:
    try:
        words = [message.text for message in store.load_sync("s").messages]
        assert words and words == words[:1] * len(words), words
        for info in store.list_sync():
            assert info.first_message
    except StateNotFoundError:
        pass
"""
    store = FileStore(tmp_path / "agent-runs")
    readers = [started(code, tmp_path / "agent-runs") for _ in range(2)]
    number = 0
    while readers[0].poll() is None or readers[1].poll() is None:
        number += 1
        state = State(id="s", messages=[Message.user(str(number)) for _ in range(number % 5 + 1)])
        store.save_sync(state)
        state.add_message(Message.user(str(number)))
        store.save_sync(state)
        store.delete_sync("s")

    assert [ended(reader) for reader in readers] == [(0, "", "")] * 2
    assert number > 10


def test_who_knows_a_state_that_was_made_again_is_refused(tmp_path: Path) -> None:
    """Although the new one is at the same revision."""
    store = FileStore(tmp_path / "agent-runs")
    store.save_sync(State(id="s", messages=[Message.user("old")]))
    stale = store.load_sync("s")
    stale.add_message(Message.user("late"))
    store.delete_sync("s")
    store.save_sync(State(id="s", messages=[Message.user("new")]))

    with pytest.raises(StateConflictError):
        store.save_sync(stale)
    with pytest.raises(StateExistsError):
        store.save_sync(State(id="s", messages=[Message.user("another")]))

    assert [message.text for message in store.load_sync("s").messages] == ["new"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_store_goes_on_after_a_fork(tmp_path: Path) -> None:
    """Also after one that was made while a thread of the parent held a lock."""
    code = """
import os, sys, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from alpineagents import FileStore, Message, State
store = FileStore(sys.argv[1])
store.save_sync(State(id="s", messages=[Message.user("parent")]))
held, forked = threading.Event(), threading.Event()

def hold():
    with store._folder(store.key("s"))._locked():
        held.set()
        forked.wait(10)

thread = threading.Thread(target=hold)
thread.start()
held.wait(10)
children = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        for _ in range(5):
            store.post_sync("s", Message.user(str(number)))
        os._exit(0)
    children.append(pid)
forked.set()
thread.join()
for _ in range(5):
    store.post_sync("s", Message.user("parent"))
for pid in children:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert store.info_sync("s").revision == 26
"""

    assert ended(started(code, tmp_path / "agent-runs")) == (0, "", "")


def test_threads_share_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with an event loop of its own, on States that share one lock."""
    import anyio

    monkeypatch.setattr(folders, "LOCK_FILES", 1)
    store = FileStore(tmp_path / "agent-runs")

    async def work(name: str) -> None:
        await store.save(State(id=name, messages=[Message.user("0")]))
        for number in range(1, 10):
            await store.post(name, Message.user(str(number)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: anyio.run(work, name), ["a", "b", "c", "d"]))

    assert {info.id: info.revision for info in store.list_sync()} == dict.fromkeys("abcd", 10)
