"""What ``context.wait_for()`` and ``context.wait_for_event()`` do: end the run until something is there."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from asgiref.sync import sync_to_async

from pulse_django.exceptions import EventTimedOut, InvalidJob, LeaseLost, NeedNotDone, WaitFor
from pulse_django.models import Dependency, Event, Job, StoredBatch
from pulse_django.protocol.needs import add_needs_of_run
from pulse_django.store.transactions import refuse_callers_transaction
from pulse_django.words.job_options import MAX_EVENT_NAME, MAX_NODE_NAME, MOST_NESTED, Met, Need, OnDead
from pulse_django.words.masks import RESULT
from pulse_django.words.option_kinds import Text
from pulse_django.words.states import Status

from .databases import alias_of_run, locate
from .encryption import value_of
from .given_ids import never_given
from .needed_results import NeededResults

if TYPE_CHECKING:
    from pulse_django.workflows.batches import Batch

    from .run import Run

EVENT_NAME = Text(MAX_EVENT_NAME)


class Waits:
    """The part of ``Context`` that waits for others, and sees what they returned."""

    __slots__ = ()

    run: Run

    @property
    def results(self) -> NeededResults:
        """What came of the jobs that this one needed, by name."""
        return NeededResults(self.run.claim.job_id, alias_of_run(self.run))

    @property
    def batch(self) -> Batch | None:
        """The batch that this job is in, or None."""
        return self._batch(None)

    @property
    def workflow(self) -> Batch | None:
        """The workflow that this job is in, or None. Its ``context`` is what all of its jobs can read."""
        return self._batch("workflow")

    def wait_for(self, *needs: object, on_dead: str = OnDead.HOLD) -> Any:
        """Wait for jobs or batches. Return the result of each job and the progress of each batch: one value, or a list.

        If they are not over, this call ends the run, and the job is WAITING. It uses no worker, and the attempt does
        not count. When they are over, the handler starts again, so do work before this call in ``step()``. ``on_dead``
        decides what happens to this job if one that it needs becomes a dead letter.

        An id that was never given is refused. The wait for a job that was deleted is over, and as it has no result,
        ``NeedNotDone`` is raised; with ``on_dead="go_on"`` None is in its place.
        """
        wanted = [self._need(one, OnDead(on_dead)) for one in _flat(needs)]
        if not wanted:
            return []
        jobs = {job.pk: job for job in self._jobs(wanted)}
        batches = {batch.pk: batch for batch in self._batches(wanted)}
        missing_jobs = {need.job_id for need in wanted if need.job_id is not None} - jobs.keys()
        missing_batches = {need.batch_id for need in wanted if need.batch_id is not None} - batches.keys()
        if problem := never_given(alias_of_run(self.run), jobs=missing_jobs, batches=missing_batches):
            raise InvalidJob(f"wait_for: {problem}")
        if any(not _is_over(need, jobs, batches) for need in wanted):
            self._wait("wait_for()", wanted)
        values = [self._value_of(need, jobs) for need in wanted]
        is_single = len(needs) == 1 and not isinstance(needs[0], list | tuple)
        return values[0] if is_single else values

    async def await_for(self, *needs: object, on_dead: str = OnDead.HOLD) -> Any:
        """``wait_for()`` for async handlers."""
        return await sync_to_async(self.wait_for)(*needs, on_dead=on_dead)

    def wait_for_event(self, name: str, *, timeout: timedelta | None = None) -> Any:
        """Wait for ``send_event(name, payload)``, and return the payload. An event that came early is there.

        If it has not come, the run ends here and the job is WAITING, as with ``wait_for``. Raise ``EventTimedOut`` if
        it does not come in time, in this run and in all later ones.
        """
        EVENT_NAME.check("event", name)
        self.run.check()
        alias, job_id = alias_of_run(self.run), self.run.claim.job_id
        waits = Dependency.objects.using(alias).filter(job_id=job_id, needs_event=name)
        if self.run.claim.attempt > 1 and waits.filter(met=Met.TIMED_OUT).exists():
            raise EventTimedOut(name)
        event = Event.objects.using(alias).filter(name=name).first()
        if event is None:
            seconds = None if timeout is None else timeout.total_seconds()
            self._wait("wait_for_event()", [Need(event=name, name=name[:MAX_NODE_NAME], timeout=seconds)])
        return event.payload

    async def await_for_event(self, name: str, *, timeout: timedelta | None = None) -> Any:
        """``wait_for_event()`` for async handlers."""
        return await sync_to_async(self.wait_for_event)(name, timeout=timeout)

    def _wait(self, who: str, needs: list[Need]) -> NoReturn:
        run = self.run
        if run.completed:
            raise RuntimeError("this run has already completed its job and cannot wait")
        refuse_callers_transaction(alias_of_run(run), who)
        if not add_needs_of_run(Job.objects.db_manager(alias_of_run(run)), run.claim.lease, needs):
            run.lost = True
            raise LeaseLost("this run lost its lease to another run; it does not wait")
        raise WaitFor(", ".join(_said(need) for need in needs[:5]) + (", ..." if len(needs) > 5 else ""))

    def _need(self, given: object, on_dead: OnDead) -> Need:
        from pulse_django.workflows.batches import batch_of

        alias = alias_of_run(self.run)
        if (batch := batch_of(given)) is not None:
            if batch.alias != alias:
                raise InvalidJob(f"batch {batch.id} is in database {batch.alias!r}, and this job in {alias!r}")
            return Need(batch_id=batch.id, on_dead=on_dead)
        value = getattr(given, "id", given)
        where = locate(value)
        if where.alias != alias:
            raise InvalidJob(f"job {value} is in database {where.alias!r}, and this job in {alias!r}")
        if where.id == self.run.claim.job_id:
            raise InvalidJob("wait_for: a job cannot wait for itself")
        return Need(job_id=where.id, name=str(where.id), on_dead=on_dead)

    def _jobs(self, needs: list[Need]) -> Iterable[Job]:
        ids = [need.job_id for need in needs if need.job_id is not None]
        found = Job.objects.using(alias_of_run(self.run)).filter(pk__in=ids)
        return found.defer("args", "kwargs", "progress", "last_error") if ids else []

    def _batches(self, needs: list[Need]) -> Iterable[StoredBatch]:
        ids = [need.batch_id for need in needs if need.batch_id is not None]
        return StoredBatch.objects.using(alias_of_run(self.run)).filter(pk__in=ids) if ids else []

    def _value_of(self, need: Need, jobs: dict[int, Job]) -> Any:
        if need.batch_id is not None:
            from pulse_django.workflows.batches import Batch

            return Batch(need.batch_id, alias_of_run(self.run)).progress()
        job = jobs.get(need.job_id or 0)
        if job is None and need.on_dead is not OnDead.GO_ON:
            raise NeedNotDone(need.name, "deleted")
        return value_of(job, RESULT) if job is not None and job.status == Status.COMPLETED else None

    def _batch(self, kind: str | None) -> Batch | None:
        from pulse_django.workflows.batches import Batch

        alias = alias_of_run(self.run)
        batch_id = Job.objects.using(alias).values_list("batch_id", flat=True).get(pk=self.run.claim.job_id)
        while batch_id is not None:
            found = StoredBatch.objects.using(alias).only("kind", "parent_id").filter(pk=batch_id).first()
            if found is None:
                return None
            if kind is None or found.kind == kind:
                return Batch(found.pk, alias)
            batch_id = found.parent_id
        return None


def _flat(needs: Iterable[object], depth: int = 0) -> Iterable[object]:
    if depth > MOST_NESTED:
        raise InvalidJob(f"wait_for: the lists are nested more than {MOST_NESTED} deep")
    for need in needs:
        if isinstance(need, list | tuple):
            yield from _flat(need, depth + 1)
        else:
            yield need


def _is_over(need: Need, jobs: dict[int, Job], batches: dict[int, StoredBatch]) -> bool:
    if need.batch_id is not None:
        batch = batches.get(need.batch_id)
        return batch is None or batch.closed_at is not None or (need.on_dead is OnDead.GO_ON and bool(batch.ended_at))
    job = jobs.get(need.job_id or 0)
    if job is None or job.status == Status.COMPLETED:
        return True
    return need.on_dead is OnDead.GO_ON and Status(job.status).is_terminal


def _said(need: Need) -> str:
    if need.event is not None:
        return f"event {need.event!r}"
    return f"job {need.job_id}" if need.job_id is not None else f"batch {need.batch_id}"
