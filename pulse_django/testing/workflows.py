"""Run a whole workflow in the thread of the test, without crashes or with a crash at each possible point."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pulse_django.models import Job, StoredBatch
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.states import Status
from pulse_django.run.codec import codec
from pulse_django.run.run import Run
from pulse_django.shards.placement import alias_of_jobs
from pulse_django.workflows.resolving import resolve

from .drain import MOST_RUNS, DrainLimit, beat, drain, performed, reported
from .idempotency import difference, rehearsed

if TYPE_CHECKING:
    from pulse_django.workflows.builder import EnqueuedWorkflow, Workflow


def run_workflow(workflow: Workflow, *, using: str | None = None) -> dict[str, Any]:
    """Enqueue a workflow, run it to its end with the real queue, and return the results of its jobs by name.

    Fail with the reason if it does not end.
    """
    placed = workflow.enqueue(using=using)
    drain(using=using, failures="keep")
    return _results_of(placed)


def assert_workflow_idempotent(workflow: Workflow, *, ignore: Collection[str] = (), using: str | None = None) -> None:
    """Fail, naming the rows that differ, if crashes leave a different database from one clean run.

    Each job is killed after each of its durable steps, and once more right before its report. Everything happens in
    transactions that are rolled back.
    """
    rehearse = partial(rehearsed, lambda: workflow.enqueue(using=using), ignore, {})
    clean_results, clean = rehearse(partial(_ran, drain_all=partial(drain, using=using, failures="keep")))
    results, rows = rehearse(partial(_ran, drain_all=lambda: _drain_with_crashes(alias_of_jobs(using))))
    if clean_results != results and "result" not in ignore:
        raise AssertionError(f"{workflow!r} returns {clean_results!r}, and with crashes {results!r}")
    if clean != rows:
        why = f"{workflow!r} is not idempotent. With crashes it leaves, beside one clean run:"
        raise AssertionError(difference(why, clean, rows))


def _ran(placed: EnqueuedWorkflow, drain_all: Callable[[], object]) -> dict[str, Any]:
    drain_all()
    return _results_of(placed)


class _Killed(BaseException):
    """The worker died here."""

    @classmethod
    def here(cls, _step: str) -> NoReturn:
        raise cls


def _drain_with_crashes(alias: str) -> None:
    """Kill each run that has done a new step, and each job once right before its report.

    The killed runs are handed back, so that neither attempts nor lost workers are used up.
    """
    jobs, worker = Job.objects.db_manager(alias), Identity("pulse-test")
    killed: set[int] = set()  # jobs that were killed right before their report
    for _ in range(MOST_RUNS):
        resolve(alias, with_timeouts=True)
        jobs.promote()
        if not (claims := jobs.claim(worker, limit=1, lanes=jobs.lanes(None))):
            return
        run = Run(claims[0], beat=beat, alias=alias)
        run.after_step = _Killed.here
        ended = performed(run)
        was_killed = isinstance(ended.error, _Killed)
        if ended.run.completed or (not was_killed and run.claim.job_id in killed):
            reported(ended)
            continue
        if not was_killed:
            killed.add(run.claim.job_id)
        jobs.release([run.claim.lease])
    raise DrainLimit(f"after {MOST_RUNS} runs there was still work")


def _results_of(placed: EnqueuedWorkflow) -> dict[str, Any]:
    row = StoredBatch.objects.using(placed.alias).get(pk=placed.id)
    found = {name: Job.objects.using(placed.alias).filter(pk=job_id).first() for name, job_id in placed.job_ids.items()}
    if row.finished_at is None:
        ended = (Status.COMPLETED, Status.CANCELLED)
        held = [
            f"{name} is {job.status}: {job.last_error}"
            for name, job in found.items()
            if job and job.status not in ended
        ]
        raise AssertionError(f"the workflow {row.name!r} did not come to its end. " + "; ".join(held))
    return {name: None if job is None else codec().value_of(job, RESULT) for name, job in found.items()}
