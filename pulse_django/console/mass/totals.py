"""The progress of an operation: the sum of the counts of its chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from django.db.models import Count, Q
from django.utils.dateparse import parse_datetime
from django.utils.formats import number_format
from django.utils.translation import gettext

from pulse_django.models import Job
from pulse_django.operations.acts import ACTS
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.own_tasks import ACT
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.workflows.batches import Batch

MOST_CHUNKS = 20_000  # 10 million jobs
MOST_TALLIED = 2_000  # jobs, each of which is searched in every partition


class Totals(NamedTuple):
    by: str
    lines: Sequence[str]


def totals_of(batch: Batch) -> Totals | None:
    """Return the sum of the results of the chunks of an operation, or None if its action is unknown."""
    context = batch.context
    act = ACTS.get(context.get("act", ""))
    if act is None:
        return None
    counts: Counter[str] = Counter()
    done = batch.jobs.filter(task=ACT, status=Status.COMPLETED)
    for result in done.values_list("result", flat=True)[:MOST_CHUNKS]:
        counts += Counter(result or {})
    lines = [f"{number_format(counts[name], force_grouping=True)} {said}" for name, said in act.answers.items()]
    if context.get("given", {}).get("first"):
        lines += _course(batch, context)
    return Totals(str(context.get("by", "")), tuple(lines))


def _course(batch: Batch, context: dict[str, Any]) -> list[str]:
    """Return the states of the retried jobs, and when the last retry is due."""
    chunks = batch.jobs.filter(task=ACT, status=Status.COMPLETED).order_by("-id").values_list("kwargs", flat=True)
    ids = [job_id for kwargs in chunks[:MOST_TALLIED] for job_id in kwargs["ids"]][:MOST_TALLIED]
    tally = tally_of(batch.alias, ids, context["asked_at"])
    said = [
        gettext("%(count)d of these succeeded") % {"count": tally["succeeded"]},
        gettext("%(count)d died again") % {"count": tally["died"]},
        gettext("%(count)d are waiting or running") % {"count": tally["going"]},
    ]
    if len(ids) == MOST_TALLIED:
        said.append(gettext("only the latest %(count)d were checked") % {"count": MOST_TALLIED})
    waiting = batch.jobs.filter(task=ACT).claimable().order_by("-next_run_at").annotate(now=StatementTimestamp())
    last = waiting.values_list("next_run_at", "now").first()
    if last is not None:
        left = in_words(max(0.0, (last[0] - last[1]).total_seconds()))
        said.append(gettext("the last retry is in %(time)s") % {"time": left})
    return said


def tally_of(alias: str, ids: Collection[int], asked_at: str) -> dict[str, int]:
    """Count those of these dead letters that were retried and succeeded, died again, or are waiting or running."""
    jobs = Job.objects.using(alias).filter(pk__in=list(ids))
    again = Q(status=Status.DEAD_LETTERED, finished_at__gt=parse_datetime(asked_at))
    counts: dict[str, int] = jobs.aggregate(
        succeeded=Count("pk", filter=Q(status=Status.COMPLETED)),
        died=Count("pk", filter=again),
        going=Count("pk", filter=~Q(status__in=list(TERMINAL))),
    )
    return counts
