"""Dead letters in the admin, grouped by error: the list of groups, and the page of each with its two actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, reverse
from django.utils.decorators import method_decorator
from django.utils.formats import number_format
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_POST, require_safe

from pulse_django.console.board.sparkline import draw
from pulse_django.console.mass.page import started
from pulse_django.console.pages import ReadOnly
from pulse_django.console.search_terms import Place, number_in
from pulse_django.models import Attempt, Job
from pulse_django.operations.acts import ACTS, ActForm, errors_in_words
from pulse_django.queue.words.display import in_words
from pulse_django.shards.page import shard_of
from pulse_django.workflows.batches import Batch

from . import groups, mass_actions
from .groups import counted, few_tasks, letter_row

RETRY, DELETE = ACTS["retry"], ACTS["delete"]
MOST_NAMED = 20  # ids on a confirmation page


class DeadLetterAdmin(ReadOnly):
    def get_urls(self) -> list[URLPattern]:
        return [
            self.path("group/", self.group_view, "group"),
            self.path("group/retry/", self.retry_view, "retry"),
            self.path("group/delete/", self.delete_group_view, "destroy"),
            *super().get_urls(),
        ]

    def path(self, route: str, view: Callable[..., HttpResponseBase], name: str) -> URLPattern:
        """Return an address whose batches commit one by one, with ATOMIC_REQUESTS too."""
        found = super().path(route, view, name)
        for alias in connections:
            found.callback = transaction.non_atomic_requests(alias)(found.callback)
        return found

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
        extra: dict[str, Any] = {"title": gettext("Dead letters of one error")}
        if group is None:
            return self._page_of_group(request, "group", extra)
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
            "may_retry": self.may(request, "pulse_retry_jobs"),
            "may_delete": self.may(request, "pulse_delete_jobs"),
            "form": RETRY.form(auto_id="revive_%s"),
            "until": group.newest.name,
            "first": mass_actions.FIRST,
            "selects_all": "select" in request.GET,
            "select_url": self._group_url(fingerprint, **other),
        }
        return self._page_of_group(request, "group", extra)

    @method_decorator(require_POST)
    def retry_view(self, request: HttpRequest) -> HttpResponse:
        """Retry the selected dead letters, or all of the group."""
        if not self.may(request, "pulse_retry_jobs"):
            raise PermissionDenied
        form = RETRY.form(request.POST)
        if form.is_valid():
            press = mass_actions.Press(act=RETRY, form=form, error=fingerprint_in(request))
            if form.cleaned_data["first"]:
                if groups.group(shard_of(request), press.error) is None:
                    return self._nothing_selected(request)
                return self._started(request, press, mass_actions.start(press, shard_of(request), request.user))
            if means_all(request) and request.POST.get("confirmed") != "yes" and not self._lacks_until(request):
                return self._ask_to_retry(request, form)
            return self._act(request, press)
        self.message_user(request, errors_in_words(form), messages.ERROR)
        return HttpResponseRedirect(self._group_url(fingerprint_in(request)))

    @method_decorator(require_POST)
    def delete_group_view(self, request: HttpRequest) -> HttpResponse:
        """Ask for a confirmation and a reason, then delete the dead letters."""
        if not self.may(request, "pulse_delete_jobs"):
            raise PermissionDenied
        is_confirmed = request.POST.get("confirmed") == "yes" and not self._lacks_until(request)
        form = DELETE.form(request.POST if is_confirmed else None)
        if is_confirmed and form.is_valid():
            return self._act(request, mass_actions.Press(act=DELETE, form=form, error=fingerprint_in(request)))
        if not (means_all(request) or ids_in(request)):
            return self._nothing_selected(request)
        return self._ask(request, form)

    def _lacks_until(self, request: HttpRequest) -> bool:
        return means_all(request) and until_in(request) is None

    def _act(self, request: HttpRequest, press: mass_actions.Press) -> HttpResponse:
        ids, until, is_more, alias = ids_in(request), until_in(request), False, shard_of(request)
        if means_all(request):
            if until is None:
                said = gettext("The selection of dead letters is missing. Nothing was changed.")
                return self._warn(request, said)
            is_more, operation = mass_actions.to_all(press, alias, until, request.user)
            if operation is not None:
                return self._started(request, press, operation)
        elif ids:
            mass_actions.to_selected(press, alias, ids, until or groups.LATEST, request.user)
        else:
            return self._nothing_selected(request)
        said = press.summary()
        if is_more and (left := groups.group(alias, press.error)):
            said += " " + gettext(
                "About %(count)s remain. Repeat the action, or use manage.py %(command)s --error."
            ) % {
                "count": counted(left),
                "command": "pulse_retry" if press.act is RETRY else "pulse_prune --status DEAD_LETTERED",
            }
        self.message_user(
            request, said, messages.WARNING if press.counts[press.act.missed] or is_more else messages.SUCCESS
        )
        return HttpResponseRedirect(self._group_url(press.error))

    def _started(self, request: HttpRequest, press: mass_actions.Press, batch: Batch) -> HttpResponse:
        return started(self, request, batch) or HttpResponseRedirect(self._group_url(press.error))

    def _nothing_selected(self, request: HttpRequest) -> HttpResponse:
        return self._warn(request, gettext("No dead letters were selected. Nothing was changed."))

    def _warn(self, request: HttpRequest, said: str) -> HttpResponse:
        self.message_user(request, said, messages.WARNING)
        return HttpResponseRedirect(self._group_url(fingerprint_in(request)))

    def _ask_to_retry(self, request: HttpRequest, form: ActForm) -> HttpResponse:
        group = groups.group(shard_of(request), fingerprint_in(request))
        if group is None:
            return self._nothing_selected(request)
        extra = {
            "tasks": few_tasks(group.tasks),
            "title": gettext("Retry all dead letters of this error?"),
            "form": form,
            "count": counted(group),
            "until": group.newest.name,  # limits the retry to the dead letters that are counted now
        }
        return self._page_of_group(request, "retry", extra)

    def _ask(self, request: HttpRequest, form: ActForm) -> HttpResponse:
        fingerprint, is_all = fingerprint_in(request), means_all(request)
        alias = shard_of(request)
        extra: dict[str, Any] = {
            "title": gettext("Permanently delete dead letters?"),
            "form": form,
            "scope": "all" if is_all else "selected",
        }
        if is_all:
            group = groups.group(alias, fingerprint)
            extra["until"] = group.newest.name if group else ""
            jobs: list[Any] = groups.letters(alias, fingerprint)[0]
            count, tasks = (counted(group), group.tasks) if group else ("0", ())
        else:
            until = until_in(request) or groups.LATEST
            extra["until"] = "" if until is groups.LATEST else until.name
            found = groups.among(alias, fingerprint, ids_in(request), until=until)
            jobs = sorted(found, key=lambda job: -job.pk)
            count, tasks = str(len(jobs)), tuple(sorted({job.task for job in jobs}))
        extra |= {
            "tasks": few_tasks(tasks),
            "count": count,
            "named": [str(job.id) for job in jobs[:MOST_NAMED]],
            "ids": [] if is_all else [str(job.id) for job in jobs],
            "most_at_once": number_format(mass_actions.MOST_AT_ONCE, force_grouping=True),
        }
        return self._page_of_group(request, "delete", extra)

    def _page_of_group(self, request: HttpRequest, name: str, shown: dict[str, Any]) -> HttpResponse:
        fingerprint, pages = fingerprint_in(request), {"group": "group", "retry": "retry", "delete": "destroy"}
        urls = {f"{one}_url": self._group_url(fingerprint, page) for one, page in pages.items()}
        return self.page(request, f"deadletter/{name}", {"fingerprint": fingerprint, **urls, **shown})

    @method_decorator(require_safe)
    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect from an entry of the admin's log to its job or group."""
        key = unquote(object_id)
        job_id = number_in(key)  # a fingerprint has no digits
        return HttpResponseRedirect(("" if job_id is None else self._job_url(job_id)) or self._group_url(key))

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        return self.change_view(request, object_id)

    def page(self, request: HttpRequest, name: str, shown: Mapping[str, Any], **options: Any) -> HttpResponse:
        urls = {
            "index_url": reverse(f"{self.admin_site.name}:index"),
            "app_url": reverse(f"{self.admin_site.name}:app_list", args=[self.opts.app_label]),
            "list_url": self.url("deadletter_changelist"),
        }
        return super().page(request, name, {**urls, **shown}, **options)

    def _group_url(self, fingerprint: str, name: str = "group", **params: str) -> str:
        return f"{self.url(f'deadletter_{name}')}?{urlencode({'error': fingerprint} | params)}"

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


# The parameters of requests to the pages of dead letters.


MOST_PAGES = groups.MOST_GROUPS * 2 // groups.GROUPS_ON_A_PAGE
MOST_SELECTED = 500


def fingerprint_in(request: HttpRequest) -> str:
    """Read the fingerprint from the address. In the field of a form, browsers would change its line breaks."""
    fingerprint = request.GET.get("error")
    if fingerprint is None or "\x00" in fingerprint or len(fingerprint) > groups.MOST_CHARACTERS:
        raise Http404(_("No dead letters have this error."))
    return fingerprint


def until_in(request: HttpRequest) -> Place | None:
    """Return the newest dead letter that the page showed or counted."""
    return Place.named(request.POST.get("until", ""))


def means_all(request: HttpRequest) -> bool:
    return request.POST.get("scope") == "all"


def ids_in(request: HttpRequest) -> Sequence[int]:
    numbers = (number_in(text) for text in request.POST.getlist("id")[:MOST_SELECTED])
    return list(dict.fromkeys(number for number in numbers if number is not None))
