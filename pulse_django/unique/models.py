"""The columns and tables of the keys that prevent a job from being enqueued twice."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from pulse_django.queue.database.sql_functions import ShortText, index, instants_of
from pulse_django.queue.job import JobRow
from pulse_django.queue.words.bounds import MAX_IDEMPOTENCY_KEY, MAX_TASK_NAME

from .rule import KEY_LENGTH


class KeyColumns(JobRow):
    """The key columns of a job."""

    # A second job of the same task with the same key is not enqueued while the first is kept.
    idempotency_key = ShortText(max_length=MAX_IDEMPOTENCY_KEY, null=True, blank=True)  # NULL: none
    # No two jobs of a task hold the same key until they end, or until their first run starts. NULL: not unique.
    unique_key = ShortText(max_length=KEY_LENGTH, null=True, blank=True, editable=False)
    unique_until_start = models.BooleanField(default=False, db_default=False, editable=False)

    class Meta:
        abstract = True
        constraints: ClassVar = [
            # Only in the hot partition, because other jobs have ended. A claim adds to ``attempts``, and nothing lowers
            # them: a key that is held until the start is free from the first claim on, by any release's worker.
            models.UniqueConstraint(
                fields=["task", "unique_key"],
                name="pulse_job_one_per_unique_key",
                condition=Q(unique_key__isnull=False, finished_at__isnull=True)
                & (Q(unique_until_start=False) | Q(attempts=0)),
            ),
        ]


class IdempotencyKey(models.Model):
    """The job of a key, for as long as that job is kept."""

    pk = models.CompositePrimaryKey("task", "key")
    task = ShortText(max_length=MAX_TASK_NAME)
    key = ShortText(max_length=MAX_IDEMPOTENCY_KEY)
    job_id = models.BigIntegerField()

    class Meta:
        db_table = "pulse_django_key"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.key} of {self.task}: job {self.job_id}"


class Window(models.Model):
    """The time until which no other job of a task with ``Unique(per=...)`` and this key is enqueued."""

    pk = models.CompositePrimaryKey("task", "key")
    task = ShortText(max_length=MAX_TASK_NAME)
    key = ShortText(max_length=KEY_LENGTH)
    until = models.DateTimeField()
    job_id = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [instants_of("window", "until")]
        db_table = "pulse_django_window"
        default_permissions = ()
        indexes: ClassVar = [index("pulse_window_ended", ["until"]), index("pulse_window_job", ["job_id"])]

    def __str__(self) -> str:
        return f"{self.task}: job {self.job_id} until {self.until}"
