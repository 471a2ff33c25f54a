"""A batch: jobs that belong together. It is over when they all are, and then its callbacks run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from pulse_django import conf
from pulse_django.execution.notify import is_due_soon, wake_workers
from pulse_django.execution.placement import alias_of_batch, alias_of_id
from pulse_django.execution.registry import Task, TaskResult
from pulse_django.execution.resolving import hold_paused, resolve_when_committed
from pulse_django.models import Job, StoredBatch
from pulse_django.protocol.batches import cancel_batch, open_batch, pause_batch, resume_batch, seal_batch
from pulse_django.protocol.needs import add_needs
from pulse_django.store.batches import BatchProgress, progress_of
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.transactions import joined
from pulse_django.words.job_ids import MAX_ID, check_whole_number
from pulse_django.words.job_options import MAX_BATCH_KIND, MAX_BATCH_NAME, Need, OnDead, Place, When
from pulse_django.words.option_kinds import Text
from pulse_django.words.payloads import encode_arguments

from .calls import Call, call_of, calls_of

NAME, KIND = Text(MAX_BATCH_NAME), Text(MAX_BATCH_KIND)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch by its id. Every method asks the database."""

    id: int
    alias: str

    def __post_init__(self) -> None:
        check_whole_number("batch id", self.id, 1, MAX_ID)

    @classmethod
    def open(
        cls,
        name: str,
        *,
        parent: Batch | None = None,
        context: Mapping[str, Any] | None = None,
        kind: str = "batch",
        using: str | None = None,
    ) -> Batch:
        """Open a batch, in the transaction of the caller. ``parent`` is not over before it is.

        ``context`` is what all of its jobs can read.
        """
        NAME.check("name", name)
        KIND.check("kind", kind)
        alias = parent.alias if parent is not None else alias_of_batch(using)
        encoded = None
        if context is not None:
            encoded = encode_arguments(dict(context), limit=conf.current().max_payload_bytes, what="context")
        parent_id = None if parent is None else parent.id
        jobs = Job.objects.db_manager(alias)
        return cls(open_batch(jobs, name, kind=kind, parent_id=parent_id, context=encoded), alias)

    @classmethod
    def get(cls, batch_id: int, *, using: str | None = None) -> Batch:
        """Return a batch, or raise ``StoredBatch.DoesNotExist``."""
        alias = alias_of_id(batch_id, using)
        StoredBatch.objects.using(alias).only("id").get(pk=batch_id)
        return cls(int(batch_id), alias)

    @property
    def row(self) -> StoredBatch:
        """The batch as the database has it now."""
        return StoredBatch.objects.using(self.alias).get(pk=self.id)

    @property
    def context(self) -> dict[str, Any]:
        """What was given to ``open(context=...)``."""
        found = StoredBatch.objects.using(self.alias).only("context").get(pk=self.id).context
        return dict(found or {})

    @property
    def jobs(self) -> JobQuerySet:
        """Its members, but not those of the batches within it."""
        members: JobQuerySet = Job.objects.using(self.alias).in_batch(self.id)
        return members

    def progress(self) -> BatchProgress:
        """Say how many of its jobs are done, dead and open. It costs the same whatever the size of the batch is."""
        return progress_of(self.alias, self.id)

    def add(self, call: Call | Task) -> TaskResult:
        """Enqueue a job of the batch, in the transaction of the caller.

        Raises ``BatchClosed`` once all of its jobs are over. A job of the batch can add to it for as long as it runs.
        """
        one = call_of(call)
        return one.task.get_backend().enqueue_at(one.task, one.args, one.kwargs, Place(self.id), self.alias)  # type: ignore[attr-defined, no-any-return]

    def add_many(self, task: Task, arguments: Iterable[Sequence[Any] | Mapping[str, Any]]) -> list[int]:
        """Enqueue a task once for each item, as ``enqueue_many`` does. Return the ids of the jobs."""
        news = []
        for item in arguments:
            args, kwargs = ((), item) if isinstance(item, Mapping) else (tuple(item), {})
            news.append(Call(task, args, kwargs).new_job(self.alias, Place(self.id)))
        ids: list[int] = Job.objects.db_manager(self.alias).enqueue_many(news)
        if ids and is_due_soon(task.run_after):
            wake_workers(self.alias, [task.queue_name])
        return ids

    def seal(
        self,
        *,
        on_success: Call | Sequence[Call] | None = None,
        on_dead: Call | Sequence[Call] | None = None,
        on_end: Call | Sequence[Call] | None = None,
    ) -> None:
        """Say that all jobs were added, and what is to run then, in the transaction of the caller.

        ``on_success`` runs when every job is over, ``on_dead`` when the first one is a dead letter, and ``on_end`` when
        every job is over or a dead letter. Each runs once, and none before the batch is sealed.
        """
        callbacks = [
            *((call, When.CLOSED, OnDead.HOLD) for call in calls_of(on_success)),
            *((call, When.DEAD, OnDead.CANCEL) for call in calls_of(on_dead)),
            *((call, When.ENDED, OnDead.GO_ON) for call in calls_of(on_end)),
        ]
        jobs = Job.objects.db_manager(self.alias)
        with joined(self.alias):
            place = Place(self.row.parent_id if callbacks else None, waits=True)
            news = [call.new_job(self.alias, place) for call, _, _ in callbacks]
            ids = jobs.enqueue_many(news) if news else []
            needs = [
                (job_id, Need(batch_id=self.id, when=when, on_dead=on_dead))
                for job_id, (_, when, on_dead) in zip(ids, callbacks, strict=True)
            ]
            if needs:
                add_needs(jobs, needs)
            seal_batch(jobs, self.id)
        resolve_when_committed(self.alias)

    def cancel(self, *, reason: str = "") -> bool:
        """Cancel all of its jobs, and the batches within it. Return whether it was neither over nor cancelled before.

        Waiting jobs are cancelled after the commit, a thousand at a time, and running ones are asked to stop. If this
        process dies meanwhile, a watchdog goes on. A job that is added later is cancelled at once.
        """
        jobs = Job.objects.db_manager(self.alias)
        cancelled = cancel_batch(jobs, self.id, reason=reason)
        resolve_when_committed(self.alias)
        return self.id in cancelled

    def pause(self) -> bool:
        """Start no job of it, and of the batches within it, until it is resumed. Jobs that run go on.

        Return whether it was neither over nor paused before.
        """
        paused = pause_batch(Job.objects.db_manager(self.alias), self.id)
        transaction.on_commit(partial(hold_paused, self.alias), using=self.alias, robust=True)
        return self.id in paused

    def resume(self) -> bool:
        """Go on after a pause. Return whether it was paused."""
        resumed = resume_batch(Job.objects.db_manager(self.alias), self.id)
        resolve_when_committed(self.alias)
        return self.id in resumed


def batch_of(given: object) -> Batch | None:
    """Return a batch, or None for what is none."""
    return given if isinstance(given, Batch) else None


__all__ = ["Batch", "BatchProgress"]
