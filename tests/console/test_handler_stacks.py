"""The page of a worker asks where a handler is, and shows the answer for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from pulse_django.models import Worker
from pulse_django.queue.words.states import Status
from tests.console.staff import page_of, staff
from tests.factories import WorkerFactory, make_job, now, presence
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

NOT_YET = "has not answered yet"


@pytest.fixture
def worker() -> Any:
    return WorkerFactory(name="host-1", boot_id="b", in_flight=1)


@pytest.fixture
def job(worker: Any) -> Any:
    return make_job(Status.RUNNING, locked_by="host-1:b.1:7")


def ask(client: Client, worker: Any, job_id: object) -> str:
    url = reverse("admin:pulse_django_worker_act_stack", args=[worker.pk])
    return client.post(url, {"job": job_id}, follow=True).content.decode()


def wanted_by_the_worker() -> int | None:
    return Worker.objects.note(presence()).stack_wanted


def test_a_question_reaches_the_worker_and_its_answer_the_page(worker: Any, job: Any, admin_client: Client) -> None:
    assert "Request the stack of its handler" in admin_client.get(page_of(worker)).content.decode()
    assert NOT_YET in ask(admin_client, worker, job.pk)
    assert LogEntry.objects.get().get_change_message() == f"Requested the stack of job {job.pk}"
    assert wanted_by_the_worker() == job.pk
    Worker.objects.answer_stack("host-1", "b", job.pk, '  File "<b>shop</b>/tasks.py", line 12, in send')
    assert wanted_by_the_worker() is None
    page = admin_client.get(page_of(worker)).content.decode()
    assert "&lt;b&gt;shop&lt;/b&gt;/tasks.py" in page
    assert NOT_YET not in page


def test_what_was_asked_and_told_long_ago_is_over(worker: Any, job: Any, admin_client: Client) -> None:
    ask(admin_client, worker, job.pk)
    Worker.objects.answer_stack("host-1", "b", job.pk, "somewhere")
    ask(admin_client, worker, job.pk)
    Worker.objects.update(stack_asked_at=now(timedelta(minutes=-3)), stack_at=now(timedelta(minutes=-11)))
    page = admin_client.get(page_of(worker)).content.decode()
    assert "somewhere" not in page
    assert NOT_YET not in page
    assert wanted_by_the_worker() is None
    Worker.objects.forget(timedelta(days=7), timedelta(days=30))
    assert Worker.objects.get().stack == ""


def test_a_worker_that_has_stopped_is_not_asked(worker: Any, job: Any, admin_client: Client) -> None:
    Worker.objects.update(stopped_at=now())
    assert "Request the stack of its handler" not in admin_client.get(page_of(worker)).content.decode()
    assert "No stack was requested" in ask(admin_client, worker, job.pk)
    assert not LogEntry.objects.exists()


@each_of("", "x", "-1", "9" * 30, "1 OR 1=1", around=undone)
def test_only_a_number_is_asked_about(worker: Any, admin_client: Client, *, job_id: Any) -> None:
    ask(admin_client, worker, job_id)
    assert Worker.objects.get().stack_wanted is None


def test_only_who_may_change_workers_asks_and_reads(worker: Any, job: Any) -> None:
    Worker.objects.answer_stack("host-1", "b", job.pk, "somewhere")
    client = staff("pulse_view_workers", "pulse_view_jobs")
    page = client.get(page_of(worker)).content.decode()
    assert "somewhere" not in page
    assert "Request the stack of its handler" not in page
    url = reverse("admin:pulse_django_worker_act_stack", args=[worker.pk])
    assert client.post(url, {"job": job.pk}).status_code == 403
    assert Worker.objects.get().stack_wanted is None
