"""Histograms of durations that can be added up: of one worker over time, and of many workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

SMALLEST = 0.001  # seconds; shorter ones are as good as none
PER_DOUBLING = 2  # buckets: a quantile is known to within 42 %. More would say little and take more room


@dataclass(slots=True)
class Histogram:
    """Counts by bucket. Bucket ``n`` holds what took up to ``SMALLEST * 2 ** (n / PER_DOUBLING)`` seconds."""

    counts: Counter[int] = field(default_factory=Counter)

    @classmethod
    def merged(cls, parts: Iterable[Mapping[str, int]]) -> Histogram:
        """Add up what ``to_json`` gave."""
        counts: Counter[int] = Counter()
        for part in parts:
            for bucket, count in part.items():
                counts[int(bucket)] += count
        return cls(counts)

    def add(self, seconds: float) -> None:
        doublings = math.log2(max(seconds, SMALLEST) / SMALLEST)
        self.counts[math.ceil(doublings * PER_DOUBLING)] += 1

    def __len__(self) -> int:
        return self.counts.total()

    def quantile(self, share: float) -> float | None:
        """Return seconds that at least this share of all took at most, or None of nothing."""
        left = share * len(self)
        for bucket in sorted(self.counts):
            left -= self.counts[bucket]
            if left <= 0:
                return float(SMALLEST * 2 ** (bucket / PER_DOUBLING))
        return None

    def to_json(self) -> dict[str, int]:
        return {str(bucket): count for bucket, count in sorted(self.counts.items())}
