"""Real processes that race for one State."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from alpineagents import Message, State
from tests.contract.backends import Backend, rows_of

WRITER = Path(__file__).with_name("writer.py")
WRITERS = 8
TIMES = 500 if os.environ.get("ALPINE_TEST_FULL") else 50


@pytest.mark.slow
@pytest.mark.timeout(3000 if os.environ.get("ALPINE_TEST_FULL") else 120)
async def test_what_eight_processes_were_told_is_what_is_there(shared: Backend) -> None:
    """Each was told "ok" as often as it asked for, and the counter is the sum: no write was lost, none was double."""
    command = [sys.executable, str(WRITER), shared.name, str(shared.url), str(TIMES)]
    writers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(WRITERS)
    ]
    try:
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("\n")
            writer.stdin.flush()
        printed = [writer.communicate() for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()

    assert printed == [(f"{TIMES}\n", "")] * WRITERS
    async with shared.open() as store:
        state = await store.load("counter")
        rows = await rows_of(store, "counter")
    assert state.extra_data == {"n": WRITERS * TIMES}
    assert [row[0] for row in rows] == list(range(1, WRITERS * TIMES + 1))
    assert len({append_id for _, append_id, _ in rows}) == WRITERS * TIMES


POSTER = """
import asyncio, sys
from alpineagents import FileStore, Message, SQLStore
async def main():
    async with STORE as store:
        for number in range(25):
            await store.post("s", Message.user(f"{sys.argv[1]} {number}"))
asyncio.run(main())
"""


@pytest.mark.slow
async def test_posts_of_four_processes_are_all_kept(shared: Backend) -> None:
    """Each in its own order."""
    async with shared.open() as store:
        await store.save(State(id="s", messages=[Message.user("begin")]))
    posters = [subprocess.Popen([sys.executable, "-c", POSTER.replace("STORE", shared.code), name]) for name in "abcd"]
    try:
        codes = [poster.wait(timeout=90) for poster in posters]
    finally:
        for poster in posters:
            poster.kill()
            poster.wait()

    assert codes == [0] * 4
    async with shared.open() as store:
        words = [message.text for message in (await store.load("s")).messages]
    assert len(words) == 101
    for name in "abcd":
        assert [word for word in words if word.startswith(f"{name} ")] == [f"{name} {number}" for number in range(25)]


CREATOR = """
import asyncio, sys
from alpineagents import FileStore, Message, SQLStore, State, StateExistsError
async def main():
    async with STORE as store:
        wins = []
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for number in range(20):
            try:
                await store.save(State(id=f"s{number}", messages=[Message.user(sys.argv[1])]))
                wins.append(number)
            except StateExistsError:
                pass
        print(*wins)
asyncio.run(main())
"""


@pytest.mark.slow
async def test_processes_that_create_one_state_at_once(shared: Backend) -> None:
    """Each id is made by exactly one of them; the others are told that it exists."""
    async with shared.open() as store:
        await store.list()
    creators = [
        subprocess.Popen(
            [sys.executable, "-c", CREATOR.replace("STORE", shared.code), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "abcd"
    ]
    try:
        for creator in creators:
            assert creator.stdout is not None
            assert creator.stdout.readline() == "ready\n"
        for creator in creators:
            assert creator.stdin is not None
            creator.stdin.write("\n")
            creator.stdin.flush()
        wins = {name: creator.communicate()[0].split() for name, creator in zip("abcd", creators, strict=True)}
    finally:
        for creator in creators:
            creator.kill()
            creator.communicate()

    assert sorted(int(number) for numbers in wins.values() for number in numbers) == list(range(20))
    async with shared.open() as store:
        for name, numbers in wins.items():
            for number in numbers:
                assert [message.text for message in (await store.load(f"s{number}")).messages] == [name]
