"""``pause_task`` and ``resume_task``, as a project calls them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django import pause_task, resume_task, task
from pulse_django.models import Job, Pause
from pulse_django.pauses import pausing as pauses
from pulse_django.queue.set_aside import SET_ASIDE_LIMIT
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.testing import drain, run_job
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

NAMES = {"pauses.renamed", "pauses.old_name", "pauses.older"}


@task(name="pauses.renamed", aliases=("pauses.old_name", "pauses.older"))
def renamed() -> None: ...


@task(name="pauses.other")
def other() -> None: ...


def paused() -> set[str]:
    return set(Pause.objects.values_list("task", flat=True))


@pytest.mark.parametrize("called", [renamed, "pauses.renamed", "pauses.old_name", renamed.using(priority=3)])
def test_a_task_is_paused_by_all_of_its_names_whatever_it_is_called_by(called: Any) -> None:
    assert pause_task(called, duration=timedelta(hours=1), reason="x", by="ann")
    assert paused() == NAMES
    Job.objects.enqueue_many([NewJob(task="pauses.older"), NewJob(task="pauses.other")])
    assert [claim.task for claim in Job.objects.claim(Identity("me"), limit=9)] == ["pauses.other"]
    assert not pause_task(called, duration=timedelta(minutes=1))
    assert resume_task(called)
    assert paused() == set()
    assert not resume_task(called)


def test_a_task_that_this_process_does_not_know_is_paused_by_its_name() -> None:
    assert pause_task("gone.task")
    assert paused() == {"gone.task"}


def test_jobs_that_wait_are_set_aside_at_once_and_brought_back() -> None:
    for _ in range(3):
        renamed.enqueue()
    pause_task(renamed)
    assert Job.objects.filter(ready=None).count() == 3
    resume_task(renamed)
    assert Job.objects.filter(ready=True).count() == 3


def test_one_call_does_a_bounded_amount(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "MOST_BATCHES", 2)
    Job.objects.enqueue_many([NewJob(task="pauses.renamed")] * (3 * SET_ASIDE_LIMIT))
    pause_task(renamed)
    assert Job.objects.filter(ready=None).count() == 2 * SET_ASIDE_LIMIT
    assert not Job.objects.claim(Identity("me"))
    resume_task(renamed)
    assert Job.objects.filter(ready=None).count() == 0


def test_inside_a_transaction_no_row_of_a_job_is_locked() -> None:
    job_id = int(renamed.enqueue().id)
    rival = Rival()
    with transaction.atomic():
        pause_task(renamed)
        rival.lock_row(job_id)
        rival.rollback()
    rival.close()
    assert not Job.objects.filter(ready=None).exists()
    assert not Job.objects.claim(Identity("me"))


def test_workers_are_woken_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[Any] = []
    monkeypatch.setattr(pauses, "wake_workers", lambda alias, queues: woken.append((alias, queues)))
    pause_task(renamed)
    assert not woken
    resume_task(renamed)
    assert woken == [("default", [""])]


def test_a_test_drains_no_job_of_a_paused_task_and_may_run_one() -> None:
    """As of a paused queue."""
    result = renamed.enqueue()
    other.enqueue()
    pause_task(renamed)
    assert [ran.task for ran in drain()] == ["pauses.other"]
    assert run_job(result).task == "pauses.renamed"
