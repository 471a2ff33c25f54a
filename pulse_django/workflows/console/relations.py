"""The relations of a job on its page: its workflow, its needs, the jobs that need it, and its durable steps."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest

from pulse_django.console.jobs.arguments_shown import result_in_text
from pulse_django.console.pages import url_for
from pulse_django.models import Job, Step, StoredBatch
from pulse_django.queue.words.display import in_words
from pulse_django.workflows.reading import needed_by, needs_of

MOST_STEPS = 200
MOST_RESULT = 2_000  # characters of the result of a step


def relations_of(request: HttpRequest, job: Job, site: str) -> dict[str, Any]:
    """Read the relations of a job, with four short statements at most, or two without a workflow."""
    alias = job._state.db or "default"

    def url_of(batch_id: int | None) -> str:
        return "" if batch_id is None else url_for(request, site, "storedbatch", "storedbatch_change", batch_id)

    needs = needs_of(alias, job.pk)
    others = needed_by(alias, job.pk, job.batch_id) if job.awaited else []
    batch = (
        StoredBatch.objects.using(alias).only("id", "name").filter(pk=job.batch_id).first() if job.batch_id else None
    )
    return {
        "workflow": batch,
        "workflow_url": url_of(None if batch is None else batch.pk),
        "needs": [{"facts": need, "url": url_of(need.batch)} for need in needs],
        "needed_by": [{"facts": one} for one in others],
        "steps": _steps(alias, job, sees_results=request.user.has_perm("pulse_django.pulse_view_arguments")),
    }


def _steps(alias: str, job: Job, *, sees_results: bool) -> list[dict[str, Any]]:
    steps = Step.objects.using(alias).filter(job_id=job.pk).order_by("number")
    if not sees_results:
        steps = steps.defer("result")
    return [
        {
            "step": step,
            "seconds": "" if step.seconds is None else in_words(step.seconds),
            "result": (result_in_text(job, step.result, MOST_RESULT) or "–") if sees_results else "",
        }
        for step in steps[:MOST_STEPS]
    ]
