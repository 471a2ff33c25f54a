"""A handler says when it is to be retried, and a job may be retried for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulse_django import UNLIMITED, Context, RetryLater, retry
from pulse_django.models import Job
from pulse_django.queue.words.bounds import MAX_DELAY
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import registry
from pulse_django.tasks import task
from pulse_django.testing import jump_to_next_run, run_job
from tests.factories import make_job

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _registry_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def waits(context: Context) -> None:
    try:
        raise RetryLater(60, "busy")
    except Exception:  # which is not meant
        pass


async def waits_async(context: Context) -> None:
    waits(context)


def waits_for_ever() -> None:
    raise RetryLater(float("inf"), "gone")


def fails() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("handler", [waits, waits_async])
def test_it_counts_as_an_attempt_and_ends_as_a_dead_letter(handler: Any) -> None:
    job_id = task(name="tests.later", takes_context=True, max_attempts=2)(handler).enqueue().id
    run_job(job_id, failures="keep")
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts, job.refunds) == ("RETRYING", 1, 0)
    assert str(job.last_error).startswith("RetryLater: busy")
    assert timedelta(seconds=50) < job.next_run_at - datetime.now(UTC) <= timedelta(seconds=60)
    jump_to_next_run(job)
    run_job(job_id, failures="keep")
    dead = Job.objects.get(pk=job_id)
    assert dead.status == "DEAD_LETTERED"
    assert [one.outcome for one in dead.ledger.order_by("number")] == ["FAILED", "FAILED"]


def test_it_may_ask_for_any_delay() -> None:
    job_id = task(name="tests.retry_later.for_ever", max_attempts=2)(waits_for_ever).enqueue().id
    run_job(job_id, failures="keep")
    job = Job.objects.get(pk=job_id)
    assert "RetryLater" in str(job.last_error)
    assert timedelta(days=364_999) < job.next_run_at - datetime.now(UTC) <= MAX_DELAY


def test_a_job_without_a_limit_is_never_given_up() -> None:
    job_id = task(name="tests.retry_later.unlimited", max_attempts=UNLIMITED)(fails).enqueue().id
    Job.objects.filter(pk=job_id).update(attempts=1_000_000)
    run_job(job_id, failures="keep")
    job = Job.objects.get(pk=job_id)
    assert (job.status, job.attempts) == ("RETRYING", 1_000_001)
    held = make_job(Status.RUNNING, attempts=1_000_000, max_attempts=UNLIMITED, expired=True)
    Job.objects.reap()
    assert Job.objects.get(pk=held.pk).status == "RETRYING"


def test_a_dead_letter_without_a_limit_can_be_retried() -> None:
    dead = make_job(Status.DEAD_LETTERED, attempts=3, max_attempts=UNLIMITED)
    assert retry(dead.pk, runs=5).revived == {dead.pk}
    job = Job.objects.get(pk=dead.pk)
    assert (job.max_attempts, job.refunds) == (UNLIMITED, 0)
