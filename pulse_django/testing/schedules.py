"""Let time pass for schedules: fire what is due until an instant of the test's choice."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from pulse_django import conf
from pulse_django.execution.placement import alias_of_jobs
from pulse_django.models import Job, Schedule
from pulse_django.protocol.declarations import Declarer, scope_of_code
from pulse_django.protocol.schedules import clock
from pulse_django.schedules.declarations import declared_in
from pulse_django.schedules.ticking import tick_due
from pulse_django.words.ticks import TickOutcome

from .clock import jump_to_next_run
from .drain import Failures, drain

MOST_TICKS = 10_000


@dataclass(frozen=True, slots=True)
class Fired:
    """One tick of ``run_schedules``."""

    schedule: str
    at: datetime
    outcome: TickOutcome
    note: str


def run_schedules(
    *,
    until: datetime | timedelta,
    names: Collection[str] = (),
    run_jobs: bool = True,
    using: str | None = None,
    failures: Failures = "raise",
) -> list[Fired]:
    """Fire every tick until this instant, or for so long from now, and return what became of each, in order.

    Nothing waits: each tick is decided as if its instant were now. First the schedules are what the code declares.
    ``names`` are those that may fire; the others stay as they are. The jobs of each tick run before the next tick is
    decided, unless ``run_jobs`` is False. ``failures`` is that of ``drain``.
    """
    alias = alias_of_jobs(using)
    schedules, now = Schedule.objects.db_manager(alias), clock(alias)
    declarer = Declarer(scope_of_code(), "tests", now)
    schedules.declare(declarer, declared_in(alias), silence=conf.current().worker_silence)
    end = now + until if isinstance(until, timedelta) else until
    due = schedules.using(alias).filter(next_at__lte=end, gone_at=None).order_by("next_at", "id")
    fired: list[Fired] = []
    while (one := (due.filter(name__in=names) if names else due).first()) is not None and one.next_at is not None:
        if len(fired) >= MOST_TICKS:
            raise AssertionError(f"{len(fired)} ticks fired, and {one.name} is due again at {one.next_at}: until what?")
        ticked = tick_due(alias, only=one.pk, until=one.next_at)
        fired += [Fired(row.name, tick.at, tick.outcome, tick.note) for row, tick in ticked.ticks]
        if not ticked.ticks:
            raise AssertionError(f"{one.name} is due at {one.next_at}, and was not decided")
        if run_jobs:
            for job_id in ticked.job_ids:
                jump_to_next_run(Job.objects.using(alias).get(pk=job_id))
            drain(using=alias, failures=failures)
    return fired
