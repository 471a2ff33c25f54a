"""Jobs of batches and workflows whose key another job holds: that one stands in their place, and stays what it is."""

from __future__ import annotations

import pytest

from pulse_django import Batch, Unique, chain, task
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain

pytestmark = pytest.mark.usefixtures("pulse_db")


@task(name="keyed.once", unique=Unique(by=("number",)))
def once(number: int) -> None:
    pass


@task(name="keyed.any")
def any_time(number: int) -> None:
    pass


def test_a_list_that_is_added_to_a_cancelled_batch_cancels_no_other_job() -> None:
    mine = once.enqueue(number=1)
    batch = Batch.open("b")
    batch.cancel()
    [found, new] = batch.add_many(once, [{"number": 1}, {"number": 2}])
    assert str(found) == mine.id
    assert Job.objects.get(pk=found).status == Status.PENDING
    assert Job.objects.get(pk=new).status == Status.CANCELLED


def test_a_member_is_counted_once() -> None:
    batch, other = Batch.open("b"), Batch.open("c")
    for one in (batch, batch, other):
        one.add_many(once, [{"number": 1}])
    for one in (batch, other):
        one.seal()
    drain()
    assert (batch.progress().total, batch.progress().completed) == (1, 1)
    assert other.progress().total == 0


def test_what_needs_a_job_that_was_there_before_runs_after_it() -> None:
    there = once.enqueue(number=1)
    chain(any_time.prepare(number=1), once.prepare(number=1), any_time.prepare(number=2)).enqueue()
    drain()
    assert Job.objects.get(pk=there.id).status == Status.COMPLETED
    assert set(Job.objects.values_list("status", flat=True)) == {Status.COMPLETED}


def test_what_runs_after_a_batch_and_was_there_before_does_not_wait_for_it() -> None:
    """Nor is it cancelled because a batch had no dead letter."""
    there = once.enqueue(number=1)
    for moment in ("on_success", "on_dead"):
        batch = Batch.open(moment)
        batch.add(any_time.prepare(number=1))
        batch.seal(**{moment: once.prepare(number=1)})
    drain()
    assert Job.objects.get(pk=there.id).status == Status.COMPLETED
    assert Job.objects.exclude(status=Status.COMPLETED).count() == 0
