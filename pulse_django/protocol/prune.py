"""Delete jobs that have ended, with their attempts."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from django.db.models import TextField, Value
from django.db.models.functions import Concat

from pulse_django.store.job_queries import JobReader
from pulse_django.store.sql_functions import Fingerprint, StatementTimestamp
from pulse_django.store.transactions import Row, run_alone
from pulse_django.words.eras import HOT
from pulse_django.words.job_ids import job_ids_of
from pulse_django.words.states import TERMINAL, Status

from .ending import note_over
from .statements import Compiled, check_delay, check_limit, compiled, skip_locked

if TYPE_CHECKING:
    from pulse_django.models import Job

PRUNE_LIMIT = 1_000
WINDOWS_LIMIT = 10_000  # a few bytes each

_DELETE_ATTEMPTS = """
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM {jobs}))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
)"""
_DELETE_AMENDMENTS = """
unamended AS (
    DELETE FROM pulse_django_amendment WHERE job_id = ANY (ARRAY(SELECT id FROM {jobs}))
)"""
_DELETE_KEYS = """
freed AS (
    DELETE FROM pulse_django_key AS key
    USING {jobs} AS job
    WHERE key.task::text = job.task::text AND key.key::text = job.idempotency_key::text AND key.job_id = job.id
)"""


def delete_attempts(jobs: str) -> str:
    """Return the SQL that deletes the stored attempts of the jobs of a CTE."""
    return _DELETE_ATTEMPTS.format(jobs=jobs)


def delete_amendments(jobs: str) -> str:
    """Return the SQL that deletes the amendments of the jobs of a CTE."""
    return _DELETE_AMENDMENTS.format(jobs=jobs)


def delete_keys(jobs: str) -> str:
    """Return the SQL that deletes the idempotency keys of the jobs of a CTE."""
    return _DELETE_KEYS.format(jobs=jobs)


# Periods of unique jobs that are over, in the same statement: it is not sent for them alone.
_DELETE_WINDOWS = f""",
ended AS MATERIALIZED (
    SELECT task, key
    FROM pulse_django_window
    WHERE until < statement_timestamp()
    ORDER BY until
    LIMIT {WINDOWS_LIMIT}
    FOR UPDATE SKIP LOCKED
),
closed AS (
    DELETE FROM pulse_django_window AS win
    USING ended
    WHERE win.task::text = ended.task::text AND win.key::text = ended.key::text AND win.until < statement_timestamp()
)"""  # noqa: S608 - made of constants

_PRUNE = f"""
WITH old (id) AS MATERIALIZED ({{pick}}),
{delete_attempts("old")},
{delete_amendments("old")},
gone AS (
    DELETE FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
    RETURNING id, task, idempotency_key, era, batch_id, awaited
),
held AS MATERIALIZED (
    SELECT id, batch_id, awaited FROM gone WHERE era = {HOT}
),
unresolved AS ({note_over("held", status="'CANCELLED'")}),
{delete_keys("gone")}{{also}}
SELECT id FROM gone
"""  # noqa: S608 - made of constants


def prune(
    jobs: JobReader, status: Status, *, older_than: timedelta, limit: int = PRUNE_LIMIT, in_days: bool = True
) -> int:
    """Delete up to ``limit`` jobs that ended in ``status`` that long ago, with their attempts. Return how many.

    Delete periods of unique jobs that are over, too. Without ``in_days``, leave out jobs in partitions of days, which
    are dropped as a whole.
    """
    if status not in TERMINAL:
        raise ValueError(f"{status} is not a final status: prune does not delete live jobs")
    check_limit(limit)
    check_delay(older_than)
    pick = _prune_pick(jobs.model, jobs.write_alias, status, older_than, limit, in_days)
    return len(_delete(jobs, pick, also=_DELETE_WINDOWS))


def prune_these(
    jobs: JobReader, job_ids: Collection[int], *, statuses: Collection[Status] = TERMINAL, error: str | None = None
) -> list[int]:
    """Delete those of these jobs that have ended, or that ended so, with their attempts. Return which.

    A dead letter that holds other jobs stays: these would run without it. With ``error``, only those whose last error
    has this fingerprint.
    """
    if not set(statuses) <= set(TERMINAL):
        raise ValueError("prune does not delete live jobs")
    ended = (
        jobs.using(jobs.write_alias).terminal().filter(pk__in=sorted(job_ids_of(job_ids)), status__in=sorted(statuses))
    )
    if Status.DEAD_LETTERED in statuses:
        ended = ended.holding_nothing()
    if error is not None:
        # Written so that no index holds it: by their ids the few are found, and not through all of their group.
        unindexed = Concat(Fingerprint("last_error"), Value(""), output_field=TextField())
        ended = ended.alias(error=unindexed).filter(error=error)
    pick = compiled(skip_locked(ended.order_by("id").values("id"), no_key=False), jobs.write_alias, everywhere=True)
    return sorted(job_id for (job_id,) in _delete(jobs, pick))


def _delete(jobs: JobReader, pick: Compiled, *, also: str = "") -> list[Row]:
    sql, params = pick
    return run_alone(jobs.write_alias, _PRUNE.format(pick=sql, also=also), params)


@lru_cache(maxsize=16)
def _prune_pick(
    model: type[Job], alias: str, status: Status, older_than: timedelta, limit: int, in_days: bool
) -> Compiled:
    old = model.objects.filter(status=status, finished_at__lt=StatementTimestamp() - older_than).unneeded()
    picked = skip_locked(old.order_by("finished_at", "id").values("id"), no_key=False)[:limit]
    return compiled(picked, alias, everywhere=in_days)
