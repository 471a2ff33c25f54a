"""The table of declared tasks. ``models.py`` loads it with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.sql_functions import ShortText, bounded
from pulse_django.queue.words.bounds import MAX_OPTIONS_TEXT, MAX_TASK_NAME

from .statements import DeclaredTaskManager


class DeclaredTask(models.Model):
    """The options of a task, for ``pulse_enqueue()``."""

    name = ShortText(max_length=MAX_TASK_NAME, db_collation="C", primary_key=True)
    options = models.JSONField()  # as ``task_options.py`` makes them
    declared_in = ShortText(max_length=200)  # the settings module of that code

    objects = DeclaredTaskManager()

    class Meta:
        db_table = "pulse_django_declared_task"
        constraints: ClassVar = [bounded("pulse_declared_task_is_bounded", options=MAX_OPTIONS_TEXT)]
        default_permissions = ()

    def __str__(self) -> str:
        return self.name
