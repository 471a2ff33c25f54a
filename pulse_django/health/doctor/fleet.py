"""Advice about the fleet: the conditions that were found, the workers and their hosts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pulse_django import conf
from pulse_django.health.conditions import Limits, ask_all
from pulse_django.queue.words.counters import Histogram, count_of
from pulse_django.queue.words.display import in_words

from .advice import Advice, Level, good, hint, rows, unknown, warning

_LIVE = """
SELECT host, COALESCE(versions ->> 'pulse_django'::text, 'unknown')
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %s
"""


def on_the_fleet(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    live = rows(alias, _LIVE, [settings.worker_silence])
    yield _of_workers(live)
    if len(versions := {version for _, version in live}) > 1:
        yield hint(
            "workers",
            f"workers of {len(versions)} versions are running: {', '.join(sorted(versions))}",
            "Mixed versions are supported during a deploy, but not tested for longer.",
            "Finish the deploy.",
        )
    verdict = ask_all(alias, Limits.of(settings))
    for finding in verdict.found:
        yield Advice(
            Level.WARNING if finding.is_problem else Level.HINT,
            finding.condition.name,
            finding.says,
            finding.condition.means,
            finding.condition.to_do,
        )
    if not verdict.found:
        yield good("conditions", "none found", "No job is stuck, few jobs fail, and no state is invalid.")


def _of_workers(live: list[tuple[object, ...]]) -> Advice:
    if not live:
        return warning(
            "workers", "no worker is alive", "Jobs are stored, but none will run.", "Start one: manage.py pulse_worker."
        )
    hosts = {row[0] for row in live}
    if len(hosts) == 1:
        return hint(
            "workers",
            f"{len(live)} live, all on one host",
            "If that host fails, its jobs are not recovered until another worker starts.",
            "Run a worker or pulse_watchdog on a second host.",
        )
    return good("workers", f"{len(live)} live on {len(hosts)} hosts", "The fleet survives the loss of one host.")


# Whether the lease is long enough for the delay of heartbeats that workers measured.


BEATS_PER_LEASE = 3  # two may be lost
FEW = 200  # heartbeats; fewer are not enough for a p99
STEP = 5  # seconds; suggested leases are round numbers
MUCH_LONGER = 4  # times the necessary lease
MANY_FAILED = 0.01

_VITALS = """
SELECT vitals FROM pulse_django_worker WHERE last_beat_at > statement_timestamp() - interval '7 days'
"""


def on_timing(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    vitals = [said for (row,) in rows(alias, _VITALS) if isinstance(said := json.loads(row), dict)]
    delays = Histogram.merged(said.get("beat_delays", {}) for said in vitals)
    yield _of_the_lease(delays, settings)
    beats, failed = (sum(count_of(said.get(name)) for said in vitals) for name in ("beats", "beat_failures"))
    if failed > MANY_FAILED * (beats + failed):
        yield warning(
            "heartbeats",
            f"{failed} of {beats + failed} heartbeats of the last week failed",
            "A lease that is not extended expires, and its job runs a second time.",
            "Look for 'heartbeat:' in the workers' logs: the database was unavailable, or the network is unreliable.",
        )
    yield _of_recovery(settings)


def _of_the_lease(delays: Histogram, settings: conf.PulseSettings) -> Advice:
    beat, ttl = settings.heartbeat_interval.total_seconds(), settings.lease_ttl.total_seconds()
    p99, longest = delays.quantile(0.99), delays.quantile(1.0)
    if p99 is None or longest is None or len(delays) < FEW:
        return unknown(
            "lease",
            f"{len(delays)} heartbeats were recorded, too few to judge a lease of {in_words(ttl)}",
            "The delay of heartbeats decides how short a lease can be.",
            "Run this again after workers have been under load for an hour.",
        )
    measured = f"delay of {len(delays)} heartbeats: p99 {p99:.3g} s, maximum {longest:.3g} s"
    needed = math.ceil(BEATS_PER_LEASE * (beat + p99) / STEP) * STEP if ttl >= STEP else BEATS_PER_LEASE * (beat + p99)
    if ttl < BEATS_PER_LEASE * (beat + p99) and p99 > beat / 10:
        return warning(
            "lease",
            f"{measured}; the lease is {in_words(ttl)}, with a heartbeat every {in_words(beat)}",
            "A healthy job can lose its lease after two late heartbeats in a row.",
            f"Set LEASE_TTL to {needed:g}, or shorten HEARTBEAT_INTERVAL, or find out why heartbeats are late.",
        )
    if ttl > MUCH_LONGER * needed:
        return hint(
            "lease",
            f"{measured}; the lease is {in_words(ttl)}",
            "The jobs of a dead host wait longer than necessary for their leases to expire.",
            f"LEASE_TTL = {needed:g} would be enough.",
        )
    return good(
        "lease",
        f"{measured}; a lease of {in_words(ttl)} with a heartbeat every {in_words(beat)} is long enough",
        "Heartbeats arrive in time.",
    )


def _of_recovery(settings: conf.PulseSettings) -> Advice:
    ttl, tick = settings.lease_ttl.total_seconds(), settings.watchdog_interval.total_seconds()
    return Advice(
        Level.GOOD if tick <= ttl / 2 else Level.HINT,
        "recovery",
        f"the jobs of a dead host are recovered after at most {in_words(ttl + tick)}: LEASE_TTL and WATCHDOG_INTERVAL",
        "The jobs of a dead process are recovered within about a second.",
        "" if tick <= ttl / 2 else "A WATCHDOG_INTERVAL of a third of LEASE_TTL is cheap.",
    )
