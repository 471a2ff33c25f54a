"""Why a job waits for others: the reasons of ``explain()``, and the condition of jobs that wait for an ended one.

Reasons that only a person can end come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.utils.translation import gettext_lazy as _

from pulse_django.health.conditions.catalogue import Condition, Severity, time_since
from pulse_django.health.explanation.facts import JobFacts
from pulse_django.health.explanation.reasons import Reason
from pulse_django.queue.capability import Why
from pulse_django.queue.database.read_only import rows

from .reading import NeedFacts, needs_of
from .rules import When

MOST_NEEDS = 1_000  # that are looked at
MOST_NAMED = 10

_OF_BATCH = {When.FINISHED: "waits-for-batch", When.ENDED: "waits-for-end", When.DEAD: "waits-for-dead-letter"}

_PAUSED_BATCH = """
SELECT batch.id, batch.name
FROM pulse_django_job_hot AS job
JOIN pulse_django_batch AS batch ON batch.id = job.batch_id
WHERE job.id = %(id)s AND batch.paused_at IS NOT NULL
"""


def _of_batches(needs: Sequence[NeedFacts]) -> Iterator[Reason]:
    for need in [need for need in needs if need.batch is not None][:MOST_NAMED]:
        code = _OF_BATCH[When(need.moment)] if need.is_sealed else "batch-not-sealed"
        yield Reason(code=code, facts={"batch": need.batch, "name": need.name})


def _named(jobs: Sequence[int]) -> dict[str, Any]:
    return {"jobs": list(jobs[:MOST_NAMED]), "more": max(0, len(jobs) - MOST_NAMED)}


class WhyOfWorkflows(Why):
    sentences = {
        "waits-for-jobs": _("It waits for jobs that are not done: %(jobs)s."),
        "held-by-dead-letter": _("It needs dead letters: %(jobs)s. Retry them, and it goes on when they are done."),
        "waits-for-batch": _("It waits until all jobs of the workflow %(name)s (#%(batch)s) are done."),
        "waits-for-end": _("It waits until all jobs of the workflow %(name)s (#%(batch)s) are over or dead letters."),
        "waits-for-dead-letter": _(
            "It runs when the first job of the workflow %(name)s (#%(batch)s) becomes a dead letter."
        ),
        "batch-not-sealed": _(
            "It waits for the workflow %(name)s (#%(batch)s), which is not sealed: jobs may still be added to it."
        ),
        "batch-paused": _("Its workflow %(name)s (#%(batch)s) is paused until it is resumed."),
        "waits-for-event": _("It waits for the event %(event)s."),
        "waits-for-event-until": _("It waits for the event %(event)s, until %(until)s at the latest."),
        "needs-met": _("All that it needs is done. A worker puts it in line within a moment."),
    }

    def of_waiting(self, alias: str, job: JobFacts) -> list[Reason]:
        """Explain a waiting job by its unmet needs, and by its batch if that is paused."""
        needs = needs_of(alias, job.id, unmet_only=True, most=MOST_NEEDS)
        found = [
            Reason(code="batch-paused", facts={"batch": batch_id, "name": name})
            for batch_id, name in rows(alias, _PAUSED_BATCH, {"id": job.id})
        ]
        if held_by := [job_id for need in needs for job_id in need.held_by]:
            found.append(Reason(code="held-by-dead-letter", facts=_named(held_by)))
        found += _of_batches(needs)
        found += [
            Reason(code="waits-for-event", until=need.until, facts={"event": need.event})
            for need in needs
            if need.event is not None
        ][:MOST_NAMED]
        if jobs := [need.job for need in needs if need.job is not None and not need.held_by]:
            found.append(Reason(code="waits-for-jobs", facts=_named(jobs)))
        return found or [Reason(code="needs-met")]


CONDITIONS = (
    Condition(
        name="need-overlooked",
        severity=Severity.STUCK,
        says="A job that needs others continues soon after the last of them has ended.",
        means="No process handles ended jobs: no worker runs, all workers have a release without workflows, or a "
        "transaction has locked the job or its workflow.",
        to_do="Start a worker of this release; its watchdog finds such jobs. Look in pg_stat_activity for a "
        "transaction that locks jobs, and terminate it.",
        page="how-to/workflows.md",
        sql=f"""
SELECT
    pg_catalog.concat('job ', unmet.job_id), 'job %%(needed)s, which it needs, is over for %%(time)s',
    unmet.needs AS needed, {time_since("need.finished_at")} AS time
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
""",  # noqa: S608 - made of constants
    ),
)
