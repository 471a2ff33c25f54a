"""Jobs whose task no live worker knows: workers put them back, and in the end somebody has to say so."""

from __future__ import annotations

import logging
from datetime import timedelta

from . import conf
from .answers import Report
from .decisions import DeadLetter
from .identity import Identity
from .models import Job
from .outcomes import Released
from .signals import job_dead_lettered, tell
from .states import Status
from .transactions import run_joined

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 100
UNKNOWN_TASK = "unknown task"  # begins the reason for which a worker put such a job back

# The evidence is the ledger's: a worker has met the job, did not know its task, and that was so long ago. Only due jobs
# are asked for, because only those can be claimed.
_GIVEN_UP = """
WITH live AS (
    SELECT tasks
    FROM pulse_django_worker
    WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %s::interval
)
SELECT job.id, statement_timestamp() - met.first
FROM (
    SELECT job_id, min(started_at) AS first
    FROM (SELECT job_id, started_at, outcome, message FROM pulse_django_attempt ORDER BY id DESC LIMIT 10000) AS latest
    WHERE outcome = 'RELEASED' AND starts_with(message, %s)
    GROUP BY job_id
) AS recent
JOIN pulse_django_job AS job ON job.id = recent.job_id
CROSS JOIN LATERAL (
    SELECT min(started_at) AS first
    FROM pulse_django_attempt
    WHERE job_id = job.id AND outcome = 'RELEASED' AND starts_with(message, %s)
) AS met
WHERE job.status IN ('PENDING', 'RETRYING') AND job.next_run_at <= statement_timestamp()
    AND met.first < statement_timestamp() - %s::interval
    AND EXISTS (SELECT FROM live)
    AND NOT EXISTS (SELECT FROM live WHERE tasks IS NULL OR jsonb_exists(tasks, job.task))
ORDER BY job.id
LIMIT %s
"""


def give_up(alias: str) -> list[int]:
    """Dead-letter what has been put back for longer than ``UNKNOWN_TASK_AGE``. Return the jobs."""
    settings = conf.current()
    params = [settings.worker_silence, UNKNOWN_TASK, UNKNOWN_TASK, settings.unknown_task_age, MOST_AT_ONCE]
    waited: dict[int, timedelta] = dict(run_joined(alias, _GIVEN_UP, params))
    if not waited:
        return []
    jobs = Job.objects.db_manager(alias)
    reports = []
    for claim in jobs.claim_these(Identity("watchdog"), list(waited)):
        reason = f"{UNKNOWN_TASK} {claim.task!r}: no live worker has it, for {waited[claim.job_id]}"
        reports.append(Report(claim.lease, Released(reason=reason), DeadLetter(reason)))
    settled = jobs.settle(reports)
    given_up = sorted(lease.job_id for lease, status in settled.accepted.items() if status is Status.DEAD_LETTERED)
    for report in reports:
        if report.lease.job_id in given_up:
            reason = getattr(report.decision, "reason", "")
            logger.warning("job %d dead-lettered: %s", report.lease.job_id, reason)
            tell(job_dead_lettered, Job, job_id=report.lease.job_id, reason=reason)
    return given_up
