"""What the table shows of a job, as the database sees it at this moment."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import router
from django.db.models import DurationField, ExpressionWrapper, F

from pulse_django.models import Attempt, Job
from pulse_django.queue.database.sql_functions import ClockTimestamp
from pulse_django.queue.words.states import TERMINAL, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    id: int
    task: str
    status: str
    attempts: int = 0
    locked_by: str = ""
    lease_until: datetime | None = None
    lease_left: float | None = None  # seconds; negative: it expired and was not reaped yet
    progress: Any = field(default=None, repr=False)
    last_error: str = ""
    result: Any = field(default=None, repr=False)

    @property
    def label(self) -> str:
        return f"#{self.id} {self.task.rpartition('.')[2]}"

    @property
    def worker(self) -> str:
        """Who holds the lease, without what makes a claim unique."""
        return self.locked_by.partition(":")[0]

    @property
    def done(self) -> int:
        return int(self.progress["done"]) if isinstance(self.progress, dict) else 0

    @property
    def total(self) -> int:
        return int(self.progress.get("total", 0)) if isinstance(self.progress, dict) else 0

    @property
    def is_over(self) -> bool:
        return self.status in {status.value for status in TERMINAL}

    def had_run_out_at(self, instant: datetime) -> bool:
        """Whether the lease had run out by then."""
        return self.lease_until is not None and self.lease_until <= instant

    @property
    def was_lost(self) -> bool:
        """Its first run is over and it was not the last. A second run may have begun before it was seen."""
        return self.status == Status.RETRYING or self.attempts > 1


def look(ids: Collection[int]) -> list[Row]:
    """Return the rows of these jobs, in order. The server's clock says what is left of a lease."""
    left = ExpressionWrapper(F("lease_until") - ClockTimestamp(), output_field=DurationField())
    jobs = Job.objects.using(router.db_for_write(Job)).filter(pk__in=ids).annotate(left=left).order_by("pk")
    return [
        Row(
            id=job.pk,
            task=job.task,
            status=job.status,
            attempts=job.attempts,
            locked_by=job.locked_by or "",
            lease_until=job.lease_until,
            lease_left=None if job.left is None else job.left.total_seconds(),
            progress=job.progress,
            last_error=job.last_error,
            result=job.result,
        )
        for job in jobs
    ]


def ledger(job_id: int) -> list[Attempt]:
    """Return the ended runs of a job, first to last."""
    return list(Attempt.objects.using(router.db_for_write(Attempt)).filter(job_id=job_id).order_by("number"))
