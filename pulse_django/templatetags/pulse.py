"""Tags for your own pages, after ``{% load pulse %}``.

``{% pulse_position job %}``: the position of a waiting job. At most five short statements for each job.
``{% pulse_job_progress job %}``: the progress of a job. One short statement.
``{% pulse_progress_url job %}``: the path from which a script reads the progress of a job. No statement.
``{% pulse_batch_progress batch_id %}``: the progress of a batch. One short statement.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse
from django.utils.translation import gettext as _

from pulse_django.health.explanation import explain
from pulse_django.models import Job, StoredBatch
from pulse_django.run.job_progress import progress_of, progress_token
from pulse_django.shards.placement import alias_of_id
from pulse_django.workflows.batch_progress import progress_of_each
from pulse_django.workflows.batches import Batch

register = template.Library()


@register.simple_tag
def pulse_position(job: Job | int | str) -> str:
    """Return how many jobs come before a waiting job, and when it may start. Return "" for any other job.

    ``job`` is a job, its id, or the id of a ``TaskResult``.
    """
    try:
        found = explain(job.pk, using=job._state.db) if isinstance(job, Job) else explain(job)
    except Job.DoesNotExist:  # it was pruned
        return ""
    if found.position is None:
        return ""
    place = _("Jobs before it: %(jobs)s") % {"jobs": found.place}
    if not found.span:
        return place
    least, most = found.span
    return _("%(place)s. Starts in %(least)s to %(most)s") % {"place": place, "least": least, "most": most}


@register.inclusion_tag("pulse_django/job_progress.html")
def pulse_job_progress(job: Job | int | str) -> dict[str, Any]:
    """Show a progress bar of a job, and its stage as text. Show nothing if the job was deleted.

    ``job`` is a job, its id, or the id of a ``TaskResult``. The bar moves if its handler calls ``context.progress()``.
    """
    try:
        return {"progress": progress_of(job.pk if isinstance(job, Job) else job)}
    except Job.DoesNotExist:
        return {}


@register.simple_tag
def pulse_progress_url(job: Job | int | str, view: str = "job_progress") -> str:
    """Return a path that shows the progress of this job to anyone who has the path, for a day.

    The answer is JSON, or the bar if ``view`` is ``"job_progress_bar"``. Include ``pulse_django.urls`` in the URLconf.
    """
    return reverse(f"pulse_django:{view}", args=[progress_token(job)])


@register.inclusion_tag("pulse_django/batch_progress.html")
def pulse_batch_progress(batch: Batch | StoredBatch | int | str) -> dict[str, Any]:
    """Show a progress bar of a batch, and the numbers as text. Show nothing if there is no such batch."""
    if isinstance(batch, Batch):
        batch_id, alias = batch.id, batch.alias
    elif isinstance(batch, StoredBatch):
        batch_id, alias = batch.pk, batch._state.db or alias_of_id(batch.pk)
    else:
        batch_id, alias = int(batch), alias_of_id(int(batch))
    progress = progress_of_each(alias, [batch_id]).get(batch_id)
    if progress is None:
        return {}
    return {
        "percent": str(progress.percent), "done": progress.done, "total": progress.total, "failed": progress.dead,
    }  # fmt: skip
