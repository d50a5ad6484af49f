"""The threads in which sync tools run: used again, and nothing of one call is seen by the next."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from alpineagents.tools.threads import in_thread

WHO: contextvars.ContextVar[str] = contextvars.ContextVar("WHO", default="nobody")

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Trio has such threads of its own."""
    return "asyncio"


async def test_a_thread_serves_one_call_after_the_other() -> None:
    """To start one for each call would take longer than most tools do."""
    threads = {await in_thread(threading.get_ident) for _ in range(20)}
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_call_sees_the_context_of_its_caller_alone() -> None:
    """A context variable that a call sets is gone with it, and that of another caller is not seen."""

    def look() -> str:
        before = WHO.get()
        WHO.set("a call")
        return before

    assert await in_thread(look) == "nobody"
    token = WHO.set("the caller")
    assert await in_thread(look) == "the caller"
    WHO.reset(token)
    assert await in_thread(look) == "nobody"


async def test_a_call_that_was_given_up_keeps_its_thread() -> None:
    """Until it ends, other calls get another thread; then it serves again."""
    go_on, ended = threading.Event(), threading.Event()
    threads: list[int] = []

    def wait() -> None:
        threads.append(threading.get_ident())
        anyio.from_thread.run_sync(scope.cancel)
        go_on.wait()
        ended.set()

    with anyio.CancelScope() as scope:
        await in_thread(wait)
    assert scope.cancelled_caught
    assert await in_thread(threading.get_ident) not in threads
    go_on.set()
    assert await anyio.to_thread.run_sync(ended.wait, 10)


async def test_calls_at_once_have_a_thread_each() -> None:
    """All of them meet, which threads that wait for each other could not."""
    barrier = threading.Barrier(5)
    met: list[int] = []

    async def call() -> None:
        met.append(await in_thread(barrier.wait))

    async with anyio.create_task_group() as group:
        for _ in range(5):
            group.start_soon(call)
    assert sorted(met) == [0, 1, 2, 3, 4]


def test_a_process_that_was_forked_starts_threads_of_its_own() -> None:
    """Those of its parent are not in it, so nobody may wait for them."""
    code = """
import asyncio, os, threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from alpineagents.tools.threads import in_thread
def call():
    asyncio.run(asyncio.wait_for(in_thread(threading.get_ident), 10))
call()
pid = os.fork()
if pid == 0:
    call()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
call()
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (process.returncode, process.stderr) == (0, "")
