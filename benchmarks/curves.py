"""The growth curves as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.catalog import DRIVER, OURS, PEERS


def draw(growth: dict[str, Any], folder: Path) -> list[Path]:
    """
    Draw what a step takes by the length of the conversation, SQLite and files beside Postgres.

    Returns:
        The files, PNG and SVG; none where matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return []
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "growth"
    from matplotlib import pyplot

    groups = [group for group in (("SQLite", "files"), ("Postgres",)) if any(p.key in growth for p in of(group))]
    figure, axes = pyplot.subplots(1, len(groups), figsize=(6.5 * len(groups), 6.5), sharey=True, squeeze=False)
    for axis, group in zip(axes[0], groups, strict=True):
        for peer in of(group):
            if peer.key not in growth:
                continue
            steps = growth[peer.key]["step_ms"]
            style = {OURS: {"color": "black", "linewidth": 3}, DRIVER: {"color": "gray", "linestyle": ":"}}
            axis.plot(
                list(map(int, steps)), list(steps.values()), marker="o", label=peer.title, **style.get(peer.title, {})
            )
        axis.set(xscale="log", yscale="log", xlabel="length of the conversation", title=" and ".join(group))
        axis.grid(visible=True, which="both", alpha=0.25)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    axes[0][0].set_ylabel("one durable step, ms")
    figure.tight_layout()
    files = [folder / "growth.png", folder / "growth.svg"]
    figure.savefig(files[0], dpi=110)
    figure.savefig(files[1], metadata={"Date": None})
    pyplot.close(figure)
    return files


def of(databases: tuple[str, ...]) -> list[Any]:
    """Return the peers on some databases."""
    return [peer for peer in PEERS if peer.database in databases]
