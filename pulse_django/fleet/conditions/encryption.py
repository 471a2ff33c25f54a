"""Conditions of encrypted jobs: workers that cannot decrypt what they claim."""

from __future__ import annotations

from pulse_django.words.outcomes import CANNOT_DECRYPT

from .catalogue import Condition, Severity, register

register(
    Condition(
        name="key-missing",
        severity=Severity.STUCK,
        says="Workers can decrypt the jobs that they claim (checked for the jobs put back recently).",
        means="A worker has no key for these jobs, so they are put back. No attempt is counted.",
        to_do="Add the key to PULSE['ENCRYPTION_KEYS'] of all workers and restart them. Then run the jobs now.",
        page="how-to/encryption.md",
        sql=f"""
SELECT job.task, pg_catalog.concat(count(*), ' jobs or more; ', pg_catalog.max(latest.message))
FROM latest_attempts AS latest
CROSS JOIN LATERAL (  -- one by one: a planner that joins the two reads the whole backlog
    SELECT task
    FROM pulse_django_job_hot
    WHERE id = latest.job_id AND attempts = latest.number AND status::text IN ('PENDING', 'RETRYING')
    LIMIT 1
) AS job
WHERE latest.outcome::text = 'RELEASED' AND pg_catalog.starts_with(latest.message, '{CANNOT_DECRYPT}')
GROUP BY job.task
ORDER BY job.task
LIMIT %(limit)s
""",
    )
)
