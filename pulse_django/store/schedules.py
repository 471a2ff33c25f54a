"""The columns of schedules and of their ticks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from pulse_django.words.limits import MAX_DELAY, MAX_QUEUE_NAME, MAX_TASK_NAME
from pulse_django.words.schedule_definitions import MAX_NAME, timing_of
from pulse_django.words.ticks import TickOutcome
from pulse_django.words.timings import MAX_EXPRESSION, MAX_ZONE, Missed, Overlap, Timing

from .sql_functions import ClockTimestamp, Document, ShortText, in_range

MAX_OWNER = MAX_BY = 200

_NO_ARGS, _NO_KWARGS = models.Value([], models.JSONField()), models.Value({}, models.JSONField())
_MISSED = [
    (Missed.ONCE.value, _("the latest runs")),
    (Missed.SKIP.value, _("none runs")),
    (Missed.ALL.value, _("each runs, the oldest first")),
]
_OVERLAPS = [
    (Overlap.SKIP.value, _("skip the run")),
    (Overlap.WAIT.value, _("wait for the last run, then run once")),
    (Overlap.CANCEL.value, _("cancel the last run, then run")),
    (Overlap.ALLOW.value, _("run both")),
]
_OUTCOMES = [(one.value, one.value.capitalize()) for one in TickOutcome]


class ScheduleRow(models.Model):
    """The columns of a schedule."""

    id = models.BigAutoField(primary_key=True)
    name = ShortText(_("name"), max_length=MAX_NAME, unique=True)
    task = ShortText(_("task"), max_length=MAX_TASK_NAME)
    args = Document(
        _("positional arguments"), default=list, db_default=models.Value([], models.JSONField()), blank=True
    )
    kwargs = Document(_("arguments"), default=dict, db_default=models.Value({}, models.JSONField()), blank=True)
    queue = ShortText(_("queue"), max_length=MAX_QUEUE_NAME, null=True, blank=True)  # NULL: the task's
    priority = models.SmallIntegerField(_("priority"), null=True, blank=True)  # NULL: the task's

    cron = ShortText(_("cron expression"), max_length=MAX_EXPRESSION, null=True, blank=True)
    tz = ShortText(_("time zone"), max_length=MAX_ZONE, null=True, blank=True)
    every = models.DurationField(_("interval"), null=True, blank=True)
    phase = models.DurationField(_("phase"), null=True, blank=True)
    missed = ShortText(
        _("missed ticks"), max_length=8, choices=_MISSED, default=Missed.ONCE.value, db_default=Missed.ONCE.value
    )
    grace = models.DurationField(_("grace"), null=True, blank=True)
    overlap = ShortText(
        _("overlap"), max_length=8, choices=_OVERLAPS, default=Overlap.SKIP.value, db_default=Overlap.SKIP.value
    )
    jitter = models.DurationField(_("jitter"), null=True, blank=True)
    starts_at = models.DateTimeField(_("starts"), null=True, blank=True)
    ends_at = models.DateTimeField(_("ends"), null=True, blank=True)

    next_at = models.DateTimeField(null=True, blank=True, editable=False)  # NULL: never again
    waiting_at = models.DateTimeField(null=True, blank=True, editable=False)  # the tick that waits for the last job
    last_at = models.DateTimeField(null=True, blank=True, editable=False)  # the last tick that fired
    last_job_id = models.BigIntegerField(null=True, blank=True, editable=False)

    # What the code said last, by field. NULL: the schedule was made at run time.
    declared = Document(null=True, blank=True, editable=False)
    declared_in = ShortText(max_length=200, null=True, blank=True, editable=False)  # the settings module of that code
    # What people changed, by field: {"value": ..., "by": ..., "why": ..., "at": ...}. It wins.
    overrides = Document(default=dict, db_default=models.Value({}, models.JSONField()), editable=False)
    gone_at = models.DateTimeField(null=True, blank=True, editable=False)  # no code declares it any more

    paused_at = models.DateTimeField(null=True, blank=True, editable=False)
    paused_until = models.DateTimeField(null=True, blank=True, editable=False)  # NULL: until it is resumed
    pause_reason = models.TextField(blank=True, default="", db_default="", editable=False)

    owner = ShortText(_("owner"), max_length=MAX_OWNER, blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    changed_at = models.DateTimeField(db_default=ClockTimestamp(), editable=False)
    changed_by = ShortText(max_length=MAX_BY, blank=True, default="", db_default="", editable=False)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name

    @property
    def timing(self) -> Timing:
        """When it is due, or InvalidSchedule: the row may have been written by hand."""
        return timing_of(self)


SCHEDULE_CONSTRAINTS: list[models.BaseConstraint] = [
    models.CheckConstraint(
        name="pulse_schedule_cron_or_every",
        condition=Q(cron__isnull=False, every__isnull=True, tz__isnull=False)
        | Q(cron__isnull=True, every__isnull=False),
    ),
    models.CheckConstraint(
        name="pulse_schedule_pause_has_a_start",
        condition=Q(paused_at__isnull=False) | Q(paused_until__isnull=True, pause_reason=""),
    ),
    models.CheckConstraint(name="pulse_schedule_gone_is_not_due", condition=Q(gone_at__isnull=True) | Q(next_at=None)),
    models.CheckConstraint(
        name="pulse_schedule_instants_are_finite",
        condition=in_range(
            "starts_at",
            "ends_at",
            "next_at",
            "waiting_at",
            "last_at",
            "gone_at",
            "paused_at",
            "paused_until",
            "created_at",
            "changed_at",
        ),
    ),
    models.CheckConstraint(
        name="pulse_schedule_durations_are_finite",
        condition=in_range(
            "every", "phase", "grace", "jitter", lowest=timedelta(), highest=MAX_DELAY + timedelta(days=1)
        ),
    ),
]
SCHEDULE_INDEXES = [
    models.Index(F("next_at"), F("id"), name="pulse_schedule_due", condition=Q(next_at__isnull=False)),
    models.Index(F("id"), name="pulse_schedule_waiting", condition=Q(waiting_at__isnull=False)),
    models.Index(F("owner"), name="pulse_schedule_owner", condition=~Q(owner="")),
]


TICK_CONSTRAINTS: list[models.BaseConstraint] = [
    models.CheckConstraint(name="pulse_tick_instants_are_finite", condition=in_range("at", "decided_at"))
]


class TickRow(models.Model):
    """One instant of a schedule, and what became of it. Unique, so no tick fires twice."""

    pk = models.CompositePrimaryKey("schedule_id", "at")
    at = models.DateTimeField()
    outcome = ShortText(max_length=8, choices=_OUTCOMES)
    job_id = models.BigIntegerField(null=True, blank=True)
    decided_at = models.DateTimeField(db_default=ClockTimestamp())
    note = models.TextField(blank=True, default="", db_default="")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.at}: {self.outcome}"

    def delay(self) -> Any:
        """Return how late it was decided."""
        return self.decided_at - self.at


class DeclarationRow(models.Model):
    """Whose code the schedules follow: the latest start among the workers of one settings module."""

    scope = ShortText(max_length=200, primary_key=True)  # the settings module
    worker = ShortText(max_length=160)
    booted_at = models.DateTimeField()
    fingerprint = ShortText(max_length=64)  # of all that it declares
    declared_at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.scope
