"""End jobs that have not started in time.

From the instant ``expires_at`` on, by the server's clock, the claim leaves such a job out. This module ends it:
CANCELLED, in history, with a reason. A job that has been claimed once does not expire.

Watchdogs call it. An enqueue with the unique key of an expired job does not wait for them: it ends that job in its own
transaction (``unique``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _

from pulse_django.queue.capability import Capability, Gate, StepDone, SweepStep, WorkerDatabase, assembled
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import ARE_EXPIRED, IS_EXPIRED, JobReader, is_expired
from pulse_django.queue.database.transactions import Row, refuse_callers_transaction, run_alone, run_joined
from pulse_django.queue.ending import leave
from pulse_django.queue.statements import UNSTORABLE, check_limit
from pulse_django.queue.words.states import NOT_STARTED_IN_TIME, EndedBy, Ending, Status
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send_finished, send_when_committed

logger, watchdog_logger = SafeLogger(__name__), SafeLogger("pulse_django.watchdog")

_EXPIRED = Gate(
    code="expired",
    job=f"NOT ({is_expired('{job}.')})",
    by_id=True,
    about=("at",),
    sentence=_("It did not start before it expired at %(at)s. A watchdog cancels it."),
)
# Longer statements would hold their locks for longer than a claim should have to wait; shorter ones waste round trips.
EXPIRE_LIMIT = 1_000

HAS_NOT_STARTED = "job.attempts = 0"
PICKED = "\nWITH expired AS MATERIALIZED ({pick})"
CANCELLED = {"status": "'CANCELLED'", "cancel_reason": f"'{NOT_STARTED_IN_TIME}'"}

# A worker that has locked one of them is about to claim it, or read it before it expired.
SWEEP_PICK = f"""
    SELECT id
    FROM pulse_django_job_hot
    WHERE {IS_EXPIRED}
    ORDER BY expires_at
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED"""  # noqa: S608 - made of constants
_THESE_PICK = f"""
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[]) AND {IS_EXPIRED}
    ORDER BY id
    FOR NO KEY UPDATE"""  # noqa: S608 - made of constants
_FIRST = f"SELECT id FROM pulse_django_job_hot WHERE {IS_EXPIRED} ORDER BY expires_at LIMIT %s"  # noqa: S608 - constants


@assembled
def expire_sql(pick: str) -> str:
    return f"""{PICKED.format(pick=pick)},
{leave("expired", HAS_NOT_STARTED, **CANCELLED)}
SELECT id, task, queue FROM gone
"""  # noqa: S608 - made of constants


class Expiring(Statements):
    """The statement that cancels jobs that have not started in time."""

    def expire(self, pick: str, limit_or_ids: int | list[int]) -> list[Row]:
        """Return id, task and queue of each cancelled job."""
        return run_joined(self.alias, expire_sql(pick), [limit_or_ids])


def expire(jobs: JobReader, *, limit: int = EXPIRE_LIMIT) -> list[Ending]:
    """Cancel up to ``limit`` jobs that have not started in time, the earliest first.

    Any number of watchdogs may do it at once; each skips rows that another one has locked.
    """
    check_limit(limit)
    refuse_callers_transaction(jobs.write_alias)
    try:
        return _endings(statements_for(Expiring, jobs.write_alias).expire(SWEEP_PICK, limit), EndedBy.WATCHDOG)
    except UNSTORABLE:
        logger.exception("Ending up to %d expired jobs failed; trying them one by one", limit)
    ids = [job_id for (job_id,) in run_alone(jobs.write_alias, _FIRST, [limit])]
    return [ending for job_id in ids for ending in _expire_one(jobs, job_id)]


def _expire_one(jobs: JobReader, job_id: int) -> list[Ending]:
    try:
        return _endings(_these(jobs.write_alias, [job_id]), EndedBy.WATCHDOG)
    except UNSTORABLE:
        logger.exception("Ending the expired job %d failed", job_id)
        return []


def expire_these(jobs: JobReader, job_ids: Sequence[int]) -> None:
    """Cancel those of these jobs that have not started in time, in the caller's transaction."""
    for ending in _endings(_these(jobs.write_alias, job_ids), EndedBy.CALLER):
        send_when_committed(jobs.model, ending, using=jobs.write_alias)


def _these(alias: str, job_ids: Sequence[int]) -> list[Row]:
    return statements_for(Expiring, alias).expire(_THESE_PICK, sorted(job_ids))


# Statements in one sweep, because lost runs wait meanwhile. If jobs are left, the next sweep follows at once.
MOST_BATCHES = 10


def _endings(rows: Sequence[Row], by: EndedBy) -> list[Ending]:
    facts: dict[str, Any] = {"previous": Status.PENDING, "by": by, "reason": NOT_STARTED_IN_TIME, "expired": True}
    return [Ending.of_waiting(job_id, task, queue, 0, **facts) for job_id, task, queue in rows]


class CancellingExpired(SweepStep):
    name = "expired"
    says = {"expired": 0}

    def run(self, database: WorkerDatabase) -> StepDone:
        ended = 0
        for _round in range(MOST_BATCHES):
            endings = database.call(expire, database.jobs)
            ended += len(endings)
            for ending in endings:
                send_finished(database.jobs.model, ending, using=database.alias)
            if len(endings) < EXPIRE_LIMIT:
                break
        if ended:
            watchdog_logger.warning("%d jobs had not started in time; now CANCELLED", ended)
        return StepDone(ended >= MOST_BATCHES * EXPIRE_LIMIT, {"expired": ended})


CAPABILITY = Capability(
    name="expiry",
    exists=ARE_EXPIRED,
    gates=(_EXPIRED,),
    carries={"expires_at": "expires_at"},
    sweeps=(CancellingExpired(),),
)
