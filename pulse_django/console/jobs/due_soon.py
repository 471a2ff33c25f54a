"""What is due in the next hour, in the order of its time: a table, and a chart by minute and task.

No index has all jobs in the order of their time, because each claim would pay for it. Each lane has one: the lanes are
walked, and each is asked for its next jobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.utils.translation import gettext, ngettext
from django.views.decorators.http import require_safe

from pulse_django.console.shards import chosen_shards
from pulse_django.models import Job
from pulse_django.store.job_conditions import CLAIMABLE
from pulse_django.store.loose_scan import loose_scan
from pulse_django.store.transactions import Row, run_joined
from pulse_django.words.display import in_words, inert

MOST_LANES = 500  # each is a probe of the index; with a key of its own for each job there are more
MOST_OF_A_LANE = 5_000
MOST_LISTED, MOST_TASKS = 100, 20
MINUTES = 60
WIDTH, HEIGHT, STEP = 720, 90, 12  # of the drawing

_SAME = ("queue::text = lane.queue::text", "priority = lane.priority", "ready = lane.ready")
_IN_A_QUEUE = (
    f"{' AND '.join(_SAME)} AND lane_key::text > lane.lane_key::text",
    f"{' AND '.join(_SAME[:2])} AND ready < lane.ready",
    f"{_SAME[0]} AND priority < lane.priority",
)
_WAITS = f"{CLAIMABLE} AND ready IS NOT NULL"
_LANE, _ORDER = "queue, priority, ready, lane_key", "queue, priority DESC, ready DESC, lane_key"
_MOST = "%(most_lanes)s + 1"
LANES = loose_scan(
    "lane", _LANE, where=_WAITS, order=_ORDER, following=(*_IN_A_QUEUE, "queue::text > lane.queue::text"), most=_MOST
)
LANES_OF_QUEUE = loose_scan(
    "lane", _LANE, where=f"{_WAITS} AND queue::text = %(queue)s::text", order=_ORDER, following=_IN_A_QUEUE, most=_MOST
)
# Of a job: whether it waits in this lane.
OF_LANE = (
    f"{CLAIMABLE} AND queue::text = lane.queue::text AND priority = lane.priority AND ready = lane.ready"
    " AND lane_key::text = lane.lane_key::text"
)


def of_lanes(lanes: str, page: str) -> str:
    """Return a query for jobs of these lanes. Each row says whether there are more lanes; one does so without a job."""
    return f"""{lanes}
SELECT
    due.id, due.task, due.queue, due.next_run_at,
    EXTRACT(epoch FROM due.next_run_at - statement_timestamp())::float8,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    id: int
    task: str
    queue: str
    at: datetime
    seconds: float  # from now

    @property
    def wait(self) -> str:
        return in_words(self.seconds)

    @property
    def due(self) -> str:
        if self.seconds > 0:
            return gettext("in %(duration)s") % {"duration": self.wait}
        return gettext("for %(duration)s") % {"duration": in_words(-self.seconds)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One minute."""

    x: int
    y: float
    height: float
    says: str


def due_soon(alias: str) -> tuple[list[Due], bool]:
    """Return what is due in the next hour, and whether there are lanes that were not looked at."""
    params = {"most_lanes": MOST_LANES, "most": MOST_OF_A_LANE, "minutes": MINUTES}
    return read_due(run_joined(alias, _DUE, params))


def read_due(rows: Sequence[Row]) -> tuple[list[Due], bool]:
    """Read what a query of ``of_lanes`` returned."""
    found = [Due(id=row[0], task=row[1], queue=row[2], at=row[3], seconds=row[4]) for row in rows if row[0] is not None]
    return found, bool(rows and rows[0][5])


def bars(found: Sequence[Due]) -> list[Bar]:
    """Draw how many are due in each minute. The tasks of a minute are its title."""
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
        drawn.append(Bar(x=minute * STEP, y=HEIGHT - height, height=height, says=says))
    return drawn


class DuePage:
    """Of ``JobAdmin``."""

    admin_site: Any

    @method_decorator(require_safe)
    def due_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):  # type: ignore[attr-defined]  # of ModelAdmin
            raise PermissionDenied
        everywhere = chosen_shards(request, Job, reads=True)
        answers = list(everywhere.ask(due_soon).values())
        found = sorted((one for some, _ in answers for one in some), key=lambda one: (one.seconds, one.id))
        change = f"{self.admin_site.name}:pulse_django_job_change"
        by_task = Counter(one.task for one in found).most_common(MOST_TASKS)
        context = {
            **self.admin_site.each_context(request),
            "opts": Job._meta,
            "title": gettext("Due in the next hour"),
            "count": len(found),
            "rows": [{"is": one, "url": reverse(change, args=[one.id])} for one in found[:MOST_LISTED]],
            "bars": bars(found),
            "by_task": by_task,
            "width": WIDTH,
            "height": HEIGHT,
            "bar_width": STEP - 2,
            "is_partial": any(is_partial for _, is_partial in answers),
            "most_lanes": MOST_LANES,
            "list_url": reverse(f"{self.admin_site.name}:pulse_django_job_changelist"),
        }
        everywhere.tell(request)
        return TemplateResponse(request, "admin/pulse_django/job/due.html", context)
