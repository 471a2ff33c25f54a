"""The confirmation page of an action on many jobs: all that match the filter of the list, or those selected."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.formats import number_format
from django.utils.translation import gettext

from pulse_django import conf
from pulse_django.console.pages import ConsoleAdmin, url_for
from pulse_django.exceptions import PayloadError
from pulse_django.models import Job, StoredBatch
from pulse_django.operations.acts import ACTS, Act, ActForm, Given, errors_in_words
from pulse_django.operations.batches import BATCH
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.bounds import HIGHEST_PRIORITY
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.own_tasks import PLAN
from pulse_django.queue.words.payloads import canonical
from pulse_django.run.notify import wake_workers
from pulse_django.shards.page import in_shard, shard_of
from pulse_django.signed_texts import has_signature, signature_of
from pulse_django.workflows.batches import Batch
from pulse_django.workflows.rules import MAX_BATCH_NAME, Place

from .criteria import Criteria, InvalidCriteria, matching

AT_ONCE = BATCH  # jobs that a request changes by itself
MOST_COUNTED = 100_000  # on the confirmation page


class MassPage(ConsoleAdmin):
    """An admin with actions on many jobs."""

    def mass_path(self, route: str) -> URLPattern:
        """Return the address of ``mass_view``, which commits by itself, with ATOMIC_REQUESTS too."""
        found = self.path(route, self.mass_view, "mass")
        for alias in connections:
            found.callback = transaction.non_atomic_requests(alias)(found.callback)
        return found

    def list_url(self, request: HttpRequest, query: str = "") -> str:
        """Return the address of the page that leads here."""
        return f"{self.url('job_changelist')}?{query}"

    def mass_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask for confirmation, and act when the form is posted. The filter is in the address.

        Another page can post the fields of the form with ``ask``, to start with them.
        """
        act, posted = ACTS.get(name), request.POST.dict()
        if act is None or not act.label_of_all:
            raise Http404
        if not self.may(request, act.permission):
            raise PermissionDenied
        asks = request.method != "POST" or "ask" in posted
        is_selected = posted.get("ask", posted.get("scope")) == "selected"
        selected = request.POST.getlist("id") if is_selected else None
        try:
            criteria = Criteria.read(request.META.get("QUERY_STRING", ""), request, selected=selected)
        except InvalidCriteria as error:
            return self.back(request, str(error))
        shown_at = {} if is_selected else {"asked_at": _newest(shard_of(request))[1]}
        form = act.form(None if asks else request.POST, initial=posted | shown_at)
        if form.is_valid():
            return self._act(request, act, criteria, form)
        if form.is_bound:
            self.message_user(request, errors_in_words(form), messages.ERROR)
        shown = {
            "title": str(act.label_of_all),
            "act": act,
            "criteria": criteria,
            "count": self._count(request, act, criteria),
            "at_once": AT_ONCE,
            "form": form,
            "list_url": self.list_url(request, criteria.query),
        }
        return self.page(request, "job/mass", shown)

    def back(self, request: HttpRequest, why: str) -> HttpResponse:
        self.message_user(request, gettext("%(why)s Nothing was changed.") % {"why": why}, messages.WARNING)
        return HttpResponseRedirect(self.list_url(request))

    def mass_links(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return the actions on all matching jobs, if the list is filtered."""
        try:
            query = Criteria.read(request.META.get("QUERY_STRING", ""), request).query
        except InvalidCriteria:
            return []
        offered = [{"act": act, "url": self.mass_url(request, act, query)} for act in ACTS.values() if act.label_of_all]
        return [one for one in offered if one["url"]]

    def mass_url(self, request: HttpRequest, act: Act, query: str) -> str:
        """Return the address of an action on all jobs that match, or "" if this user may not do it."""
        url = f"{self.url(f'{self.opts.model_name}_mass', act.name)}?{query}"
        return url if self.may(request, act.permission) else ""

    def _act(self, request: HttpRequest, act: Act, criteria: Criteria, form: ActForm) -> HttpResponse:
        alias, given, url = shard_of(request), form.cleaned_data, self.list_url(request, criteria.query)
        user: Any = request.user
        jobs = matching(criteria, act, alias, given["asked_at"])
        chosen = len(criteria.ids) or None
        if chosen or (not given.get("first") and jobs.order_by()[: AT_ONCE + 1].count() <= AT_ONCE):
            self.act_at_once(request, act, jobs, given, form.done_in_words(act.done), chosen)
            return HttpResponseRedirect(url)
        batch = start_operation(alias, act, criteria, given, user)
        said = gettext("%(verb)s: %(filter)s") % {"verb": act.label_of_all, "filter": criteria.words}
        said = in_shard(f"{said}: {given['reason']}" if given["reason"] else said, alias)
        row = StoredBatch.objects.using(alias).only("id", "name").filter(pk=batch.id)
        LogEntry.objects.log_actions(user.pk, row, CHANGE, change_message=said)
        messages.success(request, gettext("Started as operation %(id)d. You may close this page.") % {"id": batch.id})
        page = url_for(request, self.admin_site.name, "storedbatch", "storedbatch_change", batch.id)
        return HttpResponseRedirect(page or url)

    def _count(self, request: HttpRequest, act: Act, criteria: Criteria) -> str:
        jobs = matching(criteria, act, shard_of(request))
        count = jobs.order_by().values("pk")[: MOST_COUNTED + 1].count()
        shown = number_format(min(count, MOST_COUNTED), force_grouping=True)
        return f"{shown}+" if count > MOST_COUNTED else shown


# Start an operation: open its batch, and enqueue the job that finds the others.


KIND = "mass operation"
_SALT = "pulse_django.operation"


def start_operation(alias: str, act: Act, criteria: Criteria, given: Given, user: Any) -> Batch:
    """Start an operation for a user. Jobs that are enqueued from now on are not included, nor those that ended after
    ``asked_at`` of ``given``, or now.
    """
    name = "".join(sign if sign.isprintable() else "?" for sign in f"{act.label_of_all}: {criteria.words}")
    with transaction.atomic(using=alias):
        until, now = _newest(alias)
        context = {
            "act": act.name,
            "query": criteria.query,
            "given": {name: value for name, value in given.items() if name != "asked_at"},
            "user": str(user.pk),
            "by": user.get_username(),
            "until": until,
            "asked_at": given.get("asked_at") or now,
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
