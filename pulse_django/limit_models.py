"""The tables of limits and pauses. ``models.py`` loads them with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from .protocol.limiters import LimiterManager
from .store.pauses import PauseManager
from .store.sql_functions import ClockTimestamp, JsonType, ShortText, TextSize, instants_of, rule
from .words.limits import MAX_LANE_KEY, MAX_LIMITER_NAME, MAX_QUEUE_NAME, MAX_TASK_NAME, MAX_USER

MAX_NUMBERS_TEXT = 2_000  # of a limiter, as JSON
NUMBERS_ARE_BOUNDED = models.Q()
for _column in ("numbers", "override"):
    NUMBERS_ARE_BOUNDED &= models.Q(Exact(JsonType(_column), models.Value("object")))
    NUMBERS_ARE_BOUNDED &= models.Q(LessThanOrEqual(TextSize(_column), MAX_NUMBERS_TEXT))


class Limiter(models.Model):
    """What limits the jobs whose lane keys begin with its name."""

    name = ShortText(max_length=MAX_LIMITER_NAME, db_collation="C", primary_key=True)
    numbers = models.JSONField(default=dict)  # of the code, as Limit.numbers() has them
    declared_at = models.DateTimeField(null=True, blank=True)
    declared_in = ShortText(max_length=200, blank=True, default="", db_default="")  # the settings module
    override = models.JSONField(null=True, blank=True)  # what people set instead, field by field; a null: no limit
    override_until = models.DateTimeField(null=True, blank=True)
    overridden_by = ShortText(max_length=MAX_USER, blank=True, default="", db_default="")
    override_reason = models.TextField(blank=True, default="", db_default="")
    half_open = models.BooleanField(default=False, db_default=False)  # the breaker lets one job run at a time
    failures = models.PositiveIntegerField(default=0, db_default=0)  # that the breaker has counted
    failures_since = models.DateTimeField(null=True, blank=True)
    closed_until = models.DateTimeField(null=True, blank=True)  # nothing starts before
    closed_reason = models.TextField(blank=True, default="", db_default="")

    objects: ClassVar[LimiterManager] = LimiterManager()

    class Meta:
        constraints: ClassVar = [
            instants_of("limiter", "declared_at", "override_until", "failures_since", "closed_until"),
            rule("pulse_limiter_numbers_are_bounded", NUMBERS_ARE_BOUNDED),
        ]
        verbose_name = _("limit")
        verbose_name_plural = _("limits")

    def __str__(self) -> str:
        return self.name


class Pause(models.Model):
    """A queue, a task, a task in one queue, or a key of a limit or a share, of which no job starts now."""

    id = models.BigAutoField(primary_key=True)
    task = ShortText(max_length=MAX_TASK_NAME, blank=True, default="", db_default="")
    queue = ShortText(max_length=MAX_QUEUE_NAME, blank=True, default="", db_default="")
    lane_key = ShortText(max_length=MAX_LANE_KEY, db_collation="C", blank=True, default="", db_default="")
    paused_at = models.DateTimeField(db_default=ClockTimestamp())
    paused_until = models.DateTimeField(null=True, blank=True)  # NULL: until it is resumed
    reason = models.TextField(blank=True, default="", db_default="")
    paused_by = ShortText(max_length=MAX_USER, blank=True, default="", db_default="")

    objects: ClassVar[PauseManager] = PauseManager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(name="pulse_pause_once", fields=["lane_key", "task", "queue"]),
            rule(
                "pulse_pause_is_of_something",
                models.Q(lane_key="") & ~models.Q(task="", queue="")
                | ~models.Q(lane_key="") & models.Q(task="", queue=""),
            ),
            instants_of("pause", "paused_at", "paused_until"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        if self.lane_key:
            return self.lane_key
        return f"{self.task} in queue {self.queue}" if self.task and self.queue else self.task or self.queue


class Queue(Pause):
    """The pages about queues, as an entry of their own in the admin. A queue has no row: its pages go by its name."""

    class Meta:
        proxy = True
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        permissions: ClassVar = [("operate_queue", _("Can pause and resume queues"))]


class Bucket(models.Model):
    """The starts that a rate allows now. One that would be full has no row."""

    scope = ShortText(max_length=MAX_LANE_KEY, db_collation="C", primary_key=True)  # a limiter's name, or a lane key
    tokens = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [instants_of("bucket", "at")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.scope}: {self.tokens:.1f}"
