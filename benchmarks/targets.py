"""What the figures should be, and the lines that fall short."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.catalog import DRIVER, OURS, PEERS

FLAT = 1.1
"""How much more a step at Event 10,000 may take than at Event 10."""

DRIVER_LIMIT = 3.0
"""How many times the driver alone a step may take, so that a step that became slow is seen without any peer."""


@dataclass(frozen=True)
class Line:
    """
    One figure beside its target.

    Attributes:
        at_most: whether the target is the most that it may be, or else the least.
    """

    name: str
    figure: float
    target: float
    at_most: bool = False
    unit: str = "×"

    @property
    def is_met(self) -> bool:
        """Whether the figure is as it should be."""
        return self.figure <= self.target if self.at_most else self.figure >= self.target

    def __str__(self) -> str:
        sign, met = "≤" if self.at_most else "≥", "yes" if self.is_met else "**no**"
        return f"| {self.name} | {self.figure:,.2f} {self.unit} | {sign} {self.target:,.2f} | {met} |"


def lines(figures: dict[str, Any]) -> list[Line]:
    """Return every line that the figures allow."""
    return [
        *of_drivers(figures.get("drivers", {})),
        *of_growth(figures.get("growth", {})),
        *of_alone(figures.get("alone", {}), figures.get("start", {})),
        *of_pair(figures.get("against", {})),
        *of_race(figures.get("race", {})),
    ]


def of_drivers(found: dict[str, Any]) -> Iterator[Line]:
    """What has a target beside the driver alone."""
    for database, figures in found.items():
        for one in figures:
            if one.target is not None:
                unit = "ms" if one.name.endswith(", ms") else "×"
                yield Line(f"{database}: {one.name}", one.median, one.target, at_most=not one.at_least, unit=unit)


def of_growth(growth: dict[str, Any]) -> Iterator[Line]:
    """A step beside the driver alone, and beside every peer."""
    for database in ("SQLite", "Postgres"):
        ours = growth.get(f"{OURS}, {database}")
        if ours is None:
            continue
        driver = growth.get(f"{DRIVER}, {database}")
        for length, step in ours["step_ms"].items():
            if driver is not None:
                name = f"{database}: a step at {length}, beside the driver alone"
                yield Line(name, step / driver["step_ms"][length], DRIVER_LIMIT, at_most=True)
        for peer in PEERS:
            # Files are beside SQLite: both are what one machine uses.
            if peer.title in (OURS, DRIVER) or peer.key not in growth:
                continue
            if peer.database != database and not (database == "SQLite" and peer.database == "files"):
                continue
            for length, step in ours["step_ms"].items():
                many = peer.rewrites and int(length) >= 1_000
                # Of those that promise less, only the ones that write all again must be behind, when it is long.
                if many or not peer.promise:
                    name = f"{database}: {peer.key} at {length}, its step in ours"
                    yield Line(name, growth[peer.key]["step_ms"][length] / step, 5.0 if many else 1.0)


def of_alone(alone: dict[str, float], start: dict[str, float]) -> Iterator[Line]:
    """What concerns this project alone."""
    for database in ("sqlite", "postgres"):
        if f"flat_{database}" in alone:
            name = f"{database}: a step at Event 10,000 in steps at Event 10"
            yield Line(name, alone[f"flat_{database}"], FLAT, at_most=True)
    if start:
        yield Line("import, beside pydantic, anyio and httpx", start["import_ratio"], 1.5, at_most=True)


def of_pair(against: dict[str, dict[str, float]]) -> Iterator[Line]:
    """This project and alpineagents 0.7.1."""
    ours = against.get(OURS)
    if ours is None:
        return
    yield Line("load of 20,000 Events: longest stall of the event loop", ours["load_stall"] * 1e3, 50.0, True, "ms")
    for old in (figures for title, figures in against.items() if title != OURS):
        yield Line("load of 20,000 Events, 0.7.1 in ours", old["load_seconds"] / ours["load_seconds"], 8.0)
        yield Line("turns a second, ours in 0.7.1's", ours["turns_turns_a_second"] / old["turns_turns_a_second"], 30.0)
        yield Line(
            "CPU of a turn, ours in 0.7.1's", ours["cpu_cpu_a_turn"] / old["cpu_cpu_a_turn"], 1 / 3, at_most=True
        )


def of_race(race: dict[str, dict[str, float]]) -> Iterator[Line]:
    """Four processes: beside the best peer on the same database."""
    for database, target in (("SQLite", 5.0), ("Postgres", 10.0)):
        ours = race.get(f"{OURS}, {database}")
        others = {
            peer.key: race[peer.key]["events_a_second"]
            for peer in PEERS
            if peer.database == database and peer.title not in (OURS, DRIVER) and peer.key in race
        }
        if ours and others:
            best = max(others, key=lambda key: others[key])
            name = f"4 processes × 25 States on {database}, Events a second in those of the best peer ({best})"
            yield Line(name, ours["events_a_second"] / others[best], target)
