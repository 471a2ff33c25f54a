"""Jobs of a plain task share all but their arguments, and what they share is made once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pulse_django.backend import new_job
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.run.results import result_of
from testproject.shop import tasks

pytestmark = pytest.mark.usefixtures("pulse_db")


def stored(result: Any) -> Job:
    return Job.objects.get(pk=int(result.id))


def test_a_change_of_settings_or_options_counts_for_the_next_job(settings: Any) -> None:
    first, second = stored(tasks.add.enqueue(1, 2)), stored(tasks.add.enqueue(a=3, b=4))
    assert (first.args, first.kwargs, second.args, second.kwargs) == ([1, 2], {}, [], {"a": 3, "b": 4})
    settings.PULSE = settings.PULSE | {"MAX_ATTEMPTS": first.max_attempts + 1}
    assert stored(tasks.add.enqueue(1, 2)).max_attempts == first.max_attempts + 1
    urgent = tasks.add.using(priority=7, queue_name="other", tags=["red"])
    assert [(job.priority, job.queue, job.tags) for job in (stored(urgent.enqueue(1, 2)) for _ in range(2))] == [
        (7, "other", ["red"])
    ] * 2
    assert stored(tasks.add.enqueue(1, 2)).priority == 0


def test_a_job_that_is_changed_shares_nothing() -> None:
    tasks.add.enqueue(1, 2)
    alike = new_job(tasks.add, (1, 2), {})
    assert alike.alike is not None
    changed = replace(alike, queue="other")
    assert changed.alike is None
    assert Job.objects.get(pk=Job.objects.enqueue(changed).pk).queue == "other"
    assert Job.objects.get(pk=Job.objects.enqueue(alike).pk).queue == "default"


def test_the_result_of_a_new_job_is_that_of_its_row() -> None:
    calls: list[Any] = [(tasks.add, (1, 2), {}), (tasks.later, ("now",), {}), (tasks.send_invoice, (1,), {"card": "4"})]
    for task, args, kwargs in calls:
        told = task.enqueue(*args, **kwargs)
        assert told == result_of(stored(told), told.task)


def test_a_model_is_made_with_what_the_row_has() -> None:
    job = Job.objects.enqueue(NewJob(task="t", args=[1], tags=("red",), meta='{"a": 1}'))
    row = Job.objects.get(pk=job.pk)
    names = [one.attname for one in Job._meta.concrete_fields]
    assert {name: getattr(job, name) for name in names} == {name: getattr(row, name) for name in names}
