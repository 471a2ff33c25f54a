"""Write the outcome of ticks: the ticks, their jobs and the next time of each schedule, in one transaction.

A tick is a pair of a schedule and a time in UTC. It is unique in its table, and it is the key of its job: no second
watchdog, no change of the schedule and no restored dump fires it again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse_django import conf
from pulse_django.queue.cancel import request_cancel
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.database.transactions import Row, run_joined
from pulse_django.queue.enqueue import copy_with_ids, take_ids
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.payloads import MAX_SUMMARY, clean_text

from .tick_rules import Tick, TickOutcome

if TYPE_CHECKING:
    from pulse_django.models import Schedule

# Later ones are late: a backlog, beside which schedules in time are decided. If smaller, a stall of the machine makes
# them late. If larger, a backlog of frequent schedules keeps the others waiting.
IN_TIME = timedelta(seconds=10)
# Bytes of arguments as they are stored, compressed. Reading larger ones takes long.
LARGE = 1_000
# The longest that a tick may wait for a lock of another transaction: all schedules of the batch wait with it.
LOCK_WAIT = timedelta(milliseconds=250)

# The time until the next tick, and whether a tick waits for a job that has ended. No lock, no sort, two index lookups.
_LOOK = """
SELECT
    (
        SELECT EXTRACT(epoch FROM next_at - clock_timestamp())::float8
        FROM pulse_django_schedule WHERE next_at IS NOT NULL AND id <> ALL (%(without)s::bigint[])
        ORDER BY next_at LIMIT 1
    ),
    EXISTS (
        SELECT 1 FROM pulse_django_schedule AS schedule
        WHERE waiting_at IS NOT NULL AND id <> ALL (%(without)s::bigint[]) AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
"""

# Which schedules are due, if this process has their task or no live worker has it.
_IS_DUE = """schedule.gone_at IS NULL
    AND (
        schedule.next_at <= COALESCE(%(until)s::timestamptz, statement_timestamp())
        OR schedule.waiting_at IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
        )
    )
    AND (
        schedule.task::text = ANY (%(known)s::text[])
        OR NOT EXISTS (
            SELECT 1 FROM pulse_django_worker AS worker
            WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - %(silence)s::interval
                AND (worker.tasks IS NULL OR pg_catalog.jsonb_exists(worker.tasks, schedule.task::text))
        )
    )"""
# Which of them are decided alone.
_IS_ALONE = """(
        schedule.id = ANY (%(troubled)s::bigint[])
        OR schedule.task::text = ANY (%(tasks)s::text[])
        OR schedule.queue::text = ANY (%(queues)s::text[])
        OR schedule.overlap::text = 'cancel' AND schedule.last_job_id IS NOT NULL
        OR pg_catalog.pg_column_size(schedule.args) + pg_catalog.pg_column_size(schedule.kwargs) > %(large)s
    ) IS TRUE"""
_LATE_BY = "COALESCE(EXTRACT(epoch FROM statement_timestamp() - schedule.next_at), 0)::float8"
_DUE_TOGETHER = f"""
SELECT schedule.id, schedule.name, {_LATE_BY}, clock_timestamp()
FROM pulse_django_schedule AS schedule
WHERE {_IS_DUE}
    AND NOT ({_IS_ALONE})
    AND schedule.id <> ALL (%(without)s::bigint[])
    AND (
        schedule.next_at <= COALESCE(%(until)s::timestamptz, statement_timestamp()) - %(in_time)s::interval
    ) IS TRUE = %(is_late)s
ORDER BY schedule.next_at {{order}}, schedule.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF schedule SKIP LOCKED
"""  # noqa: S608 - made of constants
_DUE_ALONE = f"""
SELECT schedule.id, schedule.name, {_LATE_BY}, clock_timestamp()
FROM pulse_django_schedule AS schedule
WHERE {_IS_DUE}
    AND {_IS_ALONE}
    AND schedule.id <> ALL (%(without)s::bigint[])
ORDER BY schedule.next_at DESC, schedule.id
LIMIT %(limit)s
"""  # noqa: S608 - made of constants
_IS_THIS_DUE = f"""
SELECT clock_timestamp(), EXISTS (
    SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = schedule.last_job_id AND job.finished_at IS NULL
)
FROM pulse_django_schedule AS schedule
WHERE {_IS_DUE}
    AND schedule.id = %(id)s
"""  # noqa: S608 - made of constants

_WAIT_BRIEFLY = "SELECT pg_catalog.set_config('lock_timeout', %s, true)"

_UNFINISHED = "SELECT id FROM pulse_django_job_hot WHERE id = ANY (%s::bigint[]) AND finished_at IS NULL"

_GIVEN = """
WITH given AS (
    SELECT * FROM ROWS FROM (
        pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::timestamptz[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(%s::text[])
    ) AS given (schedule_id, at, outcome, note, job_id, task, key)
)"""
# Only a tick that waited for the last job is decided a second time: it may fire now.
_TICKS = """
INSERT INTO pulse_django_tick AS tick (schedule_id, at, outcome, note, job_id)
SELECT schedule_id, at, outcome, note, job_id FROM given
ON CONFLICT (schedule_id, at) DO UPDATE
    SET outcome = excluded.outcome, note = excluded.note, job_id = excluded.job_id, decided_at = excluded.decided_at
    WHERE tick.outcome::text = 'WAITING' AND excluded.outcome::text <> 'WAITING'
RETURNING schedule_id, at
"""
_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT given.task, given.key, given.job_id
FROM given
{of_ticks}WHERE given.key IS NOT NULL
ON CONFLICT (task, key) DO NOTHING
RETURNING job_id
"""
_OF_TICKS = "JOIN tick ON tick.schedule_id = given.schedule_id AND tick.at = given.at\n"
# Workers write ticks that fire no job, and need no right on the keys.
WRITE_TICKS, WRITE_KEYS = f"{_GIVEN}{_TICKS}", f"{_GIVEN}{_KEYS.format(of_ticks='')}"
_WRITE_TICKS_AND_KEYS = f"{_GIVEN},\ntick AS ({_TICKS}){_KEYS.format(of_ticks=_OF_TICKS)}"

# The key existed and the tick did not: the tables were restored from parts of dumps.
_JOB_OF_KEY = """
UPDATE pulse_django_tick AS tick
SET job_id = key.job_id
FROM ROWS FROM (
    pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::timestamptz[]), pg_catalog.unnest(%s::text[]),
    pg_catalog.unnest(%s::text[])
) AS given (schedule_id, at, task, key)
JOIN pulse_django_key AS key ON key.task::text = given.task AND key.key::text = given.key
WHERE tick.schedule_id = given.schedule_id AND tick.at = given.at
RETURNING tick.job_id
"""

_ADVANCE = """
WITH given AS (
    SELECT * FROM ROWS FROM (
        pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::timestamptz[]), pg_catalog.unnest(%s::timestamptz[]),
        pg_catalog.unnest(%s::timestamptz[]), pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::bool[])
    ) AS given (id, next_at, waiting_at, last_at, last_job_id, resumed)
)
UPDATE pulse_django_schedule AS schedule
SET next_at = given.next_at,
    waiting_at = given.waiting_at,
    last_at = COALESCE(given.last_at, schedule.last_at),
    last_job_id = COALESCE(given.last_job_id, schedule.last_job_id),
    paused_at = CASE WHEN NOT given.resumed THEN schedule.paused_at END,
    paused_until = CASE WHEN NOT given.resumed THEN schedule.paused_until END,
    pause_reason = CASE WHEN given.resumed THEN '' ELSE schedule.pause_reason END
FROM given
WHERE schedule.id = given.id
RETURNING schedule.id
"""

# A limit for each schedule, by the primary key, because each tick would have to write to an index on the time alone.
_FORGET = """
WITH old AS (
    SELECT tick.schedule_id, tick.at
    FROM (
        SELECT id FROM pulse_django_schedule
    ) AS schedule
    CROSS JOIN LATERAL (
        SELECT schedule_id, at FROM pulse_django_tick
        WHERE schedule_id = schedule.id AND at < statement_timestamp() - %s::interval
        ORDER BY at LIMIT %s
    ) AS tick
    LIMIT %s
)
DELETE FROM pulse_django_tick AS tick USING old
WHERE tick.schedule_id = old.schedule_id AND tick.at = old.at
RETURNING tick.schedule_id
"""

FORGET_LIMIT = 5_000
_NOT_NEEDED = ("declared", "overrides")  # columns that no decision reads

CANCELLED_FOR = "the next run of its schedule is due"


class Look(NamedTuple):
    due_in: float | None  # seconds until the next tick, negative if it is late; None: nothing is scheduled
    waits_no_longer: bool  # a tick waited for a job that has ended

    @property
    def is_due(self) -> bool:
        return self.waits_no_longer or (self.due_in is not None and self.due_in <= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The changes of one schedule to write."""

    schedule: Schedule
    ticks: Sequence[Tick]
    next_at: datetime | None
    jobs: Sequence[NewJob | int] = ()  # of the ticks that fire, in order; a number is the id of an existing job
    waiting_at: datetime | None = None
    last_at: datetime | None = None  # the last tick that fired
    cancel: int | None = None  # a job to cancel
    resumed: bool = False  # its pause has ended
    keeps_last_job: bool = False  # a manual run while another one has not ended


def look(alias: str, without: Collection[int] = ()) -> Look:
    """Return when the next schedule is due, ``without`` some."""
    return Look._make(run_joined(alias, _LOOK, {"without": list(without)})[0])


class Due(NamedTuple):
    """Which schedules are due for a process, and which of them are decided alone."""

    until: datetime | None  # replaces the server's time
    known: Sequence[str]  # the tasks of this process. Schedules of other tasks are left to other processes
    tasks: Sequence[str]  # whose schedules are decided alone
    queues: Sequence[str]  # the same
    troubled: Sequence[int]  # schedules that are decided alone
    without: Sequence[int]  # schedules that are not decided now

    def params(self, **others: Any) -> dict[str, Any]:
        silence = conf.current().worker_silence
        return self._asdict() | {"silence": silence, "in_time": IN_TIME, "large": LARGE} | others


class DueRow(NamedTuple):
    """A schedule that is due. Its row may be unreadable."""

    id: int
    name: str
    late_by: float  # seconds
    now: datetime  # the server's time


def lock_due(alias: str, which: Due, *, is_late: bool, oldest_first: bool, limit: int) -> list[DueRow]:
    """Lock schedules that are due, or whose tick waits no longer."""
    statement = _DUE_TOGETHER.format(order="ASC" if oldest_first else "DESC")
    return _due(run_joined(alias, statement, which.params(is_late=is_late, limit=limit)))


def read_locked(schedules: Any, due: Sequence[DueRow]) -> list[Schedule]:
    """Read schedules after they are locked: the statement that locks may have waited, and its snapshot is older."""
    found = schedules.using(schedules.write_alias).defer(*_NOT_NEEDED).in_bulk([row.id for row in due])
    return [found[row.id] for row in due]


def due_alone(alias: str, which: Due, *, limit: int) -> list[DueRow]:
    """Return the schedules that are due and decided alone."""
    return _due(run_joined(alias, _DUE_ALONE, which.params(limit=limit)))


def _due(rows: Sequence[Any]) -> list[DueRow]:
    return [row._replace(now=aware(row.now)) for row in map(DueRow._make, rows)]


def read_due(schedules: Any, which: Due, schedule_id: int) -> tuple[Schedule, datetime, bool] | None:
    """Return a schedule, the server's time, and whether its last job has not ended. None: it is not due."""
    alias = schedules.write_alias
    for now, is_running in run_joined(alias, _IS_THIS_DUE, which.params(id=schedule_id)):
        for schedule in schedules.using(alias).defer(*_NOT_NEEDED).filter(pk=schedule_id):
            return schedule, which.until or aware(now), is_running
    return None


def is_unchanged(alias: str, schedule: Schedule) -> bool:
    """Lock a schedule, and say whether it is still as it was read. False, if another process has locked it."""
    run_joined(alias, _WAIT_BRIEFLY, [f"{LOCK_WAIT.total_seconds() * 1_000:.0f}ms"])
    # Arguments are not compared. If they were changed since, the tick fired before the change.
    names = [name for name in _columns(schedule) if name not in (*_NOT_NEEDED, "args", "kwargs")]
    rows = type(schedule).objects.using(alias).select_for_update(no_key=True, skip_locked=True)
    now = rows.filter(pk=schedule.pk).values_list(*names).first()
    return now == tuple(getattr(schedule, name) for name in names)


def _columns(schedule: Schedule) -> list[str]:
    return [column.attname for column in schedule._meta.concrete_fields]


def unfinished(alias: str, job_ids: Collection[int]) -> frozenset[int]:
    """Return those of these jobs that have not ended."""
    rows = run_joined(alias, _UNFINISHED, [sorted(job_ids)]) if job_ids else []
    return frozenset(job_id for (job_id,) in rows)


def key_of_tick(schedule_id: int, at: datetime) -> str:
    """Return the idempotency key of the job of a tick."""
    return f"schedule:{schedule_id}:{at.timestamp():.6f}".rstrip("0").rstrip(".")


def advance(jobs: JobReader, plans: Sequence[Advance]) -> dict[int, list[int]]:
    """Write these changes, in the transaction that holds the locks. Return the ids of new jobs by schedule."""
    alias = jobs.write_alias
    cancelled = [plan.cancel for plan in plans if plan.cancel is not None]
    if cancelled:
        request_cancel(jobs, cancelled, reason=CANCELLED_FOR)
    wanted = [(plan, job) for plan in plans for job in plan.jobs if isinstance(job, NewJob)]
    ids = take_ids(alias, len(wanted)) if wanted else []
    free = iter(ids)
    job_ids = {one.schedule.pk: [next(free) if isinstance(job, NewJob) else job for job in one.jobs] for one in plans}
    rows = [row for plan in plans for row in _rows(plan, job_ids[plan.schedule.pk])]
    new = write_ticks(alias, rows) if rows else frozenset()
    if odd := [row for row in rows if len(row) > 3 and row[2] not in new]:
        keys = [[one[0] for one in odd], [one[1].at for one in odd], [one[3].task for one in odd]]
        run_joined(alias, _JOB_OF_KEY, [*keys, [one[3].idempotency_key for one in odd]])
    if fresh := [(job, job_id) for (_plan, job), job_id in zip(wanted, ids, strict=True) if job_id in new]:
        copy_with_ids(jobs, fresh)
    there = new | {job for plan in plans for job in plan.jobs if isinstance(job, int)}
    made = {key: [job_id for job_id in found if job_id in there] for key, found in job_ids.items()}
    last = [None if plan.keeps_last_job else max(made[plan.schedule.pk], default=None) for plan in plans]
    instants = [[getattr(plan, name) for plan in plans] for name in ("next_at", "waiting_at", "last_at")]
    ids_of_plans, resumed = [plan.schedule.pk for plan in plans], [plan.resumed for plan in plans]
    run_joined(alias, _ADVANCE, [ids_of_plans, *instants, last, resumed])
    return made


class Firing(Statements):
    """The statement that writes ticks, and the keys of the jobs that they fire."""

    def write(self, columns: list[list[Any]]) -> list[Row]:
        """Return the ids of the jobs whose tick is new."""
        return run_joined(self.alias, _WRITE_TICKS_AND_KEYS, columns)


def write_ticks(
    alias: str, rows: Sequence[tuple[int, Tick, int | None] | tuple[int, Tick, int | None, NewJob]]
) -> frozenset[int]:
    """Write ticks of schedules, with the ids of the jobs that they fire. Return the ids whose tick is new."""
    columns: list[list[Any]] = [[], [], [], [], [], [], []]
    for schedule_id, tick, job_id, *job in rows:
        task, key = (job[0].task, job[0].idempotency_key) if job else (None, None)
        values = (schedule_id, tick.at, tick.outcome.value, clean_text(tick.note, MAX_SUMMARY), job_id, task, key)
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    if not any(columns[-1]):
        run_joined(alias, WRITE_TICKS, columns)
        return frozenset()
    return frozenset(job_id for (job_id,) in statements_for(Firing, alias).write(columns))


def forget_ticks(alias: str, older_than: timedelta) -> int:
    """Delete some ticks of this age. Return how many."""
    return len(run_joined(alias, _FORGET, [older_than, FORGET_LIMIT, FORGET_LIMIT]))


def _rows(plan: Advance, job_ids: Sequence[int]) -> Iterator[Any]:
    jobs = iter(zip(plan.jobs, job_ids, strict=True))
    for tick in plan.ticks:
        if tick.outcome in (TickOutcome.FIRED, TickOutcome.MANUAL):
            job, job_id = next(jobs)
            yield (plan.schedule.pk, tick, job_id, job) if isinstance(job, NewJob) else (plan.schedule.pk, tick, job_id)
        else:
            yield plan.schedule.pk, tick, None
