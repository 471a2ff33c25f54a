"""End runs whose lease ran out, whose deadline passed or whose progress stopped."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from django.db import OperationalError

from pulse_django import conf
from pulse_django.safe_logging import SafeLogger

from .capability import assembled
from .database.database_errors import is_timeout
from .database.dialects import Statements, statements_for
from .database.job_queries import JobReader
from .database.querysets import JobQuerySet, lease_ran_out_lately
from .database.transactions import Params, Row, refuse_callers_transaction, renew_deadline, run_alone
from .ending import end, listed, noted_columns, verdict
from .settle import settle
from .statements import UNSTORABLE, Compiled, check_limit, compiled, in_halves, skip_locked
from .words.decisions import GAVE_UP, DeadLetter
from .words.durations import seconds_of
from .words.leases import Lease
from .words.outcomes import OutcomeName, WorkerLost
from .words.payloads import error_in_one_line
from .words.states import Status
from .words.verb_results import Reaped, Report

if TYPE_CHECKING:
    from .job import JobRow

logger = SafeLogger(__name__)

# Larger batches would hold their locks for longer than a claim should wait. Smaller ones waste round trips.
REAP_LIMIT = 1_000

# Seconds. While the table is locked, no lease can be extended. A reap that waits for the lock could get it first, and
# would end runs whose heartbeats wait for the same lock.
REAP_LOCK_TIMEOUT = 0.05

# The reason to end a run must still hold when the row is written: a heartbeat may have extended the lease meanwhile.
_IS_STILL_OVER = """
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.progress_timeout < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )"""

_WANTED = "CASE WHEN job.killer THEN 'DEAD_LETTERED' ELSE 'RETRYING' END"
_TOO_LATE = "clock_timestamp() + job.delay * interval '1 second' > job.created_at + job.give_up_after"

# The rules of ``decide()`` for a run without a report, with the curve of ``Backoff.delay``. If you change one, change
# the other: a test compares them.
_ENDING = f"""
WITH over AS MATERIALIZED (
    SELECT
        pick.*, lost.free,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free AS spent,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_lost_workers, %s) AS killer,
        LEAST(
            %s::float8,
            pg_catalog.power(CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END, 2)
                * %s::float8
        ) * (%s::float8 + %s::float8 * random()) AS delay,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, %s) END AS last_seen_at,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END AS outcome
    FROM ({{pick}}) AS pick
    CROSS JOIN LATERAL (
        SELECT
            pick.lease_until < statement_timestamp(),
            pick.lease_until < statement_timestamp() AND NOT pick.count_lost_workers
    ) AS lost (lost, free)
),
judged AS MATERIALIZED (
    SELECT
        job.*,
        {verdict(wanted=_WANTED, refund="job.free::int", too_late=_TOO_LATE)}
        AS verdict,
        CASE job.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END AS message
    FROM over AS job
),
ending AS MATERIALIZED (
    SELECT
        id, locked_by::text AS holder, attempts AS attempt, token, next_run_at AS due_at, started_at, last_seen_at,
        outcome, verdict, message, task, queue,
        {{noted}}(free AND verdict = 'RETRYING')::int AS refund, (outcome = 'WORKER_LOST')::int AS loss,
        delay, refunds AS had_refunds, losses AS had_losses, lane_key,
        CASE
            WHEN spent OR verdict <> 'DEAD_LETTERED' THEN message
            WHEN killer
            THEN pg_catalog.format('lost %%s worker%%s: %%s', losses + 1, CASE WHEN losses > 0 THEN 's' END, message)
            ELSE '{GAVE_UP} ' || message
        END AS error,
        NULL::text AS cancel_reason, NULL::text AS result, NULL::text AS progress, NULL::text AS error_class,
        NULL::text AS traceback
    FROM judged
)"""  # noqa: S608 - made of constants
ANSWERS = ("id", "holder", "attempt", "token", "outcome", "verdict", "task", "queue", "error")


@assembled
def ending_sql() -> str:
    return _ENDING.replace("{noted}", listed(noted_columns()))


@assembled
def _reap_sql(bare: bool = False) -> str:
    return f"""{ending_sql()},
{end(still=_IS_STILL_OVER, bare=bare)}
SELECT {", ".join(ANSWERS)} FROM ended
"""  # noqa: S608 - made of constants


class Reaping(Statements):
    """The statement that ends runs without a report."""

    def end(self, pick: str, values: Params, bare: bool) -> list[Row]:
        """End the picked runs that are over. Return ``ANSWERS`` of each."""
        sql = _reap_sql(bare).format(pick=pick)
        return run_alone(self.alias, sql, values, lock_timeout=REAP_LOCK_TIMEOUT)


# A write that changes nothing. It shows that heartbeats could have been written, before runs are ended for lack of
# them.
_TOUCH = """
WITH expired AS MATERIALIZED ({pick})
UPDATE pulse_django_job_hot AS job
SET progress_at = job.progress_at
FROM expired
WHERE job.id = expired.id
RETURNING job.id
"""


def reap(
    jobs: JobReader,
    *,
    limit: int = REAP_LIMIT,
    within: timedelta | None = None,
    ended: list[Reaped] | None = None,
) -> list[Reaped]:
    """End up to ``limit`` runs whose lease ran out, whose deadline passed or whose progress stopped.

    Any number of watchdogs may reap at once: each skips the rows that another one has locked. With ``within``, leave
    out leases that ran out longer ago. If an error is raised, ``ended`` has the runs that were ended before it.
    """
    check_limit(limit)
    refuse_callers_transaction(jobs.write_alias)
    try:
        return _reap(jobs, _reap_pick(jobs.model, jobs.write_alias, limit, within=within))
    except (*UNSTORABLE, OperationalError) as error:
        timeouts = int(is_timeout(error))
        if isinstance(error, OperationalError) and not timeouts:
            raise
        renew_deadline(jobs.write_alias)
        if timeouts:
            touch_expired(jobs)  # as in _reap_in_halves
        logger.exception("Reaping a batch of %d runs failed; trying fewer at a time", limit)
    over = jobs.using(jobs.write_alias).reapable()
    if within is not None:
        over = over.filter(lease_ran_out_lately(within))
    ids = list(over.order_by("id").values_list("id", flat=True)[:limit])
    half = len(ids) // 2
    renew_deadline(jobs.write_alias)
    return _reap_in_halves(jobs, ids[:half], ids[half:], timeouts=timeouts, ended=ended)


def reap_these(jobs: JobReader, job_ids: Sequence[int], *, ended: list[Reaped] | None = None) -> list[Reaped]:
    """End the runs of these jobs that ``reap`` would end. ``ended`` is as there."""
    return _reap_in_halves(jobs, job_ids, ended=ended)


def _reap_in_halves(
    jobs: JobReader, *parts: Sequence[int], timeouts: int = 0, ended: list[Reaped] | None = None
) -> list[Reaped]:
    # If a write is slow as well, heartbeats may be, and expired leases say nothing.
    slow_for_all, some = partial(touch_expired, jobs), partial(_reap_these, jobs)
    return in_halves(jobs.write_alias, some, *parts, go_on=slow_for_all, timeouts=timeouts, found=ended)


def _reap_these(jobs: JobReader, job_ids: Sequence[int], bare: bool) -> list[Reaped]:
    over = jobs.using(jobs.write_alias).reapable().filter(pk__in=job_ids)
    pick = _compiled_reap_pick(over, jobs.write_alias, len(job_ids))
    try:
        return _reap(jobs, pick, bare)
    except UNSTORABLE as error:
        if len(job_ids) > 1:
            raise
        logger.exception("Reaping job %d failed", job_ids[0])
        with suppress(*UNSTORABLE):  # the row of its hook may have caused the error
            return _reap(jobs, pick, True)
        return _dead_letter_what_cannot_wait(jobs, job_ids[0], error)


def overlooked(jobs: JobReader, beyond: timedelta, *, limit: int = REAP_LIMIT) -> list[int]:
    """Return running jobs whose lease ran out longer ago than ``beyond``, and whose rows are not locked now."""
    over = jobs.using(jobs.write_alias).reapable().exclude(lease_ran_out_lately(beyond))
    sql, params = compiled(skip_locked(over.order_by("id").values("id"))[:limit], jobs.write_alias)
    return [job_id for (job_id,) in run_alone(jobs.write_alias, sql, params, lock_timeout=REAP_LOCK_TIMEOUT)]


def touch_expired(jobs: JobReader) -> bool:
    """Write the row of one run that ``reap`` would end, without changing it. Return whether there is one."""
    sql, params = _reap_pick(jobs.model, jobs.write_alias, 1)
    return bool(run_alone(jobs.write_alias, _TOUCH.format(pick=sql), params, lock_timeout=REAP_LOCK_TIMEOUT))


def _reap(jobs: JobReader, pick: Compiled, bare: bool = False) -> list[Reaped]:
    settings, (sql, params) = conf.current(), pick
    backoff = settings.backoff
    curve: list[Any] = [backoff.highest, seconds_of(backoff.unit), 1 - backoff.jitter, 2 * backoff.jitter]
    values = (settings.max_lost_workers, *curve, settings.lease_ttl, *params)
    rows = statements_for(Reaping, jobs.write_alias).end(sql, values, bare)
    return [Reaped(Lease(*row[:3]), row[3], OutcomeName(row[4]), Status(row[5]), *row[6:]) for row in rows]


@assembled
def _reap_pick(model: type[JobRow], alias: str, limit: int, within: timedelta | None = None) -> Compiled:
    over = model.objects.reapable()
    return _compiled_reap_pick(over if within is None else over.filter(lease_ran_out_lately(within)), alias, limit)


def _compiled_reap_pick(over: JobQuerySet[Any], alias: str, limit: int) -> Compiled:
    columns = (
        "id", "locked_by", "attempts", "token", "next_run_at", "started_at", "refunds", "max_attempts", "losses",
        "lease_until", "lease_ttl", "deadline", "max_lost_workers", "count_lost_workers", "cancel_requested_at", "task",
        "queue", "created_at", "give_up_after", "lane_key",
    )  # fmt: skip
    return compiled(skip_locked(over.order_by("id").values(*columns, *noted_columns()))[:limit], alias)


def _dead_letter_what_cannot_wait(jobs: JobReader, job_id: int, error: Exception) -> list[Reaped]:
    """Dead-letter a job whose row the table refuses as a waiting job."""
    reason = f"storing it for another run failed: {error_in_one_line(error)}"
    held = jobs.using(jobs.write_alias).reapable().filter(pk=job_id)
    ended = []
    for job in held.only("locked_by", "attempts", "token", "task", "queue"):
        lease = Lease(job.pk, str(job.locked_by), job.attempts)
        try:
            settled = settle(jobs, [Report(lease, outcome := WorkerLost(), DeadLetter(reason))])
        except UNSTORABLE:
            logger.exception("Ending job %d failed", job_id)
            continue
        ended += [
            Reaped(lease, job.token or 0, outcome.name, status, job.task, job.queue, reason)
            for status in settled.accepted.values()
        ]
    return ended
