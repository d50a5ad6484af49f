"""The targets of the benchmarks: a slow-down falls short of one of them, whatever the machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, from the folder beside the tests: it is in no wheel."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT))
    spec = importlib.util.find_spec("benchmarks.targets")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up.
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "benchmarks":
            del sys.modules[name]


def growth(ours: dict[str, float], driver: dict[str, float]) -> dict[str, Any]:
    return {"alpineagents, SQLite": {"step_ms": ours}, "the driver alone, SQLite": {"step_ms": driver}}


def missed(targets: ModuleType, figures: dict[str, Any]) -> list[str]:
    return [line.name for line in targets.lines(figures) if not line.is_met]


def test_steps_like_those_of_the_driver_meet_their_targets(targets: ModuleType) -> None:
    """A step that costs no more late than early, and little more than the driver, falls short of nothing."""
    figures = {"growth": growth({"10": 0.8, "1000": 0.8}, {"10": 0.5, "1000": 0.5}), "alone": {"flat_sqlite": 1.02}}

    assert missed(targets, figures) == []


def test_a_sleep_in_append_is_caught(targets: ModuleType) -> None:
    """Five milliseconds more a step are seen beside the driver, at each length."""
    figures = {"growth": growth({"10": 5.8, "1000": 5.8}, {"10": 0.5, "1000": 0.5})}

    assert missed(targets, figures) == [
        "SQLite: a step at 10, beside the driver alone",
        "SQLite: a step at 1000, beside the driver alone",
    ]


def test_a_copy_of_the_history_at_each_step_is_caught(targets: ModuleType) -> None:
    """What grows with the history is seen late in it, although the first steps are quick."""
    figures = {"growth": growth({"10": 0.8, "1000": 9.0}, {"10": 0.5, "1000": 0.5}), "alone": {"flat_sqlite": 11.0}}

    assert missed(targets, figures) == [
        "SQLite: a step at 1000, beside the driver alone",
        "sqlite: a step at Event 10,000 in steps at Event 10",
    ]


def test_a_figure_at_its_target_meets_it(targets: ModuleType) -> None:
    """Least and most count themselves."""
    assert targets.Line("least", 5.0, 5.0).is_met
    assert targets.Line("most", 1.1, 1.1, at_most=True).is_met
    assert not targets.Line("most", 1.2, 1.1, at_most=True).is_met
