"""Many processes, many States, everything at once: what was acknowledged is there, and every history is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from alpineagents import FileStore, MessageAdded, SQLStore, Store
from alpineagents.stores.sql.migrate import upgrade
from alpineagents.stores.verify import verify

WORKER = Path(__file__).with_name("worker.py")
FULL = bool(os.environ.get("ALPINE_TEST_FULL"))
PROCESSES, STATES, SECONDS = (16, 200, 60.0) if FULL else (4, 20, 5.0)


@pytest.fixture(params=["sqlite", "postgres", "files"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The kind of a store, and where it is."""
    if request.param == "postgres":
        return "sql", str(request.getfixturevalue("migrated_postgres_url"))
    if request.param == "files":
        return "files", str(tmp_path / "runs")
    upgrade(tmp_path / "agents.db")
    return "sql", str(tmp_path / "agents.db")


def start(place: tuple[str, str], folder: Path, seed: int, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), *place, str(folder), str(seed), str(seconds), str(STATES)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def let_them_work(place: tuple[str, str], folder: Path) -> tuple[list[str], int]:
    """Keep so many processes at work until the time is over; return what they complained of, and how many died."""
    ends, seed, died = time.monotonic() + SECONDS, 0, 0
    complaints: list[str] = []
    running: list[subprocess.Popen[str]] = []
    try:
        while running or time.monotonic() < ends:
            while len(running) < PROCESSES and (left := ends - time.monotonic()) > 0:
                seed += 1
                running.append(start(place, folder, seed, left))
            done = running.pop(0)
            _, said = done.communicate(timeout=SECONDS + 60)
            died += done.returncode == -9
            if done.returncode not in (0, -9):
                complaints.append(said)
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return complaints, died


def logs(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nothing_acknowledged_is_lost_and_no_tool_runs_twice(place: tuple[str, str], tmp_path: Path) -> None:
    """Runs, posts, decisions, cancels and kills at random: the rows alone show that every promise was kept."""
    folder = tmp_path / "logs"
    folder.mkdir()

    complaints, died = let_them_work(place, folder)

    said = logs(folder)
    store: Store = FileStore(place[1]) if place[0] == "files" else SQLStore(place[1])
    async with store:
        checked = [one async for one in verify(store)]
        histories = {one.info.id: (await store.load(one.info.id)).history for one in checked}
    posted = Counter(
        (state_id, event.message.text)
        for state_id, history in histories.items()
        for event in history
        if isinstance(event, MessageAdded)
    )
    assert complaints == []
    assert [one for one in checked if one.problems] == []
    assert died > 0, "no process died, so the test shows too little: give it more time"
    for line in said:
        if line["what"] == "saved":
            event = histories[str(line["state"])][int(str(line["revision"])) - 1]
            assert event.kind == line["kind"]
        elif line["what"] == "posted":
            assert posted[str(line["state"]), str(line["text"])] == 1
    notes = Counter((line["state"], line["call"]) for line in said if line["what"] == "note")
    assert [call for call, times in notes.items() if times > 1] == []
    assert sum(line["what"] == "saved" for line in said) > 100
