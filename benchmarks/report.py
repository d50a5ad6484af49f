"""The figures as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.peers.catalog import OURS, PEERS
from benchmarks.targets import lines


def page(figures: dict[str, Any]) -> str:
    """Write the whole page."""
    return (
        "\n".join(
            [*head(figures), *drivers(figures), *growth(figures), *race(figures), *rest(figures), *short(figures)]
        )
        + "\n"
    )


def head(figures: dict[str, Any]) -> Iterator[str]:
    """Say where and what was measured."""
    about = figures["about"]
    yield f"Measured {about['at']} at commit {about['commit']}: {about['machine']}; {about['python']}; " + ", ".join(
        f"{name} {version}" for name, version in about["versions"].items()
    )
    loads = f"{about['load_at_start']} and {about['load_at_end']} on {about['cores']} cores"
    yield f"Load of the machine at the start and at the end: {loads}."
    for key, why in figures.get("missing", {}).items():
        yield f"Missing: {key} ({why})."
    yield ""


def drivers(figures: dict[str, Any]) -> Iterator[str]:
    """The store beside the driver alone."""
    for name, found in figures.get("drivers", {}).items():
        yield f"### {name}, beside the driver alone\n" if name != "memory" else "### In memory\n"
        yield row(["", "median", "from", "to"])
        yield row(["---"] * 4)
        for one in found:
            yield row([one.name, *(f"{value:,.2f}" for value in (one.median, min(one.values), max(one.values)))])
        yield ""


def growth(figures: dict[str, Any]) -> Iterator[str]:
    """One conversation of N steps."""
    found = figures.get("growth", {})
    if not found:
        return
    lengths = list(next(iter(found.values()))["step_ms"])
    full = any("written_bytes" in one for one in found.values())
    more = ["size, MB", "written in all, MB"] if full else []
    names = ["", *(f"at {length}, ms" for length in lengths), f"KB written a step at {lengths[-1]}", "load, ms", *more]
    yield "### One conversation\n"
    yield row([*names, "where its promise is weaker"])
    yield row(["---"] * (len(names) + 1))
    for peer in PEERS:
        one = found.get(peer.key)
        if one is None:
            continue
        cells = [f"**{peer.key}**" if peer.title == OURS else peer.key]
        for length in lengths:
            least, most = one["step_ms_of_rounds"][length]
            cells.append(f"{one['step_ms'][length]:.2f} ({least:.2f}–{most:.2f})")
        cells += [f"{one['written_bytes_a_step'][lengths[-1]] / 1e3:,.0f}", f"{one['load_ms']:,.0f}"]
        if full:
            cells += [f"{one['size_bytes'] / 1e6:,.1f}", f"{one['written_bytes'] / 1e6:,.0f}"]
        yield row([*cells, peer.promise])
    yield ""


def race(figures: dict[str, Any]) -> Iterator[str]:
    """Four processes on one database."""
    found = figures.get("race", {})
    if not found:
        return
    yield "### Four processes, 25 conversations each, on one database\n"
    yield row(["", "Events/s", "p99, ms", "longest, ms", "lock errors", "other errors", "least : most of a process"])
    yield row(["---"] * 7)
    for peer in PEERS:
        if one := found.get(peer.key):
            name = f"**{peer.key}**" if peer.title == OURS else peer.key
            figure = f"{one['events_a_second']:,.0f}"
            times = [f"{one['p99_ms']:,.0f}", f"{one['longest_ms']:,.0f}"]
            errors = [f"{one['lock_errors']:.0f}", f"{one['other_errors']:.0f}"]
            yield row([name, figure, *times, *errors, f"{one['least_to_most']:.2f}"])
    yield ""


def rest(figures: dict[str, Any]) -> Iterator[str]:
    """What is one figure a line."""
    if against := figures.get("against"):
        titles = list(against)
        yield "### Beside alpineagents 0.7.1\n"
        yield row(["", *titles])
        yield row(["---"] * (len(titles) + 1))
        for name, label, factor in (
            ("load_seconds", "load of 20,000 Events, ms", 1e3),
            ("load_stall", "longest stall of the event loop meanwhile, ms", 1e3),
            ("load_stall_cpu", "the same, of its own work alone, ms", 1e3),
            ("turns_turns_a_second", f"{figures['about']['states']} States × 20 turns with a tool, turns/s", 1),
            ("cpu_cpu_a_turn", "CPU of a turn without a store, µs", 1e6),
        ):
            yield row([label, *(f"{against[title][name] * factor:,.1f}" for title in titles)])
        yield ""
    if single := list(singles(figures)):
        yield "### Alone\n"
        yield row(["", "figure"])
        yield row(["---", "---"])
        yield from single
        yield ""


def singles(figures: dict[str, Any]) -> Iterator[str]:
    """What has no peer."""
    if alone := figures.get("alone"):
        lag = f"{alone['runs_at_once']:,.0f} runs at once in a process: lag of the event loop, p99, ms"
        yield row([lag, f"{alone['lag_p99_ms']:.1f}"])
        yield row(["memory of an Event, bytes", f"{alone['memory_bytes_an_event']:,.0f}"])
    if start := figures.get("start"):
        yield row(["`import alpineagents`, ms of CPU", f"{start['import_cpu_ms']:.0f}"])
        stands_on = start["import_of_what_it_stands_on_cpu_ms"]
        yield row(["importing pydantic, anyio and httpx, ms of CPU", f"{stands_on:.0f}"])
        yield row(["`alpineagents --help`, ms", f"{start['help_ms']:.0f}"])


def short(figures: dict[str, Any]) -> Iterator[str]:
    """Each figure that has a target, the ones that fall short first."""
    found = sorted(lines(figures), key=lambda line: line.is_met)
    if not found:
        return
    missed = sum(not line.is_met for line in found)
    yield f"### Targets: {missed} of {len(found)} lines fall short\n"
    yield row(["", "figure", "target", "met"])
    yield row(["---"] * 4)
    yield from map(str, found)


def row(cells: list[str]) -> str:
    """Write one row of a table."""
    return "| " + " | ".join(cells) + " |"
