"""The page for Prometheus: all vital signs of the fleet, for those who may see them.

from pulse_django.exporters.prometheus import metrics

urlpatterns = [path("metrics", metrics), ...]
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, transaction
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from pulse_django import conf
from pulse_django.store.minute_stats import counted_by_workers
from pulse_django.store.workers import Presence
from pulse_django.words import counters
from pulse_django.words.display import escaped
from pulse_django.words.payloads import error_in_one_line
from pulse_django.words.vital_signs import (
    ALL,
    DATABASE_ERRORS,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    HEARTBEATS,
    IN_FLIGHT,
    LIMIT_REFUSALS,
    PER_DOUBLING,
    PREFETCHED,
    SLOTS,
    SMALLEST,
    STUCK_SLOTS,
    SignKind,
    VitalSign,
)

from .readings import Reading, read_all

if TYPE_CHECKING:
    from prometheus_client.core import Metric


# Vital signs as the text that Prometheus reads: names, types, labels and buckets.


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


logger = logging.getLogger("pulse_django.metrics")

require()  # while the project starts, and not at three in the morning


@cache_control(no_store=True)
@require_safe
@login_not_required  # it asks for itself: who comes with a token has no session
@transaction.non_atomic_requests  # we report a database that is away, not the code that opens a transaction
def metrics(request: HttpRequest) -> HttpResponse:
    """Serve the vital signs to users with ``view_board``, and to the bearer of ``PULSE["METRICS_TOKEN"]``."""
    try:
        return refused(request) or _signs()
    except Error as error:
        logger.warning("Reading the metrics failed: %s", error_in_one_line(error))
        return HttpResponse("The database did not respond.\n", status=503, content_type=PLAIN)


def _signs() -> HttpResponse:
    text = text(ALL, read_all())
    return HttpResponse(text, content_type=CONTENT_TYPE)


# Who may read the state of the fleet outside the admin: users with ``view_board``, and the bearer of a token.


PERMISSION = "pulse_django.view_board"
PLAIN = "text/plain; charset=utf-8"


def refused(request: HttpRequest) -> HttpResponse | None:
    """Return the answer to those who may not see them."""
    said = request.headers.get("Authorization", "")
    if _is_the_token(said):
        return None
    user = getattr(request, "user", None)  # there is none without Django's middleware for it
    known = user if user is not None and user.is_authenticated else None
    if known is not None and known.has_perm(PERMISSION):
        return None
    if said or known is not None:
        return HttpResponse("Permission denied.\n", status=403, content_type=PLAIN)
    headers = {"WWW-Authenticate": "Bearer"}
    return HttpResponse("Authentication required.\n", status=401, content_type=PLAIN, headers=headers)


def _is_the_token(said: str) -> bool:
    scheme, _, given = said.partition(" ")
    token = conf.current().metrics_token
    # WSGI hands bytes on as Latin-1.
    right = secrets.compare_digest(given.strip().encode("latin-1", "replace"), token.encode())
    return right and token != "" and scheme.lower() == "bearer"


# The numbers of one worker, from its own memory: the database is not used.


CHILDREN = VitalSign(
    name="children",
    kind=SignKind.GAUGE,
    means="Number of processes of this worker that are ready to run jobs.",
    to_do="If it stays below --processes, read the worker's log for the reason.",
)
GAUGES = (SLOTS, IN_FLIGHT, STUCK_SLOTS, PREFETCHED, CHILDREN)
COUNTED = (HEARTBEATS, HEARTBEAT_DELAY, FENCING_REJECTIONS, LIMIT_REFUSALS, DATABASE_ERRORS)


def exposed(presence: Presence, children: int) -> str:
    """Return them as Prometheus reads them."""
    signs = {sign: replace(sign, means=f"This worker only. {sign.means}") for sign in (*GAUGES, *COUNTED)}
    shown = [replace(reading, sign=signs[reading.sign]) for reading in readings(presence, children)]
    return text(signs.values(), shown, prefix="pulse_worker_")


def readings(presence: Presence, children: int) -> list[Reading]:
    now: dict[VitalSign, Any] = {
        SLOTS: presence.slots,
        IN_FLIGHT: presence.in_flight,
        STUCK_SLOTS: presence.stuck_slots,
        PREFETCHED: presence.vitals["prefetched"],
        CHILDREN: children,
    }
    since_start = counted_by_workers({"": presence.vitals}, {})
    counted = [Reading(sign, labels, value) for sign in COUNTED for labels, value in counters.leaves(since_start, sign)]
    return [*(Reading(sign, (), value) for sign, value in now.items()), *counted]
