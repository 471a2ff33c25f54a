"""Queues in the admin: the state of each, and the actions to pause and resume one."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from pulse_django import conf
from pulse_django.console.board.facts import queue_row
from pulse_django.console.charts import charts_of
from pulse_django.console.limits.paused_tasks import stops
from pulse_django.console.pages import ReadOnly
from pulse_django.console.periods import instant_of
from pulse_django.console.shards import shard_of
from pulse_django.console.tasks.admin import WINDOW_NAMES, window_of
from pulse_django.execution.notify import wake_workers
from pulse_django.fleet import history, snapshot
from pulse_django.fleet.snapshot import QueueFacts
from pulse_django.fleet.traffic import read_course
from pulse_django.models import Queue, Worker
from pulse_django.operations.acts import MAX_REASON, QueueName, errors_in_words
from pulse_django.store.queues import Pause
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.counters import TrafficKind
from pulse_django.words.limits import MAX_QUEUE_NAME

MOST_LISTED = 200  # more are opened by name
SHOWN = "admin/pulse_django/queue/one.html"
NOT_PAUSED = "none"  # in a form, of the pause that the page showed


class NameForm(forms.Form):
    name = forms.CharField(max_length=MAX_QUEUE_NAME, strip=False, widget=forms.HiddenInput)


class OperateForm(NameForm):
    seen = forms.CharField(required=False, widget=forms.HiddenInput)  # the pause that the page showed

    def clean_seen(self) -> Pause | None:
        """Return it, so that nothing newer is overwritten. None: the form does not say, and may have shown any."""
        text = self.cleaned_data["seen"]
        if text == NOT_PAUSED:
            return Pause(None)
        paused_at = instant_of(text)
        return None if paused_at is None else Pause(paused_at)


class PauseForm(OperateForm):
    name = QueueName(widget=forms.HiddenInput)
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)
    lasting = forms.TypedChoiceField(
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


class ResumeForm(OperateForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)


class QueueAdmin(ReadOnly):
    """A queue is where jobs wait: it needs no row, so its pages go by name."""

    def get_urls(self) -> list[URLPattern]:
        views = {"one": self.one_view, "pause": self.pause_view, "resume": self.resume_view}
        own = [
            path(f"{name}/", self.admin_site.admin_view(view), name=f"pulse_django_queue_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias = shard_of(request)
        facts = sorted(snapshot.queues(alias, named=True), key=lambda queue: queue.name)
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
        """Links of the admin's log lead here."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        queue = self.get_object(request, object_id)
        return HttpResponseRedirect(self._url_of(queue.name) if queue else self._url("changelist"))

    def one_view(self, request: HttpRequest) -> HttpResponse:
        """Show one queue, whether it holds anything or not."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        form = NameForm(request.GET)
        if not form.is_valid():
            return HttpResponseRedirect(self._url("changelist"))
        name, alias, window = form.cleaned_data["name"], shard_of(request), window_of(request)
        # Before the facts that are shown: if it is paused in between, the button does nothing instead of too much.
        row = Queue.objects.using(alias).filter(name=name).first()
        facts = _facts_of(alias, name)
        shown: dict[str, Any] = {
            "title": name,
            "queue": queue_row(facts, history.read(alias)),
            "serving": serving(name, alias),
            "charts": charts_of(read_course(alias, TrafficKind.QUEUE, name, window)),
            "window": window,
            "windows": WINDOW_NAMES.items(),
            "row": row,
        }
        if self._may_operate(request):
            paused_at = row.paused_at if row is not None and facts.is_paused else None
            initial = {"name": name, "seen": NOT_PAUSED if paused_at is None else paused_at.isoformat()}
            act, label = ("resume", _("Resume")) if facts.is_paused else ("pause", _("Pause"))
            form = (ResumeForm if facts.is_paused else PauseForm)(initial=initial, auto_id=f"{act}_%s")
            shown["acts"] = [{"form": form, "url": self._url(act), "label": label}]
        return self._page(request, SHOWN, shown)

    def pause_view(self, request: HttpRequest) -> HttpResponse:
        """Let no worker claim from it any more."""
        return self._operate(request, PauseForm)

    def resume_view(self, request: HttpRequest) -> HttpResponse:
        """Let workers claim from it again."""
        return self._operate(request, ResumeForm)

    def _operate(self, request: HttpRequest, kind: type[OperateForm]) -> HttpResponse:
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
        act, message = self._pause if kind is PauseForm else self._resume, ""
        if form.cleaned_data["seen"] is not None:
            message = act(alias, form.cleaned_data)
        if not message:
            said = _("Another user has paused or resumed the queue in the meantime. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)
            return HttpResponseRedirect(self._url_of(name))
        # From where it was written: a replica may not have it yet.
        self.log_change(request, Queue.objects.using(alias).get(name=name), message)
        if kind is PauseForm:
            stopped = _facts_of(alias, name)
            message += f". {stops(stopped.due + stopped.later, is_more=stopped.is_more)}"
        self.message_user(request, message, messages.SUCCESS)
        return HttpResponseRedirect(self._url_of(name))

    def _pause(self, alias: str, wanted: dict[str, Any]) -> str:
        """Pause it, unless it was paused or resumed since the page was shown. Return what to say; empty: nothing."""
        lasting = timedelta(seconds=wanted["lasting"]) if wanted["lasting"] else None
        queues = Queue.objects.db_manager(alias)
        if not queues.pause(wanted["name"], reason=wanted["reason"], lasting=lasting, seen=wanted["seen"]):
            return ""
        end = dict(PauseForm.base_fields["lasting"].choices)[wanted["lasting"]]  # type: ignore[attr-defined]
        return str(_("Paused (%(end)s): %(reason)s") % {"end": end, "reason": wanted["reason"]})

    def _resume(self, alias: str, wanted: dict[str, Any]) -> str:
        """The same."""
        if not Queue.objects.db_manager(alias).resume(wanted["name"], seen=wanted["seen"]):
            return ""
        wake_workers(alias, [wanted["name"]])
        return str(_("Resumed: %s") % wanted["reason"] if wanted["reason"] else _("Resumed"))

    def _may_operate(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request) and request.user.has_perm("pulse_django.operate_queue")

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


# Who serves a queue: its live workers, and the command that starts one where there is none.


MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    workers: Sequence[Worker]
    more: bool  # than are named
    command: str  # starts a worker for it


def serving(name: str, alias: str) -> Serving:
    """Return the live workers of a queue."""
    heard = StatementTimestamp() - conf.current().worker_silence
    serves = Q(queues=[]) | Q(queues__contains=[name])
    rows = Worker.objects.using(alias).filter(serves, stopped_at=None, last_beat_at__gt=heard)
    workers = list(rows.only("id", "name", "boot_id").order_by("name", "boot_id")[: MOST_NAMED + 1])
    return Serving(workers=workers[:MOST_NAMED], more=len(workers) > MOST_NAMED, command=_command_for(name))


def _command_for(name: str) -> str:
    if "," in name or name != name.strip():  # a worker for all queues serves it
        return "python manage.py pulse_worker"
    return f"python manage.py pulse_worker --queues={shlex.quote(name)}"
