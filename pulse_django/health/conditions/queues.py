"""Conditions of queues: jobs that are due and do not run."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_django.health import unknown_tasks
from pulse_django.models import Pause
from pulse_django.queue.database.lane_queries import IN_LANE
from pulse_django.queue.words.outcomes import UNKNOWN_TASK

from .catalogue import About, Condition, Repair, Severity, Threshold, time_since

JOBS_WAIT = "how-to/symptoms/jobs-wait.md"


# The condition that a live worker serves the queue of a row of ``due_queues``.
_IS_SERVED = """EXISTS (
        SELECT 1 FROM live_workers AS live
        WHERE live.queues = '[]' OR pg_catalog.jsonb_exists(live.queues, due.queue)
    )"""


def _resume(alias: str, names: Sequence[str]) -> int:
    pauses = Pause.objects.db_manager(alias)
    return sum(pauses.resume(queue=name) for name in names)


CONDITIONS = (
    Condition(
        name="queue-without-worker",
        about=About.QUEUE,
        severity=Severity.STUCK,
        says="Every queue with due jobs has a worker that serves it.",
        means="No live worker serves the queue, so its jobs wait.",
        to_do="Start a worker for the queue, or check --queues and QUEUES.",
        page=JOBS_WAIT,
        sql=f"""
SELECT due.queue, 'due for %%(time)s, and no live worker serves it', {time_since("due.since")} AS time
FROM due_queues AS due
WHERE due.since < statement_timestamp() - %(silence)s
    AND due.queue::text NOT IN (SELECT name::text FROM paused_queues)
    AND NOT {_IS_SERVED}
ORDER BY due.since
""",
    ),
    # A queue that is only busy is excluded: if runs begin, the other jobs wait for their turn.
    Condition(
        name="overdue-while-idle",
        about=About.QUEUE,
        severity=Severity.STUCK,
        says="Due jobs do not wait while workers of their queue have free slots.",
        means="Workers cannot claim jobs: a transaction holds locks, or the workers fail or hang.",
        to_do="Read a worker's log. Look in pg_stat_activity for a transaction that locks jobs, and terminate it.",
        page=JOBS_WAIT,
        sql=f"""
WITH begun AS (
    SELECT queue, started_at FROM pulse_django_job_hot WHERE status::text = 'RUNNING'
    UNION ALL
    SELECT job.queue, latest.started_at
    FROM latest_attempts AS latest
    JOIN pulse_django_job_hot AS job ON job.id = latest.job_id
    UNION ALL
    SELECT queue, started_at FROM latest_completed
    UNION ALL
    SELECT queue, started_at FROM latest_cancelled
)
SELECT
    due.queue, 'due for %%(time)s while %%(slots)s slots are free', idle.free AS slots,
    {time_since("due.unlimited_since")} AS time
FROM due_queues AS due
CROSS JOIN LATERAL (
    SELECT pg_catalog.sum(live.free) AS free
    FROM live_workers AS live
    WHERE live.queues = '[]' OR pg_catalog.jsonb_exists(live.queues, due.queue)
) AS idle
WHERE due.unlimited_since < statement_timestamp() - %(overdue)s
    AND due.queue::text NOT IN (SELECT name::text FROM paused_queues)
    AND idle.free > 0
    AND NOT EXISTS (
        SELECT 1 FROM begun
        WHERE begun.queue::text = due.queue::text AND begun.started_at > statement_timestamp() - %(overdue)s
    )
ORDER BY due.unlimited_since
""",
    ),
    Condition(
        name="queue-overdue",
        about=About.QUEUE,
        severity=Severity.STUCK,
        says="The oldest due job of each queue has not been due for too long.",
        means="Jobs arrive faster than the workers of the queue complete them, or a few long jobs hold all slots.",
        to_do="Add processes or workers, or raise the priority of urgent jobs.",
        page=JOBS_WAIT,
        threshold=Threshold(default=900, unit="seconds"),
        sql=f"""
SELECT due.queue, 'the oldest job has been due for %%(time)s', {time_since("due.unlimited_since")} AS time
FROM due_queues AS due
WHERE due.unlimited_since < statement_timestamp() - %(queue_overdue)s::float8 * interval '1 s'
    AND due.queue::text NOT IN (SELECT name::text FROM paused_queues)
    AND {_IS_SERVED}
ORDER BY due.unlimited_since
""",
    ),
    Condition(
        name="paused-backlog",
        about=About.QUEUE,
        severity=Severity.RISK,  # an operator paused it
        says="No paused queue has due jobs.",
        means="The jobs wait until the queue is resumed or its pause ends.",
        to_do="Check whether the reason for the pause still applies.",
        page=JOBS_WAIT,
        sql=f"""
SELECT
    paused.name, pg_catalog.concat(
        'paused for %%(time)s ',
        CASE WHEN paused.paused_until IS NULL THEN 'without an end' ELSE 'until %%(until)s' END,
        CASE WHEN paused.reason <> '' THEN ' (%%(reason)s)' ELSE ' (no reason given)' END, ', jobs due for %%(due)s'
    ),
    {time_since("paused.paused_at")} AS time, {time_since("due.since")} AS due, paused.reason,
    pg_catalog.date_trunc('second', paused.paused_until)::text AS until
FROM paused_queues AS paused
JOIN due_queues AS due ON due.queue::text = paused.name::text
ORDER BY paused.name
""",
        repair=Repair(says="Resume the queue.", act=_resume),
    ),
    Condition(
        name="task-unknown",
        about=About.TASK,
        severity=Severity.STUCK,
        says="A live worker of the queue has the task of each waiting job (checked for the oldest in each queue, and "
        "for those put back recently).",
        means="No worker of the queue has this task, so its jobs are put back repeatedly.",
        to_do="Deploy the code that defines it. If it is not in the tasks.py of an installed app, add its module to "
        "PULSE['TASK_MODULES']. If the task was renamed, add its old name to aliases=(...).",
        page=JOBS_WAIT,
        sql=f"""
WITH oldest AS (
    SELECT job.id, job.task, job.queue
    FROM waiting_lanes AS lane
    CROSS JOIN LATERAL (
        SELECT id, task, queue, created_at, next_run_at
        FROM pulse_django_job_hot
        WHERE {IN_LANE}
        ORDER BY next_run_at, id
        LIMIT 10
    ) AS job
    -- Conditions here and not within: a lane of young jobs would be read whole, and one that seems short sorted.
    WHERE job.next_run_at <= statement_timestamp() + %(silence)s  -- one that was put back is due again soon
        AND job.created_at < statement_timestamp() - %(silence)s
),
put_back AS (
    SELECT job.id, job.task, job.queue
    FROM latest_attempts AS latest
    CROSS JOIN LATERAL (  -- one by one: a planner that joins the two reads the whole backlog
        SELECT id, task, queue
        FROM pulse_django_job_hot
        WHERE id = latest.job_id AND attempts = latest.number AND status::text IN ('PENDING', 'RETRYING')
        LIMIT 1
    ) AS job
    WHERE latest.outcome::text = 'RELEASED' AND pg_catalog.starts_with(latest.message, '{UNKNOWN_TASK}')
)
SELECT
    task, '%%(jobs)s or more jobs, in %%(queues)s', pg_catalog.sum(jobs) AS jobs,
    pg_catalog.string_agg(DISTINCT queue, ', ') AS queues
FROM (
    SELECT task, queue, count(*) AS jobs
    FROM (SELECT id, task, queue FROM oldest UNION SELECT id, task, queue FROM put_back) AS job
    GROUP BY task, queue
) AS waiting
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.bool_or(tasks IS NOT NULL) AS one_tells,
        pg_catalog.bool_or(tasks IS NULL OR pg_catalog.jsonb_exists(tasks, waiting.task)) AS one_may_know
    FROM live_workers AS live
    WHERE queues = '[]' OR pg_catalog.jsonb_exists(queues, waiting.queue)
) AS serving
WHERE EXISTS (SELECT 1 FROM live_workers WHERE tasks IS NOT NULL)  -- asked once: without one, nothing else is read
    AND serving.one_tells AND NOT serving.one_may_know
GROUP BY task
ORDER BY task
""",
        repair=Repair(
            says="Dead-letter the jobs that were put back for longer than UNKNOWN_TASK_AGE, as every watchdog does.",
            act=lambda alias, _: len(unknown_tasks.give_up(alias)),
        ),
    ),
)
