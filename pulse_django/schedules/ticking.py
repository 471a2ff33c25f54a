"""Decide which due ticks fire, and enqueue their jobs.

Any number of processes may do it at once. Each locks some of the due schedules and skips those that another one has
locked. There is no leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import Error

from pulse_django.backend import new_job
from pulse_django.exceptions import AlreadyEnqueued, InvalidSchedule, PulseError
from pulse_django.models import Job, Schedule
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of, is_refused
from pulse_django.queue.database.transactions import durable, joined
from pulse_django.queue.words.job_options import NewJob, encode_meta
from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.run.calls import checked
from pulse_django.run.notify import wake_workers
from pulse_django.run.registry import changed, registry
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.placement import shard_of_call

from .declarations import refuse_if_encrypted
from .definitions import timing_or_none
from .tick import MOST_DUE, Advance, advance, ids_of_due, key_of_tick, lock_due, unfinished
from .tick_rules import Pause, Tick, TickOutcome, decide, first_after, jittered, without_firing
from .timings import Overlap, Timing
from .verbs import clock

# Plan a due schedule: decide its ticks, and create the jobs of those that fire.


def planned(
    schedule: Schedule, now: datetime, likes: dict[str, NewJob], *, is_running: bool, refusal: str, most: int
) -> Advance:
    """Plan one schedule. An error in it refuses only its own ticks."""
    try:
        timing = schedule.timing
        if refusal:
            return _refused(schedule, timing, now, refusal)
        return _decided(schedule, timing, now, likes, is_running=is_running, most=most)
    except PulseError as error:
        return _refused(schedule, None, now, error_in_one_line(error))
    except Error:
        raise
    except Exception as error:  # an error of the project's code, or of a row that was written by hand
        logger.exception("Schedule %s could not be decided", one_line(schedule.name))
        return _refused(schedule, None, now, f"{type(error).__name__}: {error_in_one_line(error)}")


def _decided(
    schedule: Schedule, timing: Timing, now: datetime, likes: dict[str, NewJob], *, is_running: bool, most: int
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
    next_at, ends_at, has_more = schedule.next_at, schedule.ends_at, False
    if next_at is not None and next_at <= now:
        waits = waiting_at is not None
        decided = decide(
            timing, next_at, now, pause=pause, is_running=is_running, is_waiting=waits, ends_at=ends_at, most=most
        )
        found, next_at, has_more = decided.ticks, decided.next_at, decided.has_more
    ticks = [*waited, *found]
    waiting_at = next((tick.at for tick in ticks if tick.outcome is TickOutcome.WAITING), waiting_at)
    fired = [tick for tick in ticks if tick.outcome is TickOutcome.FIRED]
    return Advance(
        schedule=schedule,
        ticks=ticks,
        jobs=jobs_of(schedule, [tick.at for tick in fired], timing, likes),
        next_at=next_at,
        waiting_at=waiting_at,
        last_at=fired[-1].at if fired else None,
        cancel=schedule.last_job_id if fired and is_running and timing.overlap == Overlap.CANCEL else None,
        resumed=pause is not None and not is_paused and not has_more,
    )


def _refused(schedule: Schedule, timing: Timing | None, now: datetime, why: str) -> Advance:
    """Refuse the ticks that are due. A schedule whose timing is invalid stops until it is changed."""
    ticks, next_at = [Tick(schedule.next_at or now, TickOutcome.REFUSED, why)], None
    if timing is None:
        timing = timing_or_none(schedule)
    if timing is not None:
        if schedule.next_at is not None:
            ticks = without_firing(timing, schedule.next_at, now, TickOutcome.REFUSED, why, schedule.ends_at)
        next_at = first_after(timing, now, ends_at=schedule.ends_at)
    if schedule.waiting_at is not None:
        ticks = [Tick(schedule.waiting_at, TickOutcome.REFUSED, why), *ticks]
    return Advance(schedule=schedule, ticks=ticks, next_at=next_at)


def jobs_of(
    schedule: Schedule, instants: Sequence[datetime], timing: Timing | None, likes: dict[str, NewJob]
) -> list[NewJob]:
    """Create the jobs of ticks. ``likes`` holds one job of each task, and the others are copies of it."""
    if not instants:
        return []
    task = registry.get(schedule.task)
    if task is None:
        raise PulseError(f"no live worker has a task that is called {schedule.task!r}")
    there = task if schedule.queue is None else changed(task, {"queue_name": schedule.queue})
    shard_of_call(there, *checked(task, schedule.args, schedule.kwargs), using=schedule._state.db)
    if schedule.args or schedule.kwargs:
        refuse_if_encrypted(schedule.name, task)
    is_unique = getattr(task, "unique", None) is not None
    jobs = []
    for at in instants:
        if is_unique:  # its key depends on the arguments, and its window on the time
            later: Any = task
            alike = replace(new_job(later.using(run_after=at), schedule.args, schedule.kwargs), parent_id=None)
        else:
            alike = likes.get(schedule.task) or likes.setdefault(
                schedule.task, replace(new_job(task, (), {}), parent_id=None)
            )
        job = replace(
            alike,
            args=schedule.args,
            kwargs=schedule.kwargs,
            queue=alike.queue if schedule.queue is None else schedule.queue,
            priority=alike.priority if schedule.priority is None else schedule.priority,
            idempotency_key=None if is_unique else key_of_tick(schedule.pk, at),
            run_after=at if timing is None else jittered(timing, schedule.name, at),
            meta=alike.meta or encode_meta({"schedule": schedule.name, "tick": at.isoformat()}),
        )
        jobs.append(job)
    return jobs


logger = SafeLogger("pulse_django.schedules")


# Rows that one transaction may write. More rows keep all other schedules waiting; with fewer, a backlog takes longer.
# It begins with the minimum. A step that wrote so many rows within FAST doubles the number, a SLOW one halves it.
MOST_ROWS, LEAST_ROWS = 500, 20
TICKS_OF_THE_LATEST = 20
SLOW, FAST = 0.5, 0.2  # seconds
LONGEST_PLANNING = 0.25  # seconds; then it writes the planned changes
# Seconds in one step for schedules that are handled one by one, because their batch failed.
LONGEST_ALONE = 0.5
# If so many fail one after another, all have the same error, which is then logged once.
ALL_FAIL = 5
# Seconds until a retry of a schedule that could be neither decided nor refused.
FIRST_RETRY, LAST_RETRY = 2.0, 60.0


@dataclass(slots=True, kw_only=True)
class Ticked:
    """The result of a step."""

    schedules: int = 0  # that were due and not locked by another process
    ticks: list[tuple[Schedule, Tick]] = field(default_factory=list)
    job_ids: list[int] = field(default_factory=list)
    has_more: bool = False  # that is due and was left for the next step

    def add(self, other: Ticked) -> None:
        self.schedules += other.schedules
        self.ticks += other.ticks
        self.job_ids += other.job_ids
        self.has_more = self.has_more or other.has_more


class Ticker:
    """Decides the ticks of one database in short steps.

    A schedule that fails is handled separately, and its ticks are refused. If even that fails, it is tried again later.
    A schedule that is far behind catches up in parts, together with the others.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._oldest_first = False
        self._rows = LEAST_ROWS
        self._failed: dict[int, tuple[int, float]] = {}  # by id: the number of failures, and when to try again

    def step(self, *, until: datetime | None = None) -> Ticked:
        """Decide due ticks, in one transaction: those of the schedules that are least late, or of the latest ones.

        After a step that left some, the next one begins at the other end.
        """
        registry.discover()
        began = time.monotonic()
        if again := [schedule_id for schedule_id, (_, at) in self._failed.items() if at <= began]:
            ticked = self._alone(again, until)
            ticked.has_more = True
            return ticked
        ticked = Ticked()
        try:
            ticked = self._batch(until)
        finally:
            took = time.monotonic() - began
            if took > SLOW:
                self._rows = max(LEAST_ROWS, self._rows // 2)
            elif took < FAST and len(ticked.ticks) >= self._rows:
                self._rows = min(MOST_ROWS, self._rows * 2)
        self._oldest_first = ticked.has_more and not self._oldest_first
        return ticked

    def only(self, schedule_id: int, until: datetime | None = None) -> Ticked:
        """Decide ticks of one schedule."""
        registry.discover()
        return self._alone([schedule_id], until)

    def _batch(self, until: datetime | None) -> Ticked:
        which: dict[str, Any] = {"without": list(self._failed), "oldest_first": self._oldest_first, "until": until}
        # A schedule in time has one tick, and a late one many.
        which["limit"] = max(1, self._rows // TICKS_OF_THE_LATEST) if self._oldest_first else self._rows
        try:
            return _tick(self.alias, rows=self._rows, **which)
        except Exception as error:
            if _is_of_all(error):
                raise
        return self._alone(ids_of_due(self.alias, list(registry), **which), until)

    def _alone(self, schedule_ids: Sequence[int], until: datetime | None) -> Ticked:
        ticked, failed, end = Ticked(), 0, time.monotonic() + LONGEST_ALONE
        for place, schedule_id in enumerate(schedule_ids):
            if place and time.monotonic() > end:
                ticked.has_more = True
                break
            try:
                ticked.add(self._one(schedule_id, until))
                self._failed.pop(schedule_id, None)
            except Exception as error:
                if _is_of_all(error):
                    raise
                self._put_off(schedule_id, error)
                failed += 1
                if failed == ALL_FAIL and not ticked.schedules:
                    raise
        return ticked

    def _one(self, schedule_id: int, until: datetime | None) -> Ticked:
        try:
            return _tick(self.alias, only=schedule_id, until=until, rows=self._rows)
        except Exception as error:
            if _is_of_all(error) or fault_of(error) is DatabaseFault.BUSY:
                raise
            return _tick(self.alias, only=schedule_id, until=until, rows=self._rows, refusal=error_in_one_line(error))

    def _put_off(self, schedule_id: int, error: Exception) -> None:
        times = self._failed.get(schedule_id, (0, 0.0))[0] + 1
        pause = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(times - 1, 10))
        self._failed[schedule_id] = times, time.monotonic() + pause
        name = Schedule.objects.using(self.alias).filter(pk=schedule_id).values_list("name", flat=True).first()
        named, why = one_line(name or str(schedule_id)), error_in_one_line(error)
        logger.error("Schedule %s could not be decided, and is tried again in %.0f s: %s", named, pause, why)


def tick_due(alias: str, *, only: int | None = None, until: datetime | None = None) -> Ticked:
    """Decide due ticks in one step, of all schedules or of one.

    ``until`` replaces the server's time, for tests.
    """
    ticker = Ticker(alias)
    return ticker.step(until=until) if only is None else ticker.only(only, until)


def _is_of_all(error: Exception) -> bool:
    """Say whether no schedule can be decided now. A missing right may concern only one."""
    if is_refused(error):
        return False
    return fault_of(error) in (DatabaseFault.CUT_OFF, DatabaseFault.FULL, DatabaseFault.CHANGING)


def run_now(alias: str, schedule_id: int, *, by: str = "") -> int:
    """Enqueue a job of a schedule at once, and return its id. The next time does not change."""
    with joined(alias):
        schedule = Schedule.objects.using(alias).select_for_update(no_key=True).get(pk=schedule_id)
        tick = Tick(clock(alias), TickOutcome.MANUAL, f"by {by}" if by else "")
        [job] = jobs_of(schedule, [tick.at], None, {})
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


def _tick(
    alias: str, *, until: datetime | None, rows: int, limit: int = MOST_DUE, refusal: str = "", **which: Any
) -> Ticked:
    with durable(alias):
        due, now = lock_due(Schedule.objects.db_manager(alias), list(registry), until=until, limit=limit, **which)
        if not due or now is None:
            return Ticked()
        plans = _plans(alias, due, now, refusal, rows)
        made = advance(Job.objects.db_manager(alias), plans)
    if queues := {job.queue for plan in plans for job in plan.jobs if isinstance(job, NewJob)}:
        wake_workers(alias, sorted(queues))
    for plan in plans:
        _log(plan)
    return Ticked(
        schedules=len(plans),
        ticks=[(plan.schedule, tick) for plan in plans for tick in plan.ticks],
        job_ids=[job_id for ids in made.values() for job_id in ids],
        has_more=len(plans) < len(due) or len(due) == limit or any(one.next_at and one.next_at <= now for one in plans),
    )


def _plans(alias: str, due: Sequence[Schedule], now: datetime, refusal: str, rows: int) -> list[Advance]:
    """Plan as many of these as one transaction may write."""
    running = unfinished(alias, [one.last_job_id for one in due if one.last_job_id is not None])
    likes: dict[str, NewJob] = {}
    plans: list[Advance] = []
    end = time.monotonic() + LONGEST_PLANNING
    for schedule in due:
        if rows <= 0 or (plans and time.monotonic() > end):
            break
        is_running = schedule.last_job_id in running
        plan = planned(schedule, now, likes, is_running=is_running, refusal=refusal, most=rows)
        plans.append(_admitted(alias, plan))
        rows -= len(plan.ticks)
    return plans


def _admitted(alias: str, plan: Advance) -> Advance:
    """Enqueue the jobs of unique tasks one by one, because another job may have the key. Write the others together."""
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
        if is_new or not new.unique.rule.keeps_first:  # a call that replaces or postpones takes effect
            jobs.append(job.pk)
        else:
            ticks[place] = Tick(tick.at, TickOutcome.OVERLAP, f"job {job.pk} has its unique key")
    return replace(plan, ticks=ticks, jobs=jobs, last_at=plan.last_at if jobs else None)


_LOGGED: dict[TickOutcome, Callable[..., Any]] = {TickOutcome.MISSED: logger.warning, TickOutcome.REFUSED: logger.error}


def _log(plan: Advance) -> None:
    for outcome, tell in _LOGGED.items():
        if alike := [tick for tick in plan.ticks if tick.outcome is outcome]:
            latest = alike[-1]
            earlier = f" and {len(alike) - 1} before it" if len(alike) > 1 else ""
            name, note = one_line(plan.schedule.name), one_line(latest.note)
            tell("Schedule %s: %s%s %s: %s", name, latest.at, earlier, outcome.value, note)
