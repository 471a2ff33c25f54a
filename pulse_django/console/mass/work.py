"""The tasks of operations. One job finds the matching jobs, and enqueues a job for each chunk of them.

A job that is killed runs again. Both tasks use durable steps, so no chunk is enqueued twice, and no result is counted
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import Error
from django.utils.dateparse import parse_datetime

from pulse_django import Context, task
from pulse_django.exceptions import Discard
from pulse_django.models import Job
from pulse_django.operations.acts import ACTS
from pulse_django.operations.batches import AHEAD, BATCH
from pulse_django.queue.database.database_errors import is_refused
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.words.own_tasks import ACT, PLAN
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.queue.words.states import TERMINAL
from pulse_django.shards.placement import has_several_shards
from pulse_django.workflows.batches import Batch

from .criteria import Criteria, InvalidCriteria, matching
from .operation import enqueue, is_signed, why_not
from .totals import tally_of

WATCH_EVERY = timedelta(seconds=10)


@task(name=PLAN, takes_context=True)
def find_matching_jobs(context: Context, signature: object = "") -> int:
    """Enqueue a job for each chunk of the matching jobs. Return the number of matching jobs."""
    with _cancelled_if_refused(context):
        batch, operation = _operation_of(context, PLAN, {}, signature)
        after = met = number = 0
        is_last = False
        if operation["given"].get("first"):
            first = context.step_with_jobs("first", _enqueue_first, batch, operation)
            _watch(context, batch, operation, first)
            after, met = max(first, default=0), len(first)
        while not is_last:
            jobs = _jobs_of(batch, operation).filter(id__lte=operation["until"])
            if has_several_shards():  # an older job from another shard may have a higher id
                jobs = jobs.filter(created_at__lte=parse_datetime(operation["asked_at"]))
            found = context.step_with_jobs(f"look {number}", _enqueue_next, batch, operation, jobs, after, met)
            after, met, is_last, number = found["after"], found["met"], found["is_last"], number + 1
            context.check()
        batch.seal()
        return int(met)


@task(name=ACT, takes_context=True)
def act_on_jobs(context: Context, ids: list[int], met: int, signature: object = "") -> dict[str, int]:
    """Perform the action on those of these jobs that still match."""
    with _cancelled_if_refused(context):
        batch, operation = _operation_of(context, ACT, {"ids": ids, "met": met}, signature)
        jobs = _jobs_of(batch, operation).filter(pk__in=ids)
        step = context.step if ACTS[operation["act"]].commits_by_itself else context.step_with_jobs
        counts: dict[str, int] = step("act", _act, batch, operation, jobs, len(ids), met)
        return counts


@contextmanager
def _cancelled_if_refused(context: Context) -> Iterator[None]:
    """Cancel the operation if the role of this worker lacks the right: a retry would not help."""
    try:
        yield
    except Error as error:
        if not is_refused(error) or context.batch is None:
            raise
        reason = f"the database role of the worker may not do this: {error_in_one_line(error)}"
        context.batch.cancel(reason=reason)
        raise Discard(reason) from error


def _operation_of(
    context: Context, task: str, arguments: dict[str, Any], signature: object
) -> tuple[Batch, dict[str, Any]]:
    """Return the operation of a job. Discard the job if it belongs to no operation, or to one that has ended."""
    batch = context.batch
    if batch is None:
        raise Discard("this job does not belong to an operation")
    row = batch.row
    operation = row.context if isinstance(row.context, dict) else {}
    if not is_signed(batch, operation, task, arguments, signature):
        raise Discard("the signature is invalid: the admin did not create this job, or it was changed")
    if row.finished_at is not None or row.cancelled_at is not None:
        raise Discard("the operation is over")
    return batch, operation


def _jobs_of(batch: Batch, operation: dict[str, Any]) -> JobQuerySet[Job]:
    """Return the matching jobs. Cancel the operation if its user or its filter is no longer valid."""
    reason = why_not(operation)
    if not reason:
        try:
            criteria = Criteria(operation["query"], "")
            return matching(criteria, ACTS[operation["act"]], batch.alias, operation["asked_at"])
        except InvalidCriteria as error:
            reason = str(error)
    batch.cancel(reason=reason)
    raise Discard(reason)


def _enqueue_first(batch: Batch, operation: dict[str, Any]) -> list[int]:
    jobs = _jobs_of(batch, operation).filter(id__lte=operation["until"]).order_by("id")
    ids = list(jobs.values_list("id", flat=True)[: operation["given"]["first"]])
    enqueue(batch, operation, ACT, [{"ids": ids, "met": 0}] if ids else [])
    return ids


def _enqueue_next(
    batch: Batch, operation: dict[str, Any], jobs: JobQuerySet[Job], after: int, met: int
) -> dict[str, Any]:
    pace = operation["given"]["per_minute"] if operation["given"].get("first") else None
    size = BATCH if pace is None else max(1, min(BATCH, int(pace)))  # at most the jobs of one minute
    most = BATCH * AHEAD
    ids = list(jobs.filter(id__gt=after).order_by("id").values_list("id", flat=True)[: most + 1])
    is_last, ids = len(ids) <= most, ids[:most]
    starts = range(0, len(ids), size)
    chunks = [{"ids": ids[start : start + size], "met": met + start} for start in starts]
    enqueue(batch, operation, ACT, chunks, per_minute=pace)
    return {"after": ids[-1] if ids else after, "met": met + len(ids), "is_last": is_last}


def _act(batch: Batch, operation: dict[str, Any], jobs: JobQuerySet[Job], count: int, met: int) -> dict[str, int]:
    act, ids, given = ACTS[operation["act"]], list(jobs.values_list("id", flat=True)), operation["given"]
    if given.get("first"):  # this chunk is due. The first chunk is done at once.
        given = {**given, "per_minute": given["per_minute"] if met else None}
        met = 0
    given = {**given, "met": met, "asked_at": operation["asked_at"]}
    return act.counts(act.do(batch.alias, ids, given) if ids else {}, count)


# Retry a few dead letters first, watch them, and continue with the others only if none of them dies.
#
# The job that finds the others sleeps between two checks, so it occupies no slot of a worker.


def _watch(context: Context, batch: Batch, operation: dict[str, Any], ids: Collection[int]) -> None:
    """Wait until these jobs have ended. If one dies or takes too long, stop the operation."""
    looks = int(timedelta(minutes=operation["given"]["patience"]) / WATCH_EVERY)
    for number in range(looks):
        chunk = batch.jobs.filter(task=ACT).order_by("id").values_list("status", flat=True).first()
        is_retried = chunk is None or chunk in TERMINAL
        tally = tally_of(batch.alias, ids, operation["asked_at"])
        if tally["died"]:
            _stop(batch, f"stopped: {tally['died']} of the first {len(ids)} died again")
        if is_retried and not any(tally.values()):
            _stop(batch, "stopped: none of the first could be retried")
        if is_retried and not tally["going"]:
            return
        context.sleep(WATCH_EVERY, name=f"watch {number}")
    _stop(batch, f"stopped: {tally['going']} of the first {len(ids)} have not ended in time")


def _stop(batch: Batch, reason: str) -> None:
    batch.cancel(reason=reason)
    raise Discard(reason)
