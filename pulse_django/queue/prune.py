"""Delete jobs that have ended, with their attempts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from django.db import OperationalError

from pulse_django.safe_logging import SafeLogger

from .capability import Satellite, assembled, installed
from .database.dialects import Statements, statements_for
from .database.job_queries import JobReader
from .database.sql_functions import StatementTimestamp
from .database.transactions import LOCK_NOT_AVAILABLE, Row, refuse_callers_transaction, run_alone
from .ending import ERA, HISTORY, noted_columns, notes_of_over
from .statements import Compiled, check_delay, check_limit, compiled, skip_locked
from .words.job_ids import job_ids_of
from .words.states import HOT, TERMINAL, Status, day_of, era_of

if TYPE_CHECKING:
    from .job import JobRow


PRUNE_LIMIT = 1_000

ATTEMPTS = Satellite(
    table="pulse_django_attempt",
    rows="attempts",
    deletion="""
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM {jobs}))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
)""",
    of_day="attempts > 1 OR completed_by IS NULL",
)


def satellites() -> list[Satellite]:
    """Return the other tables with rows that belong to jobs."""
    return [ATTEMPTS, *(satellite for one in installed() for satellite in one.satellites)]


def _deletions(jobs: str) -> list[str]:
    return [one.deletion.format(jobs=jobs) for one in satellites() if one.deletion]


def _read_of_jobs(*also: str) -> str:
    """Return the columns of deleted jobs that the other CTEs read."""
    columns = ["id", "task", *(column for one in satellites() for column in one.reads), *also]
    return ", ".join(dict.fromkeys(columns))


@assembled
def _prune_sql(*, with_outdated: bool = True) -> str:
    dead = f"(SELECT * FROM gone WHERE era = {HOT}) AS dead"  # noqa: S608 - made of constants
    outdated = [one.internals.outdated for one in installed() if one.internals.outdated and with_outdated]
    beside = [*notes_of_over(dead, "'CANCELLED'"), *_deletions("gone"), *outdated]
    return f"""
WITH old (id) AS MATERIALIZED ({{pick}}),
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING {_read_of_jobs("era", *noted_columns())}
),{",".join(beside)}
SELECT id FROM gone
"""  # noqa: S608 - made of constants


def prune(
    jobs: JobReader, status: Status, *, older_than: timedelta, limit: int = PRUNE_LIMIT, in_days: bool = True
) -> int:
    """Delete up to ``limit`` jobs that ended in ``status`` longer ago than that, with their attempts. Return how many.

    Also delete the expired periods of unique jobs. Without ``in_days``, leave out jobs in the partitions of days, which
    are dropped as a whole.
    """
    if status not in TERMINAL:
        raise ValueError(f"{status} is not a final status: prune does not delete live jobs")
    check_limit(limit)
    check_delay(older_than)
    pick = _prune_pick(jobs.model, jobs.write_alias, status, older_than, limit, in_days)
    return len(_delete(jobs, pick, _prune_sql()))


def prune_these(jobs: JobReader, job_ids: Collection[int], *, ended_by: datetime | None = None) -> list[int]:
    """Delete these jobs, if they have ended, with their attempts. Return the deleted ids.

    Leave out a dead letter that other jobs wait for: they would run without it. With ``ended_by``, delete only jobs
    that ended no later.
    """
    ended = jobs.using(jobs.write_alias).terminal().filter(pk__in=sorted(job_ids_of(job_ids))).holding_nothing()
    if ended_by is not None:
        ended = ended.filter(finished_at__lte=ended_by)
    pick = compiled(skip_locked(ended.order_by("id").values("id"), no_key=False), jobs.write_alias, everywhere=True)
    return sorted(job_id for (job_id,) in _delete(jobs, pick, _prune_sql(with_outdated=False)))


def _delete(jobs: JobReader, pick: Compiled, statement: str) -> list[Row]:
    sql, params = pick
    return run_alone(jobs.write_alias, statement.format(pick=sql), params)


@assembled
def _prune_pick(
    model: type[JobRow], alias: str, status: Status, older_than: timedelta, limit: int, in_days: bool
) -> Compiled:
    old = model.objects.filter(status=status, finished_at__lt=StatementTimestamp() - older_than).unneeded()
    picked = skip_locked(old.order_by("finished_at", "id").values("id"), no_key=False)[:limit]
    return compiled(picked, alias, everywhere=in_days)


# Make the partitions of the next days, and drop the partitions of days whose jobs have been kept long enough.
#
# Two database functions do it with the rights of the tables' owner, so the role of a watchdog need not own the tables.


LOCKED_BY_OTHERS = (LOCK_NOT_AVAILABLE, "40P01")  # a cluster reports a deadlock before the timeout
logger = SafeLogger(__name__)

DAYS_AHEAD = 3
# Seconds. Making or dropping a partition locks the history, and every settle that completes a job waits behind it.
LOCK_TIMEOUT = 0.1
CLEANED_AT_ONCE, MOST_BATCHES = 5_000, 20
# Jobs in the partition for days without their own. It is locked while they are moved: 10,000 take about 0.1 s.
MOST_MOVED = 10_000


# In a layout of one level, the days are partitions of the table of all jobs (docs/adr/0086).
_ERAS = """
SELECT
    (pg_catalog.regexp_match(pg_catalog.pg_get_expr(day.relpartbound, day.oid), '[0-9]{8}'))[1]::int AS era,
    statement_timestamp() AT TIME ZONE 'UTC'
FROM pg_class AS parent
LEFT JOIN pg_inherits AS link ON link.inhparent = parent.oid
LEFT JOIN pg_class AS day ON day.oid = link.inhrelid
WHERE parent.oid = COALESCE(pg_catalog.to_regclass('pulse_django_job_over'), 'pulse_django_job'::regclass)::oid
ORDER BY era
"""

_WITHOUT_A_DAY = """
WITH RECURSIVE found (era) AS (
    SELECT pg_catalog.min(era) FROM pulse_django_job_other
    UNION ALL
    SELECT (SELECT pg_catalog.min(era) FROM pulse_django_job_other WHERE era > found.era) FROM found
    WHERE found.era IS NOT NULL
)
SELECT era FROM found WHERE era IS NOT NULL
"""
# Jobs that a capability keeps for longer than their day move to the partition of today.
_CARRY = """
WITH kept AS MATERIALIZED ({keeps}),
carried AS (
    DELETE FROM pulse_django_job WHERE era = %(era)s AND id = ANY (ARRAY(SELECT id FROM kept)) RETURNING *
),
moved AS (
    INSERT INTO {history} ({columns})
    SELECT {values} FROM carried
)
SELECT id FROM carried
"""


class Carrying(Statements):
    """Where ended jobs are inserted."""

    history = HISTORY


_MAKE = "SELECT pulse_django_make_day(%s::int, %s::int)"
_DROP = "SELECT pulse_django_drop_day(%s::int)"


@assembled
def _clean_sql() -> str:
    """Return the SQL that deletes rows of other tables that belong to jobs of a day."""
    return f"""
WITH cleaned AS MATERIALIZED (
    SELECT {_read_of_jobs()}
    FROM pulse_django_job
    WHERE era = %(era)s AND id > %(after)s
        AND ({" OR ".join(one.of_day for one in satellites() if one.of_day)})
    ORDER BY id
    LIMIT %(limit)s
),{",".join(_deletions("cleaned"))}
SELECT pg_catalog.max(id) FROM cleaned
"""  # noqa: S608 - made of constants


_cleaned_until: dict[tuple[str, date], int] = {}  # by alias and day: the last job whose other rows were deleted


def _directly(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return verb(*args, **kwargs)


def make_days(jobs: JobReader, *, ahead: int = DAYS_AHEAD, most_moved: int = MOST_MOVED) -> list[date]:
    """Make the missing partitions of today and the next ``ahead`` days. Return their days.

    Also make partitions of past days on which jobs ended while there was none. Move these jobs, unless there are more
    than ``most_moved``.
    """
    refuse_callers_transaction(jobs.write_alias)
    existing, now = _days(jobs)
    stray = [day_of(era) for (era,) in run_alone(jobs.write_alias, _WITHOUT_A_DAY, [])]
    wanted = {now.date() + timedelta(days=number) for number in range(ahead + 1)} | {day for day in stray if day}
    return [day for day in sorted(wanted - set(existing)) if _call(jobs, _MAKE, [era_of(day), most_moved])]


def drop_days(
    jobs: JobReader, *, older_than: timedelta, call: Callable[..., Any] = _directly, batches: int = MOST_BATCHES
) -> list[date]:
    """Delete the jobs of all days that ended longer ago than that, with their attempts. Return the days.

    Delete their rows in other tables first, in at most ``batches`` batches; the next call continues there. If the
    history is locked, leave this day and the later ones for the next call. ``call`` runs each step that uses the
    database.
    """
    check_delay(older_than)
    refuse_callers_transaction(jobs.write_alias)
    existing, now = call(_days, jobs)
    dropped = []
    for day in existing:
        if datetime.combine(day + timedelta(days=1), time()) + older_than > now:
            break
        while batches > 0 and call(_carry, jobs, day) + call(_clean, jobs, day):
            batches -= 1
        if batches == 0 or not call(_call, jobs, _DROP, [era_of(day)]):
            break
        _cleaned_until.pop((jobs.write_alias, day), None)
        dropped.append(day)
    return dropped


def _days(jobs: JobReader) -> tuple[list[date], datetime]:
    """Return the days that have a partition, and the time of the server's clock in UTC."""
    rows = run_alone(jobs.write_alias, _ERAS, [])
    return [day for era, _ in rows if era is not None and (day := day_of(era))], rows[0][1]


def _carry(jobs: JobReader, day: date) -> int:
    """Move jobs that are kept for longer from a day that is to be dropped to today. Return how many."""
    values = {field.column: field.column for field in jobs.model._meta.concrete_fields} | {"era": ERA}
    history = statements_for(Carrying, jobs.write_alias).history
    names = {"columns": ", ".join(values), "values": ", ".join(values.values()), "history": history}
    params = {"era": era_of(day), "limit": CLEANED_AT_ONCE}
    queries = [_CARRY.format(keeps=keeps, **names) for one in installed() if (keeps := one.internals.keeps)]
    return sum(len(run_alone(jobs.write_alias, sql, params)) for sql in queries)


def _clean(jobs: JobReader, day: date) -> bool:
    """Delete the rows of other tables that belong to the next jobs of a day. Return whether there were any."""
    place = jobs.write_alias, day
    params = {"era": era_of(day), "after": _cleaned_until.get(place, 0), "limit": CLEANED_AT_ONCE}
    [(last,)] = run_alone(jobs.write_alias, _clean_sql(), params)
    if last is not None:
        _cleaned_until[place] = last
    return last is not None


def _call(jobs: JobReader, sql: str, params: list[int]) -> bool:
    """Make or drop a day's partition. Return False if another process did it first, or if the lock timed out."""
    try:
        [(done,)] = run_alone(jobs.write_alias, sql, params, lock_timeout=LOCK_TIMEOUT)
    except OperationalError as error:
        if getattr(error.__cause__, "sqlstate", "") not in LOCKED_BY_OTHERS:
            raise
        logger.info("The table of jobs is locked; the partition of %s is tried again later", params[0])
        return False
    return bool(done)


# Delete rows of other tables whose job is gone. A part of ``prune``.
#
# Dropping the partition of a day does not delete the rows that its jobs have in other tables. So watchdogs walk through
# these tables, some rows a minute, and delete rows that belong to no job.


WALKED_AT_ONCE = 5_000

_ORPHANS = """
WITH walked AS MATERIALIZED (
    SELECT DISTINCT job_id
    FROM (SELECT job_id FROM {table} WHERE job_id > %s ORDER BY job_id LIMIT %s) AS part
),
gone AS MATERIALIZED (
    SELECT job_id FROM walked WHERE NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = walked.job_id)
),
deleted AS (
    DELETE FROM {table} WHERE job_id = ANY (ARRAY(SELECT job_id FROM gone))
)
SELECT pg_catalog.max(job_id) FROM walked
"""

_walked_until: dict[tuple[str, str], int] = {}  # by alias and table: the last job that was checked


def forget_orphans(jobs: JobReader) -> None:
    """Check the next rows of tables that nothing else cleans, and delete the rows whose job is gone."""
    for table in [one.table for one in satellites() if one.is_walked]:
        place = jobs.write_alias, table
        params = [_walked_until.get(place, 0), WALKED_AT_ONCE]
        [(last,)] = run_alone(jobs.write_alias, _ORPHANS.format(table=table), params)
        _walked_until[place] = last or 0
