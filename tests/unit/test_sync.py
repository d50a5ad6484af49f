"""The sync door: one background loop a process, refused where it would wait for itself."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import anyio.to_thread
import pytest

from alpineagents import MemoryStore, Message, State, SyncInsideLoopError
from alpineagents.sync import run_sync


def call(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return run_sync(coroutine, called="save_sync", instead="await store.save(state)")


def in_thread(function: Callable[[], object]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


async def where() -> tuple[int, int]:
    return threading.get_ident(), id(asyncio.get_running_loop())


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_sync_call_inside_a_loop_is_refused(anyio_backend: str) -> None:
    """It would wait for itself; the error names the call and what to write."""
    store = MemoryStore()
    state = State(messages=[Message.user("hello")])

    with pytest.raises(SyncInsideLoopError, match=r"await store\.save\(state\)") as refused:
        store.save_sync(state)

    assert (refused.value.called, refused.value.instead) == ("save_sync", "await store.save(state)")
    assert state.saved_revision == 0


async def test_every_sync_twin_of_a_store_is_refused_inside_a_loop() -> None:
    """Each names the call to await, and no coroutine is left that nobody awaited."""
    store = MemoryStore()
    state = State(id="s", messages=[Message.user("hello")])
    twins: dict[str, Callable[[], object]] = {
        "store.save(": lambda: store.save_sync(state),
        "store.load(": lambda: store.load_sync("s"),
        "store.list(": store.list_sync,
        "store.delete(": lambda: store.delete_sync("s"),
        "store.info(": lambda: store.info_sync("s"),
        "store.exists(": lambda: store.exists_sync("s"),
        "store.post(": lambda: store.post_sync("s", Message.user("hello")),
        "store.aclose(": store.close_sync,
    }

    for name, twin in twins.items():
        with pytest.raises(SyncInsideLoopError) as refused:
            twin()
        assert f"await {name}" in str(refused.value)


async def test_a_thread_beside_a_loop_may_call() -> None:
    """As a sync tool does, or an endpoint in a thread pool."""
    assert await anyio.to_thread.run_sync(lambda: call(asyncio.sleep(0, "done"))) == "done"


def test_all_calls_run_on_one_loop() -> None:
    """In a thread of its own, so that a store's connections stay where they were made."""
    places: list[tuple[int, int]] = []

    in_thread(lambda: places.append(call(where())))
    in_thread(lambda: places.append(call(where())))

    assert places[0] == places[1]
    assert places[0][0] != threading.get_ident()


def test_two_threads_call_at_once() -> None:
    """Neither waits for the other to end: each finishes what the other waits for."""
    first, second = threading.Event(), threading.Event()
    done: list[str] = []

    async def meet(mine: threading.Event, other: threading.Event, name: str) -> None:
        mine.set()
        await asyncio.to_thread(other.wait, 30)
        done.append(name)

    threads = [
        threading.Thread(target=lambda: call(meet(first, second, "one"))),
        threading.Thread(target=lambda: call(meet(second, first, "other"))),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(done) == ["one", "other"]


def test_an_exception_comes_out_as_it_was() -> None:
    """With its own type, and the door stays open."""

    async def fail() -> None:
        raise KeyError("missing")

    def script() -> None:
        with pytest.raises(KeyError, match="missing"):
            call(fail())
        assert call(asyncio.sleep(0, "still open")) == "still open"

    script()


def run(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], timeout=30, capture_output=True, text=True, **options)


ENDINGS = {
    "returns": "",
    "raises SystemExit": "raise SystemExit(0)",
    "leaves a task on the loop": "run(leave_a_task())",
    "leaves a generator on the loop": "run(leave_a_generator())",
    "leaves a thread in a call": (
        "threading.Thread(target=lambda: run(asyncio.sleep(3600)), daemon=True).start(); wait_for_the_loop()"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_process_that_used_the_door_ends(ending: str) -> None:
    """At once and without a word, whatever still runs on the loop."""
    code = f"""
import asyncio, threading
from alpineagents.sync import run_sync
def run(coroutine):
    return run_sync(coroutine, called="f_sync", instead="await f()")
async def leave_a_task():
    leave_a_task.kept = asyncio.get_running_loop().create_task(asyncio.sleep(3600))
async def generate():
    yield 1
    yield 2
async def leave_a_generator():
    leave_a_generator.kept = generate()
    await anext(leave_a_generator.kept)
def wait_for_the_loop():
    for _ in range(3):
        run(asyncio.sleep(0))
run(asyncio.sleep(0))
{ENDINGS[ending]}
"""

    process = run(code)

    assert (process.returncode, process.stdout) == (0, "")
    assert "Traceback" not in process.stderr


@pytest.mark.slow
def test_the_door_works_after_a_fork() -> None:
    """In the child on a loop of its own, in the parent on the one it had."""
    code = """
import asyncio, os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from alpineagents.sync import run_sync
def run(value):
    return run_sync(asyncio.sleep(0, value), called="f_sync", instead="await f()")
assert run(1) == 1
pid = os.fork()
if pid == 0:
    assert run(2) == 2
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert run(3) == 3
print("parent", flush=True)
pid = os.fork()
if pid == 0:
    # A child that ends like any process, through what the parent had planned for its own end.
    assert run(4) == 4
    raise SystemExit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""

    process = run(code)

    assert (process.returncode, process.stdout, process.stderr) == (0, "parent\n", "")


@pytest.mark.slow
def test_ctrl_c_cancels_the_call_and_waits_for_its_clean_end() -> None:
    """The coroutine sees its cancellation and settles; then KeyboardInterrupt goes on."""
    code = """
import asyncio
from alpineagents.sync import run_sync
async def work():
    try:
        print("ready", flush=True)
        await asyncio.sleep(3600)
    finally:
        await asyncio.sleep(0.05)
        print("settled", flush=True)
try:
    run_sync(work(), called="f_sync", instead="await f()")
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

        process.send_signal(signal.SIGINT)

        assert process.communicate(timeout=30)[0] == "settled\ninterrupted\n"
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_importing_the_library_starts_no_thread() -> None:
    """The loop is started by the first call."""
    code = """
import threading
import alpineagents
assert [thread.name for thread in threading.enumerate()] == ["MainThread"]
"""

    process = run(code)

    assert (process.returncode, process.stderr) == (0, "")
