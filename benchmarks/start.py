"""How long a program waits before its first line: the import of the library, beside what it stands on; the command."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

STANDS_ON = "pydantic, anyio, httpx"

# The first import keeps the bytecode, as for any user; a setting against it would measure the compiler.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def seconds_of(*arguments: str) -> float:
    """Return the seconds that a process of this Python takes."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, timeout=60, env=ENVIRONMENT)
    return time.perf_counter() - start


def cpu_of_import(names: str) -> float:
    """Return the processor's seconds that an import takes in a fresh process, the start of Python left out."""
    program = f"import time; start = time.process_time(); import {names}; print(time.process_time() - start)"
    run = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60, env=ENVIRONMENT
    )
    return float(run.stdout)


def measure(rounds: int) -> dict[str, float]:
    """Import each in turns; the first round, which reads the files from the disk, does not count."""
    taken: dict[str, list[float]] = {"alpineagents": [], STANDS_ON: []}
    commands = []
    for _ in range(rounds + 1):
        for names, times in taken.items():
            times.append(cpu_of_import(names))
        commands.append(seconds_of("-m", "alpineagents", "--help"))
    ours, others = (statistics.median(times[1:]) for times in taken.values())
    return {
        "import_cpu_ms": ours * 1e3,
        "import_of_what_it_stands_on_cpu_ms": others * 1e3,
        "import_ratio": ours / others,
        "help_ms": statistics.median(commands[1:]) * 1e3,
    }
