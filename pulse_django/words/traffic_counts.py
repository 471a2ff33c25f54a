"""What was counted of one task or queue in a span of time. Counts can be added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from .counters import MOST_VALUES, OTHER
from .outcomes import OutcomeName
from .vital_signs import Histogram

# What handlers and their workers did wrong. A cancelled, snoozed or released run says nothing about its task.
FAILED = (OutcomeName.FAILED, OutcomeName.TIMED_OUT, OutcomeName.STALLED, OutcomeName.WORKER_LOST)
SUCCEEDED = (OutcomeName.SUCCEEDED, OutcomeName.DISCARDED)


class TrafficKind(StrEnum):
    TASK = "task"
    QUEUE = "queue"


@dataclass(slots=True)
class Durations:
    """How long runs took, or waited."""

    seconds: float = 0.0
    runs_by_bucket: list[int] = field(default_factory=list)  # of a histogram, from its first bucket

    def measure(self, bucket: int, runs: int, seconds: float) -> None:
        self._add([0] * max(0, bucket) + [runs], seconds)

    def add(self, other: Durations) -> None:
        self._add(other.runs_by_bucket, other.seconds)

    def _add(self, runs_by_bucket: Sequence[int], seconds: float) -> None:
        self.seconds += seconds
        mine = self.runs_by_bucket
        mine += [0] * (len(runs_by_bucket) - len(mine))
        for bucket, runs in enumerate(runs_by_bucket):
            mine[bucket] += runs

    @property
    def histogram(self) -> Histogram:
        return Histogram(Counter({bucket: runs for bucket, runs in enumerate(self.runs_by_bucket) if runs}))

    @property
    def mean(self) -> float | None:
        runs = sum(self.runs_by_bucket)
        return self.seconds / runs if runs else None


@dataclass(slots=True)
class TrafficCounts:
    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0  # runs
    died: int = 0  # jobs that became dead letters
    ran: Durations = field(default_factory=Durations)
    waited: Durations = field(default_factory=Durations)  # from when a job was due to its claim

    def add(self, other: TrafficCounts) -> None:
        self.enqueued += other.enqueued
        self.started += other.started
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.died += other.died
        self.ran.add(other.ran)
        self.waited.add(other.waited)

    def count_runs(self, outcome: str, runs: int) -> None:
        self.succeeded += runs if outcome in SUCCEEDED else 0
        self.failed += runs if outcome in FAILED else 0

    @property
    def runs(self) -> int:
        """Return how many runs ended well or badly."""
        return self.succeeded + self.failed

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.runs if self.runs else None

    @property
    def activity(self) -> int:
        return self.enqueued + self.started + self.runs + self.died


def capped(counts: Mapping[str, TrafficCounts], most: int = MOST_VALUES) -> dict[str, TrafficCounts]:
    """Keep the busiest names, and add up the others under one name. Names may come from rows."""
    if len(counts) <= most:
        return dict(counts)
    busiest = sorted(counts, key=lambda name: (name == OTHER, counts[name].activity), reverse=True)
    kept = {name: counts[name] for name in busiest[: most - 1]}
    other = kept.setdefault(OTHER, TrafficCounts())
    for name in busiest[most - 1 :]:
        other.add(counts[name])
    return kept
