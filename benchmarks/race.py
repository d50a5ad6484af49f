"""Four processes with many conversations each on one database: Events a second, the slowest, locks, fairness."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import Peer
from benchmarks.programs import PeerFailedError, Program, fresh_place, python_of

PROCESSES = 4
STATES = 25
LIMIT_SECONDS = 120.0


def measure(
    peers: Sequence[Peer], environments: Path | None, postgres: str | None, *, rounds: int, seconds: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Let every peer race in turns; return the medians over rounds, and why a peer has none."""
    found: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    for turn in range(rounds):
        for peer in peers:
            python = python_of(peer, environments)
            if python is None:
                missing[peer.key] = f"{peer.environment} is not installed"
            if python is None or peer.key in missing:
                continue
            print(f"  round {turn + 1}: {peer.key}", file=sys.stderr)
            try:
                found.setdefault(peer.key, []).append(one_race(peer, python, postgres, seconds))
            except PeerFailedError as failed:
                missing[peer.key] = str(failed)
    medians = {
        key: {name: statistics.median(answer[name] for answer in answers) for name in answers[0]}
        for key, answers in found.items()
        if answers
    }
    return medians, missing


def one_race(peer: Peer, python: Path, postgres: str | None, seconds: float) -> dict[str, float]:
    """Race once: the tables are made first, then all processes start at one word."""
    programs = [Program(python, peer.program) for _ in range(PROCESSES)]
    try:
        with fresh_place(peer, postgres) as place:
            asked = {"kind": peer.kind, **place.asked}
            programs[0].ask(LIMIT_SECONDS, do="prepare", **asked)
            # One after another: that some peers cannot be opened by several at once is not what is measured here.
            for number, program in enumerate(programs):
                program.ask(LIMIT_SECONDS, do="join", states=STATES, worker=number, **asked)
            for program in programs:
                program.say(do="race", seconds=seconds)
            answers = [program.hear(LIMIT_SECONDS) for program in programs]
    finally:
        for program in programs:
            program.close()
    taken = sorted(step for answer in answers for step in answer["taken"])
    events = [answer["events"] for answer in answers]
    if not taken:
        raise PeerFailedError(f"{peer.key}: no step came to its end ({answers[0]['errors']})")
    return {
        "events_a_second": sum(answer["events"] / answer["seconds"] for answer in answers),
        "p99_ms": taken[int(len(taken) * 0.99)] * 1e3,
        "longest_ms": taken[-1] * 1e3,
        "lock_errors": sum(answer["errors"].get("lock", 0) for answer in answers),
        "other_errors": sum(n for answer in answers for name, n in answer["errors"].items() if name != "lock"),
        "least_to_most": min(events) / max(events),
    }
