"""Workflows in the admin: the list, and the page of one with its graph and its buttons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, path, reverse
from django.utils.translation import gettext as gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.story import spelt
from pulse_django.console.mass.page import KIND, permission_of
from pulse_django.console.mass.totals import totals_of
from pulse_django.console.readonly import ReadOnly
from pulse_django.console.search_terms import number_in
from pulse_django.console.shards import shard_of
from pulse_django.fleet import workflows
from pulse_django.fleet.workflows import BatchFacts, Node
from pulse_django.fleet.workflows.facts import HELD, OPEN, PAUSED
from pulse_django.models import StoredBatch
from pulse_django.operations import acts
from pulse_django.operations.acts import MAX_REASON, MOST_RUNS, errors_in_words
from pulse_django.operations.workflows import retry_dead_letters
from pulse_django.words.display import inert
from pulse_django.workflows.batches import Batch, send_event

from .shown import shown, shown_graph

MOST_CONTEXT = 20_000  # characters


class WorkflowAdmin(ReadOnly, admin.ModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        act = self.admin_site.admin_view(self.act_view)
        return [
            path("<path:object_id>/act/<slug:name>/", act, name="pulse_django_storedbatch_act"),
            *super().get_urls(),
        ]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the newest workflows. In the address: ``before`` an id, ``inside``, ``open``."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        before = number_in(request.GET.get("before", ""))
        inside, open_only = "inside" in request.GET, "open" in request.GET
        alias, most = shard_of(request), workflows.PAGE
        found = workflows.batches(alias, before=before, inside=inside, open_only=open_only, most=most + 1)
        batches, has_more = found[:most], len(found) > most
        flags = [name for name, is_set in (("inside", inside), ("open", open_only)) if is_set]
        context = {
            "title": gettext("Workflows"),
            "workflows": [shown(one) for one in batches],
            "older": f"?{'&'.join([*flags, f'before={batches[-1].id}'])}" if has_more else "",
            "is_later": before is not None,
            "inside": inside,
            "open_only": open_only,
            "jobs_url": self._jobs_url(request),
        }
        return self._page(request, "change_list", context | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one workflow: how far it is, what holds it, its graph, and its buttons for those who may."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        alias, batch = shard_of(request), self._batch(request, object_id)
        jobs_url = self._jobs_url(request)
        context = {
            "title": inert(batch.name),
            "workflow": shown(batch),
            "jobs_url": jobs_url,
            "acts": self._offered(request, batch),
            "operation": totals_of(Batch(batch.id, alias)) if batch.kind == KIND else None,
            "context": self._context(batch, alias) if request.user.has_perm("pulse_django.view_arguments") else "",
            **shown_graph(workflows.graph_of(alias, batch), lambda node: self._url_of(node, jobs_url)),
        }
        return self._page(request, "one", context | (extra_context or {}))

    def act_view(self, request: HttpRequest, object_id: str, name: str) -> HttpResponse:
        """Do one thing to one workflow."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        act = named(name)
        if not self.has_view_permission(request):
            raise PermissionDenied
        if act is None:
            raise Http404
        alias, batch = shard_of(request), self._batch(request, object_id)
        if not self._may(request, act, batch):
            raise PermissionDenied
        form = act.form_for(batch, request.POST)
        if not act.fits(batch):
            self._leave_alone(request)
        elif not form.is_valid():
            self.message_user(request, f"{act.label}: {errors_in_words(form)}", messages.ERROR)
        elif done := act.do(alias, batch, form.cleaned_data, request.user.get_username()):
            self.log_change(request, StoredBatch.objects.using(alias).get(pk=batch.id), done)
            self.message_user(request, done, messages.SUCCESS)
        else:
            self._leave_alone(request)
        return HttpResponseRedirect(self._url("change", batch.id))

    def _leave_alone(self, request: HttpRequest) -> None:
        said = gettext("The workflow has changed in the meantime. Nothing was changed.")
        self.message_user(request, said, messages.WARNING)

    def _may(self, request: HttpRequest, act: Act, batch: BatchFacts) -> bool:
        permissions = [act.permission]
        if act.name == CANCEL and batch.kind == KIND:
            permissions.append(permission_of(Batch(batch.id, shard_of(request))))
        return any(request.user.has_perm(f"pulse_django.{one}") for one in permissions)

    def _offered(self, request: HttpRequest, batch: BatchFacts) -> list[dict[str, Any]]:
        """Return the buttons that fit the workflow and the user."""
        return [
            {"act": act, "form": act.form_for(batch), "url": self._url("act", batch.id, act.name)}
            for act in ACTS
            if act.fits(batch) and self._may(request, act, batch)
        ]

    def _batch(self, request: HttpRequest, object_id: str) -> BatchFacts:
        number = number_in(unquote(object_id))
        batch = None if number is None else workflows.one_batch(shard_of(request), number)
        if batch is None:
            raise Http404
        return batch

    def _context(self, batch: BatchFacts, alias: str) -> str:
        row = StoredBatch.objects.using(alias).only("context").filter(pk=batch.id).first()
        return "" if row is None or row.context is None else spelt(row.context)[:MOST_CONTEXT]

    def _jobs_url(self, request: HttpRequest) -> str:
        if not request.user.has_perm("pulse_django.view_job"):
            return ""
        try:
            return reverse(f"{self.admin_site.name}:pulse_django_job_changelist")
        except NoReverseMatch:
            return ""  # this site does not show jobs

    def _url_of(self, node: Node, jobs_url: str) -> str:
        if node.kind == "batch":
            return self._url("change", node.id)
        return f"{jobs_url}{node.id}/change/" if node.kind == "job" and jobs_url else ""

    def _url(self, view: str, *args: Any) -> str:
        return reverse(f"{self.admin_site.name}:pulse_django_storedbatch_{view}", args=args)

    def _page(self, request: HttpRequest, template: str, shown: dict[str, Any]) -> HttpResponse:
        request.current_app = self.admin_site.name  # {% url %} reads it
        context = {**self.admin_site.each_context(request), "opts": self.opts, **shown}
        return TemplateResponse(request, f"admin/pulse_django/storedbatch/{template}.html", context)


# The actions on the page of a workflow: each is a form, and leaves an entry in the log of the admin.


Data = Mapping[str, Any]
CANCEL = "cancel"


class ActForm(forms.Form):
    def __init__(self, *args: Any, events: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offer(events)

    def offer(self, events: Sequence[str]) -> None:
        """Let one of these events be chosen, if the act is about events."""


class CancelForm(ActForm):
    why = forms.CharField(label=_("why"), max_length=MAX_REASON)  # stands on each of its jobs


class RetryForm(ActForm):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    cancelled_too = forms.BooleanField(label=_("also if their workflow was cancelled"), required=False)


class ApproveForm(ActForm):
    """Only events that a job of the workflow waits for."""

    event = forms.ChoiceField(label=_("event"))

    def offer(self, events: Sequence[str]) -> None:
        self.fields["event"].choices = [(one, inert(one)) for one in events]  # type: ignore[attr-defined]


def _cancel(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    if not Batch(batch.id, alias).cancel(reason=data["why"]):
        return ""
    return gettext("Cancelled: %(reason)s") % {"reason": data["why"]}


def _retry(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    answer = retry_dead_letters(alias, batch.id, runs=data["runs"], cancelled_too=data["cancelled_too"])
    if not answer.revived and not answer.twins and not answer.of_cancelled:
        return ""
    more = f" {gettext('There are more: do it again.')}" if answer.has_more else ""
    return f"{acts.ACTS['retry'].in_words(answer._asdict())}{more}"


def _approve(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    event = data["event"]
    is_new = send_event(event, {"by": by}, by=by, using=alias)
    return gettext("Event sent: %(event)s") % {"event": event} if is_new else ""


def _pause(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    return gettext("Paused") if Batch(batch.id, alias).pause() else ""


def _resume(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    return gettext("Resumed") if Batch(batch.id, alias).resume() else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One button."""

    name: str
    label: Any
    says: Any
    permission: str
    fits: Callable[[BatchFacts], bool]
    do: Callable[[str, BatchFacts, Data, str], str]  # returns what was done, for the message and the log
    form: type[ActForm] = ActForm

    def form_for(self, batch: BatchFacts, data: Any = None) -> ActForm:
        return self.form(data, prefix=self.name, events=events_of(batch))


def events_of(batch: BatchFacts) -> list[str]:
    """Return the events that jobs of the batch wait for, each once."""
    return list(dict.fromkeys(one.event for one in batch.events if one.event is not None))


ACTS = (
    Act(
        name="approve",
        label=_("Send an event"),
        says=_("Say that this event happened, in your name. Jobs that wait for it go on"),
        permission="schedule_job",
        fits=lambda batch: bool(batch.events),
        do=_approve,
        form=ApproveForm,
    ),
    Act(
        name="retry",
        label=_("Retry its dead letters"),
        says=_("Retry all dead letters of this workflow and of those within it, with this many more runs each"),
        permission="retry_job",
        fits=lambda batch: bool(batch.progress.dead) and batch.closed_at is None,
        do=_retry,
        form=RetryForm,
    ),
    Act(
        name="pause",
        label=_("Pause"),
        says=_("Start no job of this workflow and of those within it. Those that run go on"),
        permission="schedule_job",
        fits=lambda batch: batch.state in (OPEN, HELD),
        do=_pause,
    ),
    Act(
        name="resume",
        label=_("Resume"),
        says=_("Let jobs of this workflow and of those within it start again"),
        permission="schedule_job",
        fits=lambda batch: batch.state == PAUSED,
        do=_resume,
    ),
    Act(
        name=CANCEL,
        label=_("Cancel all"),
        says=_("Cancel all jobs of this workflow and of those within it; ask the handlers of running ones to stop"),
        permission="cancel_job",
        fits=lambda batch: batch.closed_at is None and batch.cancelled_at is None,
        do=_cancel,
        form=CancelForm,
    ),
)


def named(name: str) -> Act | None:
    return next((act for act in ACTS if act.name == name), None)
