"""Jobs whose task no live worker has: workers put them back, and later a watchdog dead-letters them."""

from __future__ import annotations

from datetime import timedelta

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.capability import Capability, StepDone, SweepStep, WorkerDatabase
from pulse_django.queue.database.job_queries import PUT_BACK_SINCE
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.decisions import DeadLetter
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import GIVEN_UP, UNKNOWN_TASK, Released
from pulse_django.queue.words.states import CLAIMABLE, EndedBy, Status, run_ended
from pulse_django.queue.words.verb_results import Report
from pulse_django.run import make_due
from pulse_django.run.registry import registry
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send_finished

logger = SafeLogger(__name__)

MOST_AT_ONCE = 100
LATEST = 10_000  # attempts that are searched; such a job is put back every half minute

# Two facts are required. For the whole time, workers only put the job back, and no worker that has its task was alive.
# The registry also has stopped workers. A worker that has not reported its tasks may have any task.
_GIVEN_UP = f"""
WITH lately AS (
    SELECT tasks, stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s AS is_live
    FROM pulse_django_worker
    WHERE last_beat_at > statement_timestamp() - GREATEST(%(age)s, %(silence)s)
)
SELECT job.id, statement_timestamp() - met.first
FROM (
    SELECT DISTINCT job_id
    FROM (
        SELECT job_id, outcome, message FROM pulse_django_attempt ORDER BY id DESC LIMIT %(latest)s
    ) AS latest
    WHERE outcome::text = 'RELEASED' AND pg_catalog.starts_with(message, %(unknown)s)
) AS recent
JOIN pulse_django_job_hot AS job ON job.id = recent.job_id
CROSS JOIN LATERAL ({PUT_BACK_SINCE.format(job="job.id")}) AS met
WHERE job.status::text IN ('PENDING', 'RETRYING') AND job.next_run_at <= statement_timestamp()
    AND met.first < statement_timestamp() - %(age)s
    AND EXISTS (SELECT 1 FROM lately WHERE is_live)
    AND NOT EXISTS (SELECT 1 FROM lately WHERE tasks IS NULL OR pg_catalog.jsonb_exists(tasks, job.task))
ORDER BY job.id
LIMIT %(most)s
"""  # noqa: S608 - made of constants


def give_up(alias: str) -> list[int]:
    """Dead-letter jobs that were put back for longer than ``UNKNOWN_TASK_AGE``. Return their ids."""
    settings = conf.current()
    params = {
        "silence": settings.worker_silence,
        "age": settings.unknown_task_age,
        "unknown": UNKNOWN_TASK,
        "latest": LATEST,
        "most": MOST_AT_ONCE,
    }
    waited: dict[int, timedelta] = dict(run_joined(alias, _GIVEN_UP, params))
    if not waited:
        return []
    jobs = Job.objects.db_manager(alias)
    reports, claims = [], jobs.claim_these(Identity("watchdog"), list(waited))
    for claim in claims:
        reason = f"{GIVEN_UP} {claim.task!r}: no live worker has it, for {waited[claim.job_id]}"
        reports.append(Report(claim.lease, Released(reason=reason), DeadLetter(reason)))
    settled = jobs.settle(reports)
    given_up = []
    for claim, report in zip(claims, reports, strict=True):
        if (status := settled.accepted.get(claim.lease)) is None:
            continue
        reason, outcome = getattr(report.decision, "reason", ""), report.outcome.name
        logger.warning("job %d %s: %s", claim.job_id, status, reason)
        ending = run_ended(claim, claim.lease, status=status, by=EndedBy.WATCHDOG, outcome=outcome, reason=reason)
        send_finished(Job, ending, using=alias)
        if status is Status.DEAD_LETTERED:
            given_up.append(claim.job_id)
    return sorted(given_up)


def run_known_now(alias: str) -> None:
    """Make jobs due that were put back because their task was unknown, if this process has the task."""
    put_back = Job.objects.using(alias).filter(status__in=CLAIMABLE, last_error__startswith=UNKNOWN_TASK)
    make_due.run_now(alias, list(put_back.filter(task__in=list(registry)).values_list("pk", flat=True)[:MOST_AT_ONCE]))


class GivingUp(SweepStep):
    name = "unknown tasks"
    says = {"given_up": []}
    is_housekeeping = True

    def run(self, database: WorkerDatabase) -> StepDone:
        given_up = database.call(give_up, database.alias)
        return StepDone(len(given_up) == MOST_AT_ONCE, {"given_up": given_up})


CAPABILITY = Capability(name="health", sweeps=(GivingUp(),))
