"""The confirmation page of an action on many jobs: all that match the filter of the list, or those selected."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.formats import number_format
from django.utils.translation import gettext

from pulse_django.console.pages import ConsoleAdmin, url_for
from pulse_django.models import StoredBatch
from pulse_django.operations.acts import ACTS, Act, ActForm, errors_in_words
from pulse_django.operations.batches import BATCH
from pulse_django.shards.page import in_shard, shard_of

from .criteria import Criteria, InvalidCriteria, matching, newest
from .operation import start_operation

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
        shown_at = {} if is_selected else {"asked_at": newest(shard_of(request))[1]}
        form = act.form(None if asks else request.POST, initial=posted | shown_at)
        for field in ("first", "patience") if is_selected else ():  # they are for an operation
            form.fields.pop(field, None)
        if form.is_valid():
            return self._act(request, act, criteria, form)
        if form.is_bound:
            self.message_user(request, errors_in_words(form), messages.ERROR)
        shown = {
            "title": str(act.label if is_selected else act.label_of_all),
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
        jobs = matching(criteria, act, alias, given["asked_at"] or newest(alias)[1])
        chosen = len(criteria.ids) or None
        if chosen or (not given.get("first") and jobs.order_by()[: AT_ONCE + 1].count() <= AT_ONCE):
            some = jobs.only("pk", "task")
            some = some if chosen else some[:AT_ONCE]  # others may match by now
            self.act_at_once(request, act, some, given, form.done_in_words(act.done), chosen)
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
