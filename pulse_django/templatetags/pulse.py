"""Tags for your own pages, after ``{% load pulse %}``.

``{% pulse_position job %}``: where in line a job stands. At most five short statements a job.
``{% pulse_job_progress job %}``: how far a job is. One short statement.
``{% pulse_progress_url job %}``: where a script asks that again. No statement.
``{% pulse_batch_progress batch_id %}``: how far a batch is. One short statement.
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
    """Say how many jobs come before a waiting job, and when it may start. Empty for any other job.

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
    """Show a bar of how much of a job is done, and where it is as text. Empty if it was deleted.

    ``job`` is a job, its id, or the id of a ``TaskResult``. The bar moves if its handler calls ``context.progress()``.
    """
    try:
        return {"progress": progress_of(job.pk if isinstance(job, Job) else job)}
    except Job.DoesNotExist:
        return {}


@register.simple_tag
def pulse_progress_url(job: Job | int | str, view: str = "job_progress") -> str:
    """Return the path at which the progress of this job can be asked for, by whoever has it, for a day.

    The answer is JSON, or with ``"job_progress_bar"`` the bar. Include ``pulse_django.urls`` in the URLconf.
    """
    return reverse(f"pulse_django:{view}", args=[progress_token(job)])


@register.inclusion_tag("pulse_django/batch_progress.html")
def pulse_batch_progress(batch: Batch | StoredBatch | int | str) -> dict[str, Any]:
    """Show a bar of how much of a batch is done, and the numbers as text. Empty if there is no such batch."""
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
