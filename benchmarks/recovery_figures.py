"""What was found, beside what was promised."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.waits import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table."""

    name: str
    value: float
    unit: str = "s"
    spread: tuple[float, float] | None = None  # least and most of the rounds
    goal: float | None = None  # at most this; None: nothing was promised
    strictly: bool = False  # less than the goal, not as much as it
    samples: tuple[float, ...] = ()  # all that it was taken from, for programs

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        met = self.value < self.goal if self.strictly else self.value <= self.goal
        return "met" if met else "NOT met"

    def cells(self) -> tuple[str, ...]:
        spread = f"{shown(self.spread[0])} to {shown(self.spread[1])}" if self.spread else ""
        goal = "" if self.goal is None else f"{'<' if self.strictly else '<='} {shown(self.goal)}"
        return self.name, f"{shown(self.value)} {self.unit}".rstrip(), spread, goal, self.verdict

    def to_json(self) -> dict[str, object]:
        spread = [round(value, 4) for value in self.spread] if self.spread else None
        said = {"value": round(self.value, 4), "unit": self.unit, "spread": spread}
        samples = {"samples": [round(value, 4) for value in self.samples]} if self.samples else {}
        return said | {"goal": self.goal, "verdict": self.verdict or None} | samples


def over_rounds(name: str, values: Sequence[float], **more: object) -> Figure:
    """The median of the rounds, and their range."""
    spread = min(values), max(values)
    return Figure(name=name, value=statistics.median(values), spread=spread, samples=tuple(values), **more)  # type: ignore[arg-type]


def distribution(name: str, values: Sequence[float], goals: dict[str, float]) -> list[Figure]:
    """p50, p95, p99 and the maximum; ``goals`` by these names."""
    ordered = sorted(values)
    found = {
        "p50": statistics.median(ordered),
        "p95": percentile(ordered, 0.95),
        "p99": percentile(ordered, 0.99),
        "max": ordered[-1],
    }
    return [
        Figure(
            name=f"{name}, {which}",
            value=value,
            goal=goals.get(which),
            samples=tuple(ordered) if which == "max" else (),
        )
        for which, value in found.items()
    ]


def table(figures: Sequence[Figure]) -> str:
    rows = [("figure", "value", "rounds", "goal", ""), *(figure.cells() for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def shown(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.0f}"
