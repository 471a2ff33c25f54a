"""The page that asks before something is done to all jobs that match the filter of the list."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, reverse
from django.utils.formats import number_format
from django.utils.translation import gettext

from pulse_django.console.jobs.actions import errors_in_words
from pulse_django.console.shards import Shards, chosen_shards
from pulse_django.models import Job, StoredBatch
from pulse_django.workflows.batches import Batch

from .criteria import Criteria, InvalidCriteria
from .starting import start_operations
from .verbs import BY_NAME, VERBS, Verb

MOST_COUNTED = 100_000  # on the page that asks


class MassPage:
    """Of ``JobAdmin``."""

    admin_site: Any

    def mass_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Ask, and start the operation when the form is posted. The address has the filter of the list."""
        verb = BY_NAME.get(name)
        if verb is None:
            raise Http404
        if not self._may_start(request, verb):
            raise PermissionDenied
        try:
            criteria = Criteria.read(request.META.get("QUERY_STRING", ""), request)
        except InvalidCriteria as error:
            return self._back(request, str(error))
        form = verb.form(request.POST if request.method == "POST" else None)
        if form.is_valid():
            return self._start(request, verb, criteria, form.cleaned_data)
        if form.is_bound:
            self._say(request, errors_in_words(form), messages.ERROR)
        context = {
            **self.admin_site.each_context(request),
            "opts": Job._meta,
            "title": str(verb.label),
            "verb": verb,
            "criteria": criteria,
            "count": self._count(request, verb, criteria),
            "form": form,
            "list_url": self._list_url(),
        }
        return TemplateResponse(request, "admin/pulse_django/job/mass.html", context)

    def mass_links(self, request: HttpRequest) -> list[dict[str, Any]]:
        """Return what can be done to all that match, if the list is filtered."""
        query = request.META.get("QUERY_STRING", "")
        offered = [verb for verb in VERBS if self._may_start(request, verb)]
        try:
            criteria = Criteria.read(query, request) if offered else None
        except InvalidCriteria:
            return []
        if criteria is None:
            return []
        name = f"{self.admin_site.name}:pulse_django_job_mass"
        return [{"verb": one, "url": f"{reverse(name, args=[one.name])}?{criteria.query}"} for one in offered]

    def _start(self, request: HttpRequest, verb: Verb, criteria: Criteria, given: dict[str, Any]) -> HttpResponse:
        everywhere = chosen_shards(request, Job)
        aliases = list(everywhere.aliases)
        if len(aliases) > 1:  # not where there is nothing to do
            aliases = [alias for alias, count in self._counts(everywhere, verb, criteria).items() if count]
        started = start_operations(everywhere, aliases, verb, criteria, given, request.user)
        said = gettext("%(verb)s: %(filter)s") % {"verb": verb.label, "filter": criteria.words}
        for batch in started:
            log(request.user, batch, f"{said}: {given['why']}" if given.get("why") else said)
        say_started(request, started, everywhere)
        everywhere.tell(request)
        page = operation_url(self.admin_site, request, started[0]) if len(started) == 1 else ""
        return HttpResponseRedirect(page or self._list_url())

    def _counts(self, everywhere: Shards, verb: Verb, criteria: Criteria) -> dict[str, int]:
        def count(alias: str) -> int:
            jobs = verb.fitting(criteria.jobs(alias), "9999-01-01T00:00:00+00:00").order_by()
            return jobs.values("pk")[: MOST_COUNTED + 1].count()

        return everywhere.ask(count)

    def _count(self, request: HttpRequest, verb: Verb, criteria: Criteria) -> str:
        everywhere = chosen_shards(request, Job)
        count = sum(self._counts(everywhere, verb, criteria).values())
        everywhere.tell(request)
        shown = number_format(min(count, MOST_COUNTED), force_grouping=True)
        return f"{shown}+" if count > MOST_COUNTED else shown

    def _may_start(self, request: HttpRequest, verb: Verb) -> bool:
        is_seen = self.has_view_permission(request)  # type: ignore[attr-defined]  # of ModelAdmin
        return bool(is_seen and request.user.has_perm(f"pulse_django.{verb.permission}"))

    def _back(self, request: HttpRequest, why: str) -> HttpResponse:
        said = gettext("%(why)s Nothing was changed.") % {"why": why}
        self._say(request, said, messages.WARNING)
        return HttpResponseRedirect(self._list_url())

    def _say(self, request: HttpRequest, text: str, level: int = messages.SUCCESS) -> None:
        self.message_user(request, text, level)  # type: ignore[attr-defined]  # of ModelAdmin

    def _list_url(self) -> str:
        return reverse(f"{self.admin_site.name}:pulse_django_job_changelist")


def say_started(request: HttpRequest, started: list[Batch], everywhere: Shards) -> None:
    """Name the operations that were started. Where a shard is away, it may be that none matched in the others."""
    if not started and everywhere.away:
        messages.warning(request, gettext("No operation was started in a shard that responds."))
    elif not started:
        messages.warning(request, gettext("No job matches. Nothing was changed."))
    elif len(started) == 1:
        said = gettext("Started as operation %(id)d. You may close this page.") % {"id": started[0].id}
        messages.success(request, said)
    else:
        named = ", ".join(f"{one.id} ({one.alias})" for one in started)
        said = gettext("Started as operations %(ids)s, one in each shard. You may close this page.") % {"ids": named}
        messages.success(request, said)


def operation_url(site: Any, request: HttpRequest, batch: Batch) -> str:
    """Return the page of an operation, or an empty str for who may not see it."""
    if not request.user.has_perm("pulse_django.view_storedbatch"):
        return ""
    try:
        return reverse(f"{site.name}:pulse_django_storedbatch_change", args=[batch.id])
    except NoReverseMatch:
        return ""  # this site does not show workflows


def log(user: Any, batch: Batch, said: str) -> None:
    """Leave an entry in the log of the admin, which leads to the operation."""
    row = StoredBatch.objects.using(batch.alias).only("id", "name").filter(pk=batch.id)
    LogEntry.objects.log_actions(user.pk, row, CHANGE, change_message=said)
