"""Decide the ticks that are due, and enqueue their jobs.

Any number of processes may do it at once. Each locks some of the schedules that are due and skips those that another
one has locked. There is no leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import Error

from pulse_django.backend import new_job
from pulse_django.exceptions import AlreadyEnqueued, InvalidSchedule, PulseError
from pulse_django.execution.call_signatures import checked
from pulse_django.execution.notify import wake_workers
from pulse_django.execution.placement import shard_of_call
from pulse_django.execution.registry import registry
from pulse_django.execution.tasks_framework import changed
from pulse_django.models import Job, Schedule
from pulse_django.protocol.schedules import clock
from pulse_django.protocol.statements import UNSTORABLE
from pulse_django.protocol.tick import Advance, advance, key_of_tick, lock_due, unfinished
from pulse_django.safe_logging import SafeLogger
from pulse_django.store.transactions import durable, joined
from pulse_django.words.job_options import NewJob
from pulse_django.words.labels import encode_meta
from pulse_django.words.payloads import error_in_one_line, one_line
from pulse_django.words.ticks import Pause, Tick, TickOutcome, decide, first_after, jittered, without_firing
from pulse_django.words.timings import Overlap, Timing

from .declarations import refuse_if_encrypted

logger = SafeLogger("pulse_django.schedules")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticked:
    """What was decided in one transaction."""

    schedules: int  # that were due and not locked by another process
    ticks: list[tuple[Schedule, Tick]] = field(default_factory=list)
    job_ids: list[int] = field(default_factory=list)


def tick_due(alias: str, *, only: int | None = None, until: datetime | None = None) -> Ticked:
    """Decide the ticks that are due, of some hundred schedules at most, or of one.

    If one schedule cannot be written, each is decided alone, and that one's ticks are refused. ``until`` is another
    clock than the server's, for tests.
    """
    registry.discover()
    try:
        return _tick(alias, only=only, until=until)
    except UNSTORABLE:
        pass
    schedules = Schedule.objects.db_manager(alias)
    with joined(alias):
        due, _ = lock_due(schedules, list(registry), only=only, until=until)
    ticked = Ticked(schedules=len(due))
    for schedule in due:
        try:
            one = _tick(alias, only=schedule.pk, until=until)
        except UNSTORABLE as error:
            one = _tick(alias, only=schedule.pk, until=until, refusal=error_in_one_line(error))
        ticked.ticks.extend(one.ticks)
        ticked.job_ids.extend(one.job_ids)
    return ticked


def run_now(alias: str, schedule_id: int, *, by: str = "") -> int:
    """Enqueue a job of a schedule at once, and return its id. The next instant stays as it is."""
    with joined(alias):
        schedule = Schedule.objects.using(alias).select_for_update(no_key=True).get(pk=schedule_id)
        tick = Tick(clock(alias), TickOutcome.MANUAL, f"by {by}" if by else "")
        job = _job_of(schedule, tick.at, None, {})
        is_running = bool(unfinished(alias, [schedule.last_job_id] if schedule.last_job_id else []))
        plan = Advance(
            schedule=schedule,
            ticks=[tick],
            jobs=[job],
            next_at=schedule.next_at,
            waiting_at=schedule.waiting_at,
            keeps_last_job=is_running,
        )
        plan = _admitted(alias, plan)
        if not plan.jobs:
            raise InvalidSchedule(f"{schedule.name}: {plan.ticks[0].note}")
        [job_id] = advance(Job.objects.db_manager(alias), [plan])[schedule.pk]
    wake_workers(alias, [job.queue])
    return job_id


def _tick(alias: str, *, only: int | None, until: datetime | None, refusal: str = "") -> Ticked:
    with durable(alias):
        due, now = lock_due(Schedule.objects.db_manager(alias), list(registry), only=only, until=until)
        if not due or now is None:
            return Ticked(schedules=0)
        running = unfinished(alias, [one.last_job_id for one in due if one.last_job_id is not None])
        likes: dict[str, NewJob] = {}
        plans = [_planned(one, now, likes, is_running=one.last_job_id in running, refusal=refusal) for one in due]
        plans = [_admitted(alias, plan) for plan in plans]
        made = advance(Job.objects.db_manager(alias), plans)
    if queues := {job.queue for plan in plans for job in plan.jobs if isinstance(job, NewJob)}:
        wake_workers(alias, sorted(queues))
    ticks = [(plan.schedule, tick) for plan in plans for tick in plan.ticks]
    for schedule, tick in ticks:
        _log(schedule, tick)
    return Ticked(schedules=len(due), ticks=ticks, job_ids=[job_id for ids in made.values() for job_id in ids])


def _planned(schedule: Schedule, now: datetime, likes: dict[str, NewJob], *, is_running: bool, refusal: str) -> Advance:
    """Plan one schedule. What is wrong with it refuses its own ticks and no others'."""
    try:
        timing = schedule.timing
        if refusal:
            return _refused(schedule, timing, now, refusal)
        return _decided(schedule, timing, now, likes, is_running=is_running)
    except PulseError as error:
        return _refused(schedule, None, now, error_in_one_line(error))
    except Error:
        raise
    except Exception as error:  # of the project's code, or of a row that was written by hand
        logger.exception("Schedule %s could not be decided", one_line(schedule.name))
        return _refused(schedule, None, now, f"{type(error).__name__}: {error_in_one_line(error)}")


def _decided(
    schedule: Schedule, timing: Timing, now: datetime, likes: dict[str, NewJob], *, is_running: bool
) -> Advance:
    pause = None
    if schedule.paused_at is not None:
        pause = Pause(reason=schedule.pause_reason, until=schedule.paused_until)
    is_paused = pause is not None and (pause.until is None or pause.until > now)
    waited, waiting_at = [], schedule.waiting_at
    if waiting_at is not None and not is_running:
        outcome = TickOutcome.PAUSED if is_paused else TickOutcome.FIRED
        waited = [Tick(waiting_at, outcome, schedule.pause_reason if is_paused else "waited for the last job")]
        is_running, waiting_at = not is_paused, None
    found: Sequence[Tick] = []
    next_at = schedule.next_at
    if next_at is not None and next_at <= now:
        decided = decide(
            timing,
            next_at,
            now,
            pause=pause,
            is_running=is_running,
            is_waiting=waiting_at is not None,
            ends_at=schedule.ends_at,
        )
        found, next_at = decided.ticks, decided.next_at
    ticks = [*waited, *found]
    waiting_at = next((tick.at for tick in ticks if tick.outcome is TickOutcome.WAITING), waiting_at)
    fired = [tick for tick in ticks if tick.outcome is TickOutcome.FIRED]
    return Advance(
        schedule=schedule,
        ticks=ticks,
        jobs=[_job_of(schedule, tick.at, timing, likes) for tick in fired],
        next_at=next_at,
        waiting_at=waiting_at,
        last_at=fired[-1].at if fired else None,
        cancel=schedule.last_job_id if fired and is_running and timing.overlap == Overlap.CANCEL else None,
        resumed=pause is not None and not is_paused,
    )


def _admitted(alias: str, plan: Advance) -> Advance:
    """Enqueue the jobs of a task that is unique: another job may have the key. The others are written together."""
    if not any(isinstance(job, NewJob) and job.unique is not None for job in plan.jobs):
        return plan
    ticks, jobs, of_ticks = list(plan.ticks), [], iter(plan.jobs)
    for place, tick in enumerate(ticks):
        if tick.outcome not in (TickOutcome.FIRED, TickOutcome.MANUAL):
            continue
        new: Any = next(of_ticks)
        try:
            job, is_new = Job.objects.db_manager(alias).get_or_enqueue(new)
        except AlreadyEnqueued as error:
            ticks[place] = Tick(tick.at, TickOutcome.OVERLAP, f"job {error.job_id} has its unique key")
            continue
        if is_new or not new.unique.rule.keeps_first:  # a call that replaces or postpones has its effect
            jobs.append(job.pk)
        else:
            ticks[place] = Tick(tick.at, TickOutcome.OVERLAP, f"job {job.pk} has its unique key")
    return replace(plan, ticks=ticks, jobs=jobs, last_at=plan.last_at if jobs else None)


def _refused(schedule: Schedule, timing: Timing | None, now: datetime, why: str) -> Advance:
    """Refuse the ticks that are due. A schedule whose timing is invalid stops until it is changed."""
    ticks, next_at = [Tick(schedule.next_at or now, TickOutcome.REFUSED, why)], None
    if timing is None:
        timing = _timing_of(schedule)
    if timing is not None:
        if schedule.next_at is not None:
            ticks = without_firing(timing, schedule.next_at, now, TickOutcome.REFUSED, why, schedule.ends_at)
        next_at = first_after(timing, now, ends_at=schedule.ends_at)
    if schedule.waiting_at is not None:
        ticks = [Tick(schedule.waiting_at, TickOutcome.REFUSED, why), *ticks]
    return Advance(schedule=schedule, ticks=ticks, next_at=next_at)


def _timing_of(schedule: Schedule) -> Timing | None:
    try:
        return schedule.timing
    except Exception:  # whatever a row that was written by hand holds
        return None


def _job_of(schedule: Schedule, at: datetime, timing: Timing | None, likes: dict[str, NewJob]) -> NewJob:
    """Make the job of a tick. ``likes`` holds one job of each task, of which the others are copies."""
    task = registry.get(schedule.task)
    if task is None:
        raise PulseError(f"no live worker has a task that is called {schedule.task!r}")
    there = task if schedule.queue is None else changed(task, {"queue_name": schedule.queue})
    shard_of_call(there, *checked(task, schedule.args, schedule.kwargs), using=schedule._state.db)
    if schedule.args or schedule.kwargs:
        refuse_if_encrypted(schedule.name, task)
    is_unique = getattr(task, "unique", None) is not None
    if is_unique:  # its key depends on the arguments
        later: Any = task
        new = new_job(later.using(run_after=at), schedule.args, schedule.kwargs)
        likes = {schedule.task: replace(new, parent_id=None)}
    alike = likes.get(schedule.task) or likes.setdefault(schedule.task, replace(new_job(task, (), {}), parent_id=None))
    return replace(
        alike,
        args=schedule.args,
        kwargs=schedule.kwargs,
        queue=alike.queue if schedule.queue is None else schedule.queue,
        priority=alike.priority if schedule.priority is None else schedule.priority,
        idempotency_key=None if is_unique else key_of_tick(schedule.pk, at),
        run_after=at if timing is None else jittered(timing, schedule.name, at),
        meta=alike.meta or encode_meta({"schedule": schedule.name, "tick": at.isoformat()}),
    )


_LOGGED: dict[TickOutcome, Callable[..., Any]] = {
    TickOutcome.MISSED: logger.warning,
    TickOutcome.REFUSED: logger.error,
}


def _log(schedule: Schedule, tick: Tick) -> None:
    if tell := _LOGGED.get(tick.outcome):
        tell("Schedule %s: %s %s: %s", one_line(schedule.name), tick.at, tick.outcome.value, one_line(tick.note))
