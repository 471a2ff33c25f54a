"""The tasks of operations: one job finds those that match, and enqueues a job for each chunk of them.

A job that is killed runs again. Finding is done in durable steps, so no chunk is enqueued twice, and so is acting on a
chunk, so that what was done is counted once.
"""

from __future__ import annotations

from typing import Any

from pulse_django import Context, task
from pulse_django.exceptions import Discard
from pulse_django.store.querysets import JobQuerySet
from pulse_django.workflows.batches import Batch

from .criteria import Criteria, InvalidCriteria
from .starting import ACT, PLAN, enqueue, why_not
from .verbs import BY_NAME

CHUNK = 500  # jobs: more hold their locks for longer than a claim should have to wait
CHUNKS_AT_ONCE = 20  # that one look finds. With stale statistics PostgreSQL sorts all matches at every look


@task(name=PLAN, takes_context=True)
def find_matching_jobs(context: Context) -> int:
    """Enqueue a job for each chunk of the jobs that match. Return how many jobs they are."""
    batch, operation = _operation(context)
    after = met = number = 0
    while True:
        _go_on_only_if_allowed(batch, operation)
        found = context.step_with_jobs(f"look {number}", _enqueue_next, batch, operation, after, met)
        after, met, number = found["after"], found["met"], number + 1
        if found["is_last"]:
            break
        context.check()
    batch.seal()
    return int(met)


@task(name=ACT, takes_context=True)
def act_on_jobs(context: Context, ids: list[int], met: int) -> dict[str, int]:
    """Do it to those of these jobs that still match."""
    batch, operation = _operation(context)
    _go_on_only_if_allowed(batch, operation)
    counts: dict[str, int] = context.step_with_jobs("act", _act, batch, operation, ids, met)
    return counts


def _operation(context: Context) -> tuple[Batch, dict[str, Any]]:
    batch = context.batch
    if batch is None:
        raise Discard("this job belongs to no operation")
    return batch, batch.context


def _go_on_only_if_allowed(batch: Batch, operation: dict[str, Any]) -> None:
    try:
        reason = why_not(operation)
        Criteria(operation["query"], "").jobs(batch.alias)
    except InvalidCriteria as error:
        reason = str(error)
    if reason:
        batch.cancel(reason=reason)
        raise Discard(reason)


def _matching(alias: str, operation: dict[str, Any]) -> JobQuerySet:
    verb = BY_NAME[operation["verb"]]
    jobs = Criteria(operation["query"], "").jobs(alias)
    # The batch's own jobs match a filter that means all jobs of their queue.
    return verb.fitting(jobs, operation["asked_at"]).exclude(task__in=(PLAN, ACT))


def _enqueue_next(batch: Batch, operation: dict[str, Any], after: int, met: int) -> dict[str, Any]:
    most = CHUNK * CHUNKS_AT_ONCE
    jobs = _matching(batch.alias, operation).filter(id__gt=after, id__lte=operation["until"])
    ids = list(jobs.order_by("id").values_list("id", flat=True)[: most + 1])
    is_last, ids = len(ids) <= most, ids[:most]
    starts = range(0, len(ids), CHUNK)
    enqueue(batch, ACT, [{"ids": ids[start : start + CHUNK], "met": met + start} for start in starts])
    return {"after": ids[-1] if ids else after, "met": met + len(ids), "is_last": is_last}


def _act(batch: Batch, operation: dict[str, Any], ids: list[int], met: int) -> dict[str, int]:
    verb = BY_NAME[operation["verb"]]
    matching = list(_matching(batch.alias, operation).filter(pk__in=ids).values_list("id", flat=True))
    counts = dict(verb.act(batch.alias, matching, operation["given"], met)) if matching else {}
    return counts | {"moved_on": counts.get("moved_on", 0) + len(ids) - len(matching)}
