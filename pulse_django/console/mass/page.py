"""The confirmation page of an action on all jobs that match the filter of the list."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.formats import number_format
from django.utils.translation import gettext

from pulse_django import conf
from pulse_django.console.pages import ConsoleAdmin, url_for
from pulse_django.exceptions import PayloadError
from pulse_django.models import Job, StoredBatch
from pulse_django.operations.acts import ACTS, Act, Given, errors_in_words
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.own_tasks import PLAN
from pulse_django.queue.words.payloads import canonical
from pulse_django.run.notify import wake_workers
from pulse_django.shards.page import shard_of
from pulse_django.signed_texts import has_signature, signature_of
from pulse_django.workflows.batches import Batch
from pulse_django.workflows.rules import MAX_BATCH_NAME, Place

from .criteria import Criteria, InvalidCriteria

MOST_COUNTED = 100_000  # on the confirmation page


class MassPage(ConsoleAdmin):
    """The part of ``JobAdmin`` with the confirmation page."""

    def mass_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask for confirmation, and start the operation when the form is posted. The filter is in the address."""
        act = ACTS.get(name)
        if act is None or not act.label_of_all:
            raise Http404
        if not self.may(request, act.permission):
            raise PermissionDenied
        try:
            criteria = Criteria.read(request.META.get("QUERY_STRING", ""), request)
        except InvalidCriteria as error:
            return self.back(request, str(error))
        form = act.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self._start(request, act, criteria, form.cleaned_data)
        if form.is_bound:
            self.message_user(request, errors_in_words(form), messages.ERROR)
        shown = {
            "title": str(act.label_of_all),
            "act": act,
            "criteria": criteria,
            "count": self._count(request, act, criteria),
            "form": form,
            "list_url": self.url("job_changelist"),
        }
        return self.page(request, "job/mass", shown)

    def mass_links(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the actions on all matching jobs, if the list is filtered."""
        offered = [act for act in ACTS.values() if act.label_of_all and self.may(request, act.permission)]
        try:
            query = Criteria.read(request.META.get("QUERY_STRING", ""), request).query if offered else ""
        except InvalidCriteria:
            return []
        return [{"act": one, "url": f"{self.url('job_mass', one.name)}?{query}"} for one in offered]

    def _start(self, request: HttpRequest, act: Act, criteria: Criteria, given: dict[str, Any]) -> HttpResponse:
        batch = start_operation(shard_of(request), act, criteria, given, request.user)
        said = gettext("%(verb)s: %(filter)s") % {"verb": act.label_of_all, "filter": criteria.words}
        log(request.user, batch, f"{said}: {given['reason']}" if given.get("reason") else said)
        return started(self, request, batch) or self.redirect("job_changelist")

    def _count(self, request: HttpRequest, act: Act, criteria: Criteria) -> str:
        jobs = act.fitting(criteria.jobs(shard_of(request)), "9999-01-01T00:00:00+00:00").order_by()
        count = jobs.values("pk")[: MOST_COUNTED + 1].count()
        shown = number_format(min(count, MOST_COUNTED), force_grouping=True)
        return f"{shown}+" if count > MOST_COUNTED else shown

    def back(self, request: HttpRequest, why: str) -> HttpResponse:
        self.message_user(request, gettext("%(why)s Nothing was changed.") % {"why": why}, messages.WARNING)
        return self.redirect("job_changelist")


def started(model_admin: ConsoleAdmin, request: HttpRequest, batch: Batch) -> HttpResponse | None:
    """Report that an operation was started, and redirect to its page. Return None if this user may not see it."""
    messages.success(request, gettext("Started as operation %(id)d. You may close this page.") % {"id": batch.id})
    url = url_for(request, model_admin.admin_site.name, "storedbatch", "storedbatch_change", batch.id)
    return HttpResponseRedirect(url) if url else None


def log(user: Any, batch: Batch, said: str) -> None:
    """Write an entry with a link to the operation into the log of the admin."""
    row = StoredBatch.objects.using(batch.alias).only("id", "name").filter(pk=batch.id)
    LogEntry.objects.log_actions(user.pk, row, CHANGE, change_message=said)


# Start an operation: open its batch, and enqueue the job that finds the others.


KIND = "mass operation"
_SALT = "pulse_django.operation"


def start_operation(alias: str, act: Act, criteria: Criteria, given: Given, user: Any) -> Batch:
    """Start an operation for a user. Jobs that are enqueued from now on are not included."""
    name = "".join(sign if sign.isprintable() else "?" for sign in f"{act.label_of_all}: {criteria.words}")
    with transaction.atomic(using=alias):
        until, asked_at = _newest(alias)
        context = {
            "act": act.name,
            "query": criteria.query,
            "given": dict(given),
            "user": str(user.pk),
            "by": user.get_username(),
            "until": until,
            "asked_at": asked_at,
        }
        batch = Batch.open(name[:MAX_BATCH_NAME], kind=KIND, context=context, using=alias)
        enqueue(batch, batch.context, PLAN, [{}])
    return batch


def enqueue(
    batch: Batch,
    operation: dict[str, Any],
    task: str,
    arguments: list[dict[str, Any]],
    *,
    per_minute: float | None = None,
) -> None:
    """Add jobs to an operation. With ``per_minute``, each job waits for the time of the jobs before it (``met``).

    The jobs do not need a backend of Django's tasks, which a project may not have. ``operation`` is the context of the
    batch as the database returns it."""
    queue = conf.current().admin_queue
    news = [
        NewJob(
            task=task,
            kwargs=one | {"signature": signature_of(_SALT, _signed_text(batch, operation, task, one))},
            queue=queue,
            priority=HIGHEST_PRIORITY,
            run_after=timedelta(minutes=one["met"] / per_minute) if per_minute else None,
            place=Place(batch.id),
        )
        for one in arguments
    ]
    if news:
        Job.objects.db_manager(batch.alias).enqueue_many(news)
        wake_workers(batch.alias, [queue])


def is_signed(batch: Batch, operation: dict[str, Any], task: str, arguments: dict[str, Any], signature: object) -> bool:
    """Return whether ``enqueue`` wrote this job for this batch, with the same task and arguments.

    A role that can only write rows could add such a job to any batch.
    """
    try:
        return has_signature(_SALT, _signed_text(batch, operation, task, arguments), signature)
    except PayloadError:
        return False


def _signed_text(batch: Batch, operation: dict[str, Any], task: str, arguments: dict[str, Any]) -> str:
    return canonical([batch.id, operation, task, arguments], what="operation")


def permission_of(batch: Batch) -> str:
    """Return the permission for an operation. Users with it may also stop the operation."""
    act = ACTS.get(batch.context.get("act", ""))
    return "" if act is None else act.permission


def why_not(context: dict[str, Any]) -> str:
    """Return why an operation must stop, such as a lost permission of its user, or "" if it may continue."""
    act, users = ACTS.get(context["act"]), get_user_model()._default_manager
    user: Any = users.filter(pk=context["user"], is_active=True).first()
    if act is None:
        return f"the operation {context['act']!r} no longer exists"
    if user is None or not user.has_perm(f"pulse_django.{act.permission}"):
        return f"{context['by']} no longer has the permission {act.permission!r}"
    return ""


def _newest(alias: str) -> tuple[int, str]:
    """Return the id of the newest job, and the present instant of the server's clock."""
    newest = (
        Job.objects.using(alias).order_by("-id").annotate(now=StatementTimestamp()).values_list("id", "now").first()
    )
    return (0, "1970-01-01T00:00:00+00:00") if newest is None else (newest[0], newest[1].isoformat())
