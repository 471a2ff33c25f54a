"""Rows for tests. Only rows that production could hold: the constraints of the tables see to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import factory
from django.db.models import Value
from factory.django import DjangoModelFactory

from pulse_django.models import IdempotencyKey, Job, Pause, StoredAttempt, Worker
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.leases import Lease
from pulse_django.queue.words.states import Status, era_of

HOLDER = "host-1:boot:1"


def today() -> int:
    return era_of(datetime.now(UTC).date())


def now(offset: timedelta = timedelta()) -> Any:
    """The server's clock, ``offset`` from now. Not that of each row, which Citus refuses in an UPDATE."""
    return StatementTimestamp() + Value(offset)


class JobFactory(DjangoModelFactory):
    class Meta:
        model = Job

    class Params:
        running = factory.Trait(
            status=Status.RUNNING.value,
            attempts=1,
            locked_by=HOLDER,
            lease_until=factory.LazyFunction(lambda: now(timedelta(seconds=30))),
            token=factory.Sequence(lambda n: n + 1),
            started_at=factory.LazyFunction(now),
        )
        waiting = factory.Trait(status=Status.WAITING.value)
        retrying = factory.Trait(status=Status.RETRYING.value, attempts=1, last_error="ValueError: no")
        completed = factory.Trait(
            status=Status.COMPLETED.value,
            attempts=1,
            era=factory.LazyFunction(today),
            finished_at=factory.LazyFunction(now),
            result={"ok": True},
        )
        dead = factory.Trait(
            status=Status.DEAD_LETTERED.value,
            attempts=10,
            finished_at=factory.LazyFunction(now),
            last_error="ValueError: no",
        )
        cancelled = factory.Trait(
            status=Status.CANCELLED.value,
            era=factory.LazyFunction(today),
            finished_at=factory.LazyFunction(now),
            cancel_requested_at=factory.LazyFunction(now),
        )
        # Reasons for a watchdog to end a run, each on top of ``running``.
        expired = factory.Trait(lease_until=factory.LazyFunction(lambda: now(timedelta(seconds=-1))))
        overdue = factory.Trait(deadline=factory.LazyFunction(lambda: now(timedelta(seconds=-1))))
        stalled = factory.Trait(
            progress_timeout=timedelta(seconds=1),
            started_at=factory.LazyFunction(lambda: now(timedelta(seconds=-5))),
        )

    task = "tests.add"

    @classmethod
    def _create(cls, model_class: type[Job], *args: Any, **kwargs: Any) -> Job:
        job: Job = super()._create(model_class, *args, **kwargs)
        if job.idempotency_key is not None:
            IdempotencyKey.objects.create(task=job.task, key=job.idempotency_key, job_id=job.pk)
        job.refresh_from_db()  # the server's clock wrote instants that Django does not read back everywhere
        return job


TRAIT_OF_STATUS = {
    Status.WAITING: "waiting",
    Status.PENDING: None,
    Status.RUNNING: "running",
    Status.RETRYING: "retrying",
    Status.COMPLETED: "completed",
    Status.DEAD_LETTERED: "dead",
    Status.CANCELLED: "cancelled",
}


def make_job(status: Status = Status.PENDING, **overrides: Any) -> Job:
    trait = TRAIT_OF_STATUS[status]
    if trait is not None:
        overrides = {trait: True, **overrides}
    job: Job = JobFactory(**overrides)
    return job


def lease_of(job: Job) -> Lease:
    """The lease of a running job, or the one that an earlier run of it must have had."""
    return Lease(job.pk, job.locked_by or HOLDER, max(job.attempts, 1))


class AttemptFactory(DjangoModelFactory):
    class Meta:
        model = StoredAttempt

    number = 1
    token = factory.Sequence(lambda n: n + 1)
    worker = HOLDER
    started_at = factory.LazyFunction(now)
    finished_at = factory.LazyFunction(now)
    outcome = "SUCCEEDED"


class PauseFactory(DjangoModelFactory):
    class Meta:
        model = Pause

    queue = "default"


class WorkerFactory(DjangoModelFactory):
    class Meta:
        model = Worker

    name = "host-1"
    boot_id = factory.Sequence(lambda n: f"boot{n}")
    host = "host"
    pid = 1
    slots = 1


def presence(name: str = "host-1", **facts: Any) -> Presence:
    """What a live worker says of itself with its heartbeats."""
    usual = {"boot_id": "b", "host": "h", "pid": 1, "versions": {}, "queues": (), "slots": 8, "in_flight": 0}
    return Presence(name=name, **{**usual, "stuck_slots": 0, **facts})
