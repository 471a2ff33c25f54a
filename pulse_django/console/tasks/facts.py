"""What the pages of tasks show of each, as text for a template."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pulse_django.console.charts import quantiles_of
from pulse_django.fleet.known_names import registered_tasks
from pulse_django.words.counters import OTHER, TrafficCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    name: str
    counts: TrafficCounts
    ran: dict[str, str]
    waited: dict[str, str]
    is_paused: bool = False

    @property
    def failed_share(self) -> str:
        share = self.counts.failed_share
        return "–" if share is None else f"{share:.1%}"

    @property
    def has_page(self) -> bool:
        return self.name != OTHER


# What the list can be sorted by, as the address names it; the largest come first.
ORDERS = {
    "name": lambda row: row.name,
    "runs": lambda row: (-row.counts.runs, row.name),
    "failed": lambda row: (-(row.counts.failed_share or 0), -row.counts.failed, row.name),
    "died": lambda row: (-row.counts.died, row.name),
    "ran": lambda row: (-(row.counts.ran.histogram.quantile(0.95) or 0), row.name),
    "waited": lambda row: (-(row.counts.waited.histogram.quantile(0.95) or 0), row.name),
}


def task_rows(totals: Mapping[str, TrafficCounts], paused: Iterable[str], order: str) -> list[TaskRow]:
    """Return a row for each task that ran or is registered."""
    paused = set(paused)
    names = {*totals, *registered_tasks(), *paused}
    rows = [task_row(name, totals.get(name, TrafficCounts()), is_paused=name in paused) for name in names]
    return sorted(rows, key=ORDERS[order])


def task_row(name: str, counts: TrafficCounts, *, is_paused: bool = False) -> TaskRow:
    return TaskRow(
        name=name, counts=counts, ran=quantiles_of(counts.ran), waited=quantiles_of(counts.waited), is_paused=is_paused
    )
