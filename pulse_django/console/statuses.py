"""How the console shows the status of a job, or the state of a workflow: a shape, a colour and its word."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.urls import URLPattern
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.timezone import template_localtime  # type: ignore[attr-defined]  # the stubs lack it
from django.utils.translation import get_language, gettext

from pulse_django.execution.placement import has_several_shards
from pulse_django.models import Job
from pulse_django.words.display import UNSEEN, escaped, in_words
from pulse_django.words.states import CLAIMABLE, Status

from .refusals import refused_in_words
from .shards import in_one_shard, in_shard, shard_of

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


# Invisible characters, spelt out on each page of the console.
#
# Names, arguments and errors come from rows and stand in some hundred places of the templates, of Django's own ones
# too. A character that turns the text around could show ``exe.jpg`` for ``gpj.exe`` in any of them. So the page as a
# whole is searched after it is rendered and before it is sent.


# What a form sends back has to stay what it is: there a character becomes a reference to itself, which is as safe to
# read in the source and the same to the browser.
_SENT_BACK = r'<textarea\b[^>]*>.*?</textarea>|\svalue="[^"]*"'
_FOUND = re.compile(f"{_SENT_BACK}|{UNSEEN.pattern}", re.DOTALL)
# Words of these languages, and so Django's translations, hold joiners and marks of direction. They stay there.
_WITH_MARKS = frozenset({"ar", "bn", "ckb", "fa", "he", "hi", "km", "kn", "ml", "mr", "ug", "ur"})
_MARKS = frozenset("\u200b\u200c\u200d\u200e\u200f")
_JOINERS, _LATIN = "\u200c\u200d", "\u024f"
_NOT_REFERABLE = re.compile("[\x80-\x9f]")  # a reference to one of these is another character, by the rules of HTML


def all_visible(page: str, language: str = "") -> str:
    """Return the HTML with each unseen character of its texts spelt out, as ``\\u202e``."""
    if UNSEEN.search(page) is None:
        return page
    kept = _MARKS if language.partition("-")[0] in _WITH_MARKS else frozenset()

    def shown(found: re.Match[str]) -> str:
        text = found[0]
        if len(text) > 1:
            return UNSEEN.sub(_referred, text)
        return text if text in kept or _joins(found) else escaped(text)

    return _FOUND.sub(shown, page)


def _joins(found: re.Match[str]) -> bool:
    """Whether it joins or parts two letters or pictures, as in many scripts and in emoji. It turns no text around."""
    before, after = found.string[found.start() - 1 : found.start()], found.string[found.end() : found.end() + 1]
    return found[0] in _JOINERS and before > _LATIN and after > _LATIN


def _referred(found: re.Match[str]) -> str:
    return found[0] if _NOT_REFERABLE.match(found[0]) else f"&#x{ord(found[0]):x};"


class ConsoleAdmin:
    """A mixin for each admin of the console, before ``ModelAdmin``: it covers every address that the admin has."""

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)  # type: ignore[misc]  # of the ModelAdmin beside it
        return rows.using(shard_of(request)) if has_several_shards() else rows

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        return super().log_change(request, obj, in_shard(message, shard_of(request)))  # type: ignore[misc]  # as above

    @property
    def urls(self) -> list[URLPattern]:
        return [
            URLPattern(
                one.pattern,
                _looked_through(in_one_shard(self, refused_in_words(self, one.callback))),
                one.default_args,
                one.name,
            )
            if isinstance(one, URLPattern)
            else one  # what a project includes is its own
            for one in super().urls  # type: ignore[misc]  # of the ModelAdmin beside it
        ]


def _looked_through(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **options: Any) -> HttpResponseBase:
        response = view(request, *args, **options)
        if isinstance(response, HttpResponse) and response.get("Content-Type", "").startswith("text/html"):
            if isinstance(response, SimpleTemplateResponse) and not response.is_rendered:
                response.add_post_render_callback(_look_through)
            else:
                _look_through(response)
        return response

    return respond


def _look_through(response: HttpResponse) -> None:
    page = response.content.decode(response.charset)
    if (seen := all_visible(page, get_language() or "")) is not page:
        response.content = seen.encode(response.charset)
