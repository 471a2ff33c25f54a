"""Retry a few dead letters first, watch them, and continue with the others only if none of them dies.

The job that finds the others sleeps between two checks, so it occupies no slot of a worker.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from django.db.models import Count, Q
from django.utils.dateparse import parse_datetime

from pulse_django import Context
from pulse_django.exceptions import Discard
from pulse_django.models import Job
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.workflows.batches import Batch

WATCH_EVERY = timedelta(seconds=10)


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


def watch(context: Context, batch: Batch, operation: dict[str, Any], ids: Collection[int], task: str) -> None:
    """Wait until these jobs have ended. If one dies or takes too long, stop the operation."""
    looks = int(timedelta(minutes=operation["given"]["patience"]) / WATCH_EVERY)
    for number in range(looks):
        chunk = batch.jobs.filter(task=task).order_by("id").values_list("status", flat=True).first()
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
