"""What became of a soak's samples: does anything grow? As a table for people, and as Markdown for the documentation.

python benchmarks/soak_figures.py RESULTS.json          prints the Markdown
python benchmarks/soak_figures.py RESULTS.json PAGE.md  writes it into that page, with the picture, between its marks
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Sample = dict[str, Any]
Series = list[tuple[float, float]]  # seconds since the beginning, and a value

# Judgements. Growth is of the mean, over all that was measured: less calls the steps of an allocator growth, more
# overlooks what a day would show. The ratio is of the last third to the first: single samples differ by more.
MOST_GROWTH = 0.05
MOST_RATIO = 1.25
BEGIN, END = "<!-- soak: written by benchmarks/soak_figures.py -->", "<!-- end of soak -->"
PICTURE = "![Memory, sizes, claims and rates over time](../images/soak.svg)"
FEWEST = 6  # samples after the warm-up; fewer say nothing
HOUR = 3_600.0
MB = 1_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One line of the table."""

    what: str
    first: str  # the mean of the first third
    last: str
    change: str
    holds: bool | None  # None: too short to say


def verdicts(results: dict[str, Any]) -> list[Verdict]:
    """Judge the samples after the warm-up."""
    samples = [sample for sample in results["samples"] if sample["at"] >= results["warm_up_s"]]
    if not samples:
        return []
    roles = sorted(samples[0]["memory"], key=lambda role: (role.startswith("child"), role))
    memory = [growth(f"memory of {role}, PSS", series(samples, "memory", role, "pss"), "MiB", 1.0) for role in roles]
    sizes = [growth(name, series(samples, "bytes", name), "MB", MB, least=MB) for name in samples[0]["bytes"]]
    times = [
        ratio("claim statement, p50", series(samples, "claims", "p50_ms")),
        ratio("claim statement, p99", series(samples, "claims", "p99_ms")),
        ratio("due to claimed, p50", series(samples, "waits", "p50_ms")),
        ratio("due to claimed, p99", series(samples, "waits", "p99_ms")),
    ]
    return [*memory, *sizes, *times]


def series(samples: Sequence[Sample], *path: str) -> Series:
    """Return the instants of samples, and what they hold there; not of those that hold nothing there."""
    found = []
    for sample in samples:
        value: Any = sample
        for key in path:  # nothing may have been claimed just then, or the process was being replaced
            value = None if value is None else value.get(key)
        if value is not None:
            found.append((float(sample["at"]), float(value)))
    return found


def growth(what: str, points: Series, unit: str, by: float, least: float = 0.0) -> Verdict:
    """Say how fast something grows, by the line that fits it best. Less than ``least`` in all is none: a few pages."""
    if len(points) < FEWEST:
        return Verdict(what=what, first="", last="", change="", holds=None)
    first, last = thirds(points, statistics.fmean)
    slope, mean = slope_of(points), statistics.fmean(value for _, value in points)
    grown = slope * (points[-1][0] - points[0][0])
    share = grown / mean if mean else 0.0
    return Verdict(
        what=what,
        first=f"{first / by:,.1f} {unit}",
        last=f"{last / by:,.1f} {unit}",
        change=f"{slope * HOUR / by:+,.2f} {unit}/h, {share:+.1%} of the mean",
        holds=share <= MOST_GROWTH or grown < least,
    )


def ratio(what: str, points: Series) -> Verdict:
    """Compare the last third with the first, by the median of the samples."""
    if len(points) < FEWEST:
        return Verdict(what=what, first="", last="", change="", holds=None)
    first, last = thirds(points, statistics.median)
    times = last / first if first else float("inf")
    return Verdict(
        what=what,
        first=f"{first:,.1f} ms",
        last=f"{last:,.1f} ms",
        change=f"{times:.2f} times",
        holds=times <= MOST_RATIO,
    )


def thirds(points: Series, of: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """Return the first third and the last, by time."""
    begin, end = points[0][0], points[-1][0]
    third = (end - begin) / 3
    first = [value for at, value in points if at <= begin + third]
    last = [value for at, value in points if at >= end - third]
    return of(first), of(last)


def slope_of(points: Series) -> float:
    """Return the growth per second by least squares."""
    at, values = [point[0] for point in points], [point[1] for point in points]
    return statistics.linear_regression(at, values).slope if len(set(at)) > 1 else 0.0


def table(results: dict[str, Any]) -> str:
    """Return what was found for a terminal."""
    rows = [(v.what, v.first, v.last, v.change, said(v)) for v in verdicts(results)]
    if not rows:
        return "Nothing was sampled after the warm-up."
    rows.insert(0, ("", "first third", "last third", "change", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def markdown(results: dict[str, Any]) -> str:
    """Return the figures for the page that keeps them."""
    measured = [sample for sample in results["samples"] if sample["at"] >= results["warm_up_s"]]
    about = results["about"]
    lines = [
        f"`{results['command']}`; PostgreSQL {about['server']}, Python {about['python']}, Django {about['django']},"
        f" {about['cores']} processors; {results['processes']} processes, jobs kept for {results['keep_s']:g} s."
        f" It drained a backlog at {results['drained_per_s']:,.0f} jobs/s, and ended {results['max_per_s']:,.0f} a"
        f" second while as many were enqueued beside it; {results['rate']:,.0f} were enqueued each second"
        f" for {results['samples'][-1]['at'] / 60:.0f} minutes;"
        f" the first {results['warm_up_s'] / 60:g} are not judged.",
        "",
        f"{mean_of(measured, 'waits', 'ended_per_s'):,.0f} runs ended per second,"
        f" {mean_of(measured, 'waits', 'failed_per_s'):,.1f} of them failed and were tried again;"
        f" at most {max(s['backlog'] for s in measured):,} jobs waited;"
        f" {mean_of(measured, 'wal_bytes_per_s') / MB:,.1f} MB of WAL per second."
        f" {ending(results)}",
        "",
        "| | first third | last third | change | |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {v.what} | {v.first} | {v.last} | {v.change} | {said(v)} |" for v in verdicts(results)]
    return "\n".join(lines)


def said(verdict: Verdict) -> str:
    return "too short" if verdict.holds is None else "flat" if verdict.holds else "NOT flat"


def mean_of(samples: Sequence[Sample], *path: str) -> float:
    return statistics.fmean([value for _, value in series(samples, *path)] or [0.0])


def ending(results: dict[str, Any]) -> str:
    end = results.get("end")
    if end is None:
        return "It was broken off."
    return (
        f"Of {end['enqueued']:,} jobs {end['unfinished']} were left over and {end['dead_letters']} died;"
        f" {len(end['errors'])} errors were logged, and the enqueuer was never more than {end['latest_s']:.1f} s late."
    )


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the marks."""
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{page} has no {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n{text}\n\n{PICTURE}\n{END}{after}")


if __name__ == "__main__":
    text = markdown(json.loads(Path(sys.argv[1]).read_text()))
    if sys.argv[2:]:
        write_into(Path(sys.argv[2]), text)
    else:
        print(text)
