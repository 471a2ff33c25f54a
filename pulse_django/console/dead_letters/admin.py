"""Dead letters in the admin, grouped by error: the list of groups, and the page of each with its actions."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern
from django.utils.decorators import method_decorator
from django.utils.formats import number_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

from pulse_django.console.board.sparkline import draw
from pulse_django.console.mass.page import MassPage
from pulse_django.console.pages import ReadOnly
from pulse_django.console.search_terms import Place, number_in
from pulse_django.models import Attempt, Job
from pulse_django.operations.acts import ACTS
from pulse_django.queue.words.display import in_words
from pulse_django.shards.page import shard_of

from . import groups
from .groups import counted, few_tasks, letter_row

FIRST = 10  # dead letters that "Retry 10 first, then all" retries


class DeadLetterAdmin(MassPage, ReadOnly):
    def get_urls(self) -> list[URLPattern]:
        return [
            self.path("", self.changelist_view, "changelist"),
            self.path("group/", self.group_view, "group"),
            self.mass_path("group/<slug:name>/"),
        ]

    def list_url(self, request: HttpRequest, query: str = "") -> str:
        return self._group_url(fingerprint_in(request))

    @method_decorator(require_safe)
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the groups, latest seen first."""
        page = number_in(request.GET.get("page", "")) or 0
        page = page if page < MOST_PAGES else 0
        found = groups.groups(shard_of(request), page=page)
        here = self.url("deadletter_changelist")
        extra = {
            "title": gettext("Dead letters by error"),
            "found": found,
            "rows": [self._group_row(one) for one in found.groups],
            "most_groups": number_format(groups.MOST_GROUPS, force_grouping=True),
            "newer_url": f"{here}?page={page - 1}" if page else "",
            "older_url": f"{here}?page={page + 1}" if found.has_older else "",
        }
        return self.page(request, "deadletter/change_list", extra | (extra_context or {}))

    @method_decorator(require_safe)
    def group_view(self, request: HttpRequest) -> HttpResponse:
        """Show one group: its error, its latest traceback and its dead letters."""
        fingerprint, alias = fingerprint_in(request), shard_of(request)
        group = groups.group(alias, fingerprint)
        before = Place.named(request.GET.get("older", "")) or groups.LATEST  # where the page starts
        extra: dict[str, Any] = {"title": gettext("Dead letters of one error"), "fingerprint": fingerprint}
        if group is None:
            return self.page(request, "deadletter/group", extra)
        letters, has_older = groups.letters(alias, fingerprint, before=before)
        # The address of the same page that selects all, or none if all are selected.
        other = {"older": str(request.GET["older"])} if "older" in request.GET else {}
        other |= {} if "select" in request.GET else {"select": "all"}
        versions = groups.versions_of(alias, [group.first_id, group.latest_id])
        extra |= {
            "group": self._group_row(group),
            "attempt": Attempt.objects.using(alias).filter(job_id=group.latest_id).order_by("-number").first(),
            "versions": (versions.get(group.first_id, ""), versions.get(group.latest_id, "")),
            "latest_url": self._job_url(group.latest_id),
            "letters": [letter_row(one, self._job_url(one.id)) for one in letters],
            "first_url": "" if before is groups.LATEST else self._group_url(fingerprint),
            "older_url": self._group_url(fingerprint, older=letters[-1].place.name) if has_older else "",
            "retry_url": self.mass_url(request, ACTS["retry"], urlencode({"error": fingerprint})),
            "delete_url": self.mass_url(request, ACTS["delete"], urlencode({"error": fingerprint})),
            "form": ACTS["retry"].form(auto_id="revive_%s", initial={"asked_at": group.last_seen.isoformat()}),
            "first": FIRST,
            "selects_all": "select" in request.GET,
            "select_url": self._group_url(fingerprint, **other),
        }
        return self.page(request, "deadletter/group", extra)

    def _group_url(self, fingerprint: str, **params: str) -> str:
        return f"{self.url('deadletter_group')}?{urlencode({'error': fingerprint} | params)}"

    def _job_url(self, job_id: int) -> str:
        """Return the address of the job, or "" if this site has no page for jobs."""
        return self.url("job_change", job_id) if self.admin_site.is_registered(Job) else ""

    def _group_row(self, group: groups.ErrorGroup) -> dict[str, Any]:
        return {
            "is": group,
            "url": self._group_url(group.fingerprint),
            "count": counted(group),
            "tasks": few_tasks(group.tasks),
            "first_seen": in_words((group.now - group.first_seen).total_seconds()),
            "last_seen": in_words((group.now - group.last_seen).total_seconds()),
            "hours": draw(group.hours),
            "most_in_an_hour": max(group.hours),
        }


MOST_PAGES = groups.MOST_GROUPS * 2 // groups.GROUPS_ON_A_PAGE


def fingerprint_in(request: HttpRequest) -> str:
    """Read the fingerprint from the address. In the field of a form, browsers would change its line breaks."""
    fingerprint = request.GET.get("error")
    if fingerprint is None or "\x00" in fingerprint or len(fingerprint) > groups.MOST_CHARACTERS:
        raise Http404(_("No dead letters have this error."))
    return fingerprint
