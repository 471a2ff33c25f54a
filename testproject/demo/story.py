"""The acts of the demo in order. Each says what comes, does it, and proves it."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from django.db import router

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from testproject.harness.processes import StartedWorker

from . import handlers
from .deaths import LOST, A, frozen_worker, killed_process, killed_worker
from .rows import Row, ledger
from .telling import Telling

PATIENCE_AT_STOP = 5.0  # seconds from SIGTERM to SIGKILL; the demo's jobs are over by then


def play(t: Telling) -> None:
    """Tell the whole story."""
    first = everyday_work(t)
    killed_process(t, first)
    second = killed_worker(t, first)
    third, poison = frozen_worker(t, second)
    poisonous_job(t, poison)
    goodbye(t, [second, third])


def everyday_work(t: Telling) -> StartedWorker:
    t.screen.head("Act 1: a worker runs jobs")
    t.screen.say(
        f"A worker, {A}, starts: a parent that holds leases, and a child that runs handlers. Three small jobs are",
        "enqueued. Each is claimed and leased in one UPDATE, run, and reported.",
    )
    worker = t.stage.worker(A)
    ids = [t.enqueue(handlers.quick, number) for number in (1, 2, 3)]
    rows = t.watch("three small jobs to be completed", ids, _all_over)
    for number, row in enumerate(rows, 1):
        t.expect(row.status == Status.COMPLETED and row.result == number**2, f"{number**2} from job {row.id}", row)
    t.screen.praise(f"completed, with results {', '.join(str(row.result) for row in rows)}")
    return worker


def poisonous_job(t: Telling, poison: int) -> None:
    t.screen.head("Act 5: a job that kills its worker")
    t.screen.say("Its handler kills its own process. After two lost workers, the job is not retried.")
    [row] = t.watch("the poisonous job to be dead-lettered", [poison], _all_over)
    t.expect(row.status == Status.DEAD_LETTERED, "the poisonous job to be a dead letter", row)
    t.expect(row.last_error.startswith("lost 2 workers"), "a last_error of 'lost 2 workers'", row.last_error)
    t.expect_ledger(poison, LOST, LOST)
    t.screen.praise(f"dead-lettered, with a reason: {row.last_error}")


def goodbye(t: Telling, workers: Sequence[StartedWorker]) -> None:
    t.screen.head("The ledger")
    t.screen.say("Every ended run, recorded by the statement that ended it:")
    jobs = list(Job.objects.using(router.db_for_write(Job)).filter(queue=t.queue).order_by("pk"))
    for job in jobs:
        for run in ledger(job.pk):
            late = f"; reported {run.late_outcome} too late" if run.late_outcome else ""
            name = f"#{job.pk} {job.task.rpartition('.')[2]}"
            said = f"{run.outcome}{f' ({run.message})' if run.message else ''}{late}"
            t.screen.say(f"  {name:<12} attempt {run.number}  {run.worker.partition(':')[0]}  {said}")
    ends = sorted(job.status for job in jobs)
    expected = [Status.COMPLETED.value] * 6 + [Status.DEAD_LETTERED.value]
    t.expect(ends == expected, "six jobs to be completed and one to be dead-lettered", ends)
    for worker in workers:
        worker.signal(signal.SIGTERM)
    for worker in workers:
        code = worker.stop(PATIENCE_AT_STOP)
        t.expect(code == 0, f"{worker.name} to stop when told to ({signal.SIGTERM.name})", f"status {code}")


def _all_over(rows: Sequence[Row]) -> bool:
    return all(row.is_over for row in rows)
