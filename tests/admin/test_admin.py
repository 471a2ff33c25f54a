"""What operators see and may do. Rows are read-only; a retry reports what it revived and what had moved on."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.states import Status
from tests.factories import AttemptFactory, QueueFactory, WorkerFactory, make_job

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_job_changelist")


def page_of(job: Job) -> str:
    return reverse("admin:pulse_django_job_change", args=[job.pk])


def retry(client: Client, *jobs: Job) -> Any:
    data = {"action": "retry_dead_letters", "_selected_action": [job.pk for job in jobs]}
    return client.post(LIST, data, follow=True)


def staff(*permissions: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client()
    client.force_login(user)
    return client


def test_dead_letters_are_shown_with_their_reason(admin_client: Client) -> None:
    make_job(Status.DEAD_LETTERED, last_error="ValueError: the reason")
    make_job(Status.COMPLETED, task="tests.done")
    page = admin_client.get(LIST, {"status__exact": "DEAD_LETTERED"}).content.decode()
    assert "ValueError: the reason" in page
    assert "tests.done" not in page


def test_the_page_of_a_job_shows_its_attempts_and_nothing_can_be_typed_into(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, args=["the argument"])
    AttemptFactory(job=job, outcome="FAILED", message="the message", late_outcome="")
    page = admin_client.get(page_of(job)).content.decode()
    assert "the argument" in page
    assert "the message" in page
    assert 'name="task"' not in page
    assert 'name="_save"' not in page


def test_retrying_revives_what_is_dead_and_says_what_was_not(admin_client: Client) -> None:
    dead, done = make_job(Status.DEAD_LETTERED), make_job(Status.COMPLETED)
    page = retry(admin_client, dead, done).content.decode()
    assert "1 job revived. 1 was not dead." in page
    dead.refresh_from_db()
    assert dead.status == Status.PENDING


@pytest.mark.parametrize("what", ["add", "delete", "change"])
def test_nobody_writes_rows_by_hand(admin_client: Client, what: str) -> None:
    job = make_job()
    url = (
        reverse("admin:pulse_django_job_add")
        if what == "add"
        else reverse(f"admin:pulse_django_job_{what}", args=[job.pk])
    )
    assert admin_client.post(url, {"task": "evil", "post": "yes"}).status_code == 403
    assert list(Job.objects.values_list("task", flat=True)) == ["tests.add"]


def test_who_may_only_look_cannot_retry() -> None:
    dead = make_job(Status.DEAD_LETTERED)
    client = staff("view_job")
    assert client.get(LIST).status_code == 200
    retry(client, dead)
    dead.refresh_from_db()
    assert dead.status == Status.DEAD_LETTERED


def test_who_may_change_jobs_can_retry() -> None:
    dead = make_job(Status.DEAD_LETTERED)
    retry(staff("view_job", "change_job"), dead)
    dead.refresh_from_db()
    assert dead.status == Status.PENDING


def test_staff_without_permission_and_strangers_see_nothing() -> None:
    assert staff().get(LIST).status_code == 403
    assert Client().get(LIST).status_code == 302


def test_hostile_text_is_only_text(admin_client: Client) -> None:
    evil = '<img src=x onerror="alert(1)">'
    job = make_job(Status.DEAD_LETTERED, task=evil, queue=evil, last_error=evil, args=[evil])
    AttemptFactory(job=job, message=evil, worker=evil)
    for url in (LIST, page_of(job)):
        assert "<img src=x" not in admin_client.get(url).content.decode()


def test_workers_and_queues_are_listed(admin_client: Client) -> None:
    WorkerFactory(name="host-7")
    QueueFactory(name="mail")
    assert "host-7" in admin_client.get(reverse("admin:pulse_django_worker_changelist")).content.decode()
    assert "mail" in admin_client.get(reverse("admin:pulse_django_queue_changelist")).content.decode()
