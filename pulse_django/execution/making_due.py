"""Operations that make jobs due. They wake idle workers, which would find the jobs at their next poll otherwise."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from pulse_django.models import Job
from pulse_django.words.verb_results import Changed, Retried

from .notify import ANY_QUEUE, wake_workers

AT_ONCE = timedelta()


def retry(
    alias: str,
    job_ids: Collection[int],
    *,
    runs: int = 1,
    delay: timedelta = AT_ONCE,
    gap: timedelta = AT_ONCE,
    attempt: int | None = None,
    cancelled_too: bool = False,
) -> Retried:
    """Revive dead letters, the first after ``delay`` and each further one ``gap`` later."""
    answer: Retried = Job.objects.db_manager(alias).retry(
        job_ids, runs=runs, delay=delay, gap=gap, attempt=attempt, cancelled_too=cancelled_too
    )
    if answer.revived and not delay:
        wake_workers(alias, [ANY_QUEUE])
    return answer


def run_now(alias: str, job_ids: Collection[int], *, attempt: int | None = None) -> Changed:
    """Make waiting jobs due."""
    answer: Changed = Job.objects.db_manager(alias).reschedule(job_ids, attempt=attempt)
    if answer.changed:
        wake_workers(alias, [ANY_QUEUE])
    return answer
