"""What Django's Tasks say of a job: the options that it was enqueued with, signals, log lines, instants."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import BaseTaskBackend, Task, TaskResult, task_backends, task_enqueued
from pulse_django.run.results import result_of_run
from pulse_django.testing import Zombie, drain, jump_to_next_run, run_job
from testproject.shop import tasks
from tests.run.test_handlers import claimed_run

try:
    from django.tasks import task as django_task
except ImportError:  # before Django 6.0
    from django_tasks import task as django_task

pytestmark = pytest.mark.usefixtures("pulse_db")

SECOND = timedelta(seconds=1)
LOGGER = BaseTaskBackend.__module__.partition(".backends")[0]
OPTIONS: dict[str, Any] = {
    "queue_name": "elsewhere",
    "priority": 42,
    "max_attempts": 3,
    "timeout": 7 * SECOND,
    "lease": 9 * SECOND,
    "progress_timeout": 5 * SECOND,
}


@django_task
def plain(number: int) -> int:
    return number


def seen_in_a_handler(result: TaskResult, task: Task) -> TaskResult:
    claim = claimed_run(Job.objects.get(pk=result.id)).claim
    return result_of_run(claim, task, claim.args, claim.kwargs)


class TestWhatUsingSaid:
    def test_stands_on_the_task_of_a_result_and_of_a_context(self) -> None:
        result = tasks.add.using(**OPTIONS, idempotency_key="k").enqueue(1, 2)
        found, seen = task_backends["default"].get_result(result.id).task, seen_in_a_handler(result, tasks.add).task
        for one in (found, seen):
            assert {name: getattr(one, name) for name in OPTIONS} == OPTIONS
        assert found.idempotency_key == "k"
        assert found.func is tasks.add.func
        result = tasks.later.enqueue("x")  # which says nothing
        assert task_backends["default"].get_result(result.id).task == tasks.later
        assert seen_in_a_handler(result, tasks.later).task == tasks.later

    def test_stands_on_the_task_of_the_first_job_when_a_key_is_taken(self) -> None:
        first = tasks.add.using(priority=7, idempotency_key="k").enqueue(1, 2)
        again = tasks.add.using(priority=9, idempotency_key="k").enqueue(1, 2)
        assert (again.id, again.task.priority) == (first.id, 7)

    def test_stands_on_plain_tasks_of_djangos(self) -> None:
        result = plain.using(queue_name="elsewhere", priority=3).enqueue(1)
        found = plain.get_result(result.id).task
        assert (found.queue_name, found.priority, found.func) == ("elsewhere", 3, plain.func)

    def test_is_told_though_the_settings_do_not_allow_it_any_more(self) -> None:
        result = tasks.add.using(queue_name="gone").enqueue(1, 2)
        backend = {"BACKEND": "pulse_django.backend.PulseBackend", "QUEUES": ["default"]}
        with override_settings(TASKS={"default": backend}):
            assert task_backends["default"].get_result(result.id).task.queue_name == "gone"


@pytest.fixture
def enqueued() -> Iterator[list[str]]:
    ids: list[str] = []

    def note(task_result: Any, **_: Any) -> None:
        ids.append(task_result.id)

    task_enqueued.connect(note)
    yield ids
    task_enqueued.disconnect(note)


def test_a_key_that_is_taken_does_not_announce_the_job_again(enqueued: list[str]) -> None:
    first = tasks.add.using(idempotency_key="k").enqueue(1, 2)
    assert tasks.add.using(idempotency_key="k").enqueue(1, 2).id == first.id
    assert tasks.add.using(idempotency_key="other").enqueue(1, 2).id != first.id
    assert (len(enqueued), enqueued[0]) == (2, first.id)


def test_the_manager_says_whether_a_job_is_new() -> None:
    from pulse_django.queue.words.job_options import NewJob

    new = NewJob(task="tests.add", idempotency_key="k")
    (first, is_new), (again, is_new_again) = Job.objects.get_or_enqueue(new), Job.objects.get_or_enqueue(new)
    assert (first.pk, is_new, is_new_again) == (again.pk, True, False)


@pytest.mark.parametrize(("level", "lines"), [("DEBUG", 1), ("INFO", 1), ("WARNING", 1), ("ERROR", 0)])
def test_djangos_line_of_a_failed_task_is_a_warning(level: str, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    """As an ERROR, as Django writes it, its default settings would mail it: one mail for each dead letter."""
    with caplog.at_level(level, logger=LOGGER):
        run_job(tasks.fail.using(max_attempts=1).enqueue("no luck"), failures="keep")
    found = [record.levelno for record in caplog.records if record.name == LOGGER and record.levelno >= logging.WARNING]
    assert found == [logging.WARNING] * lines
    assert ("no luck" in caplog.text) == bool(lines)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
class TestWithoutTimeZones:
    @pytest.fixture(autouse=True)
    def naive(self, zone: str) -> Iterator[None]:
        with override_settings(USE_TZ=False, TIME_ZONE=zone):
            yield

    def test_a_naive_instant_is_local_and_an_aware_one_and_a_duration_are_kept(self) -> None:
        instant = datetime(2031, 6, 1, 12, 30)  # noqa: DTZ001 - that is the point
        local = tasks.add.using(run_after=instant).enqueue(1, 2)
        assert Job.objects.get(pk=local.id).next_run_at == instant
        fixed = instant.replace(tzinfo=timezone.get_fixed_timezone(330))
        kept = tasks.add.using(run_after=fixed).enqueue(1, 2)
        job = Job.objects.get(pk=tasks.add.using(run_after=timedelta(hours=1)).enqueue(1, 2).id)
        assert abs(job.next_run_at - job.created_at - timedelta(hours=1)) < SECOND
        with override_settings(USE_TZ=True):
            aware = timezone.make_aware(instant, timezone.get_default_timezone())
            assert [Job.objects.get(pk=one.id).next_run_at for one in (local, kept)] == [aware, fixed]

    def test_jobs_run_fail_and_are_recovered(self) -> None:
        result, failing = tasks.add.enqueue(1, 2), tasks.fail.using(max_attempts=2).enqueue("no")
        Zombie(result).freeze()
        jump_to_next_run(result)
        run_job(failing, failures="keep")  # alone: its next run may be due at once
        jump_to_next_run(failing)
        drain(failures="keep")
        for one in (result, failing):
            one.refresh()
        assert (result.return_value, Job.objects.get(pk=failing.id).status) == (3, Status.DEAD_LETTERED)
        assert result.enqueued_at <= result.started_at <= result.finished_at  # type: ignore[operator]

    def test_the_instants_of_a_context_are_those_of_a_result(self) -> None:
        result = tasks.add.enqueue(1, 2)
        seen, stored = seen_in_a_handler(result, tasks.add), tasks.add.get_result(result.id)
        assert seen.enqueued_at == stored.enqueued_at
        assert seen.last_attempted_at == stored.last_attempted_at
