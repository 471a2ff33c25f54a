"""Waiting jobs by due time: a list of all, and a chart of the next hour by minute and task.

No index has all jobs in the order of their due times, because it would make each claim slower. The index of claims has
this order within each lane, so the next jobs of each lane are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, QueryDict
from django.utils.decorators import method_decorator
from django.utils.translation import gettext, gettext_lazy, ngettext
from django.views.decorators.http import require_safe

from pulse_django.console.pages import ConsoleAdmin
from pulse_django.console.search_terms import PLACED, Place
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.sql_functions import loose_scan
from pulse_django.queue.database.transactions import Row, run_joined
from pulse_django.queue.words.bounds import MAX_QUEUE_NAME
from pulse_django.queue.words.display import in_words, inert
from pulse_django.shards.page import shard_of

MOST_LANES = 500  # each is a probe of the index; there are more if each job has its own key
MOST_OF_A_LANE = 5_000
MOST_TASKS = 20
MINUTES = 60
WIDTH, HEIGHT, STEP = 720, 90, 12  # of the drawing

_SAME = ("queue::text = lane.queue::text", "priority = lane.priority", "ready = lane.ready")
_IN_A_QUEUE = (
    f"{' AND '.join(_SAME)} AND lane_key::text > lane.lane_key::text",
    f"{' AND '.join(_SAME[:2])} AND ready < lane.ready",
    f"{_SAME[0]} AND priority < lane.priority",
)
_WAITS = f"{IS_CLAIMABLE} AND ready IS NOT NULL"
_LANE, _ORDER = "queue, priority, ready, lane_key", "queue, priority DESC, ready DESC, lane_key"
_MOST = "%(most_lanes)s + 1"
LANES = loose_scan(
    "lane", _LANE, where=_WAITS, order=_ORDER, following=(*_IN_A_QUEUE, "queue::text > lane.queue::text"), most=_MOST
)
LANES_OF_QUEUE = loose_scan(
    "lane", _LANE, where=f"{_WAITS} AND queue::text = %(queue)s::text", order=_ORDER, following=_IN_A_QUEUE, most=_MOST
)
# The condition that a job waits in this lane.
OF_LANE = (
    f"{IS_CLAIMABLE} AND queue::text = lane.queue::text AND priority = lane.priority AND ready = lane.ready"
    " AND lane_key::text = lane.lane_key::text"
)


def of_lanes(lanes: str, page: str) -> str:
    """Return a query for jobs of these lanes. Each row has ``is_partial``; without jobs, there is one row with it."""
    return f"""{lanes}
SELECT
    due.id, due.task, due.queue, due.next_run_at,
    EXTRACT(epoch FROM due.next_run_at - statement_timestamp())::float8, {PLACED.format("due.next_run_at")},
    seen.is_partial
FROM (SELECT pg_catalog.max(place) > %(most_lanes)s AS is_partial FROM lane) AS seen
LEFT JOIN (
    SELECT due.id, due.task, lane.queue, due.next_run_at
    FROM lane
    CROSS JOIN LATERAL (SELECT id, task, next_run_at FROM pulse_django_job_hot WHERE {OF_LANE} {page}) AS due
) AS due ON true
ORDER BY due.next_run_at, due.id
"""  # noqa: S608 - made of constants


_DUE = of_lanes(
    LANES,
    """
    AND next_run_at > statement_timestamp()
    AND next_run_at <= statement_timestamp() + %(minutes)s::float8 * interval '1 minute'
    ORDER BY next_run_at
    LIMIT (SELECT %(most)s)
    """,
)


@dataclass(frozen=True, slots=True)
class Due:
    id: int
    task: str
    queue: str
    at: datetime
    seconds: float  # from now
    placed: int

    @property
    def wait(self) -> str:
        return in_words(self.seconds)

    @property
    def due(self) -> str:
        if self.seconds > 0:
            return gettext("in %(duration)s") % {"duration": self.wait}
        return gettext("for %(duration)s") % {"duration": in_words(-self.seconds)}


@dataclass(frozen=True, slots=True)
class Bar:
    """One minute of the chart."""

    x: int
    y: float
    height: float
    says: str


def due_soon(alias: str) -> tuple[list[Due], bool]:
    """Return the jobs that are due in the next hour, and whether there are lanes that were not read."""
    params = {"most_lanes": MOST_LANES, "most": MOST_OF_A_LANE, "minutes": MINUTES}
    return read_due(run_joined(alias, _DUE, params))


def read_due(rows: Sequence[Row]) -> tuple[list[Due], bool]:
    """Convert the rows of a query of ``of_lanes``."""
    found = [Due(*row[:6]) for row in rows if row[0] is not None]
    return found, bool(rows and rows[0][6])


def bars(found: Sequence[Due]) -> list[Bar]:
    """Draw the number of jobs that are due in each minute. The title of a minute lists its tasks."""
    minutes = [Counter[str]() for _ in range(MINUTES)]
    for one in found:
        minutes[min(int(one.seconds // 60), MINUTES - 1)][one.task] += 1
    highest = max((tasks.total() for tasks in minutes), default=0) or 1
    drawn = []
    for minute, tasks in enumerate(minutes):
        height = round(tasks.total() / highest * HEIGHT, 1)
        named = ", ".join(f"{inert(task, 60)} {count}" for task, count in tasks.most_common(5))
        said = ngettext("in %(count)d minute", "in %(count)d minutes", minute) % {"count": minute}
        says = f"{said}: {tasks.total()} ({named})" if tasks else f"{said}: 0"
        drawn.append(Bar(minute * STEP, HEIGHT - height, height, says))
    return drawn


# The waiting jobs by due time, a hundred on each page, of all queues or of one.
#
# The list of jobs is ordered by ids, because no index has all jobs in the order of their due times. Here, the next jobs
# of each lane are read, and the first of all these are the page.


PER_PAGE = 100

_PAGE = """
    AND next_run_at >= %(at)s::timestamptz AND (next_run_at > %(at)s::timestamptz OR id > %(id)s::bigint)
    ORDER BY next_run_at, id
    LIMIT (SELECT %(most)s + 1)
"""
_FIRST = " LIMIT (SELECT %(most)s + 1)"
_BY_DUE = of_lanes(LANES, _PAGE) + _FIRST
_BY_DUE_IN_QUEUE = of_lanes(LANES_OF_QUEUE, _PAGE) + _FIRST


BEGINNING = Place("-infinity", 0)


class QueueForm(forms.Form):
    queue = forms.CharField(
        label=gettext_lazy("queue"), max_length=MAX_QUEUE_NAME, required=False, empty_value="", strip=False
    )


def by_due(alias: str, queue: str, after: Place) -> tuple[list[Due], bool]:
    """Return the next jobs, one more than a page shows, and whether there are lanes that were not read."""
    params = {"most_lanes": MOST_LANES, "most": PER_PAGE, "queue": queue, "at": after.at, "id": after.id}
    return read_due(run_joined(alias, _BY_DUE_IN_QUEUE if queue else _BY_DUE, params))


class DuePage(ConsoleAdmin):
    """The part of ``JobAdmin`` with the page of waiting jobs."""

    @method_decorator(require_safe)
    def due_view(self, request: HttpRequest) -> HttpResponse:
        """Show all waiting jobs by due time. The first page of all queues also has the chart of the next hour."""
        form, alias = QueueForm(request.GET), shard_of(request, reads=True)
        after = Place.named(request.GET.get("after", "")) or BEGINNING
        found, is_partial = by_due(alias, form.cleaned_data["queue"], after) if form.is_valid() else ([], False)
        last = found[PER_PAGE - 1] if len(found) > PER_PAGE else None
        context: dict[str, Any] = {
            "title": gettext("Waiting jobs by due time"),
            "form": form,
            "rows": [{"is": one, "url": self.url("job_change", one.id)} for one in found[:PER_PAGE]],
            "next_query": _query(request.GET, Place.of(last.placed, last.id)) if last else "",
            "first_query": "" if after == BEGINNING else _query(request.GET, None),
            "is_partial": is_partial,
            "most_lanes": MOST_LANES,
        }
        if after == BEGINNING and not request.GET.get("queue"):
            soon, _ = due_soon(alias)
            by_task = Counter(one.task for one in soon).most_common(MOST_TASKS)
            context |= {"chart": bars(soon), "count": len(soon), "by_task": by_task}
            context |= {"width": WIDTH, "height": HEIGHT, "bar_width": STEP - 2}
        return self.page(request, "job/due", context)


def _query(asked: QueryDict, after: Place | None) -> str:
    """Return the query of another page of the same queue and shard."""
    query = asked.copy()
    query.pop("after", None)
    if after is not None:
        query["after"] = after.name
    return f"?{query.urlencode()}"
