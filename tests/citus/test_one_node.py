"""On Citus, what workers and watchdogs send goes to the node of the schema, and needs no other (docs/adr/0086)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from pulse_django.citus import nodes
from pulse_django.models import Job, Schedule
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Postpone, Retry, Wait
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Cancelled, Failed, Outcome, Released, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.schedules import tick
from pulse_django.schedules.tick_rules import Tick, TickOutcome
from pulse_django.schedules.timings import Every
from pulse_django.workflows import batch_verbs as batches
from pulse_django.workflows.needs import add_needs
from pulse_django.workflows.rules import Need, OnNeedFailed
from pulse_django.workflows.steps import begin_sleep
from tests.citus import is_on_citus
from tests.database import empty_tables
from tests.factories import lease_of, make_job, now
from tests.faults import all_faults
from tests.queue.steps import expire, sql
from tests.sql.lives import HOOK

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.skipif(not is_on_citus(), reason="needs a cluster of Citus: make citus"),
]
SOON = timedelta(seconds=1)
FAILED = Failed(ErrorReport.of(ValueError("x")))


@contextmanager
def debugged() -> Iterator[list[str]]:
    """What Citus says of how it executes the statements."""
    said: list[str] = []

    def keep(diag: Any) -> None:
        said.append(diag.message_primary)

    sql("SET citus.log_intermediate_results = on")
    sql("SET client_min_messages = debug1")
    connection.connection.add_notice_handler(keep)
    try:
        yield said
    finally:
        connection.connection.remove_notice_handler(keep)
        sql("RESET client_min_messages")
        sql("RESET citus.log_intermediate_results")


def running(**values: Any) -> Job:
    return make_job(Status.RUNNING, **values)


def settles(outcome: Outcome, decision: Any, **values: Any) -> Callable[[], Callable[[], object]]:
    def arrange() -> Callable[[], object]:
        reports = [Report(lease_of(running(**values)), outcome, decision) for _ in range(3)]
        return lambda: Job.objects.settle(reports)

    return arrange


def settles_late() -> Callable[[], object]:
    report = Report(lease_of(running()), Succeeded(), Complete())
    Job.objects.settle([report])
    return lambda: Job.objects.settle([report])


def settles_within_a_transaction() -> Callable[[], object]:
    report = Report(lease_of(running()), Succeeded(), Complete())

    def settle() -> None:
        with transaction.atomic():
            Job.objects.settle([report])

    return settle


def reaps() -> Callable[[], object]:
    for _ in range(3):
        expire(running())
    return Job.objects.reap


def cancels() -> Callable[[], object]:
    ids = [make_job().pk, running().pk]
    return lambda: Job.objects.request_cancel(ids)


def expires() -> Callable[[], object]:
    make_job(expires_at=now(-SOON))
    return Job.objects.expire


def resolves() -> Callable[[], object]:
    """One is freed, one is cancelled, and a batch closes, within another."""
    outer = batches.open_batch(Job.objects, "outer")
    batch = batches.open_batch(Job.objects, "inner", parent_id=outer)
    needed, dead = running(awaited=True, batch_id=batch), running(awaited=True)
    for job in (needed, dead):
        add_needs(Job.objects, [(make_job(Status.WAITING).pk, Need(job_id=job.pk, on_need_failed=OnNeedFailed.CANCEL))])
    batches.seal_batch(Job.objects, batch)
    Job.objects.settle(
        [Report(lease_of(needed), Succeeded(), Complete()), Report(lease_of(dead), FAILED, DeadLetter("x"))]
    )
    return Job.objects.resolve


def seals() -> Callable[[], object]:
    batch = batches.open_batch(Job.objects, "a")
    return lambda: batches.seal_batch(Job.objects, batch)


def walks() -> Callable[[], object]:
    make_job(Status.WAITING)
    return Job.objects.note_overlooked


def sleeps() -> Callable[[], object]:
    lease = lease_of(running())

    def sleep() -> None:
        assert begin_sleep(Job.objects, lease, "nap", 60.0) == pytest.approx(60.0, abs=5)
        assert begin_sleep(Job.objects, lease, "nap", 60.0) == pytest.approx(60.0, abs=5)

    return sleep


def ticks() -> Callable[[], object]:
    schedule = Schedule.objects.create(name="s", task="shop.echo", args=[1], timing=Every(timedelta(hours=1)))
    fired = Tick(datetime.now(UTC), TickOutcome.FIRED)
    rows = [(schedule.pk, fired, 17, NewJob(task="t", idempotency_key="k"))]

    def write() -> None:
        assert tick.write_ticks("default", rows) == {17}
        assert tick.write_ticks("default", rows) == frozenset()

    return write


def claims() -> Callable[[], object]:
    Job.objects.enqueue_many([NewJob(task="t")] * 3)
    return lambda: Job.objects.claim(Identity("me"), limit=3)


# What is sent for each job, or all the time: each statement is one task, with nothing in between.
HOT = {
    "claim": claims,
    "complete": settles(Succeeded(), Complete()),
    "complete in a transaction": settles_within_a_transaction,
}
# Where rows of other tables are written as well, with ids of their own: nothing in between leaves the node.
OTHERS = {
    "release": settles(Released(SOON), Postpone(SOON)),
    "complete a job that others need": settles(Succeeded(), Complete(), awaited=True),
    "retry": settles(FAILED, Retry(SOON, "x")),
    "dead letter": settles(FAILED, DeadLetter("x"), awaited=True),
    "dead letter with a hook": settles(FAILED, DeadLetter("x"), on_dead=json.loads(HOOK)),
    "wait": settles(Succeeded(), Wait()),
    "end as cancelled": settles(Cancelled("x"), Cancel("x")),
    "report late": settles_late,
    "reap": reaps,
    "request a cancel": cancels,
    "expire": expires,
    "resolve": resolves,
    "seal a batch": seals,
    "sleep": sleeps,
    "tick": ticks,
    "note what was overlooked": walks,
}


def test_what_is_sent_for_each_job_is_one_task() -> None:
    with all_faults() as about:
        for name, arrange in HOT.items():
            with about(name):
                empty_tables()
                act = arrange()
                with debugged() as said:
                    act()
                assert not [line for line in said if "subplan" in line.lower() or "INSERT" in line], said


def test_nothing_is_sent_to_nodes_that_do_not_have_the_schema() -> None:
    node = nodes.node_of("default")
    with all_faults() as about:
        for name, arrange in (HOT | OTHERS).items():
            with about(name):
                empty_tables()
                act = arrange()
                with debugged() as said:
                    act()
                sent = {line for line in said if "will be sent to" in line}
                assert not [line for line in sent if not line.endswith(f"will be sent to {node}")], sent
