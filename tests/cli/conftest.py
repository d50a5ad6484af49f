"""The real command in processes of its own: with pipes, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import alpineagents
from tests.servers.openai_server import OpenAIServer

TIMEOUT = 60.0
LEFT_OUT = ("OPENAI_", "ANTHROPIC_", "OPENROUTER_", "ALPINEAGENTS_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "PYTHONPATH")

# A session leader that opens a terminal gets its Ctrl+C.
AT_TERMINAL = "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); os.execv(sys.argv[1], sys.argv[1:])"


class Command:
    """Runs `alpineagents` in a folder, with an environment that holds no key and no setting of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
        self.env = {**kept, "PYTHONPATH": str(Path(alpineagents.__file__).parents[1]), "TERM": "xterm"}
        self.argv = [sys.executable, "-m", "alpineagents"]

    def knows(self, server: OpenAIServer) -> Self:
        """Let `--model gpt-…` be served by this server."""
        self.env |= {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-test"}
        return self

    def run(
        self, *args: str, input: str = "", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            [*self.argv, *args],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            input=input,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT,
        )

    def chat(self, *lines: str, args: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run a chat with piped lines."""
        return self.run("chat", "--model", "gpt-test", *args, input="".join(f"{line}\n" for line in lines))

    def listed(self, store: str = "chat.db") -> list[dict[str, Any]]:
        """Return what `list --json` says."""
        done = self.run("list", "--store", store, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    def at_terminal(self, *args: str) -> Terminal:
        """Start it at a terminal."""
        return Terminal([*self.argv, *args], self.folder, self.env)


class Terminal:
    """A process at a terminal of its own, killed at the end of the block if it is still there."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, *argv],
            cwd=folder,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._unread = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def read_until(self, text: str) -> str:
        """Wait until the terminal shows a text; return all up to it."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self._unread:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no {text!r} in {self._unread!r}"
            try:
                got = os.read(self._master, 4096)
            except OSError:
                got = b""
            assert got, f"ended before {text!r}: {self._unread!r}"
            self._unread += got.decode(errors="replace")
        shown, _, self._unread = self._unread.partition(text)
        return shown + text

    def wait(self) -> int:
        """Wait for the end of the process; return its exit code."""
        return self._process.wait(TIMEOUT)

    def leave(self) -> int:
        """
        Press Ctrl+C at the prompt until the process ends; return its exit code.

        Once more where nothing happens: readline misses one that comes after it has shown the prompt and before it
        waits for a key, and notices it at the next.
        """
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            self.type("\x03")
            try:
                return self._process.wait(2.0)
            except subprocess.TimeoutExpired:
                continue
        return self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(TIMEOUT)
        os.close(self._master)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """The command, run in an empty folder."""
    folder = tmp_path / "here"
    folder.mkdir()
    return Command(folder)


@pytest.fixture
def started() -> Iterator[Any]:
    """Start a process with a pipe for its output; it is killed after the test if it is still there."""
    processes: list[subprocess.Popen[str]] = []

    def start(command: Command, *args: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [*command.argv, *args],
            cwd=command.folder,
            env=command.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        with closing_pipes(process):
            if process.poll() is None:
                process.kill()
            process.wait(TIMEOUT)


@contextmanager
def closing_pipes(process: subprocess.Popen[str]) -> Iterator[None]:
    """Close what of the pipes is still open."""
    try:
        yield
    finally:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None and not stream.closed:
                stream.close()
