"""
`python -m benchmarks`: the library beside its peers and the drivers, with a table, curves and targets.

All sides take turns in one run, so that a machine that is busy slows all. The lines that fall short of their target are
named and are no error: times depend on the machine. `--prove` shows that the targets catch a slow-down.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import curves, drivers, growth, pair, race, report, start, targets
from benchmarks.peers.catalog import ENVIRONMENTS

ROOT = Path(__file__).parent.parent
PARTS = ("drivers", "growth", "race", "against", "alone", "start")


def main() -> None:
    """Run what the arguments ask for, print the page and write the files."""
    given = arguments()
    with server(given.postgres) as postgres:
        if given.prove:
            prove()
            return
        figures: dict[str, Any] = {"about": about(given)}
        figures["missing"] = missing = {}
        peers = growth.chosen(postgres, alone=given.alone)
        if "drivers" in given.parts:
            figures["drivers"] = drivers.measure(postgres, rounds=300 if given.full else 120)
        if "growth" in given.parts:
            rounds, window = (5, 30) if given.full else (2, 10)
            figures["growth"], why = growth.measure(
                peers, given.environments, postgres, rounds=rounds, window=window, each=given.full
            )
            missing |= why
        if "race" in given.parts:
            rounds, seconds = (3, 5.0) if given.full else (1, 2.0)
            figures["race"], why = race.measure(peers, given.environments, postgres, rounds=rounds, seconds=seconds)
            missing |= why
        if "against" in given.parts:
            rounds = 3 if given.full else 1
            figures["against"], why = pair.against(given.environments, rounds=rounds, states=states(given))
            missing |= {pair.OLD.key: why} if why and not given.alone else {}
        if "alone" in given.parts:
            figures["alone"] = pair.alone(postgres, runs=1_000, flat_rounds=500 if given.full else 100)
        if "start" in given.parts:
            figures["start"] = start.measure(15 if given.full else 5)
    figures["about"]["load_at_end"] = round(os.getloadavg()[0], 1)
    write(figures, given.out)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--full", action="store_true", help="every step, more rounds: half an hour, not minutes")
    parser.add_argument("--alone", action="store_true", help="without the peers: this project and the drivers")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these (default: all)")
    parser.add_argument("--environments", type=Path, help="the folder with an environment for each peer")
    parser.add_argument("--postgres", help="URL of a server; 'off' for none (default: one of the tests', with fsync)")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="the folder for what is written")
    parser.add_argument("--prove", action="store_true", help="slow the library down on purpose and see it caught")
    return parser.parse_args()


def states(given: argparse.Namespace) -> int:
    """Return how many States run at once beside 0.7.1, which takes minutes for a hundred."""
    return 100 if given.full else 20


@contextmanager
def server(named: str | None) -> Iterator[str | None]:
    """Give the URL of a Postgres that writes to the disk: the named one, or a server of its own."""
    if named:
        yield None if named == "off" else named
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from postgres_server import PostgresServer, PostgresServerError

    try:
        own = PostgresServer(fsync="on", full_page_writes="on")
    except PostgresServerError as error:
        print(f"Without Postgres: {error}", file=sys.stderr)
        yield None
        return
    with own:
        yield own.url


def about(given: argparse.Namespace) -> dict[str, Any]:
    """Say what is measured, and where."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    versions = {name: version(name) for name in ("alpineagents", "sqlalchemy", "aiosqlite", "asyncpg", "pydantic")}
    pinned = dict(line[0].split("==") for line in ENVIRONMENTS.values())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GiB",
        "cores": os.cpu_count(),
        "python": f"Python {platform.python_version()}",
        "versions": versions,
        "peers": {} if given.alone else pinned,
        "full": given.full,
        "states": states(given),
        "load_at_start": round(os.getloadavg()[0], 1),
    }


def write(figures: dict[str, Any], folder: Path) -> None:
    """Print the page; write it, the figures and the curves."""
    folder.mkdir(parents=True, exist_ok=True)
    text = report.page(figures)
    (folder / "speed.md").write_text(text, encoding="utf-8")
    (folder / "speed.json").write_text(
        json.dumps(figures, indent=2, ensure_ascii=False, default=asdict) + "\n", encoding="utf-8"
    )
    drawn = curves.draw(figures["growth"], folder) if figures.get("growth") else []
    print(text)
    print("Written:", *[folder / "speed.md", folder / "speed.json", *drawn])


def prove() -> None:
    """Slow the library down in two ways, and end with an error unless the targets catch each of them."""
    peers = [peer for peer in growth.chosen(None, alone=True) if peer.database == "SQLite"]
    found: dict[str, dict[str, targets.Line]] = {}
    for slow in ("", "append", "copy"):
        grown, _ = growth.measure(peers, None, None, rounds=3, window=30, each=False, slow=slow)
        flat = pair.flat(None, rounds=40, late=2_000, slow=slow)
        lines = targets.lines({"growth": grown, "alone": {"flat_sqlite": flat}})
        found[slow] = {line.name: line for line in lines}
        missed = [line for line in lines if not line.is_met]
        print(f"{slow or 'as it is'}: {len(missed)} lines fall short", *missed, sep="\n  ")

    def is_caught(slow: str, word: str) -> bool:
        # On a machine that is busy a line can fall short by itself; the slow-down must show in it all the same.
        pairs = [(line, found[""][name]) for name, line in found[slow].items() if word in name]
        return all(not line.is_met and line.figure > 1.2 * before.figure for line, before in pairs)

    if not is_caught("append", "driver") or not is_caught("copy", "Event 10,000"):
        raise SystemExit("a slow-down was not caught: targets.py has lost its teeth")
    print("Both slow-downs are caught.")


if __name__ == "__main__":
    main()
