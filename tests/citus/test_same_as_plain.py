"""What is sent to Citus in several statements does what a plain server does in one. This needs no cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Postpone, Retry, Wait
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Cancelled, Failed, Released, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.testing.drain import expire_lease
from pulse_django.workflows import batch_verbs as batches
from pulse_django.workflows import needs
from pulse_django.workflows.needs import add_needs
from pulse_django.workflows.rules import Need, OnNeedFailed
from pulse_django.workflows.steps import begin_sleep
from tests.citus import is_on_citus, statements_of_citus
from tests.database import empty_tables
from tests.factories import lease_of, make_job, now
from tests.faults import all_faults
from tests.queue.steps import sql
from tests.sql.sent import Sent, recording

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.skipif(is_on_citus(), reason="compares with what a plain server is sent"),
]
SOON = timedelta(seconds=1)
FAILED = Failed(ErrorReport.of(ValueError('it\'s {odd}, "quoted" \\ and, long\n')))
# What two runs of the same story do not have in common.
DIFFERS = {"id", "era", "token", "locked_by", "completed_by", "completed_token", "batch_id", "worker", "lease_until"}


def running(**values: Any) -> Job:
    return make_job(Status.RUNNING, **values)


def claims() -> None:
    limits = {"lease_ttl": SOON, "timeout": SOON * 9}
    for values in ({}, limits, {"weight": 2}, {"weight": 9}, {"started_at": now(-SOON)}):
        make_job(**values)
    assert len(Job.objects.claim(Identity("me"), limit=5)) == 3


def settles() -> None:
    ends = [
        (Succeeded(), Complete('{"a": "it\'s, \\"x\\""}'), {}),
        (Succeeded(), Complete(), {"awaited": True}),
        (Released(SOON), Postpone(SOON), {}),
        (FAILED, Retry(SOON, "x"), {"lane_key": "a:"}),
        (FAILED, Retry(SOON, "x"), {"attempts": 1, "max_attempts": 1}),
        (FAILED, Retry(SOON * 99, "x"), {"give_up_after": SOON}),
        (FAILED, DeadLetter("x"), {"awaited": True}),
        (Succeeded(), Wait(), {}),
        (Cancelled("x"), Cancel("x"), {}),
        (FAILED, Retry(SOON, "x"), {"cancel_requested_at": now()}),
    ]
    reports = [Report(lease_of(running(**values)), outcome, decision) for outcome, decision, values in ends]
    settled = Job.objects.settle([*reports, reports[0]._replace(outcome=FAILED, decision=DeadLetter("late"))])
    assert len(settled.accepted) == len(ends)
    assert settled.has_notes
    assert Job.objects.settle(reports).lost | Job.objects.settle(reports).repeated == {one.lease for one in reports}


def reaps() -> None:
    for values in (
        {},
        {"max_lost_workers": 1},
        {"awaited": True, "max_lost_workers": 1},
        {"count_lost_workers": False},
    ):
        expire_lease(running(**values))
    assert len(Job.objects.reap()) == 4


def cancels() -> None:
    waiting, begun = make_job(awaited=True), running()
    said = Job.objects.request_cancel([waiting.pk, begun.pk, 17], reason="it's over")
    assert (said.cancelled, said.asked, said.refused) == ({waiting.pk}, {begun.pk}, {17})


def expires() -> None:
    make_job(expires_at=now(-SOON))
    assert [ending.expired for ending in Job.objects.expire()] == [True]


def resolves() -> None:
    outer = batches.open_batch(Job.objects, "outer")
    inner = batches.open_batch(Job.objects, "inner", parent_id=outer)
    needed, dead = running(awaited=True, batch_id=inner), running(awaited=True)
    for job in (needed, dead):
        add_needs(Job.objects, [(make_job(Status.WAITING).pk, Need(job_id=job.pk, on_need_failed=OnNeedFailed.CANCEL))])
    batches.seal_batch(Job.objects, inner)
    Job.objects.settle(
        [Report(lease_of(needed), Succeeded(), Complete()), Report(lease_of(dead), FAILED, DeadLetter("x"))]
    )
    found = Job.objects.resolve()
    assert (found.queues, len(found.endings), found.finished, found.has_more) == (("default",), 1, {inner}, True)
    make_job(Status.WAITING)
    assert Job.objects.note_overlooked() == 1
    needs._walked_until.clear()


def sleeps() -> None:
    lease = lease_of(running())
    assert [round(begin_sleep(Job.objects, lease, "it's", 60.0) or 0, -1) for _ in range(2)] == [60, 60]
    assert begin_sleep(Job.objects, lease._replace(attempt=7), "nap", 60.0) is None


STORIES = (claims, settles, reaps, cancels, expires, resolves, sleeps)


def written(story: Callable[[], None], *, on_citus: bool) -> list[Any]:
    """Everything that is in the tables after it, but for instants and what is drawn."""
    empty_tables()
    sql("ALTER SEQUENCE pulse_django_job_id_seq RESTART 10000000")  # so that ids are told from other numbers
    needs._walked_until.clear()
    with statements_of_citus() if on_citus else nullcontext():
        story()
    first = min([pk for (pk,) in sql("SELECT id FROM pulse_django_job")], default=0)
    found: list[Any] = []
    for rows in (Job.objects.order_by("pk"), Attempt.objects.order_by("job_id", "number")):
        for row in rows.values():
            found.append({name: _alike(value, first) for name, value in row.items() if name not in DIFFERS})
    notes = sql("SELECT job_id, batch_id IS NULL, completed, cancelled, died FROM pulse_django_unresolved")
    return [*found, sorted(map(str, ((_alike(job_id, first), *rest) for job_id, *rest in notes)))]


def _alike(value: Any, first: int) -> Any:
    if type(value) is int and value >= first > 1_000_000:
        return value - first
    return "set" if hasattr(value, "tzinfo") else value


def test_what_is_written_is_the_same() -> None:
    with all_faults() as about:
        for story in STORIES:
            with about(story.__name__):
                assert written(story, on_citus=True) == written(story, on_citus=False)


def test_no_insert_into_the_history_calls_what_is_not_immutable() -> None:
    """Citus cannot send such an INSERT ... SELECT to the node."""
    found: list[Sent] = []
    with recording(found.append):
        for story in STORIES:
            written(story, on_citus=True)
    inserts = [one.statement for one in found if one.statement.startswith("INSERT INTO pulse_django_job (")]
    called = {name for text in inserts for name in re.findall(r"pg_catalog\.(\w+)\(", text)}
    assert len(inserts) > 3
    assert "unnest" in called
    volatile = "SELECT proname::text FROM pg_proc WHERE proname = ANY (%s::name[]) AND provolatile <> 'i'"
    assert sql(volatile, sorted(called)) == []
    assert not [text for text in inserts if "_timestamp()" in text]
