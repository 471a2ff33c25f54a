"""How the console shows the status of a job, or the state of a workflow: a shape, a colour and its word."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.html import format_html
from django.utils.translation import gettext

from pulse_django.console.instants import here, instant_shown
from pulse_django.models import Job
from pulse_django.words.display import in_words
from pulse_django.words.states import CLAIMABLE, Status

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
