"""The tables of schedules. ``models.py`` loads them with the others."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models, router
from django.db.models import F, Q
from django.utils.translation import gettext_lazy as _

from pulse_django.exceptions import InvalidSchedule
from pulse_django.managers import ScheduleManager
from pulse_django.queue.database.sql_functions import (
    ClockTimestamp,
    Document,
    Instant,
    ShortText,
    bounded,
    in_range,
    rule,
)
from pulse_django.queue.words.bounds import MAX_DELAY, MAX_DOCUMENT_TEXT, MAX_NOTE_TEXT, MAX_QUEUE_NAME, MAX_TASK_NAME

from . import verbs as schedules
from .definitions import MAX_BY, MAX_NAME, MAX_OWNER, Definition, timing_of
from .tick_rules import TickOutcome
from .timings import MAX_EXPRESSION, MAX_ZONE, Missed, Overlap, Timing

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


class Schedule(models.Model):
    """The times at which a task runs: declared by code, or created at run time."""

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
    starts_at = Instant(_("starts"), null=True, blank=True)
    ends_at = Instant(_("ends"), null=True, blank=True)

    next_at = Instant(null=True, blank=True, editable=False)  # NULL: never again
    waiting_at = Instant(null=True, blank=True, editable=False)  # the tick that waits for the last job
    last_at = Instant(null=True, blank=True, editable=False)  # the last tick that fired
    last_job_id = models.BigIntegerField(null=True, blank=True, editable=False)

    # The latest declaration of the code, by field. NULL: the schedule was created at run time.
    declared = Document(null=True, blank=True, editable=False)
    declared_in = ShortText(max_length=200, null=True, blank=True, editable=False)  # the settings module of that code
    # The changes of users, by field: {"value": ..., "by": ..., "reason": ..., "at": ...}. They override the code.
    overrides = Document(default=dict, db_default=models.Value({}, models.JSONField()), editable=False)
    gone_at = Instant(null=True, blank=True, editable=False)  # when the code stopped declaring it

    paused_at = Instant(null=True, blank=True, editable=False)
    paused_until = Instant(null=True, blank=True, editable=False)  # NULL: until it is resumed
    pause_reason = models.TextField(blank=True, default="", db_default="", editable=False)

    owner = ShortText(_("owner"), max_length=MAX_OWNER, blank=True, default="", db_default="")
    created_at = Instant(db_default=ClockTimestamp(), editable=False)
    changed_at = Instant(db_default=ClockTimestamp(), editable=False)
    changed_by = ShortText(max_length=MAX_BY, blank=True, default="", db_default="", editable=False)

    objects: ClassVar[ScheduleManager] = ScheduleManager()
    # Raises InvalidSchedule for an unknown task, or one that does not take these arguments. Set by the app, because
    # models are loaded before tasks.
    check_call: ClassVar[Callable[[Definition], None]] = staticmethod(lambda _: None)

    class Meta:
        default_permissions = ()
        permissions: ClassVar = [
            ("pulse_view_schedules", _("Can see schedules")),
            ("pulse_add_schedules", _("Can add schedules")),
            ("pulse_change_schedules", _("Can change schedules")),
            ("pulse_delete_schedules", _("Can delete schedules")),
        ]
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints: ClassVar = [
            rule(
                "pulse_schedule_cron_or_every",
                Q(cron__isnull=False, every__isnull=True, tz__isnull=False) | Q(cron__isnull=True, every__isnull=False),
            ),
            rule(
                "pulse_schedule_pause_has_a_start",
                Q(paused_at__isnull=False) | Q(paused_until__isnull=True, pause_reason=""),
            ),
            rule("pulse_schedule_gone_is_not_due", Q(gone_at__isnull=True) | Q(next_at=None)),
            bounded(
                "pulse_schedule_documents_are_bounded",
                pause_reason=MAX_NOTE_TEXT,
                **dict.fromkeys(("args", "kwargs", "declared", "overrides"), MAX_DOCUMENT_TEXT),
            ),
            rule(
                "pulse_schedule_instants_are_finite",
                in_range(
                    *("starts_at", "ends_at", "next_at", "waiting_at", "last_at"),
                    *("gone_at", "paused_at", "paused_until", "created_at", "changed_at"),
                ),
            ),
            rule(
                "pulse_schedule_durations_are_finite",
                in_range(
                    "every", "phase", "grace", "jitter", lowest=timedelta(), highest=MAX_DELAY + timedelta(days=1)
                ),
            ),
        ]
        indexes: ClassVar = [
            models.Index(F("next_at"), F("id"), name="pulse_schedule_due", condition=Q(next_at__isnull=False)),
            models.Index(F("id"), name="pulse_schedule_waiting", condition=Q(waiting_at__isnull=False)),
            models.Index(F("owner"), name="pulse_schedule_owner", condition=~Q(owner="")),
        ]

    def __str__(self) -> str:
        return self.name

    def save(self, *, using: str | None = None, by: str = "", reason: str = "", **_: Any) -> None:
        """Store the schedule, and compute its next time if its timing has changed.

        For a schedule of the code, fields that differ from the code override it; ``by`` and ``reason`` are stored.
        """
        schedules.store(self, using or router.db_for_write(Schedule, instance=self), by, reason)

    def clean(self) -> None:
        """Raise the errors of ``save``, for forms."""
        try:
            schedules.check(self)
        except InvalidSchedule as error:
            field = str(error).partition(":")[0]
            is_field = field in {one.name for one in self._meta.fields}
            raise ValidationError({field: str(error)} if is_field else str(error)) from error

    @property
    def timing(self) -> Timing:
        """The timing. Raises InvalidSchedule, because the row may have been written by hand."""
        return timing_of(self)


class Tick(models.Model):
    """The ledger of schedules: each tick and its outcome. Ticks are unique, so none fires twice."""

    pk = models.CompositePrimaryKey("schedule_id", "at")
    at = Instant()
    outcome = ShortText(max_length=8, choices=_OUTCOMES)
    job_id = models.BigIntegerField(null=True, blank=True)
    decided_at = Instant(db_default=ClockTimestamp())
    note = models.TextField(blank=True, default="", db_default="")
    schedule = models.ForeignKey(
        Schedule, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="ticks"
    )

    class Meta:
        verbose_name = _("tick")
        verbose_name_plural = _("ticks")
        constraints: ClassVar = [
            bounded("pulse_tick_note_is_bounded", note=MAX_NOTE_TEXT),
            rule("pulse_tick_instants_are_finite", in_range("at", "decided_at")),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.at}: {self.outcome}"
