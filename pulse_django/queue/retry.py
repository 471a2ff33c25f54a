"""Run dead letters again, with their history."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from .capability import Single, assembled, installed, provided
from .database.job_queries import JobReader
from .database.transactions import run_joined
from .statements import check_delay
from .words.bounds import MOST_ATTEMPTS
from .words.job_ids import check_attempt, job_ids_of
from .words.options import Whole
from .words.own_tasks import OWN_TASKS
from .words.verb_results import Retried

# ``attempts`` stays: a handler of an old run that is still running must never match a new run. A retry grants refunds
# instead, only as many as the requested runs need.
REVIVE = """
reviving AS MATERIALIZED (
    SELECT
        id,
        LEAST(attempts, refunds + GREATEST(0, %(runs)s - (max_attempts - attempts + refunds))) AS refunds,
        clock_timestamp() + (%(delay)s::float8 + place::float8 * %(gap)s::float8) * interval '1 second' AS next_run_at,
        lane_key::text = '' AS ready
    FROM in_line
    WHERE {which}
),
revived AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'PENDING',
        refunds = reviving.refunds,
        next_run_at = reviving.next_run_at,
        ready = reviving.ready,
        finished_at = NULL,
        cancel_requested_at = NULL,
        cancel_reason = ''
    FROM reviving
    WHERE job.id = reviving.id AND job.status::text = 'DEAD_LETTERED'
    RETURNING job.id
)"""

_RETRY = f"""
WITH dead AS MATERIALIZED (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, {{are_own}} AS is_keyed,
        NOT %(cancelled_too)s AND ({{refused}}) AS is_cancelled
    FROM pulse_django_job_hot AS job
    WHERE id = ANY (%(ids)s::bigint[]) AND status::text = 'DEAD_LETTERED'
        AND attempts = COALESCE(%(attempt)s::int, attempts) AND task::text NOT IN {OWN_TASKS}
    ORDER BY id
    FOR NO KEY UPDATE
),
in_line AS (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, is_keyed, row_number() OVER (ORDER BY id) - 1 AS place
    FROM dead
    WHERE NOT is_cancelled
),
{REVIVE.format(which="NOT is_keyed")}
SELECT id, NULL, false FROM revived
UNION ALL
SELECT id, place, false FROM in_line WHERE is_keyed
UNION ALL
SELECT id, NULL, true FROM dead WHERE is_cancelled
"""  # noqa: S608 - made of constants


class OwnRetry(Single):
    """Retries dead letters with its own statement, which may refuse some of them."""

    are_own: str  # an SQL condition on the row of a dead letter: this statement retries it

    @abstractmethod
    def retry(
        self, jobs: JobReader, placed: Sequence[tuple[int, int]], how: dict[str, Any]
    ) -> tuple[set[int], set[int]]:
        """Retry jobs, given by ids and positions. Return the retried and the refused ids."""


@assembled
def _retry_sql() -> str:
    """Return the statement. Dead letters that a capability may refuse are left to the statement of the capability."""
    on_retry = provided(OwnRetry)
    refused = " OR ".join(
        one.internals.refuses_retry.replace("{job}", "job") for one in installed() if one.internals.refuses_retry
    )
    return _RETRY.replace("{are_own}", on_retry.are_own if on_retry else "false").replace(
        "{refused}", refused or "false"
    )


def retry(
    jobs: JobReader,
    job_ids: Collection[int],
    *,
    runs: int = 1,
    delay: timedelta = timedelta(),
    gap: timedelta = timedelta(),
    attempt: int | None = None,
    cancelled_too: bool = False,
) -> Retried:
    """Make dead letters PENDING again, with at least ``runs`` more attempts and all of their history.

    The first is due after ``delay``, and each of the others ``gap`` after the one before it. With ``attempt``, only
    jobs that died in that attempt. Leave out a dead letter whose unique key another job holds by now, and the jobs of
    Pulse's own tasks. Without ``cancelled_too``, also leave out dead letters whose batch was cancelled.
    """
    Whole(1, MOST_ATTEMPTS).check("runs", runs)
    check_attempt(attempt)
    check_delay(delay)
    check_delay(gap)
    asked_for = job_ids_of(job_ids)
    how = {"runs": runs, "delay": delay.total_seconds(), "gap": gap.total_seconds(), "attempt": attempt}
    first = how | {"ids": sorted(asked_for), "cancelled_too": bool(cancelled_too)}
    rows = run_joined(jobs.write_alias, _retry_sql(), first)
    of_cancelled = frozenset(job_id for job_id, _, is_cancelled in rows if is_cancelled)
    revived = {job_id for job_id, place, is_cancelled in rows if place is None and not is_cancelled}
    keyed = [(job_id, place) for job_id, place, _ in rows if place is not None]
    taken: set[int] = set()
    if keyed and (on_retry := provided(OwnRetry)) is not None:
        retried, taken = on_retry.retry(jobs, keyed, how)
        revived |= retried
    moved_on = asked_for - revived - taken - of_cancelled
    return Retried(revived=frozenset(revived), moved_on=moved_on, key_taken=frozenset(taken), of_cancelled=of_cancelled)
