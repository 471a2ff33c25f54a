"""Conditions of limits: jobs that wait for one too long, and jobs that are not made ready."""

from __future__ import annotations

from pulse_django.health.conditions.catalogue import About, Condition, Severity, Threshold, time_since
from pulse_django.pauses.statements import first_that_can_start, is_not_paused
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.lane_queries import IN_LANE, IS_SET_ASIDE, TASKS_SET_ASIDE, limits_of
from pulse_django.queue.words.lane_keys import OF_QUEUE

from .limiters import IN_FORCE

LIMITS = "how-to/limits.md"


CONDITIONS = (
    Condition(
        name="limiter-starved",
        about=About.LIMIT,
        severity=Severity.RISK,
        says="No job has waited for its limit for too long.",
        means="Jobs of this limit arrive faster than it lets them start, long jobs hold all of it, or it is paused.",
        to_do="Run pulse_limits. Raise the limit there or in the code, or resume it if it is paused.",
        page=LIMITS,
        threshold=Threshold(default=900, unit="seconds"),
        sql=f"""
WITH due AS (
    SELECT limits.limiter, pg_catalog.min(earliest.next_run_at) AS since
    FROM waiting_lanes AS lane
    CROSS JOIN LATERAL ({limits_of("lane")}) AS limits
    CROSS JOIN LATERAL ({first_that_can_start(IN_LANE)}) AS earliest
    WHERE EXISTS (SELECT 1 FROM pulse_django_limiter)  -- asked once: without one, nothing else is read
        AND NOT (lane.lane_key::text = '') AND limits.limiter <> '' AND (
            limits.limiter NOT LIKE '{OF_QUEUE}%%'
            OR EXISTS (SELECT 1 FROM pulse_django_limiter WHERE name::text = limits.limiter)
        )
        AND earliest.next_run_at < statement_timestamp() - %(limiter_starved)s::float8 * interval '1 s'
    GROUP BY 1
),
limiter AS (
    SELECT name, {IN_FORCE} AS n, paused_until, pause_reason FROM pulse_django_limiter
)
SELECT
    due.limiter, pg_catalog.concat(
        'the oldest job has been due for %%(time)s, %%(runs)s',
        CASE WHEN (limiter.n ->> 'max_running'::text) IS NOT NULL THEN ' of %%(most)s' END, ' running',
        CASE WHEN limiter.paused_until > statement_timestamp() THEN ', paused until %%(until)s (%%(reason)s)' END
    ),
    {time_since("due.since")} AS time, held.n AS runs,
    limiter.n ->> 'max_running'::text AS most, pg_catalog.date_trunc('second', limiter.paused_until)::text AS until,
    limiter.pause_reason AS reason
FROM due
LEFT JOIN limiter ON limiter.name::text = due.limiter
CROSS JOIN LATERAL (
    SELECT COALESCE(pg_catalog.sum(weight), 0) AS n
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND CASE
        WHEN due.limiter LIKE '{OF_QUEUE}%%' THEN pg_catalog.concat('{OF_QUEUE}', queue) = due.limiter
        ELSE (pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = due.limiter
    END
) AS held
ORDER BY due.since
""",
    ),
    Condition(
        name="ready-overdue",
        about=About.QUEUE,
        severity=Severity.STUCK,
        says="Jobs with a limit or a share become ready when they are due, those of a task when its pause has ended.",
        means="No worker looks for such jobs, no watchdog sweeps, or a transaction has locked them: they cannot be "
        "claimed.",
        to_do="Start a worker. Look in pg_stat_activity for a transaction that locks jobs, and terminate it.",
        page=LIMITS,
        sql=f"""
{TASKS_SET_ASIDE}
SELECT queue, 'due for %%(time)s and not ready', {time_since("pg_catalog.min(next_run_at)")} AS time
FROM (
    (
        SELECT queue, task, next_run_at
        FROM pulse_django_job_hot
        WHERE {IS_CLAIMABLE} AND NOT ready AND next_run_at < statement_timestamp() - %(silence)s
        ORDER BY next_run_at, id
        LIMIT %(sample)s
    )
    UNION ALL
    (
        SELECT met.queue, met.task, aside.next_run_at
        FROM met
        CROSS JOIN LATERAL (
            SELECT next_run_at
            FROM pulse_django_job_hot
            WHERE {IS_SET_ASIDE} AND task::text = met.task::text AND queue::text = met.queue::text
            ORDER BY id
            LIMIT %(sample)s
        ) AS aside
        WHERE {is_not_paused("met.")} AND NOT EXISTS (  -- sweeps bring them back, a thousand after the other
            SELECT 1 FROM pulse_django_duty
            WHERE name::text = 'sweep' AND done_at > statement_timestamp() - %(unreaped)s
        )
    )
) AS unready
WHERE {is_not_paused("unready.")} AND next_run_at < statement_timestamp() - %(silence)s
GROUP BY queue
ORDER BY pg_catalog.min(next_run_at)
""",
    ),
)
