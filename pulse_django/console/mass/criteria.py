"""Find the jobs that match a filter of the list of jobs, which is read from its address, or those selected among them.

The page and the worker read it in the same way. Unknown parameters are refused: without them, more jobs would match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.admin.views.main import SEARCH_VAR
from django.http import HttpRequest, QueryDict
from django.utils.http import urlencode
from django.utils.translation import gettext

from pulse_django.console.jobs.searching import Searching, may_search_arguments
from pulse_django.console.jobs.sidebar import Sidebar
from pulse_django.console.search_terms import Search, number_in, search_in, without_values
from pulse_django.models import Job
from pulse_django.operations.acts import Act
from pulse_django.operations.batches import BATCH
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.own_tasks import OWN_TASKS
from pulse_django.shards.page import SHARD, request_for

PLACES = frozenset({SHARD, "older", "newer", "e"})  # parameters of a page of the list, which filter no jobs
MOST_CHARACTERS = 4_000


class InvalidCriteria(ValueError):
    """An address without a valid filter of the list of jobs."""


@dataclass(frozen=True, slots=True)
class Criteria:
    """A filter, and its description."""

    query: str  # only parameters that filter jobs
    words: str  # without the values of arguments: it names the operation
    ids: Sequence[int] = ()  # if not empty, only these

    @classmethod
    def read(cls, query: str, request: HttpRequest | None = None, *, selected: Sequence[str] | None = None) -> Criteria:
        """Read the part of an address after the question mark, and selected ids. Raise ``InvalidCriteria``."""
        params = _params(query)
        specs = _specs(params, request or HttpRequest())
        said = [f"{one.title}: {dict(one.lookup_choices).get(one.value(), one.value())}" for one in specs]
        if SEARCH_VAR in params:
            _refuse_ambiguous(search_in(params[SEARCH_VAR]), request)
            said.append(f"{gettext('search')}: {without_values(params[SEARCH_VAR])}")
        if not said:
            raise InvalidCriteria(gettext("Choose a filter first."))
        numbers = [number_in(text) for text in (selected or ())[:BATCH]]
        ids = tuple(dict.fromkeys(number for number in numbers if number is not None))
        if selected is not None and not ids:
            raise InvalidCriteria(gettext("No jobs are selected."))
        return cls(urlencode(params), inert(", ".join([*said, *(f"#{number}" for number in ids)])), ids)

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        """Return the jobs that match now, in no order."""
        params = _params(self.query)
        jobs: JobQuerySet[Job] = Job.objects.using(alias).all()
        request = request_for(alias)
        for spec in _specs(params, request):
            jobs = spec.queryset(request, jobs)
        if SEARCH_VAR in params:
            search = search_in(params[SEARCH_VAR])
            known = Sidebar(alias).tasks if search.words else ()
            # The user may see arguments: otherwise ``read`` would have refused the filter.
            jobs = Searching(search, known=known, sees_arguments=True).narrowed(jobs)
        return jobs.filter(pk__in=self.ids) if self.ids else jobs


def matching(criteria: Criteria, act: Act, alias: str, asked_at: str = "") -> JobQuerySet[Job]:
    """Return the jobs that the act can change now. Those of operations are never meant."""
    return act.matching(criteria.jobs(alias), asked_at).exclude(task__in=OWN_TASKS)


def newest(alias: str) -> tuple[int, str]:
    """Return the id of the newest job, and the present instant of the server's clock."""
    newest = (
        Job.objects.using(alias).order_by("-id").annotate(now=StatementTimestamp()).values_list("id", "now").first()
    )
    return (0, "1970-01-01T00:00:00+00:00") if newest is None else (newest[0], newest[1].isoformat())


def _refuse_ambiguous(search: Search, request: HttpRequest | None) -> None:
    """Refuse a bare number, whose matches depend on the known tasks, and arguments that the user may not see."""
    if search.number:
        raise InvalidCriteria(gettext("Type # before the number for the job, or name the argument."))
    if search.arguments and request is not None and not may_search_arguments(request):
        raise InvalidCriteria(gettext("You need the permission to see arguments to search them."))


def _params(query: str) -> dict[str, str]:
    if len(query) > MOST_CHARACTERS:
        raise InvalidCriteria(gettext("The filter is too long."))
    given = QueryDict(query)
    known = {one.parameter_name for one in _filters()} | {SEARCH_VAR} | PLACES
    if unknown := given.keys() - known:
        raise InvalidCriteria(gettext("Unknown filter: %(name)s.") % {"name": inert(min(unknown))})
    params = {name: str(given[name]) for name in given if name not in PLACES}
    # Django also searches for an empty word in quotes, which matches every job.
    if not params.get(SEARCH_VAR, "x").strip(" \t\r\n\"'") or "\0" in params.get(SEARCH_VAR, ""):
        raise InvalidCriteria(gettext("Unknown filter: %(name)s.") % {"name": gettext("search")})
    return params


def _specs(params: dict[str, str], request: HttpRequest) -> list[Any]:
    """Return the filters that have a value. Refuse unknown values, which would match all jobs."""
    page, lists = _list(), {name: [value] for name, value in params.items()}
    found = [one(request, dict(lists), Job, page) for one in _filters() if one.parameter_name in params]
    for spec in found:
        if spec.value() is None:
            raise InvalidCriteria(gettext("Unknown filter: %(name)s.") % {"name": spec.title})
    return found


def _filters() -> Any:
    return _list().get_list_filter(HttpRequest())


def _list() -> Any:
    from pulse_django.console.jobs.admin import JobAdmin

    return JobAdmin(Job, AdminSite())
