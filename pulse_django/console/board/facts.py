"""What the board shows: the present state and the lines of the last hours, as text and numbers for a template."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import Error
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.live import version_of
from pulse_django.console.shards import cannot_be_read, shard_of
from pulse_django.execution.placement import has_several_shards, shards
from pulse_django.fleet import conditions, history, snapshot
from pulse_django.fleet.history import History, Pick
from pulse_django.fleet.known_queues import PerMinute
from pulse_django.fleet.shards import ask_shards
from pulse_django.fleet.snapshot import Health, QueueFacts, WorkerFacts
from pulse_django.words.display import in_words
from pulse_django.words.outcomes import OutcomeName
from pulse_django.words.states import Status
from pulse_django.words.vital_signs import (
    DEATH_TO_REQUEUE,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    RECOVERY_REQUEUES,
    Histogram,
)

from .alarms import Alarm, ShardRow, alarms_of, row_of
from .looking import Seen, look
from .sparkline import Sparkline, draw, rate_in_words

MOST_QUEUES = 50  # with lines; of more, only the number is shown
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    facts: QueueFacts
    due: str
    oldest_due: str
    created: Sparkline
    completed: Sparkline
    rates: dict[str, str]  # a minute, by what they count: enqueued, started, succeeded, failed, died


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    facts: WorkerFacts
    last_beat: str
    is_alive: bool
    queues: str
    versions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sign:
    """One number about recovery, with its line."""

    label: Any
    value: str
    means: Any
    line: Sparkline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardFacts:
    is_well: bool
    alarms: list[Alarm]
    error: str  # why nothing else could be read
    elsewhere: dict[str, int]  # found by a watchdog, and not registered in this process
    is_watched: bool  # a minute was recorded lately
    queues: list[QueueRow]
    more_queues: int
    workers: list[WorkerRow]
    signs: list[Sign]
    shards: list[ShardRow]  # of several


def version_of_all(request: HttpRequest) -> str:
    """Return the version of the board, which has a row for each shard. Empty: it cannot be told."""
    try:
        return version_of(*_aliases(request))
    except Error:
        if not has_several_shards():
            raise
        return ""


def gather(request: HttpRequest, site: str) -> BoardFacts:
    """Read everything about the shard of the page, and a row about each other one: a few queries each."""
    shown, several = shard_of(request, reads=True), has_several_shards()
    settings, verdict = conf.current(), ask_shards(_aliases(request))
    seen = {alias: _unseen(why) for alias, why in verdict.away.items()}
    for alias in verdict.by_shard:
        try:
            seen[alias] = look(alias, counts_dead=several)
        except Error as error:
            if not several:
                raise
            seen[alias] = _unseen(cannot_be_read(alias, error))
    found, health, past = verdict.by_shard.get(shown), seen[shown].health, seen[shown].past
    return BoardFacts(
        is_well=verdict.is_well and not any(one.error for one in seen.values()),
        alarms=[] if found is None else alarms_of(request, site, found),
        error=seen[shown].error,
        elsewhere=_elsewhere(past),
        is_watched=past.latest is not None,
        queues=[queue_row(queue, past) for queue in health.queues[:MOST_QUEUES]],
        more_queues=max(0, len(health.queues) - MOST_QUEUES),
        workers=[_worker(one, settings) for one in sorted(health.workers, key=_lost_ones_first)],
        signs=_signs(health, past),
        shards=[row_of(alias, verdict.by_shard.get(alias), seen[alias]) for alias in shards()] if several else [],
    )


def _unseen(why: str) -> Seen:
    return Seen(health=snapshot.NOTHING, past=history.NOTHING, error=why)


def _aliases(request: HttpRequest) -> list[str]:
    return list(shards()) if has_several_shards() else [shard_of(request, reads=True)]


def _elsewhere(past: History) -> dict[str, int]:
    """Return what this process does not know: a condition of an app that only workers have, or of a newer release."""
    known = {one.name for one in conditions.known()}
    return {name: count for name, count in sorted((past.conditions or {}).items()) if name not in known}


def queue_row(facts: QueueFacts, past: History) -> QueueRow:
    """Lay out one queue, with its lines on a common scale."""
    created, completed = history.created_in(facts.name), history.ended_in(facts.name, Status.COMPLETED)
    lines = past.line(created), past.line(completed)
    highest = max((value for line in lines for value in line if value is not None), default=0.0)
    return QueueRow(
        facts=facts,
        due=_depth(facts, past),
        oldest_due="" if facts.oldest_due is None else in_words(facts.oldest_due.total_seconds()),
        created=draw(lines[0], highest=highest),
        completed=draw(lines[1], highest=highest),
        rates={name: rate_in_words(getattr(facts.per_minute, name, None)) for name in PerMinute.__slots__},
    )


def _depth(facts: QueueFacts, past: History) -> str:
    """Beyond what a glance counts, the count of the latest minute is better, though older."""
    if not facts.is_more:
        return str(facts.due)
    sampled = past.sampled(facts.name)
    return gettext("about %d") % sampled if sampled > facts.due else f"{facts.due}+"


def _lost_ones_first(one: WorkerFacts) -> tuple[bool, bool, str, str]:
    return (not one.is_lost, one.has_stopped, one.name, one.boot_id)


def _worker(facts: WorkerFacts, settings: conf.PulseSettings) -> WorkerRow:
    return WorkerRow(
        facts=facts,
        last_beat=in_words(facts.last_beat.total_seconds()),
        is_alive=facts.is_alive(settings.worker_silence),
        queues=", ".join(facts.queues) or gettext("all"),
        versions=", ".join(f"{name} {version}" for name, version in sorted(facts.versions.items())),
    )


def _signs(health: Health, past: History) -> list[Sign]:
    return [*_of_leases(health, past), *_of_lost_runs(past), *_of_workflows(health)]


def _of_leases(health: Health, past: History) -> list[Sign]:
    delay, success = past.histogram(HEARTBEAT_DELAY, HOUR), past.success_of_beats(HOUR)
    return [
        Sign(
            label=_("Active leases"),
            value=str(sum(queue.running for queue in health.queues)),
            means=_("One per running job. If it always equals the number of slots, add workers."),
        ),
        Sign(
            label=_("Time from due to claimed, in the last hour"),
            value=quantiles_in_words(past.histogram(LEASE_ACQUISITION, HOUR)),
            means=_("Rises when there are too few slots or claims are slow."),
        ),
        Sign(
            label=_("Successful heartbeats, in the last hour"),
            value="–" if success is None else f"{success:.2%}",
            means=_("Failures mean that the database was unreachable. Delay: %(delay)s.")
            % {"delay": quantiles_in_words(delay)},
        ),
        Sign(
            label=_("Expired leases not recovered"),
            value=str(health.expired_leases),
            means=_("If there are many for longer than a tick, no watchdog is running."),
        ),
    ]


def _of_lost_runs(past: History) -> list[Sign]:
    timed_out = (OutcomeName.TIMED_OUT.value, OutcomeName.STALLED.value)
    return [
        _counted(past, _("Expired leases, in the last hour"), history.counted(LEASE_EXPIRATIONS),
                 _("Their workers were killed, frozen or disconnected.")),
        _counted(past, _("Jobs requeued after a lost worker, in the last hour"), history.counted(RECOVERY_REQUEUES),
                 _("Their handlers may have run twice.")),
        Sign(
            label=_("Time from a worker's last heartbeat to the end of its run"),
            value=quantiles_in_words(past.histogram(DEATH_TO_REQUEUE)),
            means=_("Accurate to 40 %. Normally at most a lease plus a tick. If longer, the database was unavailable "
            "or no watchdog was running."),
        ),
        _counted(past, _("Rejected writes, in the last hour"), history.counted(FENCING_REJECTIONS),
                 _("A worker continued after losing its lease. It could not change anything.")),
        _counted(past, _("Runs that timed out or stalled, in the last hour"), history.outcomes(*timed_out),
                 _("Their handlers exceeded the limits of their tasks.")),
        _counted(past, _("New dead letters, in the last hour"), history.ended_as(Status.DEAD_LETTERED),
                 _("Jobs that failed permanently. Fix the cause, then retry them.")),
    ]  # fmt: skip


def _of_workflows(health: Health) -> list[Sign]:
    """Nothing in a project that has none."""
    found = health.workflows
    if not found.open and not found.waiting:
        return []
    return [
        Sign(
            label=_("Open workflows"),
            value=gettext("%(open)d, of which %(held)d held by dead letters")
            % {"open": found.open, "held": found.held},
            means=_("A held workflow goes on when its dead letters are retried."),
        ),
        Sign(
            label=_("Jobs that wait for others"),
            value=str(found.waiting),
            means=_("They need other jobs, workflows or events."),
        ),
    ]


def _counted(past: History, label: Any, pick: Pick, means: Any) -> Sign:
    found = past.total(pick, HOUR)
    return Sign(label=label, value="–" if found is None else str(found), means=means, line=draw(past.line(pick)))


def quantiles_in_words(took: Histogram) -> str:
    """Say how long most took, for people."""
    half, most = took.quantile(0.5), took.quantile(0.99)
    if half is None or most is None:
        return "–"
    return gettext("p50 %(half)s, p99 %(most)s") % {"half": in_words(half), "most": in_words(most)}
