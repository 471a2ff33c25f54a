"""Where a running handler is: asked on the page of its worker, and shown there once the worker has answered."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext

from pulse_django.console.jobs.actions import errors_in_words
from pulse_django.console.shards import Shards, about_one_row, shards_of
from pulse_django.models import Job, Worker
from pulse_django.store.workers import is_asked, is_shown

LARGEST_ID = 2**63 - 1


class AskForm(forms.Form):
    job = forms.IntegerField(min_value=1, max_value=LARGEST_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a worker said, or is to say."""

    job_id: int
    at: datetime | None  # None: it has not answered yet
    text: str = field(default="", repr=False)


class HandlerStacks:
    """A mixin for the admin of workers. Who may acknowledge lost ones may ask: the answer has code and no values."""

    admin_site: Any
    get_object: Any
    has_acknowledge_permission: Any
    log_change: Any
    message_user: Any

    def get_urls(self) -> list[URLPattern]:
        ask = self.admin_site.admin_view(self.ask_stack_view)
        urls: list[URLPattern] = super().get_urls()  # type: ignore[misc]  # of the ModelAdmin beside it
        return [path("<path:object_id>/act/stack/", ask, name="pulse_django_worker_act_stack"), *urls]

    def stacks(self, request: HttpRequest, worker: Worker, everywhere: Shards) -> dict[str, Any]:
        """Return what was told lately, and where to ask."""
        if not self.has_acknowledge_permission(request):
            return {}
        url = reverse(f"{self.admin_site.name}:pulse_django_worker_act_stack", args=[quote(worker.pk)])
        return {
            "ask_url": url if worker.stopped_at is None else "",
            "told": [one for some in everywhere.ask(lambda alias: _told(alias, worker)).values() for one in some],
        }

    @about_one_row
    def ask_stack_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Ask where the handler of a job is."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_acknowledge_permission(request):
            raise PermissionDenied
        worker, form = self.get_object(request, object_id), AskForm(request.POST)
        if worker is None:
            raise Http404
        if form.is_valid():
            self._ask(request, worker, form.cleaned_data["job"])
        else:
            self.message_user(request, errors_in_words(form), messages.ERROR)
        page = reverse(f"{self.admin_site.name}:pulse_django_worker_change", args=[quote(worker.pk)])
        return HttpResponseRedirect(page)

    def _ask(self, request: HttpRequest, worker: Worker, job_id: int) -> None:
        """In the shard of the job: there its lease is."""
        everywhere = shards_of(request, Worker)

        def ask(alias: str) -> bool:
            is_there = not everywhere.are_several or Job.objects.using(alias).filter(pk=job_id).exists()
            return is_there and Worker.objects.db_manager(alias).ask_stack(worker.name, worker.boot_id, job_id)

        done = everywhere.ask(ask)
        everywhere.tell(request)
        if any(done.values()):
            self.log_change(request, worker, gettext("Asked where the handler of job %(job)d is") % {"job": job_id})
            said = gettext("The worker answers with its next heartbeats. The stack appears here in some seconds.")
            self.message_user(request, said, messages.SUCCESS)
        else:
            self.message_user(request, gettext("The worker has stopped. Nothing was asked."), messages.WARNING)


def _told(alias: str, worker: Worker) -> list[Told]:
    rows: Any = Worker.objects.using(alias).filter(name=worker.name, boot_id=worker.boot_id)
    row = rows.annotate(is_asked=is_asked(), is_shown=is_shown()).first()
    if row is None:
        return []
    told = [Told(job_id=row.stack_of, at=row.stack_at, text=row.stack)] if row.is_shown and row.stack_of else []
    asked = [Told(job_id=row.stack_wanted, at=None)] if row.is_asked and row.stack_wanted else []
    return [*asked, *told]
