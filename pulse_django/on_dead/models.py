"""The column of jobs that have a hook."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.sql_functions import bounded
from pulse_django.queue.job import JobRow
from pulse_django.queue.words.bounds import MAX_HOOK_TEXT


class HookColumns(JobRow):
    on_dead = models.JSONField(null=True, blank=True, editable=False)  # the row of the hook; NULL: the job has none

    class Meta:
        abstract = True
        # Measured until the first claim (queue/database/rules.py). No role may change it.
        constraints: ClassVar = [bounded("pulse_job_hook_is_bounded", on_dead=MAX_HOOK_TEXT)]
