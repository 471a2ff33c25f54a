"""PulseBackend as Django's Tasks see it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import django
import pytest
from asgiref.sync import async_to_sync
from django.db import transaction
from django.test import override_settings

from pulse_django import api
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Attempt, Job, StoredAttempt
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import (
    InvalidTask,
    Registry,
    TaskResultDoesNotExist,
    TaskResultStatus,
    key_of,
    registry,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from pulse_django.tasks import PulseTask, task
from pulse_django.testing import Zombie, drain, jump_to_next_run, run_job
from testproject.shop import tasks
from tests.factories import make_job
from tests.faults import each_of

try:
    from django.tasks import task as django_task
except ImportError:  # before Django 6.0
    from django_tasks import task as django_task

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_a_task_shows_its_name_and_its_queue() -> None:
    assert repr(tasks.later) == "<task 'testproject.shop.tasks.later' in the queue 'mail'>"
    assert len(repr(task(name="n" * 200, queue_name="q" * 100)(tasks.later.func))) < 100


class TestEnqueue:
    def test_a_job_is_the_task_and_its_options(self) -> None:
        result = tasks.later.using(run_after=timedelta(minutes=5), max_attempts=2).enqueue("x")
        job = Job.objects.get(pk=result.id)
        assert (job.task, job.args, job.queue, job.priority) == ("testproject.shop.tasks.later", ["x"], "mail", 5)
        assert job.max_attempts == 2
        assert timedelta(minutes=4) < job.next_run_at - job.created_at < timedelta(minutes=6)
        assert result.status == TaskResultStatus.READY
        assert result.enqueued_at == job.created_at

    def test_the_result_shows_arguments_as_they_will_be_read_back(self) -> None:
        result = tasks.echo.enqueue((1, {"2": (3.0, -0.0)}))
        assert repr(result.args) == "[[1, {'2': [3.0, -0.0]}]]"
        assert repr(result.args) == repr(tasks.echo.get_result(result.id).args)

    def test_it_joins_the_callers_transaction(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tasks.add.enqueue(1, 2)
            raise ZeroDivisionError
        assert not Job.objects.exists()

    def test_async(self) -> None:
        result = async_to_sync(tasks.add.aenqueue)(1, 2)
        drain()
        again = async_to_sync(tasks.add.aget_result)(result.id)
        assert again.return_value == 3

    def test_using_keeps_the_key_and_the_other_options_and_a_later_run_after_replaces_an_earlier_one(self) -> None:
        derived = tasks.echo.using(priority=3).using(queue_name="q", idempotency_key="k").using(timeout=timedelta(1))
        assert (derived.registered_name, derived.priority, derived.queue_name) == ("shop.echo", 3, "q")
        assert (derived.idempotency_key, derived.timeout, tasks.echo.priority) == ("k", timedelta(1), 0)
        instant = datetime(2031, 1, 1, tzinfo=UTC)
        derived = tasks.add.using(run_after=timedelta(1)).using(run_after=instant)
        assert (derived.run_after, derived.runs_in) == (instant, None)
        assert derived.using(run_after=timedelta(2)).run_after is None


class TestResults:
    def test_a_success(self) -> None:
        result = tasks.add.enqueue(1, 2)
        with pytest.raises(ValueError, match="not finished"):
            _ = result.return_value
        drain()
        result.refresh()
        assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 3, 1)
        assert result.enqueued_at
        assert result.started_at
        assert result.finished_at
        assert result.enqueued_at <= result.started_at <= result.finished_at
        assert result.worker_ids[0].startswith("pulse-test:")
        assert result.errors == []

    def test_a_failure_has_an_error_with_a_traceback_for_each_attempt(self) -> None:
        result = tasks.fail.enqueue("no luck")
        for attempt in range(3):
            if attempt:
                jump_to_next_run(result)
            run_job(result, failures="keep")
        result.refresh()
        assert result.status == TaskResultStatus.FAILED
        assert [error.exception_class for error in result.errors] == [RuntimeError] * 3
        assert "RuntimeError: no luck" in result.errors[0].traceback
        assert "in fail" in result.errors[0].traceback
        assert result.attempts == 3
        assert result.started_at
        assert result.last_attempted_at
        assert result.started_at < result.last_attempted_at

    def test_a_lost_worker_is_an_error_too(self) -> None:
        result = tasks.add.enqueue(1, 2)
        Zombie(result).freeze()
        result.refresh()
        assert result.status == TaskResultStatus.READY
        assert result.errors[0].traceback == "worker lease expired"
        assert result.errors[0].exception_class.__name__ == "RunLost"

    def test_a_running_job_names_its_worker_and_a_cancelled_one_has_failed(self) -> None:
        result, cancelled = tasks.add.enqueue(1, 2), tasks.add.enqueue(1, 2)
        api.cancel(cancelled.id)
        zombie = Zombie(result)
        result.refresh()
        cancelled.refresh()
        assert (result.status, result.worker_ids) == (TaskResultStatus.RUNNING, [zombie.claim.lease.holder])
        assert (cancelled.status, cancelled.is_finished) == (TaskResultStatus.FAILED, True)

    def test_a_job_of_another_task_or_of_one_that_is_not_known_has_no_result_here(self) -> None:
        with pytest.raises(Exception, match="does not match"):
            tasks.echo.get_result(tasks.add.enqueue(1, 2).id)
        with pytest.raises(TaskResultDoesNotExist, match=r"os\.system"):
            task_backends["default"].get_result(str(make_job(task="os.system").pk))


class TestSignals:
    @pytest.fixture
    def heard(self) -> Any:
        heard: list[tuple[str, str, str]] = []

        def listener(name: str) -> Any:
            def receive(sender: Any, task_result: Any, **_: Any) -> None:
                heard.append((name, task_result.task.name, str(task_result.status)))

            return receive

        listeners = {
            signal: listener(name)
            for signal, name in ((task_enqueued, "enqueued"), (task_started, "started"), (task_finished, "finished"))
        }
        for signal, receive in listeners.items():
            signal.connect(receive)
        yield heard
        for signal, receive in listeners.items():
            signal.disconnect(receive)

    def test_a_tasks_life(self, heard: list[Any]) -> None:
        tasks.add.enqueue(1, 2)
        drain()
        assert heard == [("enqueued", "add", "READY"), ("started", "add", "RUNNING"), ("finished", "add", "SUCCESSFUL")]

    def test_finished_is_sent_once_at_the_end_of_all_attempts(self, heard: list[Any]) -> None:
        result = tasks.fail.enqueue("no")
        run_job(result, failures="keep")
        assert [name for name, *_ in heard] == ["enqueued", "started"]
        for _ in range(2):
            jump_to_next_run(result)
            run_job(result, failures="keep")
        assert heard[-1] == ("finished", "fail", "FAILED")
        assert [name for name, *_ in heard].count("finished") == 1

    def test_a_receiver_that_raises_harms_nobody(self) -> None:
        def rude(**_: Any) -> None:
            raise RuntimeError("rude")

        task_started.connect(rude)
        task_finished.connect(rude)
        try:
            result = tasks.add.enqueue(1, 2)
            assert drain()[0].status == Status.COMPLETED
            result.refresh()
        finally:
            task_started.disconnect(rude)
            task_finished.disconnect(rude)


def plain() -> None: ...


def twin() -> None: ...


async def on_the_loop() -> None: ...


IMPOSSIBLE: list[tuple[Any, str]] = [
    ({"isolation": "fork"}, "isolation: 'fork'"),
    ({"retry": "never"}, "retry: 'never' is not a RetryPolicy"),
    ({"max_attempts": 0}, "max_attempts: 0"),
    ({"timeout": True}, "timeout: True is not a number of seconds or a timedelta"),
    ({"lease": timedelta()}, "lease: .* must be positive"),
    ({"name": "x" * 201}, "name and aliases"),
    ({"priority": 101}, "priority"),
    ({"takes_context": True}, "context"),
]


class TestDeclaration:
    @each_of(*IMPOSSIBLE)
    def test_impossible_options_are_refused_where_they_are_written(self, *, options: Any, message: Any) -> None:
        with pytest.raises(InvalidTask, match=message):
            task(**options)(plain)

    def test_async_handlers_cannot_be_atomic_or_isolated(self) -> None:
        for options in ({"atomic": True}, {"isolation": "process"}):
            with pytest.raises(InvalidTask, match="event loop"):
                task(**options)(on_the_loop)  # type: ignore[call-overload]

    def test_two_tasks_cannot_share_a_key(self) -> None:
        mine = Registry()
        mine.add(PulseTask(func=plain, name="test.shared"))
        with pytest.raises(InvalidTask, match=r"Two tasks are called 'test.shared'"):
            mine.add(PulseTask(func=twin, name="test.other", aliases=("test.shared",)))

    def test_a_module_that_is_loaded_again_replaces_its_tasks(self) -> None:
        mine = Registry()
        mine.add(PulseTask(func=plain, name="test.again"))
        reloaded = type(plain)(plain.__code__, plain.__globals__, "plain")
        mine.add(PulseTask(func=reloaded, name="test.again"))
        found = mine.get("test.again")
        assert found is not None
        assert found.func is reloaded

    def test_djangos_own_decorator_takes_the_options_where_it_passes_them_on(self) -> None:
        options = {"name": "test.by.django", "max_attempts": 3, "timeout": timedelta(minutes=1)}
        if django.VERSION[:2] == (6, 0):
            with pytest.raises(TypeError, match="unexpected keyword argument"):
                django_task(**options)
            return
        declared = django_task(**options)(plain)
        assert isinstance(declared, PulseTask)
        assert (declared.registered_name, declared.max_attempts) == ("test.by.django", 3)
        assert registry.get("test.by.django") is declared

    def test_djangos_own_decorator_alone_makes_a_task_of_ours(self) -> None:
        assert Job.objects.get(pk=django_task(twin).enqueue().id).task == "tests.run.test_backend.twin"

    def test_naive_instants_are_local_where_django_allows_them_and_refused_elsewhere(self) -> None:
        naive = datetime(2031, 1, 1)  # noqa: DTZ001
        with override_settings(USE_TZ=False):
            assert Job.objects.get(pk=tasks.add.using(run_after=naive).enqueue(1, 2).id).next_run_at == naive
            with pytest.raises(InvalidJob, match="is naive"):
                NewJob(task="tests.add", run_after=naive)  # it knows no settings
        with pytest.raises(InvalidTask):
            tasks.add.using(run_after=naive)


NEVER_IMPORTED = [
    "os.system",
    "antigravity",
    "tests.run.poison.run",
    "a.__class__.__mro__",
    "subprocess.Popen",
    "../x",
]


class TestRegistry:
    """FAILURES 65-67 and the first rows of the security table: a row can never cause an import."""

    def test_an_alias_finds_its_task_and_a_moved_function_keeps_its_jobs_by_its_name(self) -> None:
        job = make_job(task="shop.parrot", args=["hello"])
        assert run_job(job).status == Status.COMPLETED
        job.refresh_from_db()
        assert job.result == "hello"
        assert (key_of(tasks.echo), key_of(tasks.add)) == ("shop.echo", "testproject.shop.tasks.add")

    @each_of(*NEVER_IMPORTED)
    def test_an_unknown_task_is_never_imported(self, *, name: Any) -> None:
        before = set(sys.modules)
        job = make_job(task=name)
        run_job(job)
        assert set(sys.modules) - before == set()
        job.refresh_from_db()
        assert job.status == Status.PENDING

    def test_an_unknown_task_waits_for_a_worker_that_knows_it_and_costs_nothing(self) -> None:
        job = make_job(task="not.yet.deployed", max_attempts=1)
        run_job(job)
        job.refresh_from_db()
        assert (job.status, job.attempts, job.refunds) == (Status.PENDING, 1, 1)
        assert job.last_error.startswith("unknown task 'not.yet.deployed'")
        entry = Attempt.objects.get()
        assert entry.outcome == "RELEASED"
        assert timedelta(seconds=29) < job.next_run_at - entry.finished_at < timedelta(seconds=31)
        jump_to_next_run(job)
        run_job(job)  # and again: its budget is as it was

    def test_an_unknown_task_past_its_age_is_a_dead_letter_with_the_reason(self) -> None:
        job = make_job(task="long.gone")
        run_job(job)
        StoredAttempt.objects.update(started_at=Attempt.objects.get().started_at - timedelta(hours=2))
        jump_to_next_run(job)
        run_job(job)
        job.refresh_from_db()
        assert job.status == Status.DEAD_LETTERED
        assert "unknown task 'long.gone'" in job.last_error
        assert "for 2:00:0" in job.last_error

    def test_a_hostile_task_name_is_one_line_in_the_error(self) -> None:
        job = make_job(task="x\n2026 CRITICAL forged")
        run_job(job)
        job.refresh_from_db()
        assert "\n" not in job.last_error


@pytest.mark.usefixtures("settings")
def test_options_of_the_backend_are_refused_by_a_check() -> None:
    backend = type(task_backends["default"])("other", {"OPTIONS": {"max_attempts": 3}})
    [message] = backend.check()
    assert message.id == "pulse_django.E010"


def test_without_a_list_any_queue_is_allowed_and_a_list_restricts() -> None:
    backend = type(task_backends["default"])
    backend("other", {}).validate_task(tasks.echo.using(queue_name="never-heard-of"))
    with_list = backend("other", {"QUEUES": ["default", "mail"]})
    with_list.validate_task(tasks.echo.using(queue_name="mail"))
    with pytest.raises(InvalidTask, match="Queue 'letters' is not valid"):
        with_list.validate_task(tasks.echo.using(queue_name="letters"))
