"""``{% load pulse %}{% pulse_position job %}``: where in line a job stands. At most four short statements a job."""

from __future__ import annotations

from django import template
from django.utils.translation import gettext as _

from pulse_django.fleet.explanation import explain
from pulse_django.models import Job
from pulse_django.words.display import in_words

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
    if found.starts_in is None:
        return place
    least, most = (in_words(one.total_seconds()) for one in found.starts_in)
    return _("%(place)s. Starts in %(least)s to %(most)s") % {"place": place, "least": least, "most": most}
