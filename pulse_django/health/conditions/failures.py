"""Conditions of failures: dead letters, failing tasks and queues, expired leases."""

from __future__ import annotations

from pulse_django.metrics.vital_signs import JOBS_ENDED, LEASE_EXPIRATIONS, RUNS
from pulse_django.queue.words.counters import FAILED, SUCCEEDED
from pulse_django.queue.words.states import Status

from .catalogue import Condition, Severity, Threshold

DEAD_LETTERS_GROW = "how-to/symptoms/dead-letters-grow.md"
MOST_COUNTED = 10_000  # dead letters of an hour, which takes a few milliseconds


_LATELY = "pg_catalog.round(EXTRACT(epoch FROM %(lately)s::interval) / 60::numeric)"


# The ended runs and jobs of the last minutes and of the hour before, by task and queue, from the recorded minutes.


_ENDED_JOBS = (Status.DEAD_LETTERED, Status.COMPLETED)


def _names(values: tuple[str, ...]) -> str:
    return ", ".join(f"'{value}'" for value in values)


def _counted(kind: str, sign: str, bad: tuple[str, ...], all_of_them: tuple[str, ...], what: str) -> str:
    """Return a query of the recorded minutes that counts failures of one sign by its first label."""

    def number(names: tuple[str, ...], condition: str) -> str:
        return f"""COALESCE(pg_catalog.sum(ended.number::float8) FILTER (
        WHERE ended.name IN ({_names(names)}) AND {condition}
    ), 0)"""

    return f"""
SELECT '{kind} ' || label.name AS key, '{what}' AS what,
    {number(bad, "is_late")} AS bad, {number(all_of_them, "is_late")} AS tried,
    {number(bad, "NOT is_late")} AS bad_before, {number(all_of_them, "NOT is_late")} AS tried_before
FROM recorded
CROSS JOIN LATERAL pg_catalog.jsonb_each(
    CASE WHEN pg_catalog.jsonb_typeof(signs -> '{sign}'::text) = 'object' THEN signs -> '{sign}'::text ELSE '{{}}' END
) AS label (name, counts)
CROSS JOIN LATERAL pg_catalog.jsonb_each(
    CASE WHEN pg_catalog.jsonb_typeof(label.counts) = 'object' THEN label.counts ELSE '{{}}' END
) AS ended (name, number)
WHERE pg_catalog.jsonb_typeof(ended.number) = 'number'
GROUP BY label.name"""


ENDED_LATELY = f"""
    WITH recorded AS (
        SELECT signs, minute > statement_timestamp() - %(lately)s AS is_late
        FROM pulse_django_minute
        WHERE minute > statement_timestamp() - %(lately)s - interval '1 h' AND minute <= statement_timestamp()
    )
    {_counted("task", RUNS.name, FAILED, (*FAILED, *SUCCEEDED), "runs failed")}
    UNION ALL
    {_counted("queue", JOBS_ENDED.name, (Status.DEAD_LETTERED,), _ENDED_JOBS, "ended jobs died")}"""


CONDITIONS = (
    Condition(
        name="dead-letters",
        severity=Severity.FAILING,
        says="Few jobs of a queue or task became dead letters in the last hour.",
        means="These jobs failed permanently. Their work is not done.",
        to_do="Open the dead letters and read their errors. Fix the cause, then retry them.",
        page=DEAD_LETTERS_GROW,
        threshold=Threshold(default=100, unit="in the last hour, of one queue or task"),
        sql=f"""
SELECT named.key, '%%(jobs)s dead letters in the last hour', count(*) AS jobs
FROM (
    SELECT queue::text, task::text
    FROM pulse_django_job_hot
    WHERE status::text = 'DEAD_LETTERED' AND finished_at > statement_timestamp() - interval '1 h'
    ORDER BY finished_at DESC, id DESC
    LIMIT {MOST_COUNTED}
) AS died
CROSS JOIN LATERAL (SELECT 'queue ' || died.queue UNION ALL SELECT 'task ' || died.task) AS named (key)
GROUP BY named.key
HAVING count(*)::float8 > %(dead_letters)s::float8
ORDER BY count(*) DESC, 1
""",
    ),
    Condition(
        name="failure-rate",
        severity=Severity.FAILING,
        says="Most runs of each task succeed, and most jobs of each queue complete.",
        means="The task or a service that it uses is broken. Retries repeat the failures until the jobs die.",
        to_do="Read the errors of the failed attempts. If a service is down, pause the queue until it is back.",
        page=DEAD_LETTERS_GROW,
        threshold=Threshold(default=0.5, unit="failed share of the recent runs of a task or jobs of a queue", most=1),
        sql=f"""
SELECT
    key, pg_catalog.concat('%%(bad)s of %%(tried)s ', what, ' in the last %%(minutes)s minutes'),
    bad, tried, {_LATELY} AS minutes
FROM ended_lately
WHERE tried >= %(few_runs)s::float8 AND bad > %(failure_rate)s::float8 * tried
ORDER BY bad DESC, key
""",
    ),
    Condition(
        name="failures-rise",
        severity=Severity.FAILING,
        says="No task or queue fails much more often than in the hour before.",
        means="Something changed: a release, a service that the task uses, or the data.",
        to_do="Open the task to see when the failures began, and which release was new then. Read the errors of the "
        "failed attempts.",
        page=DEAD_LETTERS_GROW,
        threshold=Threshold(default=0.2, unit="increase of the failed share, compared with the hour before", most=1),
        sql=f"""
SELECT
    key, pg_catalog.concat(
        '%%(bad)s of %%(tried)s ', what,
        ' in the last %%(minutes)s minutes, and %%(before)s of %%(all)s in the hour before'
    ),
    bad, tried, {_LATELY} AS minutes, bad_before AS before, tried_before AS "all"
FROM ended_lately
WHERE tried >= %(few_runs)s::float8 AND tried_before >= %(few_runs)s::float8
    AND bad / GREATEST(tried, 1) - bad_before / GREATEST(tried_before, 1) > %(failures_rise)s::float8
ORDER BY bad DESC, key
""",
    ),
    Condition(
        name="leases-expired",
        severity=Severity.FAILING,
        says="Few leases expired in the last hour.",
        means="Workers are killed, frozen or disconnected while they run jobs. The jobs run again.",
        to_do="Find the workers of these leases in the attempts. Look for out-of-memory kills.",
        page="how-to/symptoms/leases-expire.md",
        threshold=Threshold(default=100, unit="in the last hour"),
        sql=f"""
SELECT 'all queues', '%%(leases)s leases expired in the last hour', pg_catalog.sum(expired) AS leases
FROM (
    SELECT CASE
        WHEN pg_catalog.jsonb_typeof(signs -> '{LEASE_EXPIRATIONS.name}'::text) = 'number'
        THEN (signs -> '{LEASE_EXPIRATIONS.name}'::text)::float8 ELSE 0
    END AS expired
    FROM pulse_django_minute
    WHERE minute > statement_timestamp() - interval '1 h' AND minute <= statement_timestamp()
) AS minute
HAVING pg_catalog.sum(expired) > %(leases_expired)s::float8
""",
    ),
)
