"""The page of guarantees names a test for each, and that test is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_test_that_the_page_names_is_there() -> None:
    """A test that was renamed or lost would leave a guarantee that nobody holds."""
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")))
    written = {
        name
        for path in [*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "alpineagents" / "testing" / "rules").glob("*.py")]
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))
    }

    assert len(named) > 40
    assert sorted(named - written) == []
