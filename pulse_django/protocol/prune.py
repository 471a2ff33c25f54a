"""Delete jobs that have ended, with their attempts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError
from django.db.models import BooleanField, TextField, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Concat

from pulse_django.safe_logging import SafeLogger
from pulse_django.store.job_queries import JobReader
from pulse_django.store.sql_functions import Fingerprint, StatementTimestamp
from pulse_django.store.transactions import Row, refuse_callers_transaction, run_alone, run_joined
from pulse_django.words.job_ids import job_ids_of
from pulse_django.words.states import TERMINAL, Status

from .statements import Compiled, check_delay, check_limit, compiled, skip_locked

if TYPE_CHECKING:
    from pulse_django.models import Job

logger = SafeLogger(__name__)

PRUNE_LIMIT = 1_000

# A project's own foreign keys that keep a job, or an attempt of it, from being deleted.
_REFERRING = """
SELECT con.conrelid::regclass::text, pg_catalog.quote_ident(att.attname), con.confrelid::regclass::text
FROM pg_constraint AS con
JOIN pg_attribute AS att ON att.attrelid = con.conrelid AND att.attnum = con.conkey[1]
WHERE con.contype = 'f' AND con.confdeltype IN ('a', 'r') AND pg_catalog.cardinality(con.conkey) = 1
    AND con.confrelid IN ('pulse_django_job'::regclass::oid, 'pulse_django_attempt'::regclass::oid)
ORDER BY 1, 2
"""

_NOT_REFERRED_TO = {
    "pulse_django_job": "NOT EXISTS (SELECT FROM {table} AS other WHERE other.{column} = pulse_django_job.id)",
    "pulse_django_attempt": """NOT EXISTS (
        SELECT FROM {table} AS other JOIN pulse_django_attempt AS entry ON entry.id = other.{column}
        WHERE entry.job_id = pulse_django_job.id
    )""",
}

Reference = tuple[str, str, str]  # table, column, the table of ours that it refers to

_referring: dict[str, tuple[Reference, ...]] = {}  # by alias; known once a prune has failed

_PRUNE = """
WITH old (id) AS MATERIALIZED ({pick}),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM old))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
)
DELETE FROM pulse_django_job
WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
RETURNING id
"""


def prune(jobs: JobReader, status: Status, *, older_than: timedelta, limit: int = PRUNE_LIMIT) -> int:
    """Delete up to ``limit`` jobs that ended in ``status`` that long ago, with their attempts. Return how many.

    Jobs that a row of the project's refers to by foreign key are kept.
    """
    if status not in TERMINAL:
        raise ValueError(f"{status} is not a final status: prune does not delete live jobs")
    check_limit(limit)
    check_delay(older_than)
    return len(_prune(jobs, lambda kept: _prune_pick(jobs.model, jobs.write_alias, status, older_than, limit, kept)))


def prune_these(
    jobs: JobReader, job_ids: Collection[int], *, statuses: Collection[Status] = TERMINAL, error: str | None = None
) -> list[int]:
    """Delete those of these jobs that have ended, or that ended so, with their attempts. Return which.

    With ``error``, only those whose last error has this fingerprint.
    """
    if not set(statuses) <= set(TERMINAL):
        raise ValueError("prune does not delete live jobs")
    ended = (
        jobs.using(jobs.write_alias).terminal().filter(pk__in=sorted(job_ids_of(job_ids)), status__in=sorted(statuses))
    )
    if error is not None:
        # Written so that no index holds it: by their ids the few are found, and not through all of their group.
        unindexed = Concat(Fingerprint("last_error"), Value(""), output_field=TextField())
        ended = ended.alias(error=unindexed).filter(error=error)

    def pick(kept: tuple[Reference, ...]) -> Compiled:
        deletable = _without_referred(ended, kept).order_by("id").values("id")
        return compiled(skip_locked(deletable, no_key=False), jobs.write_alias)

    return sorted(job_id for (job_id,) in _prune(jobs, pick))


def _prune(jobs: JobReader, pick: Callable[[tuple[Reference, ...]], Compiled]) -> list[Row]:
    """Delete what is picked. If foreign keys are in the way, pick again without what they refer to."""
    refuse_callers_transaction(jobs.write_alias)
    try:
        return _delete(jobs, pick(_referring.get(jobs.write_alias, ())))
    except IntegrityError:
        known = tuple((str(table), str(column), str(target)) for table, column, target in _ask(jobs, _REFERRING))
        if not known or known == _referring.get(jobs.write_alias):
            raise  # by a row that was written meanwhile: the next prune sees it
        _referring[jobs.write_alias] = known
    names = ", ".join(f"{table}.{column}" for table, column, _ in known)
    logger.warning("Foreign keys reference jobs: %s. Referenced jobs are not deleted", names)
    return _delete(jobs, pick(known))


def _delete(jobs: JobReader, pick: Compiled) -> list[Row]:
    sql, params = pick
    return run_alone(jobs.write_alias, _PRUNE.format(pick=sql), params)


def _ask(jobs: JobReader, sql: str) -> list[Row]:
    return run_joined(jobs.write_alias, sql, [])


@lru_cache(maxsize=16)
def _prune_pick(
    model: type[Job], alias: str, status: Status, older_than: timedelta, limit: int, kept: tuple[Reference, ...]
) -> Compiled:
    old = model.objects.filter(status=status, finished_at__lt=StatementTimestamp() - older_than)
    # Deleting takes the strongest row lock, so this pick does: it skips what a foreign key is holding.
    old = _without_referred(old, kept)
    return compiled(skip_locked(old.order_by("finished_at", "id").values("id"), no_key=False)[:limit], alias)


def _without_referred(rows: Any, kept: tuple[Reference, ...]) -> Any:
    for table, column, target in kept:
        sql = _NOT_REFERRED_TO[target.rpartition(".")[2]].format(table=table, column=column).replace("%", "%%")
        rows = rows.filter(RawSQL(sql, (), output_field=BooleanField()))  # noqa: S611 - names that the catalogue quotes
    return rows
