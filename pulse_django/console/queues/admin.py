"""Queues in the admin: the state of each, and the actions to pause and resume one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import router
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _

from pulse_django.console.board.facts import queue_row
from pulse_django.console.jobs.actions import MAX_REASON, QueueName, errors_in_words
from pulse_django.console.periods import instant_of
from pulse_django.console.readonly import ReadOnly
from pulse_django.execution.notify import wake_workers
from pulse_django.fleet import history, snapshot_queries
from pulse_django.fleet.snapshot import QueueFacts
from pulse_django.models import Queue
from pulse_django.store.queues import Pause
from pulse_django.words.limits import MAX_QUEUE_NAME

MOST_LISTED = 200  # more are opened by name
NOT_PAUSED = "none"
SHOWN = "admin/pulse_django/queue/one.html"


class NameForm(forms.Form):
    name = forms.CharField(max_length=MAX_QUEUE_NAME, strip=False, widget=forms.HiddenInput)


class OperateForm(NameForm):
    seen = forms.CharField(required=False, widget=forms.HiddenInput)  # the pause that the page showed

    def clean_seen(self) -> Pause | None:
        """Return it; None: the form does not say, and may have been shown any."""
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


class QueueAdmin(ReadOnly, admin.ModelAdmin):
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
        facts, past = snapshot_queries.queues(self._alias, named=True), history.read(self._alias)
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
        name, past = form.cleaned_data["name"], history.read(self._alias)
        # Before the facts that are shown: if it is paused in between, the button does nothing instead of too much.
        row = Queue.objects.using(self._alias).filter(name=name).first()
        facts = {one.name: one for one in snapshot_queries.queues(self._alias)}.get(name, QueueFacts(name=name))
        shown: dict[str, Any] = {
            "title": name,
            "queue": queue_row(facts, past),
            "row": row,
        }
        if self._may_operate(request):
            paused_at = row.paused_at if row is not None and facts.is_paused else None
            initial = {"name": name, "seen": NOT_PAUSED if paused_at is None else paused_at.isoformat()}
            shown["act"] = ResumeForm(initial=initial) if facts.is_paused else PauseForm(initial=initial)
            shown["act_url"] = self._url("resume" if facts.is_paused else "pause")
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
        act = self._pause if kind is PauseForm else self._resume
        name, message = form.cleaned_data["name"], act(form.cleaned_data) if form.cleaned_data["seen"] else ""
        if message:
            # From where it was written: a replica may not have it yet.
            self.log_change(request, Queue.objects.using(self._alias).get(name=name), message)
            self.message_user(request, message, messages.SUCCESS)
        else:
            refused = _("Another user has paused or resumed the queue in the meantime. Nothing was changed.")
            self.message_user(request, refused, messages.WARNING)
        return HttpResponseRedirect(self._url_of(name))

    def _pause(self, wanted: dict[str, Any]) -> str:
        lasting = timedelta(seconds=wanted["lasting"]) if wanted["lasting"] else None
        if not Queue.objects.pause(wanted["name"], reason=wanted["reason"], lasting=lasting, seen=wanted["seen"]):
            return ""
        end = dict(PauseForm.base_fields["lasting"].choices)[wanted["lasting"]]  # type: ignore[attr-defined]
        return str(_("Paused (%(end)s): %(reason)s") % {"end": end, "reason": wanted["reason"]})

    def _resume(self, wanted: dict[str, Any]) -> str:
        if not Queue.objects.resume(wanted["name"], seen=wanted["seen"]):
            return ""
        wake_workers(self._alias, [wanted["name"]])
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

    @property
    def _alias(self) -> str:
        return router.db_for_write(Queue)
