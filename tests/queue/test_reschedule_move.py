"""What an operator may change about a job that waits: when, and where."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import CLAIMABLE, Status
from tests.database import empty_tables
from tests.factories import make_job, now
from tests.faults import each
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")


@each(CLAIMABLE, before=empty_tables)
def test_a_job_that_waits_for_tomorrow_runs_now(status: Any) -> None:
    job = make_job(status, next_run_at=now(timedelta(days=1)))
    assert Job.objects.claim(Identity("me")) == []
    assert Job.objects.reschedule([job.pk, 10**15]).changed == {job.pk}
    assert [claim.job_id for claim in Job.objects.claim(Identity("me"))] == [job.pk]


def test_a_job_is_postponed_by_the_servers_clock() -> None:
    job = make_job()
    Job.objects.reschedule([job.pk], delay=timedelta(hours=2))
    job.refresh_from_db()
    assert job.status == Status.PENDING
    assert timedelta(minutes=119) < job.next_run_at - job.created_at < timedelta(minutes=121)


def test_a_job_moves_to_another_queue_and_keeps_its_priority() -> None:
    job = make_job(queue="slow", priority=7)
    Job.objects.move([job.pk], queue="quick")
    job.refresh_from_db()
    assert (job.queue, job.priority) == ("quick", 7)
    Job.objects.move([job.pk], priority=-3)
    job.refresh_from_db()
    assert (job.queue, job.priority) == ("quick", -3)


@each([status for status in Status if status not in CLAIMABLE], before=empty_tables)
def test_what_does_not_wait_is_left_alone_and_told(status: Any) -> None:
    job = make_job(status)
    before = Job.objects.values().get()
    for answer in (Job.objects.reschedule([job.pk]), Job.objects.move([job.pk], queue="other")):
        assert (answer.changed, answer.moved_on) == (frozenset(), {job.pk})
    assert Job.objects.values().get() == before


@each([("move", {"queue": "other"}), ("reschedule", {"delay": timedelta(hours=1)})], before=empty_tables)
def test_a_job_that_moves_on_while_the_operator_waits_is_left_alone(verb: Any, change: Any, rival: Rival) -> None:
    job = make_job()
    with transaction.atomic():
        Job.objects.request_cancel([job.pk])
        changing = rival.start(getattr(Job.objects, verb), [job.pk], **change)
        rival.wait_until_blocked(backend_pid())
    assert changing.result(20).moved_on == {job.pk}
    after = Job.objects.get()
    assert (after.status, after.queue, after.next_run_at) == (Status.CANCELLED, "default", job.next_run_at)


@each(
    [{}, {"queue": ""}, {"queue": "x" * 101}, {"queue": "a\nb"}, {"priority": 101}, {"priority": "1"}],
    before=empty_tables,
)
def test_nonsense_is_refused(change: Any) -> None:
    job = make_job()
    with pytest.raises((ValueError, InvalidJob)):
        Job.objects.move([job.pk], **change)
    with pytest.raises(ValueError, match="is not between 0 and"):
        Job.objects.reschedule([job.pk], delay=timedelta(seconds=-1))
    assert Job.objects.get().queue == "default"
