"""Revive dead letters, with their history."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from django.db import IntegrityError

from pulse_django.store.job_queries import IS_EXPIRED, JobReader
from pulse_django.store.transactions import run_joined, undone_alone
from pulse_django.words.job_ids import check_attempt, check_whole_number, job_ids_of
from pulse_django.words.limits import MOST_ATTEMPTS
from pulse_django.words.own_tasks import OWN_TASKS
from pulse_django.words.verb_results import Retried

from .expire import expire_these
from .statements import check_delay
from .unique import HOLDS_KEY

# ``attempts`` stays: a zombie of an old run must never meet its own number again. What a retry grants is refunds, and
# only as many as the runs asked for need.
_REVIVE = """
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

# Those that hold their unique key again may have a twin, so they are left for the next statement.
_RETRY = f"""
WITH dead AS MATERIALIZED (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, unique_key IS NOT NULL AND NOT unique_until_start AS is_keyed,
        NOT %(cancelled_too)s AND batch_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_batch WHERE id = job.batch_id AND cancelled_at IS NOT NULL
        ) AS is_cancelled
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
{_REVIVE.format(which="NOT is_keyed")}
SELECT id, NULL, false FROM revived
UNION ALL
SELECT id, place, false FROM in_line WHERE is_keyed
UNION ALL
SELECT id, NULL, true FROM dead WHERE is_cancelled
"""  # noqa: S608 - made of constants

# A twin is a job that is not over and has the key, or a dead letter before it in the same list. Without this look one
# of them would refuse the whole list, which is then retried one by one.
_RETRY_KEYED = f"""
WITH dead AS MATERIALIZED (
    SELECT
        job.id, job.attempts, job.max_attempts, job.refunds, job.lane_key, job.task, job.unique_key, asked.place
    FROM ROWS FROM (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(places)s::bigint[])) AS asked (id, place)
    JOIN pulse_django_job_hot AS job ON job.id = asked.id
    WHERE job.status::text = 'DEAD_LETTERED' AND job.attempts = COALESCE(%(attempt)s::int, job.attempts)
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
),
in_line AS (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, place,
        row_number() OVER (PARTITION BY task, unique_key ORDER BY id) > 1 OR EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE task::text = dead.task::text AND unique_key::text = dead.unique_key::text AND {HOLDS_KEY}
        ) AS has_twin
    FROM dead
),
{_REVIVE.format(which="NOT has_twin")}
SELECT id, false FROM revived
UNION ALL
SELECT id, true FROM in_line WHERE has_twin
"""  # noqa: S608 - made of constants

_EXPIRED_TWINS = f"""
SELECT id
FROM pulse_django_job_hot
WHERE {IS_EXPIRED} AND unique_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM pulse_django_job_hot AS dead
    WHERE dead.id = ANY (%s::bigint[]) AND dead.task::text = pulse_django_job_hot.task::text
        AND dead.unique_key::text = pulse_django_job_hot.unique_key::text
)
"""  # noqa: S608 - made of constants


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
    """Revive what is still dead, with at least ``runs`` more attempts and all of its history.

    The first is due after ``delay``, and each of the others ``gap`` after the one before it. With ``attempt``, only
    what died in that one. A dead letter whose unique key another job holds by now is left as it is, and so are one of
    Pulse's own tasks and one whose batch was cancelled, the latter without ``cancelled_too``.
    """
    check_whole_number("runs", runs, 1, MOST_ATTEMPTS)
    check_attempt(attempt)
    check_delay(delay)
    check_delay(gap)
    asked_for = job_ids_of(job_ids)
    how = {"runs": runs, "delay": delay.total_seconds(), "gap": gap.total_seconds(), "attempt": attempt}
    first = how | {"ids": sorted(asked_for), "cancelled_too": bool(cancelled_too)}
    rows = run_joined(jobs.write_alias, _RETRY, first)
    of_cancelled = frozenset(job_id for job_id, _, is_cancelled in rows if is_cancelled)
    revived = {job_id for job_id, place, is_cancelled in rows if place is None and not is_cancelled}
    keyed = [(job_id, place) for job_id, place, _ in rows if place is not None]
    twins: set[int] = set()
    for job_id, has_twin in _retry_keyed(jobs, keyed, how) if keyed else ():
        (twins if has_twin else revived).add(job_id)
    if twins and (expired := run_joined(jobs.write_alias, _EXPIRED_TWINS, [sorted(twins)])):
        expire_these(jobs, [job_id for (job_id,) in expired])
        again = [(job_id, place) for job_id, place in keyed if job_id in twins]
        free = {job_id for job_id, has_twin in _retry_keyed(jobs, again, how) if not has_twin}
        revived, twins = revived | free, twins - free
    moved_on = asked_for - revived - twins - of_cancelled
    return Retried(revived=frozenset(revived), moved_on=moved_on, twins=frozenset(twins), of_cancelled=of_cancelled)


def _retry_keyed(jobs: JobReader, keyed: Sequence[tuple[int, int]], how: dict[str, Any]) -> list[tuple[int, bool]]:
    """Revive those that have no twin, and say of each whether it has one.

    A job with the key may be enqueued after the look. The index refuses the list then, and each is tried alone.
    """
    params = how | {"ids": [job_id for job_id, _ in keyed], "places": [place for _, place in keyed]}
    try:
        with undone_alone(jobs.write_alias):
            return [(job_id, has_twin) for job_id, has_twin in run_joined(jobs.write_alias, _RETRY_KEYED, params)]
    except IntegrityError as error:
        if "pulse_job_one_per_unique_key" not in str(error):
            raise
        if len(keyed) == 1:
            return [(keyed[0][0], True)]
        return [answer for one in keyed for answer in _retry_keyed(jobs, [one], how)]
