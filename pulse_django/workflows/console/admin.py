"""Workflows in the admin: the list, and the page of one with its graph and its buttons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib.admin.utils import unquote
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from pulse_django.console.jobs.story import spelt
from pulse_django.console.mass.operation import KIND, permission_of
from pulse_django.console.mass.totals import totals_of
from pulse_django.console.pages import ActsOnRows, ReadOnly, RowAct, RowForm, url_for
from pulse_django.console.search_terms import number_in
from pulse_django.models import StoredBatch
from pulse_django.operations import acts
from pulse_django.operations.acts import MAX_REASON, MOST_RUNS
from pulse_django.queue.words.display import inert
from pulse_django.shards.page import shard_of
from pulse_django.workflows import reading as workflows
from pulse_django.workflows.acts import retry_dead_letters
from pulse_django.workflows.batches import Batch, send_event
from pulse_django.workflows.reading import BatchFacts, GraphNode
from pulse_django.workflows.reading.facts import HELD, OPEN, PAUSED

from .shown import shown, shown_graph

MOST_CONTEXT = 20_000  # characters


# The acts on the page of a workflow. Each is a form, and writes an entry into the log of the admin.


Data = Mapping[str, Any]
CANCEL = "cancel"


class CancelForm(RowForm):
    reason = forms.CharField(label=_("reason"), max_length=MAX_REASON)  # stored in each of its jobs


class RetryForm(RowForm):
    runs = forms.IntegerField(label=_("minimum runs"), min_value=1, max_value=MOST_RUNS, initial=1)
    cancelled_too = forms.BooleanField(label=_("also if their workflow was cancelled"), required=False)


class ApproveForm(RowForm):
    """Offer only events that a job of the workflow waits for."""

    event = forms.ChoiceField(label=_("event"))

    def __init__(self, row: BatchFacts, *args: Any, **options: Any) -> None:
        super().__init__(row, *args, **options)
        events = dict.fromkeys(one.event for one in row.events)
        self.fields["event"].choices = [(one, inert(one or "")) for one in events]  # type: ignore[attr-defined]


def _cancel(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    if not Batch(batch.id, alias).cancel(reason=data["reason"]):
        return ""
    return gettext("Cancelled: %(reason)s") % {"reason": data["reason"]}


def _retry(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    counts, has_more = retry_dead_letters(alias, batch.id, runs=data["runs"], cancelled_too=data["cancelled_too"])
    more = f" {gettext('There are more: repeat the action.')}" if has_more else ""
    return f"{acts.ACTS['retry'].in_words(counts)}{more}" if counts.total() else ""


def _approve(alias: str, batch: BatchFacts, data: Data, by: str) -> str:
    event = data["event"]
    is_new = send_event(event, {"by": by}, by=by, using=alias)
    return gettext("Event sent: %(event)s") % {"event": event} if is_new else ""


ACTS = (
    RowAct(
        name="approve",
        label=_("Send an event"),
        says=_("Send this event in your name. Jobs that wait for it continue"),
        permission="pulse_schedule_jobs",
        fits=lambda batch: bool(batch.events),
        do=_approve,
        form=ApproveForm,
    ),
    RowAct(
        name="retry",
        label=_("Retry its dead letters"),
        says=_("Retry all dead letters of this workflow and of those within it, with this many more runs each"),
        permission="pulse_retry_jobs",
        fits=lambda batch: bool(batch.progress.dead) and batch.finished_at is None,
        do=_retry,
        form=RetryForm,
    ),
    RowAct(
        name="pause",
        label=_("Pause"),
        says=_("Start no jobs of this workflow or of workflows within it. Running jobs continue"),
        permission="pulse_schedule_jobs",
        fits=lambda batch: batch.state in (OPEN, HELD),
        do=lambda alias, batch, *_: gettext("Paused") if Batch(batch.id, alias).pause() else "",
    ),
    RowAct(
        name="resume",
        label=_("Resume"),
        says=_("Let jobs of this workflow and of those within it start again"),
        permission="pulse_schedule_jobs",
        fits=lambda batch: batch.state == PAUSED,
        do=lambda alias, batch, *_: gettext("Resumed") if Batch(batch.id, alias).resume() else "",
    ),
    RowAct(
        name=CANCEL,
        label=_("Cancel all"),
        says=_("Cancel all jobs of this workflow and of those within it; ask the handlers of running ones to stop"),
        permission="pulse_cancel_jobs",
        fits=lambda batch: batch.finished_at is None and batch.cancelled_at is None,
        do=_cancel,
        form=CancelForm,
    ),
)


class WorkflowAdmin(ActsOnRows, ReadOnly):
    acts = ACTS
    otherwise = _("The workflow has changed in the meantime. Nothing was changed.")

    def get_urls(self) -> list[URLPattern]:
        return [self.path("<path:object_id>/act/<slug:name>/", self.act_view, "act"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the newest workflows. Parameters of the address: ``before`` with an id, ``inside``, ``open``."""
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
            "jobs_url": url_for(request, self.admin_site.name, "job", "job_changelist"),
        }
        return self.page(request, "storedbatch/change_list", context | (extra_context or {}))

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show one workflow: its progress, what holds it, its graph, and the buttons that the user may press."""
        alias, batch = shard_of(request), self.row_of(request, object_id)
        jobs_url = url_for(request, self.admin_site.name, "job", "job_changelist")

        def url_of(node: GraphNode) -> str:
            if node.kind == "batch":
                return self.url("storedbatch_change", node.id)
            return f"{jobs_url}{node.id}/change/" if node.kind == "job" and jobs_url else ""

        context = {
            "title": inert(batch.name),
            "workflow": shown(batch),
            "jobs_url": jobs_url,
            "acts": self.offered(request, batch),
            "operation": totals_of(Batch(batch.id, alias)) if batch.kind == KIND else None,
            "context": self._context(batch, alias)
            if request.user.has_perm("pulse_django.pulse_view_arguments")
            else "",
            **shown_graph(workflows.graph_of(alias, batch), url_of),
        }
        return self.page(request, "storedbatch/one", context | (extra_context or {}))

    def row_of(self, request: HttpRequest, object_id: str) -> BatchFacts:
        number = number_in(unquote(object_id))
        batch = None if number is None else workflows.one_batch(shard_of(request), number)
        if batch is None:
            raise Http404
        return batch

    def logged(self, row: BatchFacts) -> StoredBatch:
        return StoredBatch(pk=row.id, name=row.name)

    def may_act(self, request: HttpRequest, act: RowAct, row: BatchFacts) -> bool:
        permissions = [act.permission]
        if act.name == CANCEL and row.kind == KIND:
            permissions.append(permission_of(Batch(row.id, shard_of(request))))
        return any(self.may(request, one) for one in permissions)

    def _context(self, batch: BatchFacts, alias: str) -> str:
        row = StoredBatch.objects.using(alias).only("context").filter(pk=batch.id).first()
        return "" if row is None or row.context is None else spelt(row.context)[:MOST_CONTEXT]
