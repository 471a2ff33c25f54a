"""Vital signs in the text format of Prometheus: names, types, labels and buckets."""

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

# Every Prometheus reads this format. The constant of the package changes with its version.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# From a millisecond to 17 minutes, each the double of the one before: half of the buckets that are counted. Each bucket
# and label makes one series, which determines the cost of a scrape.
DOUBLINGS = 20
BOUNDARIES = tuple(SMALLEST * 2**doubling for doubling in range(DOUBLINGS + 1))


def require() -> None:
    """Raise ImproperlyConfigured if prometheus-client is not installed."""
    try:
        import prometheus_client  # noqa: F401
    except ImportError as error:
        message = "Prometheus metrics require an extra package: python -m pip install prometheus-client"
        raise ImproperlyConfigured(message) from error


def text(signs: Iterable[VitalSign], readings: Iterable[Reading], *, prefix: str = "pulse_") -> str:
    """Return all these signs, including signs without readings, so that they do not appear and disappear."""
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
    """Return zero for a counter without labels, so that its first event is an increase. Labels are unknown here."""
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
    """Escape control characters, and the backslash, so that two names never have the same label."""
    return "".join(char if char.isprintable() and char != "\\" else escaped(char) for char in label)


def folded(buckets: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return cumulative counts by boundary. A bucket between two boundaries counts for the upper one."""
    counts = [0] * (len(BOUNDARIES) + 1)
    for bucket, count in buckets.items():
        counts[min(-(-int(bucket) // PER_DOUBLING), len(BOUNDARIES))] += count
    names = [*(repr(boundary) for boundary in BOUNDARIES), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))
