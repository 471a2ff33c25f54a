"""Vital signs as the text that Prometheus reads: names, types, labels and buckets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from pulse_django.queue.words.counters import PER_DOUBLING, SMALLEST, SignKind, VitalSign
from pulse_django.queue.words.display import escaped

from .readings import Reading

if TYPE_CHECKING:
    from prometheus_client.core import Metric

# What every Prometheus reads. The package's own constant changes with its version; these names need nothing newer.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# A millisecond to 17 minutes, by doublings: half of the buckets that we count. A series for each bucket and label is
# what a scrape costs.
DOUBLINGS = 20
BOUNDARIES = tuple(SMALLEST * 2**doubling for doubling in range(DOUBLINGS + 1))


def require() -> None:
    """Raise ImproperlyConfigured if prometheus-client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        message = "Prometheus metrics require an extra package: pip install 'pulse-django[prometheus]'"
        raise ImproperlyConfigured(message) from error


def text(signs: Iterable[VitalSign], readings: Iterable[Reading], *, prefix: str = "pulse_") -> str:
    """Return all these signs, also those of which nothing was read: their meaning does not come and go."""
    require()
    from prometheus_client import CollectorRegistry, generate_latest

    found: dict[VitalSign, list[Reading]] = {sign: [] for sign in signs}
    for reading in readings:
        found[reading.sign].append(reading)
    metrics = [_metric(prefix, sign, theirs or _nothing(sign)) for sign, theirs in found.items()]

    class Collected(CollectorRegistry):
        def collect(self) -> Iterator[Metric]:
            yield from metrics

    return generate_latest(Collected()).decode()


def _nothing(sign: VitalSign) -> list[Reading]:
    """A counter begins at zero, or its first event would be no increase. Which labels it will have is not known yet."""
    if sign.labels or sign.kind is SignKind.GAUGE:
        return []
    return [Reading(sign, (), {"sum": 0, "buckets": {}} if sign.kind is SignKind.HISTOGRAM else 0)]


def _metric(prefix: str, sign: VitalSign, readings: Iterable[Reading]) -> Metric:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    name, means = f"{prefix}{sign.name}", f"{sign.means} {sign.to_do}"
    readings = list(readings)
    has_shards = any(one.shard for one in readings)
    labels = (*sign.labels, *(["shard"] if has_shards else []))
    if sign.kind is SignKind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, means, labels=labels)
        for reading in readings:
            histogram.add_metric(_labels(reading, has_shards), folded(reading.value["buckets"]), reading.value["sum"])
        return histogram
    numbers = (GaugeMetricFamily if sign.kind is SignKind.GAUGE else CounterMetricFamily)(name, means, labels=labels)
    for reading in readings:
        numbers.add_metric(_labels(reading, has_shards), reading.value)
    return numbers


def _labels(reading: Reading, has_shards: bool) -> list[str]:
    return [_spelt(label) for label in ((*reading.labels, reading.shard) if has_shards else reading.labels)]


def _spelt(label: str) -> str:
    """Escape what a terminal would obey, and the backslash, so that two names never share a label."""
    return "".join(char if char.isprintable() and char != "\\" else escaped(char) for char in label)


def folded(buckets: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return how many took at most so long, by boundary. What lies between two is counted below the upper."""
    counts = [0] * (len(BOUNDARIES) + 1)
    for bucket, count in buckets.items():
        counts[min(-(-int(bucket) // PER_DOUBLING), len(BOUNDARIES))] += count
    names = [*(repr(boundary) for boundary in BOUNDARIES), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
