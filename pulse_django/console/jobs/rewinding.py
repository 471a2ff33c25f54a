"""The page that runs a job again from one of its durable steps, and the button that sends an event it waits for."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.exceptions import InvalidWorkflow
from pulse_django.execution.placement import locate
from pulse_django.fleet.workflows import needs_of
from pulse_django.models import Job
from pulse_django.operations.acts import MAX_REASON, MOST_ATTEMPTS
from pulse_django.words.display import inert
from pulse_django.words.job_options import MAX_EVENT_NAME
from pulse_django.words.masks import is_encrypted
from pulse_django.words.states import Status
from pulse_django.workflows import rewind
from pulse_django.workflows.batches import send_event

RETRY, FORK = "retry", "fork"


class RewindForm(forms.Form):
    attempts = forms.IntegerField(min_value=0, max_value=MOST_ATTEMPTS, widget=forms.HiddenInput)  # the page showed
    why = forms.CharField(label=_("why"), max_length=MAX_REASON, required=False)
    way = forms.ChoiceField(choices=[(RETRY, RETRY), (FORK, FORK)], widget=forms.HiddenInput)


class RewindPage:
    """Of ``JobAdmin``."""

    admin_site: Any

    def rewind_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show which steps are kept and which are repeated from ``step`` in the address on, and do it when posted."""
        job = self._job(request, object_id)
        if not self.may_rewind(request, job):
            raise PermissionDenied
        step = request.GET.get("step", "")
        try:
            found = rewind.preview(job.pk, step, using=job._state.db)
        except InvalidWorkflow:
            raise Http404 from None
        form = RewindForm(request.POST if request.method == "POST" else None, initial={"attempts": job.attempts})
        if form.is_valid():
            return HttpResponseRedirect(self._page_of(self._rewind(request, job, step, form.cleaned_data)))
        context = {
            **self.admin_site.each_context(request),
            "opts": Job._meta,
            "original": job,
            "title": gettext("Run again from a step"),
            "step": step,
            "rewound": found,
            "form": form,
            "can_be_retried": job.status == Status.DEAD_LETTERED,
            "can_be_copied": not is_encrypted(job.masked),
        }
        return TemplateResponse(request, "admin/pulse_django/job/rewind.html", context)

    def _rewind(self, request: HttpRequest, job: Job, step: str, given: dict[str, Any]) -> int:
        """Do it, and return the id of the job that runs."""
        alias = job._state.db
        try:
            if given["way"] == FORK:
                copy = locate(rewind.fork(job.pk, step, using=alias).job_id).id
                done = gettext("A copy runs from step %(step)s: job %(job)d") % {"step": inert(step), "job": copy}
            else:
                copy = job.pk
                rewind.retry_from(job.pk, step, attempt=given["attempts"], using=alias)
                done = gettext("Retried from step %(step)s") % {"step": inert(step)}
        except (InvalidWorkflow, Job.DoesNotExist) as error:
            said = gettext("Nothing was changed: %(error)s.") % {"error": error}
            self.message_user(request, said, messages.WARNING)  # type: ignore[attr-defined]  # of ModelAdmin
            return int(job.pk)
        why = given["why"]
        self.log_change(request, job, f"{done}: {why}" if why else done)  # type: ignore[attr-defined]  # of ModelAdmin
        self.message_user(request, done, messages.SUCCESS)  # type: ignore[attr-defined]  # of ModelAdmin
        return copy

    def event_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send an event that the job waits for."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        job = self._job(request, object_id)
        if not self.may_send_events(request):
            raise PermissionDenied
        event = request.POST.get("event", "")[: MAX_EVENT_NAME + 1]
        alias = job._state.db or "default"
        is_awaited = any(one.event == event and one.met_at is None for one in needs_of(alias, job.pk))
        by = request.user.get_username()
        if is_awaited and send_event(event, {"by": by}, by=by, using=alias):
            done = gettext("Event sent: %(event)s") % {"event": inert(event)}
            self.log_change(request, job, done)  # type: ignore[attr-defined]  # of ModelAdmin
            self.message_user(request, done, messages.SUCCESS)  # type: ignore[attr-defined]  # of ModelAdmin
        else:
            said = gettext("The job has changed in the meantime. Nothing was changed.")
            self.message_user(request, said, messages.WARNING)  # type: ignore[attr-defined]  # of ModelAdmin
        return HttpResponseRedirect(self._page_of(job.pk))

    def may_rewind(self, request: HttpRequest, job: Job) -> bool:
        is_seen = self.has_view_permission(request, job)  # type: ignore[attr-defined]  # of ModelAdmin
        return bool(is_seen and request.user.has_perm("pulse_django.retry_job"))

    def may_send_events(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("pulse_django.schedule_job"))

    def rewind_urls(self, request: HttpRequest, job: Job) -> dict[str, str]:
        """Return the addresses of both views, empty for who may not use them."""
        name = f"{self.admin_site.name}:pulse_django_job"
        return {
            "rewind_url": reverse(f"{name}_rewind", args=[job.pk]) if self.may_rewind(request, job) else "",
            "event_url": reverse(f"{name}_event", args=[job.pk]) if self.may_send_events(request) else "",
        }

    def _job(self, request: HttpRequest, object_id: str) -> Job:
        job: Job | None = self.get_object(request, unquote(object_id))  # type: ignore[attr-defined]  # of ModelAdmin
        if job is None:
            raise Http404
        if not self.has_view_permission(request, job):  # type: ignore[attr-defined]  # of ModelAdmin
            raise PermissionDenied
        return job

    def _page_of(self, job_id: int) -> str:
        return reverse(f"{self.admin_site.name}:pulse_django_job_change", args=[job_id])
