"""The tables of limits. ``models.py`` loads them with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Func, TextField
from django.db.models.lookups import Exact, LessThanOrEqual
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.database.indexes import HOLDS_KEY
from pulse_django.queue.database.sql_functions import JsonType, ShortText, TextSize, bounded, instants_of, rule
from pulse_django.queue.job import JobRow
from pulse_django.queue.words.bounds import MAX_LANE_KEY, MAX_LIMITER_NAME, MAX_NOTE_TEXT, MAX_USER

from .limiters import LimiterManager

MAX_NUMBERS_TEXT = 2_000  # of a limiter, as JSON
NUMBERS_ARE_BOUNDED = models.Q()
for _column in ("numbers", "override"):
    NUMBERS_ARE_BOUNDED &= models.Q(Exact(JsonType(_column), models.Value("object")))
    NUMBERS_ARE_BOUNDED &= models.Q(LessThanOrEqual(TextSize(_column), MAX_NUMBERS_TEXT))


class LimiterOf(Func):
    """The limiter's name in a lane key, which is empty for a share. The index must have exactly this text."""

    template = "(pg_catalog.split_part((%(expressions)s)::text, ':', 1) COLLATE \"C\")"
    output_field = TextField()


class LimitIndexes(JobRow):
    """The index that counts the leases of a limiter and those of a key."""

    class Meta:
        abstract = True
        indexes: ClassVar = [
            models.Index(LimiterOf("lane_key"), "token", name="pulse_job_held_limit", condition=HOLDS_KEY),
        ]


class Limiter(models.Model):
    """The limiter of jobs whose lane keys begin with its name."""

    name = ShortText(max_length=MAX_LIMITER_NAME, db_collation="C", primary_key=True)
    numbers = models.JSONField(default=dict)  # from the code, in the form of Limit.numbers()
    declared_at = models.DateTimeField(null=True, blank=True)
    declared_in = ShortText(max_length=200, blank=True, default="", db_default="")  # the settings module
    override = models.JSONField(null=True, blank=True)  # numbers that users set instead, by field; a null: no limit
    override_until = models.DateTimeField(null=True, blank=True)
    overridden_by = ShortText(max_length=MAX_USER, blank=True, default="", db_default="")
    override_reason = models.TextField(blank=True, default="", db_default="")
    half_open = models.BooleanField(default=False, db_default=False)  # the breaker lets one job run at a time
    failures = models.PositiveIntegerField(default=0, db_default=0)  # counted by the breaker
    failures_since = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)  # no job starts before
    pause_reason = models.TextField(blank=True, default="", db_default="")

    objects = LimiterManager()

    class Meta:
        default_permissions = ()
        permissions: ClassVar = [
            ("pulse_view_limits", _("Can see limits")),
            ("pulse_change_limits", _("Can change limits")),
        ]
        constraints: ClassVar = [
            instants_of("limiter", "declared_at", "override_until", "failures_since", "paused_until"),
            bounded("pulse_limiter_reasons_are_bounded", override_reason=MAX_NOTE_TEXT, pause_reason=MAX_NOTE_TEXT),
            rule("pulse_limiter_numbers_are_bounded", NUMBERS_ARE_BOUNDED),
        ]
        verbose_name = _("limit")
        verbose_name_plural = _("limits")

    def __str__(self) -> str:
        return self.name


class Bucket(models.Model):
    """The starts that a rate allows now. A bucket that would be full has no row."""

    scope = ShortText(max_length=MAX_LANE_KEY, db_collation="C", primary_key=True)  # a limiter's name, or a lane key
    tokens = models.FloatField()
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [instants_of("bucket", "at")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.scope}: {self.tokens:.1f}"
