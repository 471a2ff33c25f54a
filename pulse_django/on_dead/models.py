"""The column of jobs that have a hook."""

from __future__ import annotations

from django.db import models

from pulse_django.queue.database.job_columns import JobColumns


class HookColumns(JobColumns):
    on_dead = models.JSONField(null=True, blank=True, editable=False)  # the row of the hook; NULL: the job has none

    class Meta:
        abstract = True
