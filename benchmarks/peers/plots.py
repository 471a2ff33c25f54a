"""Draw a run of the peers. Needs matplotlib; used by report.py, its neighbour."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from report import DRAINS, Key, Results, median

OURS = "pulse"
MARKS, FILLED = ("o", "D"), ("full", "none")
COLOURS = ("#1f5fa8", "#d0701b")


def draw(results: Results, folder: Path) -> list[tuple[str, str]]:
    """Draw what there is, and return a title and a file for each picture."""
    mpl.rcParams.update({"svg.hashsalt": "pulse", "svg.fonttype": "none", "font.size": 8})
    drawn = []
    measured = set(results["measures"])
    if measured & {"drain", "pickup"}:
        draw_peers(results, folder / "benchmarks.svg")
        drawn.append(("Drain and pickup, everybody side by side", "benchmarks.svg"))
    if "growth" in measured:
        draw_growth(results, folder / "benchmarks-growth.svg")
        drawn.append(("How claims grow", "benchmarks-growth.svg"))
    return drawn


def draw_peers(results: Results, picture: Path) -> None:
    figure, (drains, pickups) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    best = [
        (
            f"{count} process{'es' if count > 1 else ''}, the better kind of handler",
            [("drain", v, "jobs_per_s") for v in them],
        )
        for count, them in ((1, (DRAINS[0], DRAINS[2])), (2, (DRAINS[1], DRAINS[3])))
    ]
    marks(drains, results, best)
    drains.set(title="drain", xlabel="jobs a second")
    marks(pickups, results, [(p, [("pickup", "", f"{p}_ms")]) for p in ("p50", "p99")], lowest_first=True)
    pickups.set(title="pickup on an idle worker", xlabel="ms")
    figure.savefig(picture, metadata={"Date": None})


def marks(axes: Any, results: Results, groups: list[tuple[str, list[Key]]], *, lowest_first: bool = False) -> None:
    """Draw two marks for each who has a figure; the best stands on top."""
    rows = []
    for name, peer in results["peers"].items():
        found = [
            max((value for key in keys if (value := median(results, name, key)) is not None), default=None)
            for _, keys in groups
        ]
        known = [value for value in found if value is not None]
        if known:
            rows.append((known[0] if lowest_first else -max(known), name, peer["title"], found))
    rows.sort()
    for number, (label, _) in enumerate(groups):
        points = [(row[3][number], place) for place, row in enumerate(rows) if row[3][number] is not None]
        if points:
            style = {"color": COLOURS[number], "fillstyle": FILLED[number]}
            axes.plot(*zip(*points, strict=True), MARKS[number], label=label, **style)
    axes.set_yticks(range(len(rows)), [row[2] for row in rows])
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        label.set_fontweight("bold" if row[1] == OURS else "normal")
    axes.invert_yaxis()
    axes.grid(color="0.9")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.xaxis.set_minor_formatter("")
    axes.legend(fontsize=7)


def draw_growth(results: Results, picture: Path) -> None:
    entries = [entry for entry in results["measurements"] if entry["measure"] == "growth"]
    figure, all_axes = plt.subplots(1, 3, figsize=(10, 3), sharey=True, layout="constrained")
    for axes, what in zip(all_axes, ("finished rows", "backlog", "queues"), strict=True):
        points = [entry for entry in entries if entry["variant"].startswith(f"{what}:")]
        at = [int(re.sub(r"\D", "", entry["variant"])) for entry in points]
        for number, (name, label) in enumerate((("claim_100_ms", "claim of 100"), ("claim_1_ms", "claim of 1"))):
            axes.plot(at, [entry["figures"][name] for entry in points], "o-", label=label, color=COLOURS[number])
        axes.set(title=f"by {what}", xscale="log", xlabel=what)
        axes.set_ylim(bottom=0)
        axes.grid(color="0.9")
    all_axes[0].set_ylabel("ms")
    all_axes[0].legend(fontsize=7)
    figure.savefig(picture, metadata={"Date": None})
