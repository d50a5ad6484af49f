"""Runs a file of tests in a folder and a process of its own, and tells how each test ended."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

ASYNCIO_ONLY = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


class Outcome(NamedTuple):
    """How a test ended: `passed`, `failed`, `error` or `skipped`, and what was said of it."""

    ended: str
    words: str


def outcomes_of(
    source: str, folder: Path, names: Sequence[str] = (), *, conftest: str = "", package: Path | None = None
) -> dict[str, Outcome]:
    """
    Run a module of tests as a project without any settings does.

    Args:
        names: the tests to run; none for all.
        package: a folder of modules that it imports.

    Returns:
        For each `Class::test` how it ended.
    """
    module, report = folder / "test_it.py", folder / "report.xml"
    if package is not None:
        shutil.copytree(package, folder / package.name)
    module.write_text(source, encoding="utf-8")
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n", encoding="utf-8")
    nodes = [f"{module.name}::{name}" for name in names] or [module.name]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report.name}", *nodes]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=110)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        ends = [part for part in case if part.tag in ("failure", "error", "skipped")]
        ended = {"failure": "failed"}.get(ends[0].tag, ends[0].tag) if ends else "passed"
        words = f"{ends[0].get('message')}\n{ends[0].text}" if ends else ""
        found[f"{str(case.get('classname')).rpartition('.')[2]}::{case.get('name')}"] = Outcome(ended, words)
    return found
