"""Queues in the admin: the state of each, and the actions to pause and resume one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.board.facts import queue_row
from pulse_django.console.charts import charts_of
from pulse_django.console.pages import ReadOnly
from pulse_django.console.tasks.admin import WINDOW_NAMES, window_of
from pulse_django.health import snapshot
from pulse_django.health.snapshot import QueueFacts
from pulse_django.metrics import history
from pulse_django.metrics.spans import read_course
from pulse_django.models import Pause, Queue, Worker
from pulse_django.operations.acts import MAX_REASON, QueueName, errors_in_words
from pulse_django.pauses.page import stops
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.bounds import MAX_QUEUE_NAME
from pulse_django.queue.words.counters import TrafficKind
from pulse_django.run.notify import wake_workers
from pulse_django.shards.page import shard_of

MOST_LISTED = 200  # other queues can be opened by name
SHOWN = "admin/pulse_django/queue/one.html"


class NameForm(forms.Form):
    name = forms.CharField(max_length=MAX_QUEUE_NAME, strip=False, widget=forms.HiddenInput)


class PauseForm(NameForm):
    name = QueueName(widget=forms.HiddenInput)
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    duration = forms.TypedChoiceField(
        label=_("for"),
        coerce=int,
        choices=[
            (600, _("10 minutes")),
            (3_600, _("1 hour")),
            (21_600, _("6 hours")),
            (86_400, _("1 day")),
            (0, _("until resumed")),
        ],
    )


class ResumeForm(NameForm):
    seen = forms.CharField(required=False, widget=forms.HiddenInput)  # only the pause that the page showed is ended
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)


class QueueAdmin(ReadOnly):
    """The admin of queues. A queue has no row, so its pages are opened by name."""

    def get_urls(self) -> list[URLPattern]:
        pause, resume = partial(self._operate, PauseForm), partial(self._operate, ResumeForm)
        views: dict[str, Any] = {"one": self.one_view, "pause": pause, "resume": resume}
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=f"pulse_django_queue_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias = shard_of(request)
        facts = sorted(snapshot.queues(alias), key=lambda queue: queue.name)
        past = history.read(alias)
        shown = {
            "title": _("Queues"),
            "queues": [queue_row(one, past) for one in facts[:MOST_LISTED]],
            "more_queues": max(0, len(facts) - MOST_LISTED),
        }
        return self._page(request, "admin/pulse_django/queue/change_list.html", shown | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect from links of the admin's log to the page of the queue."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        return HttpResponseRedirect(self._url_of(self.get_object(request, object_id).queue))

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Queue:
        """Return the queue with this name."""
        name = unquote(object_id)
        return Queue(pk=name, queue=name)

    def one_view(self, request: HttpRequest) -> HttpResponse:
        """Show one queue, even if it has no jobs."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = NameForm(request.GET)
        if not form.is_valid():
            return HttpResponseRedirect(self._url("changelist"))
        name, alias, window = form.cleaned_data["name"], shard_of(request), window_of(request)
        # Read before the facts: if the queue is paused in between, the button has no effect.
        paused = Pause.objects.using(alias).filter(queue=name, task="", lane_key="").first()
        facts = _facts_of(alias, name)
        shown: dict[str, Any] = {
            "title": name,
            "queue": queue_row(facts, history.read(alias)),
            "serving": serving(name, alias),
            "charts": charts_of(read_course(alias, TrafficKind.QUEUE, name, window)),
            "window": window,
            "windows": WINDOW_NAMES.items(),
            "object_id": quote(name),
        }
        if self._may_operate(request):
            initial = {"name": name, "seen": paused.paused_at.isoformat() if paused is not None else ""}
            act, label = ("resume", _("Resume")) if facts.is_paused else ("pause", _("Pause"))
            form = (ResumeForm if facts.is_paused else PauseForm)(initial=initial, auto_id=f"{act}_%s")
            shown["acts"] = [{"form": form, "url": self._url(act), "label": label}]
        return self._page(request, SHOWN, shown)

    def _operate(self, kind: type[PauseForm | ResumeForm], request: HttpRequest) -> HttpResponse:
        """Pause or resume a queue."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self._may_operate(request):
            raise PermissionDenied
        form = kind(request.POST)
        if not form.is_valid():
            self.message_user(request, errors_in_words(form), messages.ERROR)
            name = "" if "name" in form.errors else form.cleaned_data["name"]
            return HttpResponseRedirect(self._url_of(name) if name else self._url("changelist"))
        name, alias = form.cleaned_data["name"], shard_of(request)
        act = self._pause if kind is PauseForm else self._resume
        if not (message := act(alias, form.cleaned_data, request.user.get_username())):
            said = _("Another user has paused or resumed the queue in the meantime. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)
            return HttpResponseRedirect(self._url_of(name))
        self.log_change(request, self.get_object(request, quote(name)), message)
        if kind is PauseForm:
            stopped = _facts_of(alias, name)
            message += f". {stops(stopped.due + stopped.later, is_more=stopped.is_more)}"
        self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(self._url_of(name))

    def _pause(self, alias: str, wanted: dict[str, Any], by: str) -> str:
        """Pause the queue if it is not paused. Return the message, or "" if nothing was changed."""
        duration = timedelta(seconds=wanted["duration"]) if wanted["duration"] else None
        pauses = Pause.objects.db_manager(alias)
        if not pauses.pause(queue=wanted["name"], reason=wanted["reason"], duration=duration, by=by, anew=True):
            return ""
        end = dict(PauseForm.base_fields["duration"].choices)[wanted["duration"]]  # type: ignore[attr-defined]
        return str(_("Paused (%(end)s): %(reason)s") % {"end": end, "reason": wanted["reason"]})

    def _resume(self, alias: str, wanted: dict[str, Any], by: str) -> str:
        """Resume the queue if its pause is the one that the page showed. Return as ``_pause`` does."""
        seen = _instant_of(wanted["seen"])
        if seen is None or not Pause.objects.db_manager(alias).resume(queue=wanted["name"], seen=seen):
            return ""
        wake_workers(alias, [wanted["name"]])
        return str(_("Resumed: %s") % wanted["reason"] if wanted["reason"] else _("Resumed"))

    def _may_operate(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.pulse_operate_queues")

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, template, context)

    def _url(self, view: str) -> str:
        return reverse(f"{self.admin_site.name}:pulse_django_queue_{view}")

    def _url_of(self, name: str) -> str:
        return f"{self._url('one')}?{urlencode({'name': name})}"


def _facts_of(alias: str, name: str) -> QueueFacts:
    return {one.name: one for one in snapshot.queues(alias)}.get(name, QueueFacts(name=name))


# The live workers of a queue, and the command that starts one.


MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    workers: Sequence[Worker]
    more: bool  # there are more workers than are listed
    command: str  # starts a worker for it


def serving(name: str, alias: str) -> Serving:
    """Return the live workers of a queue."""
    heard = StatementTimestamp() - conf.current().worker_silence
    serves = Q(queues=[]) | Q(queues__contains=[name])
    rows = Worker.objects.using(alias).filter(serves, stopped_at=None, last_beat_at__gt=heard)
    workers = list(rows.only("id", "name", "boot_id").order_by("name", "boot_id")[: MOST_NAMED + 1])
    return Serving(workers=workers[:MOST_NAMED], more=len(workers) > MOST_NAMED, command=_command_for(name))


def _command_for(name: str) -> str:
    if "," in name or name != name.strip():  # --queues cannot express this name
        return "python manage.py pulse_worker"
    return f"python manage.py pulse_worker --queues={shlex.quote(name)}"


def _instant_of(text: str) -> datetime | None:
    """Parse the output of ``isoformat()`` from a form. Return None if it is invalid."""
    try:
        instant = parse_datetime(text)
        if instant is None:
            return None
        # UTC: Python compares two instants of one time zone by their local times.
        aware = instant if timezone.is_aware(instant) else instant.replace(tzinfo=timezone.get_current_timezone())
        return aware.astimezone(UTC)
    except (ValueError, OverflowError):  # the 31st of February, or outside of Python's calendar
        return None
