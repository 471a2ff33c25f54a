"""Whether leases fit the delay of heartbeats, as workers have measured it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from pulse_django import conf
from pulse_django.words.display import in_words
from pulse_django.words.histograms import Histogram

from .advice import Advice, Level, rows

BEATS_PER_LEASE = 3  # two may be lost
FEW = 200  # beats, of which a hundredth is two: fewer say nothing of their p99
STEP = 5  # seconds; people set leases in round numbers
MUCH_LONGER = 4  # times what it need be
MANY_FAILED = 0.01

_VITALS = """
SELECT vitals FROM pulse_django_worker WHERE last_beat_at > statement_timestamp() - interval '7 days'
"""


def on_timing(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    vitals = [json.loads(said) for (said,) in rows(alias, _VITALS)]
    delays = Histogram.merged(said.get("beat_delays", {}) for said in vitals)
    yield _of_the_lease(delays, settings)
    beats, failed = (sum(said.get(name, 0) for said in vitals) for name in ("beats", "beat_failures"))
    if failed > MANY_FAILED * (beats + failed):
        yield Advice(
            topic="heartbeats",
            level=Level.WARNING,
            what=f"{failed} of {beats + failed} heartbeats of the last week failed",
            why="A lease that is not extended runs out, and its job is run a second time.",
            to_do="Look for 'heartbeat:' in the workers' logs: the database was away, or the way to it is bad.",
        )
    yield _of_recovery(settings)


def _of_the_lease(delays: Histogram, settings: conf.PulseSettings) -> Advice:
    beat, ttl = settings.heartbeat_interval.total_seconds(), settings.lease_ttl.total_seconds()
    p99, longest = delays.quantile(0.99), delays.quantile(1.0)
    if p99 is None or longest is None or len(delays) < FEW:
        return Advice(
            topic="lease",
            level=Level.UNKNOWN,
            what=f"{len(delays)} heartbeats are known, too few to judge a lease of {in_words(ttl)} by",
            why="How late beats are answered decides how short a lease may be.",
            to_do="Ask again when workers have run under load for an hour.",
        )
    measured = f"of {len(delays)} heartbeats, p99 was answered {p99:.3g} s late, the last {longest:.3g} s"
    needed = math.ceil(BEATS_PER_LEASE * (beat + p99) / STEP) * STEP if ttl >= STEP else BEATS_PER_LEASE * (beat + p99)
    if ttl < BEATS_PER_LEASE * (beat + p99) and p99 > beat / 10:
        return Advice(
            topic="lease",
            level=Level.WARNING,
            what=f"{measured}; a lease is {in_words(ttl)}, a beat every {in_words(beat)}",
            why="Two late beats in a row can cost a healthy job its lease.",
            to_do=f"Set LEASE_TTL to {needed:g}, or shorten HEARTBEAT_INTERVAL, or find out why beats are late.",
        )
    if ttl > MUCH_LONGER * needed:
        return Advice(
            topic="lease",
            level=Level.HINT,
            what=f"{measured}; a lease is {in_words(ttl)}",
            why="A dead host's jobs wait for the end of their leases, longer than they need.",
            to_do=f"LEASE_TTL = {needed:g} would do.",
        )
    return Advice(
        topic="lease",
        level=Level.GOOD,
        what=f"{measured}; a lease of {in_words(ttl)} with a beat every {in_words(beat)} has room for that",
        why="Beats come in time.",
    )


def _of_recovery(settings: conf.PulseSettings) -> Advice:
    ttl, tick = settings.lease_ttl.total_seconds(), settings.watchdog_interval.total_seconds()
    return Advice(
        topic="recovery",
        level=Level.GOOD if tick <= ttl / 2 else Level.HINT,
        what=f"a dead host's jobs are seen after at most {in_words(ttl + tick)}: LEASE_TTL and WATCHDOG_INTERVAL",
        why="A process that dies is recovered within about a second all the same.",
        to_do="" if tick <= ttl / 2 else "A WATCHDOG_INTERVAL of a third of LEASE_TTL costs next to nothing.",
    )
