"""This project against alpineagents 0.7.1: loads, runs and the processor; and what only concerns this project."""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.programs import PeerFailedError, Program, fresh_place, python_of

LIMIT_SECONDS = 600.0
(OURS,) = (peer for peer in PEERS if peer.key == "alpineagents, SQLite")
(ON_POSTGRES,) = (peer for peer in PEERS if peer.key == "alpineagents, Postgres")
(OLD,) = (peer for peer in PEERS if peer.environment == "alpineagents-0.7.1")


def once(
    peer: Peer, environments: Path | None, postgres: str | None, slow: str = "", **request: Any
) -> dict[str, float]:
    """Ask a fresh process of a peer for one piece of work on a fresh place."""
    python = python_of(peer, environments)
    if python is None:
        raise PeerFailedError(f"{peer.environment} is not installed")
    print(f"  {request['do']}: {peer.key}", file=sys.stderr)
    with Program(python, peer.program, BENCH_SLOW=slow) as program, fresh_place(peer, postgres) as place:
        answer: dict[str, float] = program.ask(LIMIT_SECONDS, place.database, **request, **place.asked)
    return answer


def against(environments: Path | None, *, rounds: int, states: int) -> tuple[dict[str, dict[str, float]], str]:
    """Measure both in turns; return medians over the rounds, and why the peer has none."""
    works: list[dict[str, Any]] = [
        {"do": "load", "events": 20_000},
        {"do": "turns", "states": states, "turns": 20},
        {"do": "cpu", "runs": 20, "turns": 20},
    ]
    found: dict[str, dict[str, list[float]]] = {}
    missing = ""
    for _ in range(rounds):
        for work in works:
            for peer in (OURS, OLD):
                try:
                    answer = once(peer, environments, None, **work)
                except PeerFailedError as failed:
                    if peer is OURS:
                        raise
                    missing = str(failed)
                    continue
                for name, value in answer.items():
                    figures = found.setdefault(peer.title, {}).setdefault(f"{work['do']}_{name}", [])
                    figures.append(value)
    medians = {
        title: {name: statistics.median(values) for name, values in figures.items()} for title, figures in found.items()
    }
    return medians, missing


def alone(postgres: str | None, *, runs: int, flat_rounds: int) -> dict[str, float]:
    """Measure what has no peer: the loop's lag with many runs, memory, a step early and late in a history."""
    many = once(OURS, None, None, do="many", runs=runs)
    memory = once(OURS, None, None, do="memory", states=1_000, events=100)
    figures = {
        "runs_at_once": float(runs),
        "lag_p99_ms": many["lag_p99"] * 1e3,
        "lag_p50_ms": many["lag_p50"] * 1e3,
        "memory_bytes_an_event": memory["bytes_an_event"],
        "flat_sqlite": flat(None, rounds=flat_rounds),
    }
    if postgres:
        figures["flat_postgres"] = flat(postgres, rounds=flat_rounds)
    return figures


def flat(postgres: str | None, *, rounds: int, late: int = 10_000, slow: str = "") -> float:
    """Return what a step late in a history takes, in steps at Event 10."""
    peer = ON_POSTGRES if postgres else OURS
    answer = once(peer, None, postgres, slow, do="flat", late=late, rounds=rounds)
    return answer["late"] / answer["early"]
