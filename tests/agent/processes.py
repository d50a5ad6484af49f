"""Programs of the tests, started and ended for sure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")
SECONDS = 45.0
"""How long a program may take that needs one or two."""


def run(name: str, *arguments: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    with started(name, *arguments) as process:
        out, err = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextmanager
def started(name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and see to it that it is gone afterwards."""
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / name), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
