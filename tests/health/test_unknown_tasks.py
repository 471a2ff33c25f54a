"""Jobs that were put back because no worker knew their task run at once when a process knows it."""

from __future__ import annotations

import pytest

from pulse_django import task
from pulse_django.health.unknown_tasks import run_known_now
from pulse_django.models import Job
from pulse_django.run.registry import registry
from pulse_django.testing import run_job
from tests.factories import make_job, now

pytestmark = pytest.mark.django_db(transaction=True)


def written() -> None: ...


def test_they_are_due_if_this_process_knows_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
    job = make_job(task="tests.just_written")
    run_job(job, failures="keep")
    due = Job.objects.filter(pk=job.pk, next_run_at__lte=now())
    run_known_now("default")
    assert not due.exists()
    task(name="tests.just_written")(written)
    run_known_now("default")
    assert due.exists()
    assert run_job(job).outcome == "SUCCEEDED"
