"""Decide which due ticks fire, and enqueue their jobs.

Any number of processes may do it at once. Each locks some of the due schedules and skips those that another one has
locked. There is no leader.

No schedule holds up another. Those in time are decided together, and late ones after them, in parts. A schedule is
decided alone if a function of the project makes keys of its jobs, if it may wait for a lock of another transaction, if
its arguments are large, or if it was slow or failed before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Protocol, TypeVar

from django.db import Error

from pulse_django.exceptions import AlreadyEnqueued, InvalidSchedule
from pulse_django.models import Job, Schedule
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of, is_refused
from pulse_django.queue.database.transactions import durable, joined
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.run.notify import wake_workers
from pulse_django.run.registry import registry
from pulse_django.safe_logging import SafeLogger

from .planning import Alike, jobs_of, keyed_tasks, planned
from .tick import (
    Advance,
    Due,
    DueRow,
    advance,
    due_alone,
    is_unchanged,
    lock_due,
    read_due,
    read_locked,
    unfinished,
)  # fmt: skip
from .tick_rules import Tick, TickOutcome
from .verbs import clock

T = TypeVar("T")
logger = SafeLogger("pulse_django.schedules")


# Rows that one transaction may write. More rows keep all other schedules waiting; with fewer, a backlog takes longer.
# It begins with the minimum. A step that wrote so many rows within FAST doubles the number, a SLOW one halves it.
MOST_ROWS, LEAST_ROWS = 500, 20
TICKS_OF_THE_LATEST = 20
SLOW, FAST = 0.5, 0.2  # seconds
LONGEST_PLANNING = 0.25  # seconds; then it writes the planned changes
# Ticks of a schedule that is decided alone. Each tick of a unique task takes three statements.
MOST_ALONE = 20
# A schedule that takes so long alone comes after the others from then on.
SLOW_ALONE = 0.1  # seconds
# If so many fail one after another, all have the same error, which is then not logged again.
ALL_FAIL = 5
# Seconds until a retry of a schedule that could be neither decided nor refused.
FIRST_RETRY, LAST_RETRY = 2.0, 60.0
LATE = 0  # the key of the late schedules in ``Threads``; ids begin with 1


@dataclass(slots=True, kw_only=True)
class Ticked:
    """The result of a step."""

    schedules: int = 0  # that were due and not locked by another process
    ticks: list[tuple[Schedule, Tick]] = field(default_factory=list)
    job_ids: list[int] = field(default_factory=list)
    has_more: bool = False  # that is due and was left for the next step
    took: float = 0.0  # seconds, of a schedule that was decided alone

    def add(self, other: Ticked) -> None:
        self.schedules += other.schedules
        self.ticks += other.ticks
        self.job_ids += other.job_ids
        self.has_more = self.has_more or other.has_more


class Call(Protocol):
    """Runs a verb on the connection of this thread."""

    def __call__(self, verb: Callable[..., T], /, *args: Any, **kwargs: Any) -> T: ...


class Threads(Protocol):
    """Threads that decide schedules beside the loop."""

    @property
    def taken(self) -> Collection[int]: ...  # the keys of work that waits or is being done
    def submit(
        self, key: int, name: str, work: Callable[[Call], Ticked], *, comes_last: bool, late_by: float
    ) -> object: ...


class PlanFailed(Exception):
    """A function of the project could not use a database."""


class Ticker:
    """Decides the ticks of one database in short steps.

    A schedule that fails is decided alone from then on, and its ticks are refused. If even that fails, it is tried
    again later. A schedule that is far behind catches up in parts, together with the other late ones.
    """

    def __init__(self, alias: str, threads: Threads | None = None) -> None:
        """Without ``threads``, everything is decided in the thread of the caller."""
        self.alias = alias
        self._threads = threads
        self._in_time, self._late = _Together(self, is_late=False), _Together(self, is_late=True)
        self._troubled: dict[int, tuple[int, float]] = {}  # by id: failures in a row, and when to try again
        self._failures = 0  # of schedules, one after another

    def step(self, *, until: datetime | None = None, has_late: bool = True) -> Ticked:
        """Decide the schedules that are in time, and then late ones, and each of those that are decided alone.

        The threads decide these two kinds, if there are any. ``until`` replaces the server's time.
        """
        registry.discover()
        ticked = self._in_time.step(until)
        if self._threads is None:
            ticked.add(self._late.step(until))
        elif has_late:
            self._threads.submit(LATE, "", lambda call: call(self._late.step, until), comes_last=True, late_by=0.0)
        which = self.due(until)
        ticked.add(self.alone(due_alone(self.alias, which, limit=MOST_ROWS), which))
        return ticked

    def due(self, until: datetime | None) -> Due:
        """Return which schedules are due for this process, and which of them are decided alone."""
        return Due(until, list(registry), *keyed_tasks(), troubled=list(self._troubled), without=self.not_now())

    def not_now(self) -> list[int]:
        """Return the schedules that threads are deciding, or that are tried again later."""
        now, troubled = time.monotonic(), dict(self._troubled)  # a copy: other threads change it
        later = [schedule_id for schedule_id, (_, at) in troubled.items() if at > now]
        return later if self._threads is None else [*later, *self._threads.taken]

    def alone(self, due: Sequence[DueRow], which: Due) -> Ticked:
        """Decide each of these schedules alone, or let the threads do it."""
        ticked = Ticked()
        for row in due:
            work = partial(self._alone, row.id, row.name, which)
            if self._threads is None:
                ticked.add(work(_call))
            else:
                self._threads.submit(row.id, row.name, work, comes_last=row.id in self._troubled, late_by=row.late_by)
        return ticked

    def _alone(self, schedule_id: int, name: str, which: Due, call: Call) -> Ticked:
        try:
            ticked = self._decided(schedule_id, which, call)
        except Exception as error:
            if _is_of_all(error):
                raise
            self._put_off(schedule_id, name, error)
            return Ticked()
        self._failures = 0
        if schedule_id in self._troubled or ticked.took > SLOW_ALONE:
            self._troubled[schedule_id] = 0, 0.0
        return ticked

    def _decided(self, schedule_id: int, which: Due, call: Call) -> Ticked:
        try:
            return _decide_alone(self.alias, schedule_id, which, call)
        except Exception as error:
            if _is_of_all(error) or fault_of(error) is DatabaseFault.BUSY or isinstance(error, PlanFailed):
                raise
            self._troubled.setdefault(schedule_id, (0, 0.0))  # it would fail its batch again
            return _decide_alone(self.alias, schedule_id, which, call, refusal=error_in_one_line(error))

    def _put_off(self, schedule_id: int, name: str, error: Exception) -> None:
        times = self._troubled.get(schedule_id, (0, 0.0))[0] + 1
        pause = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(times - 1, 10))
        self._troubled[schedule_id] = times, time.monotonic() + pause
        self._failures += 1
        if self._failures <= ALL_FAIL:
            named, why = one_line(name), error_in_one_line(error)
            logger.error("Schedule %s could not be decided, and is tried again in %.0f s: %s", named, pause, why)
        if self._failures >= ALL_FAIL and self._threads is None:
            raise error


class _Together:
    """Decides schedules together: those that are in time, or those that are late."""

    def __init__(self, ticker: Ticker, *, is_late: bool) -> None:
        self._ticker, self._is_late = ticker, is_late
        self._oldest_first = False
        self._rows = LEAST_ROWS

    def step(self, until: datetime | None) -> Ticked:
        """Decide due ticks, in one transaction: those of the schedules that are least late, or of the latest ones.

        After a step that left some, the next one begins at the other end.
        """
        began, ticked = time.monotonic(), Ticked()
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

    def _batch(self, until: datetime | None) -> Ticked:
        alias, which = self._ticker.alias, self._ticker.due(until)
        # A schedule in time has one tick, and a late one many.
        limit = max(1, self._rows // TICKS_OF_THE_LATEST) if self._oldest_first else self._rows
        due: list[DueRow] = []
        try:
            with durable(alias):
                due = lock_due(alias, which, is_late=self._is_late, oldest_first=self._oldest_first, limit=limit)
                if not due:
                    return Ticked()
                now = which.until or max(row.now for row in due)
                plans = _plans(alias, read_locked(Schedule.objects.db_manager(alias), due), now, self._rows)
                made = advance(Job.objects.db_manager(alias), plans)
        except Exception as error:
            if not due or _is_of_all(error):
                raise
            return self._ticker.alone(due, which)
        ticked = _written(alias, plans, made, now)
        ticked.has_more = ticked.has_more or len(plans) < len(due) or len(due) == limit
        return ticked


def tick_due(alias: str, *, only: Schedule | None = None, until: datetime | None = None) -> Ticked:
    """Decide due ticks in one step, of all schedules or of one.

    ``until`` replaces the server's time, for tests.
    """
    ticker = Ticker(alias)
    if only is None:
        return ticker.step(until=until)
    registry.discover()
    return ticker._alone(only.pk, only.name, ticker.due(until), _call)


def _call(verb: Callable[..., T], /, *args: Any, **kwargs: Any) -> T:
    return verb(*args, **kwargs)


def _is_of_all(error: Exception) -> bool:
    """Say whether no schedule can be decided now. A missing right may concern only one."""
    if is_refused(error):
        return False
    return fault_of(error) in (DatabaseFault.CUT_OFF, DatabaseFault.FULL, DatabaseFault.CHANGING)


_OF_JOBS = ("task", "args", "kwargs", "queue", "priority")  # columns of which jobs are made


def run_now(alias: str, schedule_id: int, *, by: str = "") -> int:
    """Enqueue a job of a schedule at once, and return its id. The next time does not change."""
    # Functions of the project make its keys, so the schedule is not locked yet.
    at, planned_for = clock(alias), Schedule.objects.using(alias).get(pk=schedule_id)
    [job] = jobs_of(planned_for, [at], None, {})
    with joined(alias):
        schedule = Schedule.objects.using(alias).select_for_update(no_key=True).get(pk=schedule_id)
        if any(getattr(schedule, name) != getattr(planned_for, name) for name in _OF_JOBS):
            raise InvalidSchedule(f"{schedule.name}: it was changed at this moment. Run it again")
        is_running = bool(unfinished(alias, [schedule.last_job_id] if schedule.last_job_id else []))
        plan = Advance(
            schedule=schedule,
            ticks=[Tick(at, TickOutcome.MANUAL, f"by {by}" if by else "")],
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


def _plans(alias: str, due: Sequence[Schedule], now: datetime, rows: int) -> list[Advance]:
    """Plan as many of these as one transaction may write."""
    running = unfinished(alias, [one.last_job_id for one in due if one.last_job_id is not None])
    likes: Alike = {}
    plans: list[Advance] = []
    end = time.monotonic() + LONGEST_PLANNING
    for schedule in due:
        if rows <= 0 or (plans and time.monotonic() > end):
            break
        plans.append(planned(schedule, now, likes, is_running=schedule.last_job_id in running, most=rows))
        rows -= len(plans[-1].ticks)
    return plans


def _decide_alone(alias: str, schedule_id: int, which: Due, call: Call, *, refusal: str = "") -> Ticked:
    """Plan a schedule without a transaction. Then lock it, and write the plan if the schedule is still the same."""
    found = call(read_due, Schedule.objects.db_manager(alias), which, schedule_id)
    if found is None:
        return Ticked()
    schedule, now, is_running = found
    began = time.monotonic()
    try:
        plan = planned(schedule, now, {}, is_running=is_running, most=MOST_ALONE, refusal=refusal)
    except Error as error:
        raise PlanFailed(f"{type(error).__name__}: {error_in_one_line(error)}") from error
    ticked = call(_write_alone, alias, plan, now)
    ticked.took = time.monotonic() - began
    return ticked


def _write_alone(alias: str, plan: Advance, now: datetime) -> Ticked:
    with durable(alias):
        if not is_unchanged(alias, plan.schedule):
            return Ticked()
        plan = _admitted(alias, plan)
        made = advance(Job.objects.db_manager(alias), [plan])
    return _written(alias, [plan], made, now)


def _written(alias: str, plans: Sequence[Advance], made: dict[int, list[int]], now: datetime) -> Ticked:
    """Wake workers, and log ticks that did not fire."""
    if queues := {job.queue for plan in plans for job in plan.jobs if isinstance(job, NewJob)}:
        wake_workers(alias, sorted(queues))
    for plan in plans:
        _log(plan)
    return Ticked(
        schedules=len(plans),
        ticks=[(plan.schedule, tick) for plan in plans for tick in plan.ticks],
        job_ids=[job_id for ids in made.values() for job_id in ids],
        has_more=any(one.next_at and one.next_at <= now for one in plans),
    )


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
