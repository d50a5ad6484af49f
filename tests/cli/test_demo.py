"""`alpineagents demo`, told in full: on folders of three kinds, on an empty one, on Postgres, and with a model."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import TIMEOUT, Command
from tests.servers.openai_server import Answer, OpenAIServer, Received, calls, says

PYTHON_PROJECT = {
    "README.md": "# Peaks\n\n[![build](https://x)](https://x)\n\nPeaks lists the **highest** mountains. It is fast.\n",
    "pyproject.toml": '[project]\nname = "peaks"\ndependencies = ["httpx>=1"]\nscripts = { peaks = "peaks:main" }',
    "peaks/__init__.py": '"""The peaks."""\ndef main(): ...\n',
    "tests/test_peaks.py": "def test_it(): ...\n",
}
NODE_PROJECT = {
    "package.json": '{"name": "tracks", "description": "Draws tracks on a map.", "dependencies": {"leaflet": "1"}}',
    "src/index.js": "// Starts the map.\nexport function start() {}\n",
    "node_modules/leaflet/README.md": "# Leaflet\n\nNobody should read this one.\n",
}
BARE_FOLDER = {
    "decoder.py": '"""Decodes what came in."""\nclass Decoder: ...\n',
    "notes.txt": "Gr\xfcezi mitenand, alle zusammen.\n",
}


def fill(folder: Path, files: dict[str, str], encoding: str = "utf-8") -> Path:
    """Write files into a new folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding=encoding)
    return folder


def assert_told(done: subprocess.CompletedProcess[str]) -> None:
    """Check that the story came to its end, with each claim seen to hold."""
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("\n   yes  ") == 11
    assert "\n   NO " not in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "files, encoding, said",
    [
        (PYTHON_PROJECT, "utf-8", ["peaks: Peaks lists the highest mountains.", "It needs httpx.", "command peaks"]),
        (NODE_PROJECT, "utf-8", ["tracks: Draws tracks on a map.", "It needs leaflet.", "2 text file(s)"]),
        (BARE_FOLDER, "latin-1", ["decoder.py begins: Decodes what came in.", "It offers Decoder."]),
    ],
    ids=["python", "node", "bare"],
)
def test_demo_answers_from_the_files(
    command: Command, tmp_path: Path, files: dict[str, str], encoding: str, said: list[str]
) -> None:
    """The whole story holds, and the answer says what the folder's own files say."""
    folder = fill(tmp_path / "project", files, encoding)

    done = command.run("demo", str(folder))

    assert_told(done)
    for text in said:
        assert text in done.stdout
    assert "Nobody should read" not in done.stdout


@pytest.mark.slow
def test_demo_on_an_empty_folder_twice(command: Command) -> None:
    """Without a file the call that lists them is the one that is killed; a second telling has States of its own."""
    first = command.run("demo")
    second = command.run("demo")

    assert_told(first)
    assert_told(second)
    assert "has no text files" in first.stdout
    assert len(command.listed("alpineagents-demo.db")) == 4


@pytest.mark.slow
def test_demo_leaves_what_it_says(command: Command, tmp_path: Path) -> None:
    """The lines that it prints at the end work, and the history has the call that was started twice."""
    done = command.run("demo", str(fill(tmp_path / "project", BARE_FOLDER)))
    args = re.findall(r"^   alpineagents (show \S+ --store \S+)$", done.stdout, flags=re.MULTILINE)[0].split()

    shown = command.run(*args)

    assert shown.returncode == 0
    assert ", attempt 2" in shown.stdout
    assert "status  stopped" in shown.stdout


@pytest.mark.slow
def test_demo_on_postgres(command: Command, tmp_path: Path, postgres_url: str) -> None:
    """On an empty Postgres database, the tables are made and the same story holds."""
    assert_told(command.run("demo", str(fill(tmp_path / "project", PYTHON_PROJECT)), "--store", postgres_url))


@pytest.mark.slow
def test_demo_with_a_model(command: Command, tmp_path: Path) -> None:
    """With --model, a real model drives the same story."""

    def script(received: Received) -> Answer:
        answers = sum(message["role"] == "tool" for message in received.body["messages"])
        if answers == 0:
            return calls(("list_files", {}))
        if answers == 1:
            return calls(("read_file", {"path": "README.md"}), ("read_file", {"path": "pyproject.toml"}))
        return says("It is about mountains.")

    folder = fill(tmp_path / "project", PYTHON_PROJECT)
    with OpenAIServer(script=script) as server:
        done = command.knows(server).run("demo", str(folder), "--model", "gpt-test")

    assert_told(done)
    assert "It is about mountains." in done.stdout


def test_demo_fails_if_its_claims_cannot_be_seen(command: Command, tmp_path: Path) -> None:
    """A model that reads no file leaves no moment to kill it in: that is said, and the exit code is not 0."""
    with OpenAIServer(says("I do not look.")) as server:
        folder = fill(tmp_path / "project", PYTHON_PROJECT)
        done = command.knows(server).run("demo", str(folder), "--model", "gpt-test")

    assert done.returncode == 1
    assert "answered before it had read a file" in done.stderr


@pytest.mark.parametrize(
    "args, named",
    [
        (("nowhere",), "'nowhere' is not a folder"),
        ((".", "--store", ":memory:"), "--store demo.db"),
        ((".", "--model", "gpt-test"), "OPENAI_API_KEY"),
    ],
)
def test_demo_says_what_is_wrong(command: Command, args: tuple[str, ...], named: str) -> None:
    """What keeps the story from beginning is one line, and nothing is written."""
    done = command.run("demo", *args)

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert named in done.stderr
    assert list(command.folder.iterdir()) == []


def test_ctrl_c_ends_the_processes_of_the_demo(command: Command, started: Any) -> None:
    """Whoever stops the story leaves no process behind."""
    process = started(command, "demo")
    pid = next(pid_in(process.stdout))

    os.killpg(process.pid, signal.SIGINT)

    assert process.wait(TIMEOUT) == 130
    assert "Traceback" not in process.stderr.read()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_of_the_demo_ends_with_the_demo(command: Command, started: Any) -> None:
    """If the demo itself is killed, the process that it holds inside a tool ends too."""
    process = started(command, "demo")
    next(line for line in process.stdout if "tool_started" in line)

    process.kill()
    process.wait(TIMEOUT)

    # Its end comes when the last of the two processes that write to it is gone.
    assert process.stderr.read() == ""


def pid_in(lines: Any) -> Iterator[int]:
    """Yield the ids of the processes that the demo names."""
    for line in lines:
        if found := re.match(r"\s+Process (\d+) is asked", line):
            yield int(found[1])


def test_the_dead_run_is_there_as_it_was(command: Command, tmp_path: Path) -> None:
    """After the demo the rows of both runs stand side by side, and no revision is missing."""
    command.run("demo", str(fill(tmp_path / "project", BARE_FOLDER)), "--store", "demo.db")

    database = sqlite3.connect(command.folder / "demo.db")
    rows = database.execute(
        "SELECT state_id, revision, kind, payload FROM agent_events ORDER BY state_id, revision"
    ).fetchall()
    database.close()

    by_state: dict[str, list[tuple[int, str, str]]] = {}
    for state_id, *row in rows:
        by_state.setdefault(state_id, []).append((row[0], row[1], row[2]))
    killed = next(
        history for history in by_state.values() if [kind for _, kind, _ in history].count("run_started") == 2
    )
    assert [revision for revision, _, _ in killed] == list(range(1, len(killed) + 1))
    assert [json.loads(payload)["attempt"] for _, kind, payload in killed if kind == "tool_started"].count(2) == 1
