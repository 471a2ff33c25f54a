"""Advice about leases: whether they are long enough for the delay of heartbeats that workers measured."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pulse_django import conf
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import read
from pulse_django.queue.words.counters import Histogram, count_of
from pulse_django.queue.words.display import in_words

from .catalogue import CannotTell, Condition, Limits, Severity, Subject

BEATS_PER_LEASE = 3  # two may be lost
FEW = 200  # heartbeats; fewer are not enough for a p99
STEP = 5  # seconds; suggested leases are round numbers
MUCH_LONGER = 4  # times the necessary lease
MANY_FAILED = 0.01

_VITALS = """
SELECT vitals FROM pulse_django_worker WHERE last_beat_at > statement_timestamp() - interval '7 days'
"""


def _vitals(alias: str) -> list[dict[str, Any]]:
    return [said for (row,) in rows(alias, _VITALS) if isinstance(said := read(row), dict)]


def _lease(alias: str, _: Limits) -> Iterator[Subject]:
    settings = conf.current()
    beat, ttl = settings.heartbeat_interval.total_seconds(), settings.lease_ttl.total_seconds()
    delays = Histogram.merged(said.get("beat_delays", {}) for said in _vitals(alias))
    p99, longest = delays.quantile(0.99), delays.quantile(1.0)
    if p99 is None or longest is None or len(delays) < FEW:
        raise CannotTell(f"{len(delays)} heartbeats were recorded, too few to judge a lease of {in_words(ttl)}")
    needed = BEATS_PER_LEASE * (beat + p99)
    is_short = ttl < needed and p99 > beat / 10
    if ttl >= STEP:
        needed = math.ceil(needed / STEP) * STEP
    said = f"delay of {len(delays)} heartbeats: p99 {p99:.3g} s, maximum {longest:.3g} s; a lease of {in_words(ttl)} "
    said += f"with a heartbeat every {in_words(beat)} is {'too short' if is_short else 'long enough'}"
    if is_short:
        said += f", and LEASE_TTL = {needed:g} would be enough"
    elif ttl > MUCH_LONGER * needed:
        said += f", and so is LEASE_TTL = {needed:g}: the jobs of a dead host wait for a lease to expire"
    yield Subject("LEASE_TTL" if is_short else None, said)


def _heartbeats(alias: str, _: Limits) -> Iterator[Subject]:
    vitals = _vitals(alias)
    beats, failed = (sum(count_of(said.get(name)) for said in vitals) for name in ("beats", "beat_failures"))
    if failed > MANY_FAILED * (beats + failed):
        yield Subject("all workers", f"{failed} of {beats + failed} heartbeats of the last week failed")


def _recovery(alias: str, _: Limits) -> Iterator[Subject]:
    ttl, tick = conf.current().lease_ttl.total_seconds(), conf.current().watchdog_interval.total_seconds()
    most = in_words(ttl + tick)
    said = f"the jobs of a dead host are recovered after at most {most}: LEASE_TTL and WATCHDOG_INTERVAL"
    yield Subject("WATCHDOG_INTERVAL" if tick > ttl / 2 else None, said)


CONDITIONS = (
    Condition(
        name="lease",
        severity=Severity.WARNING,
        says="Heartbeats arrive in time.",
        means="The delay of heartbeats decides how short a lease can be. A healthy job can lose its lease after two "
        "late heartbeats in a row.",
        to_do="Set LEASE_TTL, or shorten HEARTBEAT_INTERVAL, or find out why heartbeats are late.",
        look=_lease,
    ),
    Condition(
        name="heartbeats",
        severity=Severity.WARNING,
        says="Almost all heartbeats of the last week succeeded.",
        means="A lease that is not extended expires, and its job runs a second time.",
        to_do="Look for 'heartbeat:' in the workers' logs: the database was unavailable, or the network is unreliable.",
        look=_heartbeats,
    ),
    Condition(
        name="recovery",
        severity=Severity.HINT,
        says="The jobs of a dead process are recovered within about a second.",
        means="The jobs of a dead host wait for the next look of a watchdog.",
        to_do="A WATCHDOG_INTERVAL of a third of LEASE_TTL is cheap.",
        look=_recovery,
    ),
)
