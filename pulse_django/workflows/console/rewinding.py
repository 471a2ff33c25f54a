"""The page that runs a job again from one of its durable steps, and the button that sends an event to it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST

from pulse_django.console.pages import ConsoleAdmin
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Job
from pulse_django.operations.acts import MAX_REASON, MOST_ATTEMPTS
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.masks import is_encrypted
from pulse_django.queue.words.states import Status
from pulse_django.workflows import rewind
from pulse_django.workflows.batches import send_event
from pulse_django.workflows.reading import needs_of
from pulse_django.workflows.rules import MAX_EVENT_NAME

RETRY, FORK = "retry", "fork"


class RewindForm(forms.Form):
    attempts = forms.IntegerField(min_value=0, max_value=MOST_ATTEMPTS, widget=forms.HiddenInput)  # as shown
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON, required=False)
    way = forms.ChoiceField(choices=[(RETRY, RETRY), (FORK, FORK)], widget=forms.HiddenInput)


class RewindPage(ConsoleAdmin):
    """The part of ``JobAdmin`` that runs a job again from a step."""

    def rewind_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show which steps are kept and which are repeated from ``step`` on, and start the job when posted."""
        job = self._job(request, object_id, "pulse_retry_jobs")
        step = request.GET.get("step", "")
        try:
            found = rewind.preview(job.pk, step, using=job._state.db)
        except InvalidWorkflow:
            raise Http404 from None
        form = RewindForm(request.POST if request.method == "POST" else None, initial={"attempts": job.attempts})
        if form.is_valid():
            return self.redirect("job_change", self._rewind(request, job, step, form.cleaned_data))
        shown = {
            "original": job,
            "title": gettext("Run again from a step"),
            "step": step,
            "rewound": found,
            "form": form,
            "can_be_retried": job.status == Status.DEAD_LETTERED,
            "can_be_copied": not is_encrypted(job.sensitive),
        }
        return self.page(request, "job/rewind", shown)

    def _rewind(self, request: HttpRequest, job: Job, step: str, given: dict[str, Any]) -> int:
        """Run the job or a copy from a step. Return the id of the job that runs."""
        alias, copy, refused, done = job._state.db, job.pk, "", gettext("Retried from step %(step)s")
        try:
            if given["way"] == FORK:
                copy = rewind.fork(job.pk, step, using=alias).job_id
                done = gettext("A copy runs from step %(step)s: job %(job)d")
            else:
                rewind.retry_from(job.pk, step, attempt=given["attempts"], using=alias)
        except (InvalidWorkflow, Job.DoesNotExist) as error:
            refused = gettext("Nothing was changed: %(error)s.") % {"error": error}
        said = "" if refused else done % {"step": inert(step), "job": copy}
        self.tell(request, job, said, refused, reason=given["reason"])
        return int(copy)

    @method_decorator(require_POST)
    def event_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Send an event that the job waits for."""
        job = self._job(request, object_id, "pulse_schedule_jobs")
        event = request.POST.get("event", "")[: MAX_EVENT_NAME + 1]
        alias, by = job._state.db or "default", request.user.get_username()
        is_awaited = any(one.event == event and one.met_at is None for one in needs_of(alias, job.pk))
        is_sent = is_awaited and send_event(event, {"by": by}, by=by, using=alias)
        done = gettext("Event sent: %(event)s") % {"event": inert(event)} if is_sent else ""
        self.tell(request, job, done, gettext("The job has changed in the meantime. Nothing was changed."))
        return self.redirect("job_change", job.pk)

    def rewind_urls(self, request: HttpRequest, job: Job) -> dict[str, str]:
        """Return the addresses of both views, or "" for views that the user may not use."""
        return {
            "rewind_url": self.url("job_rewind", job.pk) if self.may(request, "pulse_retry_jobs", job) else "",
            "event_url": self.url("job_event", job.pk) if self.may(request, "pulse_schedule_jobs", job) else "",
        }

    def _job(self, request: HttpRequest, object_id: str, permission: str) -> Job:
        job: Job | None = self.get_object(request, unquote(object_id))
        if job is None:
            raise Http404
        if not self.may(request, permission, job):
            raise PermissionDenied
        return job
