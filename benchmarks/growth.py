"""The same conversation for all: what a step takes and writes at each length, and what it takes to load it."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import PEERS, Peer
from benchmarks.programs import PeerFailedError, Program, fresh_place, python_of

LENGTHS = (10, 100, 1_000)
LIMIT_SECONDS = 600.0


def measure(
    peers: Sequence[Peer],
    environments: Path | None,
    postgres: str | None,
    *,
    rounds: int,
    window: int,
    each: bool,
    lengths: Sequence[int] = LENGTHS,
    slow: str = "",
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """
    Grow a conversation a round with every peer, in turns, so that a machine that is busy slows all.

    Args:
        window: how many steps are timed from each length on.
        each: take every step up to a length by itself; otherwise as the peer adds many at once, which leaves out
            what is written and the size.

    Returns:
        The figures of each peer, medians over the rounds, and why a peer has none.
    """
    programs: dict[str, Program] = {}
    found: dict[str, list[dict[str, Any]]] = {}
    missing: dict[str, str] = {}
    try:
        for turn in range(rounds):
            for peer in peers if turn % 2 else tuple(reversed(peers)):
                if peer.key in missing:
                    continue
                python = python_of(peer, environments)
                if python is None:
                    missing[peer.key] = f"{peer.environment} is not installed"
                    continue
                print(f"  round {turn + 1}: {peer.key}", file=sys.stderr)
                try:
                    if peer.program not in programs:
                        programs[peer.program] = Program(python, peer.program, BENCH_SLOW=slow)
                    with fresh_place(peer, postgres) as place:
                        answer = programs[peer.program].ask(
                            LIMIT_SECONDS, place.database, do="grow", kind=peer.kind,
                            lengths=lengths, window=window, each=each, **place.asked,
                        )  # fmt: skip
                    found.setdefault(peer.key, []).append(answer)
                except PeerFailedError as failed:
                    missing[peer.key] = str(failed)
                    programs.pop(peer.program).close()
    finally:
        for program in programs.values():
            program.close()
    return {peer.key: summary(found[peer.key], each) for peer in peers if peer.key in found}, missing


def summary(answers: Sequence[dict[str, Any]], each: bool) -> dict[str, Any]:
    """Return the medians over rounds, and the least and the most that a round's median was."""
    lengths = list(answers[0]["step"])
    steps = {length: [answer["step"][length] for answer in answers] for length in lengths}
    figures: dict[str, Any] = {
        "step_ms": {length: statistics.median(taken) * 1e3 for length, taken in steps.items()},
        "step_ms_of_rounds": {length: [min(taken) * 1e3, max(taken) * 1e3] for length, taken in steps.items()},
        "written_bytes_a_step": {
            length: statistics.median(answer["written"][length] for answer in answers) for length in lengths
        },
        "load_ms": statistics.median(answer["load"] for answer in answers) * 1e3,
        "length": answers[0]["length"],
    }
    if each:
        figures["size_bytes"] = statistics.median(answer["size"] for answer in answers)
        figures["written_bytes"] = statistics.median(answer["total"] for answer in answers)
    return figures


def chosen(postgres: str | None, alone: bool) -> list[Peer]:
    """Return the peers to measure: without Postgres those of SQLite and files, alone this project and the drivers."""
    return [
        peer
        for peer in PEERS
        if (postgres or peer.database != "Postgres") and not (alone and peer.environment is not None)
    ]
