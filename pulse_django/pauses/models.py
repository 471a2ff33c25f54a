"""The table of pauses. ``models.py`` loads it with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.sql_functions import ClockTimestamp, ShortText, bounded, instants_of, rule
from pulse_django.queue.words.bounds import MAX_LANE_KEY, MAX_NOTE_TEXT, MAX_QUEUE_NAME, MAX_TASK_NAME, MAX_USER

from .statements import PauseManager


class Pause(models.Model):
    """A paused queue, task, task in one queue, or key of a limit or a share."""

    id = models.BigAutoField(primary_key=True)
    task = ShortText(max_length=MAX_TASK_NAME, blank=True, default="", db_default="")
    queue = ShortText(max_length=MAX_QUEUE_NAME, blank=True, default="", db_default="")
    lane_key = ShortText(max_length=MAX_LANE_KEY, db_collation="C", blank=True, default="", db_default="")
    paused_at = models.DateTimeField(db_default=ClockTimestamp())
    paused_until = models.DateTimeField(null=True, blank=True)  # NULL: until it is resumed
    reason = models.TextField(blank=True, default="", db_default="")
    paused_by = ShortText(max_length=MAX_USER, blank=True, default="", db_default="")

    objects = PauseManager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="pulse_pause_once", fields=["lane_key", "task", "queue"]),
            rule(
                "pulse_pause_is_of_something",
                models.Q(lane_key="") & ~models.Q(task="", queue="")
                | ~models.Q(lane_key="") & models.Q(task="", queue=""),
            ),
            bounded("pulse_pause_reason_is_bounded", reason=MAX_NOTE_TEXT),
            instants_of("pause", "paused_at", "paused_until"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        if self.lane_key:
            return self.lane_key
        return f"{self.task} in queue {self.queue}" if self.task and self.queue else self.task or self.queue
