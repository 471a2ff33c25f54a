"""Plan a due schedule: decide its ticks, and create the jobs of those that fire."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import Error

from pulse_django import conf
from pulse_django.backend import new_job
from pulse_django.exceptions import PulseError
from pulse_django.models import Schedule
from pulse_django.queue.words.job_options import NewJob, encode_meta
from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.run.calls import checked, uses_of
from pulse_django.run.registry import changed, registry
from pulse_django.safe_logging import SafeLogger
from pulse_django.shards.placement import has_several_shards, shard_of_call

from .declarations import refuse_if_encrypted
from .definitions import timing_or_none
from .tick import Advance, key_of_tick
from .tick_rules import Pause, Tick, TickOutcome, decide, first_after, jittered, without_firing
from .timings import Overlap, Timing

logger = SafeLogger("pulse_django.schedules")

# The jobs that schedules of one task and queue have in common.
Alike = dict[tuple[str, str | None], NewJob]


def keyed_tasks() -> tuple[list[str], list[str]]:
    """Return the tasks, and the queues, whose jobs have keys for which a schedule may have to wait.

    A function of the project makes them, or another transaction may hold them.
    """
    several = has_several_shards()  # then PLACEMENT, a function of the project, is asked about keys
    uses = {key: uses_of(task) for key in registry if (task := registry.get(key)) is not None}
    tasks = [key for key, one in uses.items() if one.waits or (several and one.call_fields)]
    return tasks, [queue for queue, source in conf.current().fair_by_queue.items() if callable(source)]


def planned(
    schedule: Schedule, now: datetime, likes: Alike, *, is_running: bool, most: int, refusal: str = ""
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
    except BaseException as error:  # an error of the project's code, or of a row that was written by hand
        if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise  # the user of a command
        logger.exception("Schedule %s could not be decided", one_line(schedule.name))
        return _refused(schedule, None, now, f"{type(error).__name__}: {error_in_one_line(error)}")


def _decided(
    schedule: Schedule, timing: Timing, now: datetime, likes: Alike, *, is_running: bool, most: int
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


def jobs_of(schedule: Schedule, instants: Sequence[datetime], timing: Timing | None, likes: Alike) -> list[NewJob]:
    """Create the jobs of ticks. ``likes`` holds one job of each task and queue, and the others are copies of it.

    The keys of a job are made of its arguments: once, for all of these ticks.
    """
    if not instants:
        return []
    task = registry.get(schedule.task)
    if task is None:
        raise PulseError(f"no live worker has a task that is called {schedule.task!r}")
    there: Any = task if schedule.queue is None else changed(task, {"queue_name": schedule.queue})
    shard_of_call(there, *checked(task, schedule.args, schedule.kwargs), using=schedule._state.db)
    if schedule.args or schedule.kwargs:
        refuse_if_encrypted(schedule.name, task)
    alike = likes.get((schedule.task, schedule.queue))
    if alike is None or uses_of(there).call_fields:
        if getattr(task, "unique", None) is not None:  # its rule may require a delay
            there = there.using(run_after=instants[0])
        alike = replace(new_job(there, schedule.args, schedule.kwargs), parent_id=None)
        likes[schedule.task, schedule.queue] = alike
    return [
        replace(
            alike,
            args=schedule.args,
            kwargs=schedule.kwargs,
            priority=alike.priority if schedule.priority is None else schedule.priority,
            idempotency_key=None if alike.unique is not None else key_of_tick(schedule.pk, at),
            run_after=at if timing is None else jittered(timing, schedule.name, at),
            meta=alike.meta or encode_meta({"schedule": schedule.name, "tick": at.isoformat()}),
        )
        for at in instants
    ]
