"""Conditions of jobs that need others."""

from __future__ import annotations

from .catalogue import Condition, Severity, register

register(
    Condition(
        name="need-overlooked",
        severity=Severity.STUCK,
        says="A job that needs others goes on soon after the last of them is over.",
        means="No process looks at what is over: all workers are of a release before workflows, or none runs, or a "
        "transaction has locked the job or its workflow.",
        to_do="Start a worker of this release; its watchdog finds what was overlooked. Look in pg_stat_activity for a "
        "transaction that locks jobs, and terminate it.",
        page="how-to/workflows.md",
        sql="""
SELECT pg_catalog.concat('job ', unmet.job_id), pg_catalog.concat(
    'job ', unmet.needs, ', which it needs, is over for ',
    pg_catalog.date_trunc('second', statement_timestamp() - need.finished_at)
)
FROM (
    SELECT job_id, needs
    FROM pulse_django_dependency
    WHERE needs IS NOT NULL AND met_at IS NULL
    ORDER BY needs
    LIMIT %(sample)s
) AS unmet
CROSS JOIN LATERAL (
    SELECT finished_at FROM pulse_django_job WHERE id = unmet.needs AND era <> 0 LIMIT 1
) AS need
WHERE need.finished_at < statement_timestamp() - %(silence)s
    AND EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE id = unmet.job_id AND status::text = 'WAITING')
    AND NOT EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE id = unmet.needs)
ORDER BY need.finished_at
LIMIT %(limit)s
""",
    )
)
