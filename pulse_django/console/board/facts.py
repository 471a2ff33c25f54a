"""The data of the board: the present state and the last hours, as text and numbers for a template."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, NamedTuple

from django.db import Error
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.live import version_of
from pulse_django.health import conditions, snapshot
from pulse_django.health.known_queues import PerMinute
from pulse_django.health.snapshot import Health, QueueFacts, WorkerFacts
from pulse_django.metrics import history
from pulse_django.metrics.history import History, Pick
from pulse_django.metrics.vital_signs import (
    DEATH_TO_REQUEUE,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    JOBS_ENDED,
    JOBS_ENQUEUED,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    RECOVERY_REQUEUES,
    RUNS,
)
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.shards.fleet import ask_shards
from pulse_django.shards.page import cannot_be_read, shard_of
from pulse_django.shards.placement import has_several_shards, shards

from .alarms import alarms_of, row_of
from .looking import Seen, look
from .sparkline import Sparkline, draw, rate_in_words

MOST_QUEUES = 50  # of all others, only their number is shown
HOUR = timedelta(hours=1)


class Sign(NamedTuple):
    """One number about recovery, with its sparkline."""

    label: Any
    value: str
    means: Any
    line: Sparkline | None = None


def version_of_all(request: HttpRequest) -> str:
    """Return the version of the board, which has a row for each shard, or "" if it is unknown."""
    try:
        return version_of(*_aliases(request))
    except Error:
        if not has_several_shards():
            raise
        return ""


def gather(request: HttpRequest, site: str) -> dict[str, Any]:
    """Read all data of the shard of the page, and a row of each other shard, with a few queries each."""
    shown, several = shard_of(request, reads=True), has_several_shards()
    verdict = ask_shards(_aliases(request))
    seen = {alias: _unseen(why) for alias, why in verdict.away.items()}
    for alias in verdict.by_shard:
        try:
            seen[alias] = look(alias, counts_dead=several)
        except Error as error:
            if not several:
                raise
            seen[alias] = _unseen(cannot_be_read(alias, error))
    known = {one.name for one in conditions.known()}
    found, health, past = verdict.by_shard.get(shown), seen[shown].health, seen[shown].past
    lost_first = sorted(health.workers, key=lambda one: (not one.is_lost, one.has_stopped, one.name, one.boot_id))
    return {
        "is_well": verdict.is_well and not any(one.error for one in seen.values()),
        "alarms": [] if found is None else alarms_of(request, site, found),
        "error": seen[shown].error,  # why the rest could not be read
        # Conditions that this process does not have: of an app that only workers load, or of a newer release.
        "elsewhere": {name: count for name, count in sorted((past.conditions or {}).items()) if name not in known},
        "is_watched": past.latest is not None,  # statistics were recorded in the last minutes
        "queues": [queue_row(queue, past) for queue in health.queues[:MOST_QUEUES]],
        "more_queues": max(0, len(health.queues) - MOST_QUEUES),
        "workers": [_worker(one) for one in lost_first],
        "signs": _signs(health, past),
        "shards": [row_of(alias, verdict.by_shard.get(alias), seen[alias]) for alias in shards()] if several else [],
    }


def _unseen(why: str) -> Seen:
    return Seen(health=snapshot.NOTHING, past=history.NOTHING, error=why)


def _aliases(request: HttpRequest) -> list[str]:
    return list(shards()) if has_several_shards() else [shard_of(request, reads=True)]


def queue_row(facts: QueueFacts, past: History) -> dict[str, Any]:
    """Return the row of a queue, with its sparklines on a common scale."""
    created = past.line(history.counted(JOBS_ENQUEUED, queue=facts.name))
    completed = past.line(history.counted(JOBS_ENDED, queue=facts.name, status=Status.COMPLETED))
    highest = max((value for value in (*created, *completed) if value is not None), default=0.0)
    return {
        "facts": facts,
        "due": _depth(facts, past),
        "oldest_due": "" if facts.oldest_due is None else in_words(facts.oldest_due.total_seconds()),
        "created": draw(created, highest=highest),
        "completed": draw(completed, highest=highest),
        "rates": {name: rate_in_words(getattr(facts.per_minute, name, None)) for name in PerMinute.__slots__},
    }


def _depth(facts: QueueFacts, past: History) -> str:
    """Return the number of due jobs. Beyond the limit of a glance, use the count of the latest minute."""
    if not facts.is_more:
        return str(facts.due)
    sampled = past.sampled(facts.name)
    return gettext("about %d") % sampled if sampled > facts.due else f"{facts.due}+"


def _worker(facts: WorkerFacts) -> dict[str, Any]:
    return {
        "facts": facts,
        "last_beat": in_words(facts.last_beat.total_seconds()),
        "is_alive": facts.is_alive(conf.current().worker_silence),
        "queues": ", ".join(facts.queues) or gettext("all"),
        "versions": ", ".join(f"{name} {version}" for name, version in sorted(facts.versions.items())),
    }


def _signs(health: Health, past: History) -> list[Sign]:
    success, counts = past.success_of_beats(HOUR), health.workflows

    def counted(label: Any, means: Any, *picks: Pick) -> Sign:
        def pick(signs: Any) -> float:
            return sum(one(signs) for one in picks)

        found = past.total(pick, HOUR)
        return Sign(label, "–" if found is None else str(found), means, draw(past.line(pick)))

    signs = [
        Sign(
            _("Active leases"),
            str(sum(queue.running for queue in health.queues)),
            _("One per running job. If it always equals the number of slots, add workers."),
        ),
        Sign(
            _("Time from due to claimed, in the last hour"),
            quantiles_in_words(past.histogram(LEASE_ACQUISITION, HOUR)),
            _("Rises when there are too few slots or claims are slow."),
        ),
        Sign(
            _("Successful heartbeats, in the last hour"),
            "–" if success is None else f"{success:.2%}",
            _("Failures mean that the database was unreachable. Delay: %(delay)s.")
            % {"delay": quantiles_in_words(past.histogram(HEARTBEAT_DELAY, HOUR))},
        ),
        counted(
            _("Expired leases, in the last hour"),
            _("Their workers were killed, frozen or disconnected."),
            history.counted(LEASE_EXPIRATIONS),
        ),
        counted(
            _("Jobs requeued after a lost worker, in the last hour"),
            _("Their handlers may have run twice."),
            history.counted(RECOVERY_REQUEUES),
        ),
        Sign(
            _("Time from a worker's last heartbeat to the end of its run"),
            quantiles_in_words(past.histogram(DEATH_TO_REQUEUE)),
            _(
                "Accurate to 40 %. Normally at most a lease plus a tick. If longer, the database was unavailable "
                "or no watchdog was running."
            ),
        ),
        counted(
            _("Rejected writes, in the last hour"),
            _("A worker continued after losing its lease. It could not change anything."),
            history.counted(FENCING_REJECTIONS),
        ),
        counted(
            _("Runs that timed out or stalled, in the last hour"),
            _("Their handlers exceeded the limits of their tasks."),
            *(history.counted(RUNS, outcome=one) for one in (OutcomeName.TIMED_OUT, OutcomeName.STALLED)),
        ),
        counted(
            _("New dead letters, in the last hour"),
            _("Jobs that failed permanently. Fix the cause, then retry them."),
            history.counted(JOBS_ENDED, status=Status.DEAD_LETTERED),
        ),
    ]
    if counts.open or counts.waiting:  # only in projects with workflows
        held = gettext("%(open)d, of which %(held)d held by dead letters") % {"open": counts.open, "held": counts.held}
        signs += [
            Sign(_("Open workflows"), held, _("A held workflow continues when its dead letters are retried.")),
            Sign(_("Jobs that wait for others"), str(counts.waiting), _("They need other jobs, workflows or events.")),
        ]
    return signs


def quantiles_in_words(took: Histogram) -> str:
    """Return the median and the 99th percentile, as text."""
    half, most = took.quantile(0.5), took.quantile(0.99)
    if half is None or most is None:
        return "–"
    return gettext("p50 %(half)s, p99 %(most)s") % {"half": in_words(half), "most": in_words(most)}
