"""All current vital signs of the fleet, for any exporter, from a few short queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import Error
from django.db.models import Exists, Subquery

from pulse_django import conf
from pulse_django.health import conditions, snapshot
from pulse_django.health.snapshot import Health
from pulse_django.limits.facts import LimitFacts, limits
from pulse_django.metrics import history
from pulse_django.metrics.vital_signs import (
    ACTIVE_LEASES,
    BATCHES_HELD,
    BATCHES_OPEN,
    CONDITIONS,
    COUNTED,
    IN_FLIGHT,
    LIMIT_DUE,
    LIMIT_PAUSED,
    LIMIT_RUNNING,
    MINUTE_AGE,
    ORPHANED_JOBS,
    PREFETCHED,
    QUEUE_DUE,
    QUEUE_LATER,
    QUEUE_OLDEST_DUE,
    QUEUE_PAUSED,
    RELEASE_TIMESTAMP,
    SCHEDULE_LATENESS,
    SHARD_UP,
    SLOTS,
    STUCK_SLOTS,
    WAITING_JOBS,
    WORKERS,
)
from pulse_django.models import Limiter, Minute, Release, Schedule
from pulse_django.queue.database.sql_functions import StatementTimestamp, aware
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import VitalSign
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.fleet import shards_to_read
from pulse_django.shards.placement import has_several_shards

logger = SafeLogger("pulse_django.metrics")

UNKNOWN = "unknown"  # severity of conditions that could not be checked, or are not registered in this process


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a sign: a number, or a histogram: ``{"count": ..., "sum": ..., "buckets": {...}}``."""

    sign: VitalSign
    labels: tuple[str, ...]
    value: Any
    shard: str = ""  # empty: there is only one shard


def read_all() -> list[Reading]:
    """Read every sign in every shard. With several shards, one that fails is skipped, and reported in shard_up."""
    if not has_several_shards():
        [alias] = shards_to_read()
        return [*read(alias), Reading(SHARD_UP, (alias,), 1)]
    found = []
    for alias in shards_to_read():
        try:
            found += [replace(one, shard=alias) for one in read(alias)]
            found.append(Reading(SHARD_UP, (alias,), 1))
        except Error as error:
            logger.warning("Reading the metrics of shard %r failed: %s", alias, error_in_one_line(error))
            found.append(Reading(SHARD_UP, (alias,), 0))
    return found


def read(alias: str) -> list[Reading]:
    """Read every sign of one shard. Signs that were never counted are missing."""
    now, minute, signs, totals, schedule_due, has_limits, version, released = _latest(alias)
    health = snapshot.glance(alias)
    counted = [Reading(sign, labels, value) for sign in COUNTED for labels, value in counters.leaves(totals, sign)]
    unasked = signs.get("unasked")
    found = [Reading(CONDITIONS, (str(name), UNKNOWN), 1) for name in unasked] if isinstance(unasked, list) else []
    found += _of_conditions(history.numbers(signs.get("conditions")))
    age = [] if minute is None else [Reading(MINUTE_AGE, (), (now - minute).total_seconds())]
    late = None if schedule_due is None else max(0.0, (now - schedule_due).total_seconds())
    lateness = [] if late is None else [Reading(SCHEDULE_LATENESS, (), late)]
    release = [] if version is None else [Reading(RELEASE_TIMESTAMP, (version,), released.timestamp())]
    of_limits = _of_limits(limits(alias)) if has_limits else ()
    of_fleet = [*_of_queues(health), *_of_workers(health), *_of_workflows(health)]
    return [*counted, *found, *age, *lateness, *release, *of_fleet, *of_limits]


def _latest(alias: str) -> Any:
    next_due = Schedule.objects.filter(next_at__isnull=False).order_by("next_at").values("next_at")[:1]
    newest = Release.objects.order_by("-seen_at", "-id")
    rows = Minute.objects.using(alias).filter(totals__isnull=False)
    rows = rows.annotate(
        now=StatementTimestamp(), schedule_due=Subquery(next_due), has_limits=Exists(Limiter.objects.all()),
        version=Subquery(newest.values("version")[:1]), released=Subquery(newest.values("seen_at")[:1]),
    )  # fmt: skip
    read = ("now", "minute", "signs", "totals", "schedule_due", "has_limits", "version", "released")
    latest: Any = rows.order_by("-minute").values_list(*read).first()
    return tuple(map(aware, latest or (None, None, {}, {}, None, False, None, None)))


def _of_conditions(found: dict[str, int]) -> Iterator[Reading]:
    """Yield the conditions. Unknown ones are of an app that only workers load, or of a newer release."""
    severities = {one.name: one.severity for one in conditions.known()}
    for name, count in found.items():
        severity = severities.get(name)
        yield Reading(CONDITIONS, (name, str(severity or UNKNOWN)), count)
        if severity in (conditions.Severity.BROKEN, conditions.Severity.STUCK):
            yield Reading(ORPHANED_JOBS, (name,), count)


def _of_queues(health: Health) -> Iterator[Reading]:
    """Yield the queues, the busiest first. Queues beyond the maximum number of labels are added up."""
    signs = (ACTIVE_LEASES, QUEUE_DUE, QUEUE_LATER, QUEUE_OLDEST_DUE, QUEUE_PAUSED)
    shown, others = health.queues[: counters.MOST_VALUES], health.queues[counters.MOST_VALUES :]
    rows = [(one.name, one.running, one.due, one.later, one.oldest_due, one.is_paused) for one in shown]
    if others:
        oldest = max((queue.oldest_due for queue in others if queue.oldest_due is not None), default=None)
        sums = [sum(getattr(queue, field) for queue in others) for field in ("running", "due", "later")]
        rows.append((counters.OTHER, *sums, oldest, all(queue.is_paused for queue in others)))
    for name, running, due, later, oldest_due, is_paused in rows:
        values = (running, due, later, (oldest_due or timedelta()).total_seconds(), int(is_paused))
        yield from (Reading(sign, (name,), value) for sign, value in zip(signs, values, strict=True))


def _of_limits(found: list[LimitFacts]) -> Iterator[Reading]:
    """Yield the limits with the most waiting jobs first. Limits beyond the maximum of labels are added up."""
    found = sorted(found, key=lambda one: (-one.waiting, -one.running, one.name))
    rows = [(one.name, (one.running, one.waiting, int(one.paused_until is not None))) for one in found]
    shown, others = rows[: counters.MOST_VALUES], rows[counters.MOST_VALUES :]
    if others:
        running, due, closed = (sum(numbers) for numbers in zip(*(values for _, values in others), strict=True))
        shown.append((counters.OTHER, (running, due, closed)))
    for name, values in shown:
        for sign, value in zip((LIMIT_RUNNING, LIMIT_DUE, LIMIT_PAUSED), values, strict=True):
            yield Reading(sign, (name,), value)


def _of_workers(health: Health) -> Iterator[Reading]:
    silence = conf.current().worker_silence
    alive = [worker for worker in health.workers if worker.is_alive(silence)]
    lost = sum(worker.is_lost for worker in health.workers)
    states = {"alive": len(alive), "silent": len(health.workers) - len(alive) - lost, "lost": lost}
    yield from (Reading(WORKERS, (state,), count) for state, count in states.items())
    for sign in (SLOTS, IN_FLIGHT, STUCK_SLOTS, PREFETCHED):  # facts of a worker have the same names
        yield Reading(sign, (), sum(getattr(worker, sign.name) for worker in alive))


def _of_workflows(health: Health) -> Iterator[Reading]:
    yield Reading(WAITING_JOBS, (), health.workflows.waiting)
    yield Reading(BATCHES_OPEN, (), health.workflows.open)
    yield Reading(BATCHES_HELD, (), health.workflows.held)
