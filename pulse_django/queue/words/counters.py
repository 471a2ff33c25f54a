"""Counters by metric and labels, as JSON: nested objects by label, with a number or a histogram at the leaves.

{"jobs_enqueued_total": {"mail": 3}, "heartbeat_delay_seconds": {"count": 2, "sum": 0.5, "buckets": {"9": 2}}}
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import isfinite
from typing import Any

from .outcomes import OutcomeName


class SignKind(StrEnum):
    GAUGE = "gauge"  # a current value
    COUNTER = "counter"  # since the first recorded minute; never decreases
    HISTOGRAM = "histogram"  # of seconds; never decreases


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalSign:
    name: str  # without the prefix of an exporter
    kind: SignKind
    means: str
    to_do: str
    labels: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return "seconds" if self.name.endswith("_seconds") else ""


# Histograms of durations that can be added up, over time and over workers.


SMALLEST = 0.001  # seconds; shorter durations count as this
PER_DOUBLING = 2  # buckets: a quantile is exact to 42 %. More buckets would take more space


@dataclass(slots=True)
class Histogram:
    """Counts by bucket. Bucket ``n`` is for durations up to ``SMALLEST * 2 ** (n / PER_DOUBLING)`` seconds."""

    counts: Counter[int] = field(default_factory=Counter)

    @classmethod
    def merged(cls, parts: Iterable[Mapping[str, int]]) -> Histogram:
        """Return the sum of histograms in the format of ``to_json``. Ignore anything else: rows may hold anything."""
        counts: Counter[int] = Counter()
        for part in parts:
            for bucket, count in part.items() if isinstance(part, Mapping) else ():
                if _BUCKET.fullmatch(bucket):
                    counts[int(bucket)] += count_of(count)
        return cls(counts)

    def add(self, seconds: float) -> None:
        doublings = math.log2(max(seconds, SMALLEST) / SMALLEST)
        self.counts[math.ceil(doublings * PER_DOUBLING)] += 1

    def __len__(self) -> int:
        return self.counts.total()

    def quantile(self, share: float) -> float | None:
        """Return a quantile in seconds: at least this share took no longer. None: there are no durations."""
        left = share * len(self)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return float(SMALLEST * 2 ** (bucket / PER_DOUBLING))
        return None

    def to_json(self) -> dict[str, int]:
        return {str(bucket): count for bucket, count in sorted(self.counts.items())}


_BUCKET = re.compile("[0-9]{1,3}")  # the longest duration is far below the bucket 999
MOST_COUNTED = 2**53


def count_of(value: Any) -> int:
    """Return a count from a row that may hold anything, or 0 if it is none."""
    return value if type(value) is int and 0 <= value <= MOST_COUNTED else 0


Counters = dict[str, Any]

# The most values of one label. Names may come from rows, as with a queue for each customer, and a scrape must stay
# small.
MOST_VALUES = 200
OTHER = "(other)"


def added(one: Mapping[str, Any], other: Mapping[str, Any], *, most: int = MOST_VALUES) -> Counters:
    """Return the sum of two tallies. New names beyond ``most`` are counted as "others"; known names stay."""
    total: Counters = {name: dict(value) if isinstance(value, Mapping) else value for name, value in one.items()}
    for name, value in other.items():
        key = name if name in total or len(total) < most else OTHER
        if isinstance(value, Mapping):
            total[key] = added(total.get(key) or {}, value, most=most)
        else:
            total[key] = total.get(key, 0) + value
    return total


def since(now: Any, before: Any) -> Any:
    """Return the increase since ``before``. A counter that fell was restarted. Values that are not numbers stay."""
    if isinstance(now, Mapping):
        known = before if isinstance(before, Mapping) else {}
        return {name: since(value, known.get(name, 0)) for name, value in now.items()}
    are_numbers = isinstance(now, int | float) and isinstance(before, int | float)
    return now - before if are_numbers and now >= before else now


def count(tally: Counters, sign: VitalSign, labels: tuple[str, ...], number: float) -> None:
    """Increase a counter in place."""
    leaf, last = _leaf(tally, sign, labels)
    leaf[last] = leaf.get(last, 0) + number


def measure(
    tally: Counters, sign: VitalSign, labels: tuple[str, ...], bucket: int, number: int, seconds: float
) -> None:
    """Add durations to a bucket in place."""
    leaf, last = _leaf(tally, sign, labels)
    found = leaf.setdefault(last, {"count": 0, "sum": 0.0, "buckets": {}})
    found["count"] += number
    found["sum"] = round(found["sum"] + seconds, 6)
    found["buckets"][str(bucket)] = found["buckets"].get(str(bucket), 0) + number


def _leaf(tally: Counters, sign: VitalSign, labels: tuple[str, ...]) -> tuple[Counters, str]:
    path = (sign.name, *labels)
    for name in path[:-1]:
        tally = tally.setdefault(name, {})
    return tally, path[-1]


def leaves(tally: Mapping[str, Any], sign: VitalSign, **wanted: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the counters of a metric with these labels: all labels, and the number or the histogram.

    Skip values of another shape: another release or a person wrote them.
    """
    path = [wanted.get(label) for label in sign.labels]
    is_leaf = _is_histogram if sign.kind is SignKind.HISTOGRAM else _is_number
    yield from _walk(tally.get(sign.name), path, (), is_leaf)


def _walk(
    node: Any, path: list[str | None], labels: tuple[str, ...], is_leaf: Callable[[Any], bool]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not path:
        if is_leaf(node):
            yield labels, node
    elif isinstance(node, Mapping):
        for name in node if path[0] is None else [path[0]]:
            yield from _walk(node.get(name), path[1:], (*labels, name), is_leaf)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_histogram(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and _is_number(value.get("count"))
        and _is_number(value.get("sum"))
        and isinstance(buckets := value.get("buckets"), Mapping)
        and all(bucket.removeprefix("-").isdecimal() and _is_number(number) for bucket, number in buckets.items())
    )


def total(tally: Mapping[str, Any], sign: VitalSign, **wanted: str) -> float:
    """Return the sum of a metric's counters with these labels."""
    is_histogram = sign.kind is SignKind.HISTOGRAM
    found: float = sum(value["count"] if is_histogram else value for _, value in leaves(tally, sign, **wanted))
    return found


# Counters of a task or a queue in a period. They can be added up.


# Failures of handlers and workers. A cancelled, snoozed or released run does not count against its task.
FAILED = (OutcomeName.FAILED, OutcomeName.TIMED_OUT, OutcomeName.STALLED, OutcomeName.WORKER_LOST)
SUCCEEDED = (OutcomeName.SUCCEEDED, OutcomeName.DISCARDED)


class TrafficKind(StrEnum):
    TASK = "task"
    QUEUE = "queue"


@dataclass(slots=True)
class Durations:
    """Durations or waiting times of runs."""

    seconds: float = 0.0
    runs_by_bucket: list[int] = field(default_factory=list)  # index 0 is the first bucket of a histogram

    def measure(self, bucket: int, runs: int, seconds: float) -> None:
        self.add(Durations(seconds, [0] * max(0, bucket) + [runs]))

    def add(self, other: Durations) -> None:
        self.seconds += other.seconds
        mine = self.runs_by_bucket
        mine += [0] * (len(other.runs_by_bucket) - len(mine))
        for bucket, runs in enumerate(other.runs_by_bucket):
            mine[bucket] += runs

    @property
    def histogram(self) -> Histogram:
        return Histogram(Counter({bucket: runs for bucket, runs in enumerate(self.runs_by_bucket) if runs}))


@dataclass(slots=True)
class TrafficCounts:
    enqueued: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0  # runs
    died: int = 0  # jobs that became dead letters
    ran: Durations = field(default_factory=Durations)
    waited: Durations = field(default_factory=Durations)  # from the due time to the claim

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
        """Return the number of runs that succeeded or failed."""
        return self.succeeded + self.failed

    @property
    def failed_share(self) -> float | None:
        return self.failed / self.runs if self.runs else None

    @property
    def activity(self) -> int:
        return self.enqueued + self.started + self.runs + self.died


def capped(counts: Mapping[str, TrafficCounts], most: int = MOST_VALUES) -> dict[str, TrafficCounts]:
    """Keep the busiest names, and add up the others under one name."""
    if len(counts) <= most:
        return dict(counts)
    busiest = sorted(counts, key=lambda name: (name == OTHER, counts[name].activity), reverse=True)
    kept = {name: counts[name] for name in busiest[: most - 1]}
    other = kept.setdefault(OTHER, TrafficCounts())
    for name in busiest[most - 1 :]:
        other.add(counts[name])
    return kept
