"""Draw a soak: python benchmarks/soak_plots.py RESULTS.json PICTURE.svg. Needs matplotlib."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from soak_figures import MB, series  # its neighbour: the package would start Django and a database

MOST_POINTS = 120  # of a line; more are bytes and no more to be seen
SMALLEST = 0.01  # of the largest relation; what is smaller lies on the axis


def main() -> None:
    results, picture = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    mpl.rcParams.update({"svg.hashsalt": "pulse", "svg.fonttype": "none", "font.size": 8, "axes.grid": True})
    figure, axes = plt.subplots(2, 2, figsize=(10, 6), sharex=True, layout="constrained")
    memory, sizes, times, rates = axes.flat
    draw_memory(memory, results["samples"])
    draw_sizes(sizes, results["samples"])
    draw_times(times, results["samples"])
    draw_rates(rates, results["samples"])
    for one in axes.flat:
        one.axvspan(0, results["warm_up_s"] / 60, color="0.93", zorder=0)  # not judged
        one.legend(fontsize=7, loc="best")
        one.grid(color="0.9")
    for one in (times, rates):
        one.set_xlabel("minutes")
    figure.savefig(picture, metadata={"Date": None})


def draw_memory(axes: Any, samples: list[dict[str, Any]]) -> None:
    axes.set(title="memory of each process (PSS)", ylabel="MiB")
    for role in samples[-1]["memory"]:
        plot(axes, samples, role, "memory", role, "pss")
    axes.set_ylim(bottom=0)


def draw_sizes(axes: Any, samples: list[dict[str, Any]]) -> None:
    axes.set(title="tables and indexes", ylabel="MB")
    largest = samples[-1]["bytes"]
    for name in [name for name, size in largest.items() if size > SMALLEST * max(largest.values())]:
        plot(axes, samples, name.removeprefix("pulse_"), "bytes", name, by=MB)
    axes.set_ylim(bottom=0)


def draw_times(axes: Any, samples: list[dict[str, Any]]) -> None:
    axes.set(title="claims", ylabel="ms", yscale="log")
    plot(axes, samples, "statement, p50", "claims", "p50_ms")
    plot(axes, samples, "statement, p99", "claims", "p99_ms")
    plot(axes, samples, "due to claimed, p99", "waits", "p99_ms")


def draw_rates(axes: Any, samples: list[dict[str, Any]]) -> None:
    axes.set(title="jobs", ylabel="per second")
    plot(axes, samples, "enqueued", "enqueued_per_s")
    plot(axes, samples, "runs ended", "waits", "ended_per_s")
    plot(axes, samples, "waiting (jobs)", "backlog")
    axes.set_ylim(bottom=0)


def plot(axes: Any, samples: list[dict[str, Any]], label: str, *path: str, by: float = 1.0) -> None:
    points = series(samples, *path)
    points = points[:: max(1, -(-len(points) // MOST_POINTS))]
    axes.plot([at / 60 for at, _ in points], [value / by for _, value in points], label=label, linewidth=0.9)


if __name__ == "__main__":
    main()
