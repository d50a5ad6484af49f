"""The table of the crash sweep: what the tests recorded of each kill, by store and kind of moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.agent.crash import ANSWER, MOMENTS, Story

PROPERTY = "crash"
"""Under which a test records the facts of its kill."""

STORES = {"files": "`FileStore`", "sqlite": "`SQLStore`, SQLite", "postgres": "`SQLStore`, Postgres"}
HEAD = (
    "store",
    "killed",
    "kills",
    "same answer",
    "a payment is made",
    "the booking is made",
    "acknowledged Events lost",
)


def facts(moment: str, story: Story) -> dict[str, Any]:
    """Return what the table shows of a kill."""
    return {
        "store": STORES[story.place.name],
        "kind": next(kind for kind, moments in MOMENTS.items() if moment in moments),
        "same": story.ended.answer == ANSWER,
        "payments": [len(story.effects[name]) for name in ("pay-Ada", "pay-Bob")],
        "bookings": [len(story.effects["book"])],
        "lost": story.lost,
    }


def table(kills: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Return the lines of the table."""
    yield _line(HEAD)
    yield f"|{'---|' * len(HEAD)}"
    for store in STORES.values():
        for kind in MOMENTS:
            if those := [kill for kill in kills if (kill["store"], kill["kind"]) == (store, kind)]:
                yield _line(_row(store, kind, those))


def _row(store: str, kind: str, kills: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from (store, kind, str(len(kills)), str(sum(kill["same"] for kill in kills)))
    for effect in ("payments", "bookings"):
        yield _times([times for kill in kills for times in kill[effect]])
    yield str(sum(kill["lost"] for kill in kills))


def _times(times: Sequence[int]) -> str:
    low, high = min(times), max(times)
    return {(1, 1): "once", (0, 1): "at most once", (1, 2): "once or twice"}.get((low, high), f"{low} to {high} times")


def _line(cells: Any) -> str:
    return f"| {' | '.join(cells)} |"
