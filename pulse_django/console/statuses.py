"""Show the status of a job or the state of a workflow as a shape, a colour and a word."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib import admin
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext

from pulse_django.models import Job
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import CLAIMABLE, Status

STATUSES: dict[str, Any] = dict(Job._meta.get_field("status").flatchoices)
# Each status has its own shape, so that colour is not the only difference.
SHAPES = {
    Status.WAITING: "◇", Status.PENDING: "○", Status.RUNNING: "▶", Status.RETRYING: "↻",
    Status.COMPLETED: "✔", Status.DEAD_LETTERED: "✖", Status.CANCELLED: "⊘",
}  # fmt: skip
# States of workflows look like these statuses.
_LIKE = {
    "done": Status.COMPLETED, "held": Status.DEAD_LETTERED, "cancelled": Status.CANCELLED, "running": Status.RUNNING,
    "paused": Status.WAITING,
}  # fmt: skip
# Statuses that were caused by the last error. In other statuses, the error is in the past.
WITH_ERROR = (Status.RETRYING, Status.DEAD_LETTERED)


def status_shown(status: str, word: Any = "") -> str:
    """Return an element of HTML. ``word`` replaces the name of the status."""
    look = _LIKE.get(status, status)
    css = str(look).lower() if look in SHAPES else "other"
    return format_html(
        '<span class="pulse-status pulse-status-{}"><span aria-hidden="true">{}</span> {}</span>',
        css,
        SHAPES.get(look, "•"),  # type: ignore[call-overload]  # a state without a status
        word or STATUSES.get(status, status),
    )


def due_shown(job: Job, now: datetime) -> str:
    """Show in how long a job is due, with the instant on hover. Return "" if the job does not wait for its time."""
    wait = (aware(job.next_run_at) - aware(now)).total_seconds()
    if job.status not in CLAIMABLE or wait <= 0:
        return ""
    return instant_shown(here(job.next_run_at), gettext("due in %(wait)s") % {"wait": in_words(wait)})


# The console shows instants in a short form, with seconds and time zone on hover.


SHORT = "Y-m-d H:i:s"
EXACT = "Y-m-d H:i:s T"


def instant_shown(at: datetime | None, text: str = "", *, form: str = SHORT) -> str:
    """Return an element of HTML. ``text`` replaces the instant, such as "5m ago". Return "" if there is no instant."""
    if at is None:
        return ""
    at = in_time_zone(at)
    exact = date_format(at, EXACT, use_l10n=False)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, text or date_format(at, form, use_l10n=False)
    )


def in_time_zone(at: datetime | None) -> Any:
    """Convert an instant from UTC to TIME_ZONE in a project without USE_TZ, as Django does with USE_TZ."""
    return at if settings.USE_TZ or at is None or at.tzinfo is not UTC else timezone.localtime(at)


def here(at: datetime | None) -> datetime | None:
    """Return the instant in the time zone of the page."""
    local: datetime | None = timezone.template_localtime(at)  # type: ignore[attr-defined]  # the stubs lack it
    return local


def column_of(name: str, description: Any = None) -> Any:
    """Return a column of a ``ModelAdmin`` that shows this field, under its name."""

    def shown(row: Any) -> str:
        return instant_shown(here(getattr(row, name)), form="DATETIME_FORMAT") or "–"

    shown.__name__ = name  # Django finds label and help by it
    return admin.display(description=description)(shown) if description else shown
