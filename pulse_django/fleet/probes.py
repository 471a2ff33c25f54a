"""Is the fleet well, by thresholds? For probes: facts as they stand now, and an answer that fits in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import Count

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.states import Status
from pulse_django.words.thresholds import THRESHOLDS, Crossing, FleetFacts, crossed, orphans_of
from pulse_django.words.vital_signs import LEASE_EXPIRATIONS

from . import history, snapshot_queries
from .diagnosis import is_alive, is_unreaped, is_unserved

HOUR = timedelta(hours=1)
MOST_COUNTED = 10_000  # dead letters of an hour


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHealth:
    is_well: bool
    crossings: list[Crossing]
    facts: FleetFacts


def probe(alias: str, allowed: Mapping[str, float] | None = None) -> FleetHealth:
    """Compare the facts with what is allowed here, or else by the settings, or else by default."""
    limits = {name: one.default for name, one in THRESHOLDS.items()} | dict(conf.current().alerts) | dict(allowed or {})
    facts = facts_now(alias)
    found = crossed(facts, limits)
    return FleetHealth(is_well=not found, crossings=found, facts=facts)


def facts_now(alias: str) -> FleetFacts:
    health, past, settings = snapshot_queries.glance(alias), history.read(alias), conf.current()
    broken = past.broken or {}
    alive = [worker for worker in health.workers if is_alive(worker, settings)]
    waiting = [queue for queue in health.queues if queue.oldest_due is not None and not queue.is_paused]
    return FleetFacts(
        oldest_due=max((one.oldest_due.total_seconds() for one in waiting if one.oldest_due is not None), default=0.0),
        dead_letters=_dead_letters(alias),
        expirations=past.total(history.counted(LEASE_EXPIRATIONS), HOUR) or 0,
        unserved_queues=sum(is_unserved(queue, alive, settings) for queue in health.queues),
        unreaped=health.expired_leases if is_unreaped(health, settings) else 0,
        orphans=orphans_of(broken),
    )


def _dead_letters(alias: str) -> int:
    died = Job.objects.using(alias).filter(
        status=Status.DEAD_LETTERED.value, finished_at__gt=StatementTimestamp() - HOUR
    )
    latest = died.order_by("-finished_at").values("pk")[:MOST_COUNTED]
    found: int = Job.objects.using(alias).filter(pk__in=latest).aggregate(found=Count("*"))["found"]
    return found
