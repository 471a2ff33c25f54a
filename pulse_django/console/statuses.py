"""How the console shows the status of a job, or the state of a workflow: a shape, a colour and its word."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib import admin
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import template_localtime  # type: ignore[attr-defined]  # the stubs lack it
from django.utils.translation import gettext

from pulse_django.models import Job
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import CLAIMABLE, Status

STATUSES: dict[str, Any] = dict(Job._meta.get_field("status").flatchoices)
# Of each a shape of its own, so that none is told by its colour alone.
SHAPES = {
    Status.WAITING: "◇", Status.PENDING: "○", Status.RUNNING: "▶", Status.RETRYING: "↻",
    Status.COMPLETED: "✔", Status.DEAD_LETTERED: "✖", Status.CANCELLED: "⊘",
}  # fmt: skip
# The statuses that states of workflows look like.
_LIKE = {
    "done": Status.COMPLETED, "held": Status.DEAD_LETTERED, "cancelled": Status.CANCELLED, "running": Status.RUNNING,
    "paused": Status.WAITING,
}  # fmt: skip
# Whose last error is the reason why they are what they are. Any other has got over it.
WITH_ERROR = (Status.RETRYING, Status.DEAD_LETTERED)


def status_shown(status: str, word: Any = "") -> str:
    """Return an element of HTML. ``word`` says the status in other words, or more of it."""
    look = _LIKE.get(status, status)
    css = str(look).lower() if look in SHAPES else "other"
    return format_html(
        '<span class="pulse-status pulse-status-{}"><span aria-hidden="true">{}</span> {}</span>',
        css,
        SHAPES.get(look, "•"),  # type: ignore[call-overload]  # a state of which there is no such status
        word or STATUSES.get(status, status),
    )


def due_shown(job: Job, now: datetime) -> str:
    """Say in how long a job that waits for its time may start, on hover when. Empty: it waits for no time."""
    wait = (job.next_run_at - now).total_seconds()
    if job.status not in CLAIMABLE or wait <= 0:
        return ""
    return instant_shown(here(job.next_run_at), gettext("due in %(wait)s") % {"wait": in_words(wait)})


# Instants as the console shows them: short to read, and on hover with seconds and zone.


SHORT = "Y-m-d H:i:s"
EXACT = "Y-m-d H:i:s T"


def instant_shown(at: datetime | None, text: str = "", *, form: str = SHORT) -> str:
    """Return an element of HTML. ``text`` replaces the instant, such as how long ago it was. Empty: there is none."""
    if at is None:
        return ""
    exact = date_format(at, EXACT, use_l10n=False)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(), exact, text or date_format(at, form, use_l10n=False)
    )


def here(at: datetime | None) -> datetime | None:
    """Return the instant in the time zone of the page."""
    local: datetime | None = template_localtime(at)
    return local


def column_of(name: str, description: Any = None) -> Any:
    """Return a column of a ``ModelAdmin`` that shows this field of a row, under the field's name."""

    def shown(row: Any) -> str:
        return instant_shown(here(getattr(row, name)), form="DATETIME_FORMAT") or "–"

    shown.__name__ = name  # Django finds label and help by it
    return admin.display(description=description)(shown) if description else shown
