"""The latest rows of history, which several conditions look at.

A condition names a sample in its SQL like a table. The statement that asks the conditions reads each sample once. That
matters: PostgreSQL plans a scan of every partition for each time that a statement names the table.
"""

from __future__ import annotations

import re

# The message of a run that was put back says why. Others can be long, and no condition reads them.
_SAMPLES = {
    "latest_attempts": """
    SELECT
        job_id, number, token, outcome, started_at, finished_at,
        CASE outcome::text WHEN 'RELEASED' THEN message END AS message
    FROM pulse_django_attempt
    ORDER BY id DESC
    LIMIT %(sample)s""",
    "latest_completed": """
    SELECT id, task, queue, status, attempts, created_at, started_at, finished_at, completed_by, completed_token
    FROM pulse_django_job
    WHERE status::text = 'COMPLETED'
    ORDER BY finished_at DESC, id DESC
    LIMIT %(sample)s""",
    "latest_cancelled": """
    SELECT id, task, queue, status, attempts, created_at, started_at, finished_at
    FROM pulse_django_job
    WHERE status::text = 'CANCELLED'
    ORDER BY finished_at DESC, id DESC
    LIMIT %(sample)s""",
}
_NAMED = re.compile(rf"\b({'|'.join(_SAMPLES)})\b")


def with_samples(sql: str) -> str:
    """Put the samples that a statement names before it."""
    named = sorted(set(_NAMED.findall(sql)))
    samples = ",\n".join(f"{name} AS ({_SAMPLES[name]}\n)" for name in named)
    return f"WITH {samples}\nSELECT * FROM ({sql}) AS asked" if samples else sql
