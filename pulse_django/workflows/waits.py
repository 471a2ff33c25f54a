"""``context.wait_for()`` and ``context.wait_for_event()``: end the run until a result or an event is there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from asgiref.sync import sync_to_async

from pulse_django.exceptions import EventTimedOut, InvalidJob, LeaseLost, NeededResultMissing, WaitFor
from pulse_django.models import Dependency, Event, Job, StoredBatch
from pulse_django.queue.database.transactions import refuse_callers_transaction
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.options import Text
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.run.codec import codec
from pulse_django.shards.ids import IDS_OF_BATCHES, IDS_OF_JOBS, known_position_of
from pulse_django.shards.placement import alias_of_run, locate

from .batch_verbs import members_of
from .needs import add_needs_of_run
from .rules import MAX_EVENT_NAME, MAX_NODE_NAME, MOST_NESTED, Met, Need, OnNeedFailed

if TYPE_CHECKING:
    from pulse_django.run.run import Run

    from .batches import Batch


EVENT_NAME = Text(MAX_EVENT_NAME)


class Waits:
    """The part of ``Context`` that waits for other jobs and reads their results."""

    __slots__ = ()

    run: Run

    @property
    def results(self) -> NeededResults:
        """The results of the jobs that this one needed, by name."""
        return NeededResults(self.run.claim.job_id, alias_of_run(self.run))

    @property
    def batch(self) -> Batch | None:
        """The batch that this job is in, or None."""
        return self._batch(None)

    @property
    def workflow(self) -> Batch | None:
        """The workflow that this job is in, or None. All of its jobs can read its ``context``."""
        return self._batch("workflow")

    def wait_for(self, *needs: object, on_need_failed: str = OnNeedFailed.WAIT) -> Any:
        """Wait for jobs or batches. Return the result of each job and the progress of each batch: one value, or a list.

        If they are not over, this call ends the run, and the job is WAITING. It uses no worker, and the attempt does
        not count. When they are over, the handler starts again, so do work before this call in ``step()``.
        ``on_need_failed`` decides what happens to this job if one that it needs becomes a dead letter.

        An id that was never given is refused. The wait for a job that was deleted is over, and as it has no result,
        ``NeededResultMissing`` is raised; with ``on_need_failed="continue"`` None is in its place.
        """
        wanted = [self._need(one, OnNeedFailed(on_need_failed)) for one in _flat(needs)]
        if not wanted:
            return []
        alias = alias_of_run(self.run)
        job_ids = {need.job_id for need in wanted if need.job_id is not None}
        batch_ids = {need.batch_id for need in wanted if need.batch_id is not None}
        jobs = Job.objects.using(alias).defer("args", "kwargs", "progress", "last_error", "on_dead").in_bulk(job_ids)
        batches = StoredBatch.objects.using(alias).defer("context").in_bulk(batch_ids)
        if problem := never_given(alias, jobs=job_ids - jobs.keys(), batches=batch_ids - batches.keys()):
            raise InvalidJob(f"wait_for: {problem}")
        if any(not _is_over(need, jobs, batches) for need in wanted):
            self._wait("wait_for()", wanted)
        values = [self._value_of(need, jobs) for need in wanted]
        is_single = len(needs) == 1 and not isinstance(needs[0], list | tuple)
        return values[0] if is_single else values

    async def await_for(self, *needs: object, on_need_failed: str = OnNeedFailed.WAIT) -> Any:
        """``wait_for()`` for async handlers."""
        return await sync_to_async(self.wait_for)(*needs, on_need_failed=on_need_failed)

    def wait_for_event(self, name: str, *, timeout: Seconds | None = None) -> Any:
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
            seconds = None if timeout is None else as_timedelta(timeout).total_seconds()
            self._wait("wait_for_event()", [Need(event=name, name=name[:MAX_NODE_NAME], timeout=seconds)])
        return event.payload

    async def await_for_event(self, name: str, *, timeout: Seconds | None = None) -> Any:
        """``wait_for_event()`` for async handlers."""
        return await sync_to_async(self.wait_for_event)(name, timeout=timeout)

    def _wait(self, caller: str, needs: list[Need]) -> NoReturn:
        run = self.run
        if run.completed:
            raise RuntimeError("this run has already completed its job and cannot wait")
        refuse_callers_transaction(alias_of_run(run), caller)
        if not add_needs_of_run(Job.objects.db_manager(alias_of_run(run)), run.claim.lease, needs):
            run.lost = True
            raise LeaseLost("this run lost its lease to another run; it does not wait")
        raise WaitFor(", ".join(_said(need) for need in needs[:5]) + (", ..." if len(needs) > 5 else ""))

    def _need(self, given: object, on_need_failed: OnNeedFailed) -> Need:
        from .batches import Batch

        alias = alias_of_run(self.run)
        if isinstance(given, Batch):
            if given.alias != alias:
                raise InvalidJob(f"batch {given.id} is in database {given.alias!r}, and this job in {alias!r}")
            return Need(batch_id=given.id, on_need_failed=on_need_failed)
        value = getattr(given, "id", given)
        where = locate(value)
        if where.alias != alias:
            raise InvalidJob(f"job {value} is in database {where.alias!r}, and this job in {alias!r}")
        if where.id == self.run.claim.job_id:
            raise InvalidJob("wait_for: a job cannot wait for itself")
        return Need(job_id=where.id, name=str(where.id), on_need_failed=on_need_failed)

    def _value_of(self, need: Need, jobs: dict[int, Job]) -> Any:
        if need.batch_id is not None:
            from .batches import Batch

            return Batch(need.batch_id, alias_of_run(self.run)).progress()
        job = jobs.get(need.job_id or 0)
        if job is None and need.on_need_failed is not OnNeedFailed.CONTINUE:
            raise NeededResultMissing(need.name, "deleted")
        return codec().value_of(job, RESULT) if job is not None and job.status == Status.COMPLETED else None

    def _batch(self, kind: str | None) -> Batch | None:
        from .batches import Batch

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
    goes_on = need.on_need_failed is OnNeedFailed.CONTINUE
    if need.batch_id is not None:
        batch = batches.get(need.batch_id)
        return batch is None or batch.finished_at is not None or (goes_on and batch.ended_at is not None)
    job = jobs.get(need.job_id or 0)
    return job is None or job.status == Status.COMPLETED or (goes_on and Status(job.status) in TERMINAL)


def _said(need: Need) -> str:
    if need.event is not None:
        return f"event {need.event!r}"
    return f"job {need.job_id}" if need.job_id is not None else f"batch {need.batch_id}"


# The results of the jobs that a job needed: ``context.results``.


@dataclass(frozen=True, slots=True)
class NeededResults(Mapping[str, Any]):
    """The results of the jobs that a job needed, by name. They are read on access."""

    job_id: int
    alias: str

    def __getitem__(self, name: str) -> Any:
        """Return the result of a needed job. Raise ``NeededResultMissing`` if it is a dead letter or was cancelled."""
        needs = self._needs()
        for need in needs:
            if need.name == name:
                return self._result_of(need)
        for need in needs:  # a large group is a batch, and its jobs have the names
            if need.needs_batch is not None and (member := self._members(need).filter(node=name).first()) is not None:
                return _value(member, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for need in self._needs():
            if need.name or need.needs_batch is None:
                yield need.name
            else:
                yield from self._members(need).values_list("node", flat=True)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def one(self) -> Any:
        """Return the result of the only needed job."""
        names = list(self)
        if len(names) != 1:
            raise ValueError(f"this job needed {len(names)} results, not one: {', '.join(names[:10])}")
        return self[names[0]]

    @property
    def not_done(self) -> dict[str, str]:
        """The names of needed jobs that are not done, each with "dead" or "cancelled"."""
        return {need.name: str(need.met) for need in self._needs() if need.met in (Met.DEAD, Met.CANCELLED)}

    def _needs(self) -> list[Dependency]:
        return list(Dependency.objects.using(self.alias).filter(job_id=self.job_id, met__isnull=False).order_by("id"))

    def _members(self, need: Dependency) -> Any:
        batch = need.needs_batch or 0
        return members_of(Job.objects.using(self.alias), batch).filter(node__isnull=False).order_by("id")

    def _result_of(self, need: Dependency) -> Any:
        if need.needs_event is not None:
            event = Event.objects.using(self.alias).filter(name=need.needs_event).first()
            return None if event is None else event.payload
        if need.needs_batch is not None:
            return {member.node: _value(member, str(member.node)) for member in self._members(need)}
        job = Job.objects.using(self.alias).filter(pk=need.needs).first()
        if job is None:
            raise NeededResultMissing(need.name, "deleted")
        return _value(job, need.name)


def _value(job: Job, name: str) -> Any:
    if job.status != Status.COMPLETED:
        raise NeededResultMissing(name, str(job.status))
    return codec().value_of(job, RESULT)


# Refuse a need of an id that never existed: it is a typo, and would be taken for a job that has ended and was deleted.


def never_given(alias: str, *, jobs: Collection[int] = (), batches: Collection[int] = ()) -> str:
    """Name an id without a row that the sequence of this database has not reached. Empty: there is none.

    An id below that has no row was deleted, or is in a transaction that is still open.
    """
    for kind, ids, model, sequence in (
        ("job", jobs, Job, IDS_OF_JOBS),
        ("batch", batches, StoredBatch, IDS_OF_BATCHES),
    ):
        if not ids:
            continue
        missing = set(ids).difference(model.objects.using(alias).filter(pk__in=ids).values_list("pk", flat=True))
        position = known_position_of(alias, sequence) if missing else None
        if position is not None and max(missing) > position:
            return f"{kind} {max(missing)} does not exist, and never did: no id in {alias!r} is above {position}"
    return ""
