"""The arguments of a job that waits are changed, and its old ones are kept."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from pulse_django import Unique, Workflow, api, task
from pulse_django.amendments import amending
from pulse_django.amendments.amend import KEPT_AMENDMENTS, AmendRefusal, read_for_amending
from pulse_django.exceptions import InvalidJob, PayloadError, WrongArguments
from pulse_django.models import Amendment, Job
from pulse_django.queue.prune import drop_days
from pulse_django.queue.words.job_options import Payload
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status
from pulse_django.testing import drain, run_job
from tests.database import on_empty_tables
from tests.factories import make_job, now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")


@task(name="amend.order")
def order(number: int, note: str = "", *, express: bool = False) -> Any:
    return [number, note, express]


@task(name="amend.unique", unique=Unique(by=("number",)))
def one_per_number(number: int, note: str = "") -> None: ...


@task(name="amend.unique_until_start", unique=Unique(by=("number",), until="start"))
def one_waiting(number: int) -> None: ...


@task(name="amend.masked", sensitive=("number",))
def sensitive(number: Any) -> None: ...


NEW = Payload("[2]", "{}")


@each_of(*CLAIMABLE, around=on_empty_tables)
def test_a_waiting_job_gets_other_arguments_and_keeps_the_old_ones(*, status: Any) -> None:
    job = make_job(status, task=order.registered_name, args=[1], kwargs={"note": "a"}, next_run_at=now())
    answer = api.amend(job.pk, args=[2], by="ada", reason="the customer called")
    assert answer
    assert answer.refused is None
    after = Job.objects.get()
    assert (after.args, after.kwargs) == ([2], {"note": "a"}), "what is not given stays"
    assert after.payload_bytes == len('[2]{"note":"a"}')
    assert api.amend(job.pk, kwargs={"express": True})
    first, second = Amendment.objects.order_by("id")
    assert (first.job_id, first.args, first.kwargs) == (job.pk, [1], {"note": "a"})
    assert (first.by, first.reason, first.attempts) == ("ada", "the customer called", job.attempts)
    assert (second.args, second.kwargs, second.by) == ([2], {"note": "a"}, "")
    assert run_job(job).status is Status.COMPLETED
    assert Job.objects.get().result == [2, "", True]


def test_a_job_that_waits_for_others_gets_other_arguments() -> None:
    flow = Workflow("flow").add("first", order.prepare(1)).add("second", order.prepare(2), needs=["first"])
    job_id = flow.enqueue().job_ids["second"]
    assert Job.objects.get(pk=job_id).status == Status.WAITING
    assert api.amend(job_id, args=[3], by="ada")
    assert Amendment.objects.get().args == [2]
    drain()
    assert Job.objects.get(pk=job_id).result == [3, "", False]


@each_of(Status.RUNNING, *TERMINAL, around=on_empty_tables)
def test_a_job_that_does_not_wait_is_left_alone(*, status: Any) -> None:
    job = make_job(status, task=order.registered_name, args=[1])
    before = Job.objects.values().get()
    answers = [api.amend(job.pk, args=[2]), Job.objects.amend(job.pk, NEW)]
    why = AmendRefusal.RUNNING if status == Status.RUNNING else AmendRefusal.ENDED
    assert [(bool(one), one.refused) for one in answers] == [(False, why)] * 2
    assert Job.objects.values().get() == before
    assert not Amendment.objects.exists()


def test_a_job_that_is_gone_or_has_had_another_attempt_is_refused() -> None:
    assert api.amend(10**15, args=[1]).refused is AmendRefusal.GONE
    job = make_job(Status.RETRYING, task=order.registered_name, args=[1])
    assert api.amend(job.pk, args=[2], attempt=0).refused is AmendRefusal.CHANGED
    assert api.amend(job.pk, args=[2], attempt=1)


@each_of(
    ({"args": []}, WrongArguments),
    ({"args": [1], "kwargs": {"color": 1}}, WrongArguments),
    ({"args": [{1, 2}]}, PayloadError),
    ({"args": ["x" * 1_000_001]}, PayloadError),
    ({"args": "12"}, InvalidJob),
    ({"args": {"number": 1}}, InvalidJob),
    ({"kwargs": [1]}, InvalidJob),
    ({}, InvalidJob),
    ({"args": [1], "attempt": "1"}, InvalidJob),
    around=on_empty_tables,
)
def test_arguments_that_could_not_be_enqueued_are_refused(*, change: Any, error: Any) -> None:
    job = make_job(task=order.registered_name, args=[1])
    with pytest.raises(error):
        api.amend(job.pk, **change)
    assert Job.objects.get().args == [1]


def test_a_task_that_this_process_does_not_have_is_refused() -> None:
    job = make_job(task="gone", args=[1])
    with pytest.raises(InvalidJob, match="has no task 'gone'"):
        api.amend(job.pk, args=[1])


def test_what_is_masked_is_not_shown() -> None:
    job = make_job(task=sensitive.registered_name, args=[1], sensitive='{"positions":[0]}')
    with pytest.raises(PayloadError) as caught:
        api.amend(job.pk, args=[{"secret": {1}}])
    assert "secret" not in str(caught.value)
    assert api.amend(job.pk, args=[2])
    assert Amendment.objects.get().sensitive == job.sensitive


def test_a_claim_that_comes_first_keeps_the_arguments_it_has(rival: Rival) -> None:
    """The claim locks the row, the amendment waits for it, and finds the job running."""
    job = make_job(task=order.registered_name, args=[1])
    with transaction.atomic():
        sql(
            "UPDATE pulse_django_job_hot SET status = 'RUNNING', attempts = 1, locked_by = 'a:b:1', token = 1,"
            " lease_until = now() + interval '1 min', started_at = now() WHERE id = %s",
            job.pk,
        )
        amending_ = rival.start(api.amend, job.pk, args=[2])
        rival.wait_until_blocked(backend_pid())
    assert amending_.result(20).refused is AmendRefusal.RUNNING
    assert Job.objects.get().args == [1]
    assert not Amendment.objects.exists()


def test_a_claim_passes_by_a_job_that_is_being_amended(rival: Rival) -> None:
    job = make_job(task=order.registered_name, args=[1])
    with transaction.atomic():
        assert api.amend(job.pk, args=[2])
        assert rival.start(Job.objects.claim, Identity("worker")).result(20) == []
    [claim] = Job.objects.claim(Identity("worker"))
    assert claim.args == [2]


def test_only_what_was_read_is_replaced() -> None:
    """Neither after an attempt that came and went meanwhile, nor after another amendment."""
    job = make_job(task=order.registered_name, args=[1])
    found = read_for_amending(Job.objects, job.pk)
    assert found is not None
    assert api.amend(job.pk, args=[5])
    assert amending.amend("default", job.pk, args=[6], instead_of=found).refused == AmendRefusal.CHANGED
    Job.objects.filter(pk=job.pk).update(status=Status.RETRYING, attempts=1)
    assert Job.objects.amend(job.pk, NEW, attempt=found.attempts).refused is AmendRefusal.CHANGED
    assert amending.amend("default", job.pk, args=[3], attempt=2).refused is AmendRefusal.CHANGED
    assert Job.objects.get().args == [5]


def test_two_amendments_at_once_lose_neither_half(rival: Rival) -> None:
    """Each replaces one kind of arguments. The second starts from what the first wrote."""
    job = make_job(task=order.registered_name, args=[1], kwargs={"note": "a"})
    with transaction.atomic():
        api.amend(job.pk, args=[2])
        other = rival.start(api.amend, job.pk, kwargs={"note": "b"})
        rival.wait_until_blocked(backend_pid())
    assert other.result(20)
    after = Job.objects.get()
    assert (after.args, after.kwargs) == ([2], {"note": "b"})
    assert [(one.args, one.kwargs) for one in Amendment.objects.order_by("id")] == [
        ([1], {"note": "a"}),
        ([2], {"note": "a"}),
    ]


def test_a_rollback_of_the_caller_takes_it_back() -> None:
    job = make_job(task=order.registered_name, args=[1])
    with transaction.atomic():
        assert api.amend(job.pk, args=[2])
        transaction.set_rollback(True)
    assert Job.objects.get().args == [1]
    assert not Amendment.objects.exists()


class TestUniqueJobs:
    def test_the_key_follows_the_arguments(self) -> None:
        job, over = one_per_number.enqueue(1), one_per_number.enqueue(2)
        run_job(over)  # and does not matter any more
        assert api.amend(job.id, args=[2])
        assert one_per_number.enqueue(2).id == job.id
        assert one_per_number.enqueue(1).id != job.id, "the old key is free"

    def test_a_key_that_another_job_holds_is_refused_and_names_it(self) -> None:
        job, other = one_per_number.enqueue(1), one_per_number.enqueue(2)
        with transaction.atomic():
            answer = api.amend(job.id, args=[2])
            assert (answer.refused, answer.key_holder) == (AmendRefusal.KEY_TAKEN, int(other.id))
            assert api.amend(job.id, args=[1, "the transaction goes on"])
        assert Job.objects.get(pk=job.id).args == [1, "the transaction goes on"]

    def test_a_rival_who_has_not_committed_is_waited_for(self, rival: Rival) -> None:
        job = one_per_number.enqueue(1)
        with transaction.atomic():
            other = one_per_number.enqueue(2)
            waiting = rival.start(api.amend, job.id, args=[2])
            rival.wait_until_blocked(backend_pid())
        assert waiting.result(20).key_holder == int(other.id)

    def test_a_job_that_has_let_go_of_its_key_has_no_twin(self) -> None:
        job = one_waiting.enqueue(1)
        Job.objects.filter(pk=job.id).update(status=Status.RETRYING, attempts=1)
        one_waiting.enqueue(2)
        assert api.amend(job.id, args=[2])


class TestOldArguments:
    def test_the_latest_are_kept(self) -> None:
        job, other = (
            make_job(task=order.registered_name, args=[0]),
            make_job(task=order.registered_name, args=["other"]),
        )
        assert api.amend(other.pk, args=[1])
        for number in range(1, KEPT_AMENDMENTS + 5):
            assert api.amend(job.pk, args=[number])
        kept = list(Amendment.objects.filter(job_id=job.pk).order_by("id").values_list("args", flat=True))
        assert kept == [[number] for number in range(4, KEPT_AMENDMENTS + 4)]
        assert Amendment.objects.filter(job_id=other.pk).count() == 1

    @each_of(*TERMINAL, around=on_empty_tables)
    def test_are_deleted_with_their_job(self, *, status: Any) -> None:
        for ended in (make_job(status), make_job(status)):
            Amendment.objects.create(job_id=ended.pk, attempts=0, args=[], kwargs={})
        kept = make_job(task=order.registered_name, args=[1])
        api.amend(kept.pk, args=[2])
        Job.objects.prune(status, older_than=timedelta(), limit=1)
        assert Amendment.objects.count() == 2
        Job.objects.prune_these([ended.pk])
        assert [one.job_id for one in Amendment.objects.all()] == [kept.pk]

    def test_follow_their_job_into_history_and_go_with_its_day(self) -> None:
        job = order.enqueue(1)
        api.amend(job.id, args=[2])
        run_job(job)
        assert Amendment.objects.get().job_id == int(job.id)
        done = Job.objects.get(pk=job.id)
        assert done.completed_by, "it has no other rows elsewhere"
        sql("SELECT pulse_django_make_day(20200101, 0)")
        Job.objects.filter(pk=job.id).update(era=20200101)
        drop_days(Job.objects, older_than=timedelta(days=30))
        assert not Job.objects.filter(pk=job.id).exists()
        assert not Amendment.objects.exists()


def test_an_expired_job_is_not_amended() -> None:
    job = make_job(task=order.registered_name, args=[1], expires_at=now(-timedelta(seconds=1)))
    assert api.amend(job.pk, args=[2]).refused == AmendRefusal.ENDED
    assert Job.objects.amend(job.pk, NEW).refused == AmendRefusal.ENDED
    assert Job.objects.get().args == [1]


def test_a_twin_that_the_callers_snapshot_does_not_show_is_an_error(rival: Rival) -> None:
    """At REPEATABLE READ the index refuses the key of a job that this transaction cannot read."""
    job = one_per_number.using(run_after=timedelta(hours=1)).enqueue(1)
    with pytest.raises(IntegrityError, match="pulse_job_one_per_unique_key"), transaction.atomic():
        sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert Job.objects.count() == 1
        rival.run(one_per_number.enqueue, 2)
        api.amend(job.id, args=[2])
    assert Job.objects.get(pk=int(job.id)).args == [1]


@task(name="amend.unique_by_function", unique=Unique(by=lambda number: number["id"] or sys.exit()))
def by_function(number: Any) -> None: ...


def test_a_function_of_the_unique_rule_that_raises_refuses_the_arguments() -> None:
    job = by_function.using(run_after=timedelta(hours=1)).enqueue({"id": 1})
    for arguments, error in (({}, "KeyError"), ({"id": 0}, "SystemExit")):
        with pytest.raises(InvalidJob, match=f"{error} was raised"):
            api.amend(job.id, args=[arguments])
