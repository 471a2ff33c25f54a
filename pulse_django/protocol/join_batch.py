"""Add jobs to a batch, in the transaction that enqueues them. A part of ``enqueue``.

The batch is locked for share until the commit: it can be added to by many at once, and not be closed, sealed or
cancelled meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pulse_django.exceptions import BatchClosed, InvalidJob
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import joined, run_joined
from pulse_django.words.job_options import NewJob
from pulse_django.words.states import Status

from .cancel import request_cancel

if TYPE_CHECKING:
    from pulse_django.models import Job

_LOCK = """
SELECT id, closed_at IS NOT NULL, cancelled_at IS NOT NULL, cancel_reason
FROM pulse_django_batch
WHERE id = ANY (%s::bigint[])
ORDER BY id
FOR SHARE
"""
_COUNT = """
SELECT batch_id, count(*)::int
FROM pulse_django_job_hot
WHERE id = ANY (%s::bigint[]) AND batch_id IS NOT NULL
GROUP BY batch_id
"""
_NOTE = """
INSERT INTO pulse_django_unresolved (batch_id, added)
SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::int[])) AS added (batch_id, count)
RETURNING id
"""


def join_alone(
    jobs: JobReader, new: NewJob, enqueue: Callable[[JobReader, NewJob], tuple[Job, bool]]
) -> tuple[Job, bool]:
    """Enqueue one job of a batch."""
    with joined(jobs.write_alias):
        reasons = lock_batches(jobs, [new])
        job, is_new = enqueue(jobs, new)
        if is_new:
            note_added(jobs, Counter({job.batch_id: 1}))
        if is_new and job.batch_id in reasons:
            cancel_late(jobs, {job.pk: job.batch_id}, reasons)
            job.status, job.cancel_reason = Status.CANCELLED.value, reasons[job.batch_id]
    return job, is_new


def join_many(
    jobs: JobReader, new_jobs: Sequence[NewJob], enqueue: Callable[[], list[int]], *, are_new: bool
) -> list[int]:
    """Enqueue jobs, of which some are of batches. ``are_new``: no key can lead to a job that was there before."""
    placed = [new for new in new_jobs if new.place is not None and new.place.batch_id is not None]
    if not placed:
        return enqueue()
    with joined(jobs.write_alias):
        reasons = lock_batches(jobs, placed)
        ids = enqueue()
        if are_new:
            added = Counter(new.place.batch_id for new in placed if new.place is not None)
        else:
            added = Counter(dict(run_joined(jobs.write_alias, _COUNT, [ids])))
        note_added(jobs, added)
        if reasons:
            of_batches = {
                job_id: new.place.batch_id
                for job_id, new in zip(ids, new_jobs, strict=True)
                if new.place is not None and new.place.batch_id in reasons
            }
            cancel_late(jobs, of_batches, reasons)
    return ids


def lock_batches(jobs: JobReader, placed: Sequence[NewJob]) -> dict[int | None, str]:
    """Keep these batches open until the commit. Return those that are cancelled, with the reason."""
    wanted = sorted({new.place.batch_id for new in placed if new.place and new.place.batch_id is not None})
    found = {batch_id: rest for batch_id, *rest in run_joined(jobs.write_alias, _LOCK, [wanted])}
    for batch_id in wanted:
        if batch_id not in found:
            raise InvalidJob(f"batch: there is no batch {batch_id}")
        if found[batch_id][0] and not found[batch_id][1]:
            raise BatchClosed(f"batch {batch_id} is closed: all of its jobs are over. Open another batch")
    return {batch_id: reason for batch_id, (_, is_cancelled, reason) in found.items() if is_cancelled}


def note_added(jobs: JobReader, added: Counter[int | None]) -> None:
    """Count new members. ``resolve`` adds them to the batch's row, which nobody has to wait for here."""
    run_joined(jobs.write_alias, _NOTE, [list(added), list(added.values())])


def cancel_late(jobs: JobReader, of_batches: dict[int, int | None], reasons: dict[int | None, str]) -> None:
    """Cancel jobs that were added to a cancelled batch, before anybody can see them wait."""
    for batch_id, reason in reasons.items():
        late = [job_id for job_id, batch in of_batches.items() if batch == batch_id]
        if late:
            request_cancel(jobs, late, reason=reason)
