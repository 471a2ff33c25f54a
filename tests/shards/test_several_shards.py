"""Jobs in a database that is not the router's: children, ids, every call, and what one transaction can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import router, transaction
from django.test import override_settings

from pulse_django import api, fence, signals, task
from pulse_django.backend import PulseBackend
from pulse_django.checks import check_data
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Attempt, Fence, Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.run.context import Context
from pulse_django.run.execute import perform
from pulse_django.run.registry import TaskResultDoesNotExist
from pulse_django.run.results import result_of
from pulse_django.run.run import Run, running
from pulse_django.testing import (
    DrainLimit,
    Zombie,
    assert_enqueued,
    assert_idempotent,
    drain,
    expire_lease,
    jump_to_next_run,
    run_job,
)
from testproject.shop import tasks
from testproject.shop.models import Invoice
from tests.crash.workers import Workers, wait_until
from tests.faults import all_faults, each_of
from tests.shards.conftest import empty_shards
from tests.two_databases import SECOND, SHARDS

pytestmark = [
    pytest.mark.usefixtures("two_shards"),
    pytest.mark.session("dropping its second database ends connections of the pooler"),
    pytest.mark.one_server("its second database is one that Citus does not know"),
]
ELSEWHERE = override_settings(DATABASE_ROUTERS=["tests.two_databases.JobsElsewhere"])


@pytest.fixture(autouse=True)
def _no_data(two_shards: None) -> Iterator[None]:
    yield
    Fence.objects.all().delete()
    Invoice.objects.all().delete()


def in_second(**kwargs: Any) -> Any:
    return Job.objects.using(SECOND).filter(**kwargs)


def claimed(job: Any, alias: str = SECOND) -> Run:
    """A run as a worker with ``--shard`` has it."""
    [claim] = Job.objects.db_manager(alias).claim_these(Identity("me"), [int(job.id)])
    return Run(claim, alias=alias)


def outcome_of(run: Run) -> Any:
    performed = perform(run)
    assert performed.report is not None
    return performed.report.outcome


class TestIds:
    def test_an_id_says_where_its_job_lives(self) -> None:
        here, there = tasks.add.enqueue(1, 1), tasks.add.using(database=SECOND).enqueue(2, 2)
        assert int(here.id) >> 48 == 0
        assert int(there.id) >> 48 == 1
        assert there.id == str(in_second().get().pk)
        assert tasks.add.get_result(there.id).args == [2, 2]
        assert tasks.add.get_result(there.id).id == there.id
        assert tasks.add.get_result(here.id).args == [1, 1]
        assert tasks.add.get_result(there.id).task.database == SECOND

    def test_it_is_found_where_it_was_moved_to(self) -> None:
        there = tasks.add.using(database=SECOND).enqueue(2, 2)
        moved = in_second().get()
        moved.save(using="default", force_insert=True)
        in_second().delete()
        assert tasks.add.get_result(there.id).args == [2, 2]
        assert api.cancel(there.id).cancelled == {moved.pk}

    def test_what_is_no_id_is_refused_and_that_of_no_job_is_looked_for_everywhere(self) -> None:
        with all_faults() as about:
            for wrong in ["s2:1", ":1", "1.0", " 1", "9" * 20]:
                with about(wrong):
                    with pytest.raises(InvalidJob):
                        api.get(wrong)
                    with pytest.raises(TaskResultDoesNotExist):
                        PulseBackend("default", {}).get_result(wrong)
            for strange in [4711, (1 << 48) + 4711, (7 << 48) + 1]:
                with about(strange):
                    with pytest.raises(TaskResultDoesNotExist):
                        PulseBackend("default", {}).get_result(str(strange))
                    assert api.cancel(strange).refused == {strange}

    def test_one_call_reaches_jobs_of_all_shards(self) -> None:
        here, there = tasks.add.enqueue(1, 1), tasks.add.using(database=SECOND).enqueue(2, 2)
        assert api.cancel(here.id, there.id).cancelled == {int(here.id), int(there.id)}
        here, there = (tasks.fail.using(max_attempts=1, database=alias).enqueue("no") for alias in ("default", SECOND))
        assert {run_job(one, failures="keep").status for one in (here, there)} == {Status.DEAD_LETTERED}
        assert api.retry(here.id, there.id).revived == {int(here.id), int(there.id)}
        runs = [claimed(here, "default"), claimed(there)]
        assert set(api.release(here.id, there.id).accepted) == {run.claim.lease for run in runs}
        with pytest.raises(InvalidJob, match="'nowhere' is not in DATABASES"):
            api.jobs(using="nowhere")

    def test_only_databases_with_jobs_are_asked(self) -> None:
        without = override_settings(DATABASE_ROUTERS=["tests.two_databases.JobsInDefault"])
        with without, pytest.raises(InvalidJob, match="the router does not allow jobs in 's2'"):
            tasks.add.using(database=SECOND).enqueue(2, 2)
        with override_settings(PULSE={}), pytest.raises(InvalidJob, match="PULSE\\['SHARDS'\\] does not name 's2'"):
            tasks.add.using(database=SECOND).enqueue(2, 2)

    def test_keys_for_other_systems_differ_where_numbers_do_not(self) -> None:
        run = claimed(job := tasks.add.using(database=SECOND).enqueue(2, 2))
        context = Context(task_result=result_of(in_second().get(), tasks.add), run=run)
        assert context.headers["Idempotency-Key"] == f"pulse-{job.id}"

    def test_signals_name_the_database(self) -> None:
        heard: list[Any] = []

        def hear(using: str, claim: Any, **_: Any) -> None:
            heard.append((using, claim.job_id))

        signals.job_started.connect(hear)
        try:
            run = claimed(tasks.add.using(database=SECOND).enqueue(2, 2))
            perform(run)
        finally:
            signals.job_started.disconnect(hear)
        assert heard == [(SECOND, run.claim.job_id)]

    def test_a_result_is_refreshed_where_it_lives(self) -> None:
        result = tasks.add.using(database=SECOND).enqueue(2, 2)
        api.cancel(result.id, reason="no")
        result.refresh()
        assert result.status == "FAILED"

    def test_a_key_is_its_databases(self) -> None:
        once = tasks.add.using(idempotency_key="k")
        assert once.enqueue(1, 1).id == once.using(database="default").enqueue(1, 1).id
        with pytest.raises(InvalidJob, match="its idempotency key needs shard 'default'"):
            once.using(database=SECOND).enqueue(1, 1)


class TestCalls:
    @each_of(*product([{}, {"using": SECOND}], [str, int]))
    def test_every_call_reaches_the_job_that_is_named(self, *, using: Any, spell: Any) -> None:
        empty_shards()
        [first, second] = api.enqueue_many(tasks.add, [(1, 1), (2, 2)], using=SECOND)
        job = Job.objects.using(SECOND).get(pk=first)
        named = spell(job.pk)
        assert api.get(named, **using).args == [1, 1]
        assert api.progress(named, **using) is None
        assert api.cancel(named, reason="no", **using).cancelled == {first}
        assert set(api.jobs(status=Status.CANCELLED, using=SECOND).values_list("pk", flat=True)) == {first}
        run = claimed(Job.objects.using(SECOND).get(pk=second))
        named = spell(second)
        assert set(api.release(named, **using).accepted) == {run.claim.lease}
        in_second(pk=second).update(status=Status.DEAD_LETTERED, finished_at=job.created_at)
        assert api.retry(named, **using).revived == {second}
        assert not Job.objects.exists()

    def test_a_handler_that_gives_numbers_means_its_own_database(self) -> None:
        run = claimed(tasks.add.using(database=SECOND).enqueue(1, 1))
        with running(run):
            assert api.get(run.claim.job_id).args == [1, 1]
            [child] = api.enqueue_many(tasks.add, [(3, 3)])
            assert api.jobs().count() == 2
        assert in_second(pk=child).get().parent_id == run.claim.job_id


class TestChildren:
    def test_they_stay_in_the_database_of_their_parent(self) -> None:
        stranger = tasks.add.enqueue(7, 7)
        parent = tasks.start_children.using(database=SECOND).enqueue(2)
        run = claimed(parent)
        outcome_of(run)
        children = in_second(parent_id=run.claim.job_id)
        assert children.count() == 2
        assert Job.objects.get().pk == int(stranger.id)
        asked = api.cancel(parent.id, children=True)
        assert asked.cancelled == set(children.values_list("pk", flat=True))
        assert Job.objects.get().status == Status.PENDING

    def test_one_that_is_sent_elsewhere_has_no_parent(self) -> None:
        run = claimed(tasks.add.using(database=SECOND).enqueue(1, 1))
        with running(run):
            sent = tasks.add.using(database="default").enqueue(5, 5)
        assert api.get(sent.id).parent_id is None

    def test_a_worker_keeps_them_there(self, workers: Workers, environment: dict[str, str]) -> None:
        stranger = tasks.add.using(queue_name="nobody-runs-this").enqueue(7, 7)
        parent = tasks.start_children.using(database=SECOND).enqueue(2)
        workers.ready("--shard", SECOND, env=environment)
        wait_until(lambda: in_second(status=Status.COMPLETED).count() == 3)
        assert set(in_second(parent__isnull=False).values_list("parent_id", flat=True)) == {int(parent.id)}
        assert Job.objects.get().pk == int(stranger.id)
        result = tasks.start_children.get_result(parent.id)
        assert [int(one) >> 48 for one in result.return_value] == [1, 1]


class TestOneTransaction:
    def test_a_completion_is_refused_where_it_could_not_hold_the_data_and_so_is_an_atomic_task(self) -> None:
        outcome = outcome_of(claimed(tasks.make_invoice_by_hand.using(database=SECOND).enqueue(1)))
        assert outcome.name == OutcomeName.FAILED
        assert "one transaction cannot span both" in outcome.error.message
        outcome = outcome_of(claimed(tasks.make_invoice.using(database=SECOND).enqueue(1)))
        assert "the jobs are stored in 's2', but the project's models are written to 'default'" in outcome.error.message
        assert not Invoice.objects.exists()

    def test_who_names_the_jobs_database_is_believed(self) -> None:
        run = claimed(job := tasks.add.using(database=SECOND).enqueue(1, 1))
        context = Context(task_result=result_of(in_second().get(), tasks.add), run=run)
        refused = pytest.raises(ImproperlyConfigured, match="a transaction on 'default' cannot complete it")
        with refused, context.atomic(using="default"):
            raise AssertionError
        with context.atomic(using=SECOND) as completion:
            completion.result = 5
        assert tasks.add.get_result(job.id).return_value == 5

    def test_beside_the_data_nothing_is_refused(self) -> None:
        job = tasks.make_invoice.enqueue(1)
        assert perform(claimed(job, "default")).run.completed
        assert api.get(job.id).status == Status.COMPLETED

    def test_a_check_says_when_jobs_and_data_part(self) -> None:
        [warning] = check_data()
        assert "the jobs are stored in 's2'" in warning.msg
        with override_settings(PULSE={}):
            assert check_data() == []
        with override_settings(PULSE={"SHARDS": SHARDS, "PLACEMENT": "where_the_data_is"}):
            assert check_data() == []
        with ELSEWHERE, override_settings(PULSE={}):
            [warning] = check_data()
        assert warning.id == "pulse_django.W008"
        assert "the jobs are stored in 's2'" in warning.msg

    @ELSEWHERE
    def test_with_the_router_a_plain_number_is_the_jobs_database(self) -> None:
        assert router.db_for_write(Job) == SECOND
        result = tasks.add.enqueue(1, 1)
        assert result.id == str(in_second().get().pk)
        assert tasks.add.get_result(result.id).args == [1, 1]


class TestFences:
    def test_a_fence_stands_in_the_transaction_that_it_guards(self) -> None:
        run = claimed(tasks.add.using(database=SECOND).enqueue(1, 1))
        context = Context(task_result=result_of(in_second().get(), tasks.add), run=run)
        with pytest.raises(transaction.TransactionManagementError, match="on database 's2'"):
            fence("printer", context, using=SECOND)
        with running(run), transaction.atomic(using=SECOND):
            fence("ink", context)
        Fence.objects.using(SECOND).all().delete()
        with transaction.atomic(using=SECOND):
            fence("printer", context, using=SECOND)
        assert Fence.objects.using(SECOND).get().token == run.claim.token
        assert not Fence.objects.exists()


@task
def adds_in_the_second() -> None:
    tasks.add.using(database=SECOND).enqueue(1, 1)


@task
def adds_in_the_second_once() -> None:
    if not api.jobs(using=SECOND).exists():
        tasks.add.using(database=SECOND).enqueue(1, 1)


@task(takes_context=True)
def checks_in_a_transaction(context: Context) -> None:
    context.progress(1, 2)
    context.check()
    with transaction.atomic(using=SECOND):
        context.check()


@task(takes_context=True)
def completes_and_raises(context: Context) -> None:
    with context.atomic(using=SECOND):
        pass
    raise RuntimeError("too late to matter")


class TestTestingTools:
    """``pulse_django.testing`` where jobs are not in the router's database."""

    there = tasks.add.using(database=SECOND)

    def test_assert_enqueued_looks_where_using_says(self) -> None:
        tasks.add.enqueue(1, 1)
        with pytest.raises(
            AssertionError, match=r"(?s)No waiting job .*add .* in database 's2'\. Waiting are:\n  none"
        ):
            assert_enqueued(self.there, 1, 1)
        self.there.enqueue(1, 1)
        assert assert_enqueued(self.there, 1, 1) == in_second().get()
        assert assert_enqueued(self.there, 1, 1)._state.db == SECOND
        Job.objects.all().delete()
        with pytest.raises(AssertionError, match=r"(?s)Waiting are:\n  none"):
            assert_enqueued(tasks.add, 1, 1)

    @pytest.mark.parametrize("spell", [lambda result: result, lambda result: result.id, lambda _: in_second().get()])
    def test_one_job_is_run_where_it_lives(self, spell: Callable[[Any], Any]) -> None:
        stranger = tasks.add.enqueue(7, 7)
        ran = run_job(spell(self.there.enqueue(1, 1)))
        assert (ran.status, ran.database) == (Status.COMPLETED, SECOND)
        assert in_second().get().result == 2
        assert run_job(stranger).database == "default"
        with pytest.raises(AssertionError, match=r"is COMPLETED .* cannot be run now"):
            run_job(in_second().get())

    def test_drain_runs_what_is_due_in_the_database_that_is_named(self) -> None:
        tasks.add.enqueue(7, 7)
        tasks.start_children.using(database=SECOND).enqueue(2)
        assert [one.status for one in drain(using=SECOND)] == [Status.COMPLETED] * 3
        assert in_second(parent__isnull=False).count() == 2
        assert Job.objects.get().status == Status.PENDING
        assert [one.database for one in drain()] == ["default"]
        with pytest.raises(InvalidJob, match="'nowhere' is not in DATABASES"):
            drain(using="nowhere")

    def test_drain_gives_back_what_it_does_not_run_any_more(self) -> None:
        self.there.enqueue(1, 1)
        with pytest.raises(DrainLimit):
            drain(using=SECOND, most_runs=0)
        assert in_second().get().status == Status.PENDING

    def test_a_handler_beats_where_its_job_lives(self) -> None:
        result = checks_in_a_transaction.using(database=SECOND).enqueue()
        assert run_job(result).status == Status.COMPLETED
        assert in_second().get().progress == {"done": 1, "total": 2}

    def test_an_error_after_the_completion_is_kept_there(self) -> None:
        ran = run_job(completes_and_raises.using(database=SECOND).enqueue(), failures="keep")
        assert (ran.status, ran.outcome) == (Status.COMPLETED, None)
        assert Attempt.objects.using(SECOND).get().late_outcome == "FAILED"

    def test_a_job_that_was_read_from_a_replica_lives_where_writes_go(self) -> None:
        class Replicated:
            """Reads go to the second database, as to a replica."""

            def db_for_read(self, model: Any, **_: Any) -> str | None:
                return SECOND if model is Job else None

            def db_for_write(self, model: Any, **_: Any) -> str | None:
                return "default" if model is Job else None

        job = Job.objects.get(pk=tasks.add.enqueue(1, 1).id)
        job._state.db = SECOND
        with override_settings(DATABASE_ROUTERS=[Replicated()]):
            assert run_job(job).database == "default"

    def test_time_is_moved_there(self) -> None:
        result = tasks.fail.using(database=SECOND).enqueue("no")
        assert run_job(result, failures="keep").status == Status.RETRYING
        jump_to_next_run(result)
        zombie = Zombie(result)
        expire_lease(result)
        assert [reaped.lease for reaped in Job.objects.db_manager(SECOND).reap()] == [zombie.claim.lease]
        with pytest.raises(AssertionError, match="it has no lease"):
            expire_lease(result)

    def test_a_zombie_reports_there(self) -> None:
        result = self.there.enqueue(1, 1)
        zombie = Zombie(result)
        assert zombie.run.alias == SECOND
        zombie.freeze()
        assert run_job(result).attempt == 2
        assert zombie.report(99).lost
        assert in_second().get().result == 2

    @pytest.mark.parametrize("make", [tasks.add, tasks.add.using(max_attempts=1)])
    def test_a_rehearsal_is_held_there(self, make: Any) -> None:
        assert_idempotent(make.using(database=SECOND), 1, 1)
        assert not in_second().exists()

    def test_an_atomic_rehearsal_is_refused_as_a_worker_would(self) -> None:
        with pytest.raises(AssertionError, match="one transaction cannot span both"):
            assert_idempotent(tasks.make_invoice.using(database=SECOND), 1)

    def test_jobs_of_every_database_count(self) -> None:
        self.there.enqueue(1, 1)
        with pytest.raises(AssertionError, match=r"\+ 1 x a job it enqueued in database 's2' \{") as failure:
            assert_idempotent(adds_in_the_second)
        assert str(failure.value).count(" x a job") == 1
        assert_idempotent(adds_in_the_second_once)
        with pytest.raises(AssertionError, match=r"\+ 1 x a job it enqueued in database 's2' .*args=\[1, 1\]"):
            assert_idempotent(tasks.start_children.using(database=SECOND), 2, ignore=["result"])
        assert in_second().count() == 1


def test_the_database_cannot_be_fixed_in_the_decorator() -> None:
    with pytest.raises(TypeError, match="database cannot be set"):
        tasks.task(database=SECOND)  # type: ignore[call-overload]
