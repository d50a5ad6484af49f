"""The demo's hold on its processes: each is ended with the block that started it, whatever happens in there."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import PIPE

import anyio
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from alpineagents.cli.demo.wire import Job, Report

MAX_LINE_BYTES = 1_000_000
END_SECONDS = 10.0


class DemoError(Exception):
    """The demo cannot go on; the message says what was missing."""


class Child:
    """
    A process that does a Job; `started` makes it.

    Attributes:
        reports: what it has said so far.
    """

    def __init__(self, process: Process, patience: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._patience = process, patience
        self._stdin, self._lines = process.stdin, BufferedByteReceiveStream(process.stdout)
        self.reports: list[Report] = []

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @classmethod
    @asynccontextmanager
    async def started(cls, job: Job, *, patience: float) -> AsyncIterator[Child]:
        """
        Start a process; it is killed at the end of the block if it is still there.

        Args:
            patience: seconds to wait for each of its reports.
        """
        # The same modules as here, and none that happens to lie in the current folder. Not in this process group:
        # Ctrl+C is for this process, which then ends the other.
        process = await anyio.open_process(
            [sys.executable, "-P", "-m", "alpineagents.cli.demo.worker"],
            stdin=PIPE,
            stdout=PIPE,
            stderr=None,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or str(os.curdir) for path in sys.path)},
            start_new_session=True,
        )
        try:
            child = cls(process, patience)
            await child.tell(job.model_dump_json())
            yield child
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(END_SECONDS):
                if process.returncode is None:
                    process.kill()
                await process.wait()
                await process.aclose()

    async def tell(self, word: str) -> None:
        """Say a line to it."""
        try:
            await self._stdin.send(word.encode() + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise DemoError(f"process {self.pid} ended before it was told what to do") from error

    async def next(self) -> Report:
        """
        Wait for its next report.

        Raises:
            DemoError: it ended, or said nothing in time.
        """
        try:
            with anyio.fail_after(self._patience):
                line = await self._lines.receive_until(b"\n", MAX_LINE_BYTES)
        except TimeoutError as error:
            raise DemoError(f"process {self.pid} said nothing for {self._patience:.0f} seconds") from error
        except (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError) as error:
            code = await self.wait()
            raise DemoError(f"process {self.pid} ended too early, with exit code {code}") from error
        report = Report.model_validate_json(line)
        self.reports.append(report)
        return report

    async def wait(self) -> int:
        """
        Wait for its end.

        Raises:
            DemoError: it did not end in time.
        """
        try:
            with anyio.fail_after(self._patience):
                return await self._process.wait()
        except TimeoutError as error:
            raise DemoError(f"process {self.pid} did not end within {self._patience:.0f} seconds") from error

    async def kill(self) -> int:
        """Kill it as a machine that fails would: it cannot see that coming, nor do anything about it."""
        self._process.send_signal(signal.SIGKILL)
        return await self.wait()
