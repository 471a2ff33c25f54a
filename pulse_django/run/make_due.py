"""Operations that make jobs due. They wake idle workers, which would otherwise find the jobs at their next poll."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from pulse_django.models import Job
from pulse_django.queue.words.verb_results import Changed, Retried

from .notify import ANY_QUEUE, wake_workers


def retry(alias: str, job_ids: Collection[int], *, delay: timedelta = timedelta(), **how: Any) -> Retried:
    """Retry dead letters, as the verb does. The first one is due after ``delay``."""
    answer: Retried = Job.objects.db_manager(alias).retry(job_ids, delay=delay, **how)
    if answer.revived and not delay:
        wake_workers(alias, [ANY_QUEUE])
    return answer


def run_now(alias: str, job_ids: Collection[int], *, attempt: int | None = None) -> Changed:
    """Make waiting jobs due."""
    answer: Changed = Job.objects.db_manager(alias).reschedule(job_ids, attempt=attempt)
    if answer.changed:
        wake_workers(alias, [ANY_QUEUE])
    return answer
