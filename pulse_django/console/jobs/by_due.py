"""The waiting jobs in the order in which they are due, a hundred a page, of all queues or of one.

The list of jobs is in the order of ids, because no index has all jobs in the order of their time. Each lane has one, so
each lane is asked for its next jobs, and the first of all of them are the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.timezone import make_aware
from django.utils.translation import gettext, gettext_lazy
from django.views.decorators.http import require_safe

from pulse_django.console.shards import chosen_shards
from pulse_django.models import Job
from pulse_django.store.transactions import run_joined
from pulse_django.words.job_ids import MAX_ID
from pulse_django.words.limits import MAX_QUEUE_NAME

from .due_soon import LANES, LANES_OF_QUEUE, MOST_LANES, Due, of_lanes, read_due

PER_PAGE = 100

_PAGE = """
    AND next_run_at >= %(at)s::timestamptz AND (next_run_at > %(at)s::timestamptz OR id > %(id)s::bigint)
    ORDER BY next_run_at, id
    LIMIT (SELECT %(most)s + 1)
"""
_FIRST = " LIMIT (SELECT %(most)s + 1)"
_BY_DUE = of_lanes(LANES, _PAGE) + _FIRST
_BY_DUE_IN_QUEUE = of_lanes(LANES_OF_QUEUE, _PAGE) + _FIRST


@dataclass(frozen=True, slots=True)
class Cursor:
    """The job after which a page begins."""

    at: datetime
    id: int

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Read what ``text`` wrote. What is none is the beginning."""
        at, _, job_id = text.rpartition("_")
        with suppress(ValueError, OverflowError):
            instant, number = datetime.fromisoformat(at), int(job_id)
            if instant.tzinfo is not None and 0 <= number <= MAX_ID:
                return cls(instant.astimezone(UTC), number)  # the server takes fewer offsets than Python
        return BEGINNING

    @property
    def text(self) -> str:
        at = self.at if self.at.tzinfo is not None else make_aware(self.at)  # without USE_TZ
        return f"{at.isoformat()}_{self.id}"


BEGINNING = Cursor(datetime.min.replace(tzinfo=UTC), 0)


class QueueForm(forms.Form):
    queue = forms.CharField(
        label=gettext_lazy("queue"), max_length=MAX_QUEUE_NAME, required=False, empty_value="", strip=False
    )


def by_due(alias: str, queue: str, after: Cursor) -> tuple[list[Due], bool]:
    """Return the next jobs, one more than a page has, and whether there are lanes that were not looked at."""
    params = {"most_lanes": MOST_LANES, "most": PER_PAGE, "queue": queue, "at": after.at, "id": after.id}
    return read_due(run_joined(alias, _BY_DUE_IN_QUEUE if queue else _BY_DUE, params))


class ByDuePage:
    """Of ``JobAdmin``."""

    admin_site: Any

    @method_decorator(require_safe)
    def by_due_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):  # type: ignore[attr-defined]  # of ModelAdmin
            raise PermissionDenied
        form = QueueForm(request.GET)
        is_valid, everywhere = form.is_valid(), chosen_shards(request, Job, reads=True)
        queue = form.cleaned_data["queue"] if is_valid else ""
        after = Cursor.of(request.GET.get("after", ""))
        answers = list(everywhere.ask(lambda alias: by_due(alias, queue, after)).values()) if is_valid else []
        found = sorted((one for some, _ in answers for one in some), key=lambda one: (one.at, one.id))
        change = f"{self.admin_site.name}:pulse_django_job_change"
        context = {
            **self.admin_site.each_context(request),
            "opts": Job._meta,
            "title": gettext("Waiting jobs by due time"),
            "form": form,
            "rows": [{"is": one, "url": reverse(change, args=[one.id])} for one in found[:PER_PAGE]],
            "next_query": _next(request.GET, found),
            "first_query": "" if after == BEGINNING else _query(request.GET, None),
            "is_partial": any(is_partial for _, is_partial in answers),
            "most_lanes": MOST_LANES,
        }
        everywhere.tell(request)
        return TemplateResponse(request, "admin/pulse_django/job/by_due.html", context)


def _next(asked: QueryDict, found: Sequence[Due]) -> str:
    """Return the query of the next page; empty: this is the last."""
    if len(found) <= PER_PAGE:
        return ""
    last = found[PER_PAGE - 1]
    return _query(asked, Cursor(last.at, last.id))


def _query(asked: QueryDict, after: Cursor | None) -> str:
    """Return the query of another page of the same queue and shard."""
    query = asked.copy()
    query.pop("after", None)
    if after is not None:
        query["after"] = after.text
    return f"?{query.urlencode()}"
