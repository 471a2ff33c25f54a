"""The tables of the keys that keep a job from being enqueued twice."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.indexes import WINDOW_INDEXES
from pulse_django.queue.database.sql_functions import ShortText, instants_of
from pulse_django.queue.words.bounds import MAX_IDEMPOTENCY_KEY, MAX_TASK_NAME

from .rule import KEY_LENGTH


class IdempotencyKey(models.Model):
    """Which job has a key, for as long as that job is kept."""

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
    """Until when no other job of the task with this key is enqueued: of tasks with ``Unique(per=...)``."""

    pk = models.CompositePrimaryKey("task", "key")
    task = ShortText(max_length=MAX_TASK_NAME)
    key = ShortText(max_length=KEY_LENGTH)
    until = models.DateTimeField()
    job_id = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [instants_of("window", "until")]
        db_table = "pulse_django_window"
        default_permissions = ()
        indexes = WINDOW_INDEXES

    def __str__(self) -> str:
        return f"{self.task}: job {self.job_id} until {self.until}"
