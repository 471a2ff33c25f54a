"""Plan a schedule that is due: what becomes of its ticks, and the jobs of those that fire."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import Error

from pulse_django.backend import new_job
from pulse_django.exceptions import PulseError
from pulse_django.execution.call_signatures import checked
from pulse_django.execution.placement import shard_of_call
from pulse_django.execution.registry import changed, registry
from pulse_django.models import Schedule
from pulse_django.protocol.tick import Advance, key_of_tick
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.job_options import NewJob, encode_meta
from pulse_django.words.payloads import error_in_one_line, one_line
from pulse_django.words.ticks import Pause, Tick, TickOutcome, decide, first_after, jittered, without_firing
from pulse_django.words.timings import Overlap, Timing

from .declarations import refuse_if_encrypted

logger = SafeLogger("pulse_django.schedules")


def planned(
    schedule: Schedule, now: datetime, likes: dict[str, NewJob], *, is_running: bool, refusal: str, most: int
) -> Advance:
    """Plan one schedule. What is wrong with it refuses its own ticks and no others'."""
    try:
        timing = schedule.timing
        if refusal:
            return _refused(schedule, timing, now, refusal)
        return _decided(schedule, timing, now, likes, is_running=is_running, most=most)
    except PulseError as error:
        return _refused(schedule, None, now, error_in_one_line(error))
    except Error:
        raise
    except Exception as error:  # of the project's code, or of a row that was written by hand
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
    next_at, has_more = schedule.next_at, False
    if next_at is not None and next_at <= now:
        decided = decide(
            timing,
            next_at,
            now,
            pause=pause,
            is_running=is_running,
            is_waiting=waiting_at is not None,
            ends_at=schedule.ends_at,
            most=most,
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


def jobs_of(
    schedule: Schedule, instants: Sequence[datetime], timing: Timing | None, likes: dict[str, NewJob]
) -> list[NewJob]:
    """Make the jobs of ticks. ``likes`` holds one job of each task, of which the others are copies."""
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
        if is_unique:  # its key depends on the arguments, and its window on the instant
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
