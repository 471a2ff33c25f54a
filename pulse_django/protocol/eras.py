"""Make the partitions of the next days, and drop those of days whose jobs are not kept any longer.

Two functions of the database do it, with the rights of the tables' owner: a watchdog's role need not own them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

from django.db import OperationalError

from pulse_django.safe_logging import SafeLogger
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import LOCK_NOT_AVAILABLE, refuse_callers_transaction, run_alone
from pulse_django.words.eras import day_of, era_of

from .forget import carry_open_batches
from .prune import delete_amendments, delete_attempts, delete_keys
from .statements import check_delay

LOCKED_BY_OTHERS = (LOCK_NOT_AVAILABLE, "40P01")  # Citus finds a deadlock before the time is up
logger = SafeLogger(__name__)

DAYS_AHEAD = 3
# Seconds. To make or drop a partition locks history, and every settle that completes a job waits behind who waits.
LOCK_TIMEOUT = 0.1
CLEANED_AT_ONCE, MOST_BATCHES = 5_000, 20
# Jobs in the partition for days that have none. To move them, it is locked: 10,000 take about a tenth of a second.
MOST_MOVED = 10_000


# On Citus days are partitions of the table of all jobs (docs/adr/0067).
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
_MAKE = "SELECT pulse_django_make_day(%s::int, %s::int)"
_DROP = "SELECT pulse_django_drop_day(%s::int)"

# What a job of that day has elsewhere: attempts with rows of their own, its idempotency key, and amendments.
_CLEAN = f"""
WITH cleaned AS MATERIALIZED (
    SELECT id, task, idempotency_key
    FROM pulse_django_job
    WHERE era = %(era)s AND id > %(after)s
        AND (
            attempts > 1 OR completed_by IS NULL OR idempotency_key IS NOT NULL
            OR id IN (SELECT job_id FROM pulse_django_amendment)
        )
    ORDER BY id
    LIMIT %(limit)s
),
{delete_attempts("cleaned")},
{delete_amendments("cleaned")},
{delete_keys("cleaned")}
SELECT pg_catalog.max(id) FROM cleaned
"""  # noqa: S608 - made of constants

_cleaned_until: dict[tuple[str, date], int] = {}  # by alias and day: the last job whose rows elsewhere were deleted


def _directly(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return verb(*args, **kwargs)


def make_days(jobs: JobReader, *, ahead: int = DAYS_AHEAD, most_moved: int = MOST_MOVED) -> list[date]:
    """Make the partitions of today and of so many days after it that are missing. Return their days.

    Also of days that had none when jobs ended on them. These jobs are moved, unless there are more than ``most_moved``.
    """
    refuse_callers_transaction(jobs.write_alias)
    there, now = _days(jobs)
    stray = [day_of(era) for (era,) in run_alone(jobs.write_alias, _WITHOUT_A_DAY, [])]
    wanted = {now.date() + timedelta(days=number) for number in range(ahead + 1)} | {day for day in stray if day}
    return [day for day in sorted(wanted - set(there)) if _call(jobs, _MAKE, [era_of(day), most_moved])]


def drop_days(
    jobs: JobReader, *, older_than: timedelta, call: Callable[..., Any] = _directly, batches: int = MOST_BATCHES
) -> list[date]:
    """Delete the jobs of all days that ended that long ago, with their attempts. Return the days.

    What they have in other tables is deleted first, in so many ``batches`` at most: the next time goes on from there.
    Where history is in use, the day is left for the next time, and so are those after it. ``call`` runs each step that
    uses the database.
    """
    check_delay(older_than)
    refuse_callers_transaction(jobs.write_alias)
    there, now = call(_days, jobs)
    dropped = []
    for day in there:
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
    """Return the days that have a partition, and the instant, by the server's clock in UTC."""
    rows = run_alone(jobs.write_alias, _ERAS, [])
    return [day for era, _ in rows if era is not None and (day := day_of(era))], rows[0][1]


def _carry(jobs: JobReader, day: date) -> int:
    """Move members of open batches to today, and return how many."""
    columns = [field.column for field in jobs.model._meta.concrete_fields]
    return carry_open_batches(jobs, era_of(day), columns, limit=CLEANED_AT_ONCE)


def _clean(jobs: JobReader, day: date) -> bool:
    """Delete what the next jobs of a day have in other tables. Return whether there were any."""
    place = jobs.write_alias, day
    params = {"era": era_of(day), "after": _cleaned_until.get(place, 0), "limit": CLEANED_AT_ONCE}
    [(last,)] = run_alone(jobs.write_alias, _CLEAN, params)
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
        logger.info("The table of jobs is locked; the partition of %s has to wait", params[0])
        return False
    return bool(done)
