"""Schedules as users see them: their next times, their last ticks, and the outcome of the jobs of these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse_django.exceptions import PulseError
from pulse_django.models import Job, Schedule
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.database.transactions import run_joined

from .tick_rules import MOMENT, TickOutcome
from .timings import Cron, upcoming, zone_of

_RECENT = """
SELECT tick.schedule_id, tick.at, tick.outcome, tick.note, tick.decided_at, tick.job_id
FROM pg_catalog.unnest(%s::bigint[]) AS wanted (id)
CROSS JOIN LATERAL (
    SELECT * FROM pulse_django_tick WHERE schedule_id = wanted.id ORDER BY at DESC LIMIT %s
) AS tick
ORDER BY tick.schedule_id, tick.at DESC
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentTick:
    at: datetime
    outcome: TickOutcome
    note: str
    late: timedelta  # from the time of the tick to the decision
    job_id: int | None
    status: str = ""  # of its job; empty: the job was deleted
    took: timedelta | None = None  # from the start of the job's last run to its end


@dataclass(frozen=True, slots=True, kw_only=True)
class Upcoming:
    """A time in the time zone of a schedule."""

    at: datetime
    local: datetime
    changes: bool = False  # clocks were changed since the previous time


def recent(alias: str, schedule_ids: Sequence[int], most: int = 20) -> dict[int, list[RecentTick]]:
    """Return the latest ticks of each schedule, the latest first."""
    rows = run_joined(alias, _RECENT, [list(schedule_ids), most]) if schedule_ids else []
    ids = [row[5] for row in rows if row[5] is not None]
    jobs = Job.objects.using(alias).filter(pk__in=ids).only("status", "started_at", "finished_at").in_bulk()
    found: dict[int, list[RecentTick]] = defaultdict(list)
    for schedule_id, at, outcome, note, decided_at, job_id in rows:
        job = jobs.get(job_id)
        begun_at, ended_at = (aware(job.started_at), aware(job.finished_at)) if job else (None, None)
        took = ended_at - begun_at if begun_at and ended_at else None
        late, status = aware(decided_at) - aware(at), job.status if job else ""
        tick = RecentTick(
            at=aware(at), outcome=TickOutcome(outcome), note=note, late=late, job_id=job_id, status=status, took=took
        )
        found[schedule_id].append(tick)
    return found


def next_instants(schedule: Schedule, now: datetime, count: int = 10) -> list[Upcoming]:
    """Return the next times, beginning with the stored one. Empty: never again, or not known."""
    if schedule.next_at is None or schedule.gone_at is not None:
        return []
    try:
        timing = schedule.timing
        found = upcoming(timing, max(now, schedule.next_at - MOMENT), count, schedule.ends_at)
        zone = zone_of(timing.tz or "UTC") if isinstance(timing, Cron) else None
    except PulseError:
        return []
    if found[:1] != [schedule.next_at]:
        found = [schedule.next_at, *found[: count - 1]]
    local = [at.astimezone(zone) if zone else at for at in found]
    offsets = [one.utcoffset() for one in local]
    before = [now.astimezone(zone).utcoffset() if zone else offsets[0], *offsets]
    return [
        Upcoming(at=at, local=one, changes=offset != earlier)
        for at, one, offset, earlier in zip(found, local, offsets, before, strict=False)
    ]


def state_of(schedule: Schedule, now: datetime) -> str:
    """Return active, paused, gone or ended."""
    if schedule.gone_at is not None:
        return "gone"
    if is_paused(schedule, now):
        return "paused"
    return "active" if schedule.next_at is not None else "ended"


def is_paused(schedule: Schedule, now: datetime) -> bool:
    return schedule.paused_at is not None and (schedule.paused_until is None or schedule.paused_until > now)


def in_words(schedule: Schedule) -> str:
    """Describe the timing in English. Show an unreadable one unchanged."""
    try:
        return schedule.timing.in_words()
    except PulseError as error:
        return str(error)


def as_json(schedule: Schedule, now: datetime, latest: RecentTick | None) -> dict[str, Any]:
    """Return the output of ``pulse_schedules --json`` for a schedule."""
    return {
        "name": schedule.name,
        "task": schedule.task,
        "state": state_of(schedule, now),
        "cron": schedule.cron,
        "tz": schedule.tz,
        "every": None if schedule.every is None else schedule.every.total_seconds(),
        "in_words": in_words(schedule),
        "next_at": None if schedule.next_at is None else schedule.next_at.isoformat(),
        "pause_reason": schedule.pause_reason,
        "paused_until": None if schedule.paused_until is None else schedule.paused_until.isoformat(),
        "from_code": schedule.declared is not None,
        "overridden": sorted(schedule.overrides or {}),
        "last": None
        if latest is None
        else {
            "at": latest.at.isoformat(),
            "outcome": latest.outcome.value,
            "note": latest.note,
            "late": latest.late.total_seconds(),
            "job": latest.job_id,
            "status": latest.status,
        },
    }
