"""What operators see and may do. Rows are read-only; a retry reports what it revived and what had moved on."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.states import Status
from tests.factories import AttemptFactory, QueueFactory, WorkerFactory, make_job, now
from tests.storage.steps import sql

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
    client = staff("view_job", "change_job", "cancel_job")
    assert client.get(LIST).status_code == 200
    retry(client, dead)
    dead.refresh_from_db()
    assert dead.status == Status.DEAD_LETTERED


def test_who_may_retry_can_and_it_is_logged() -> None:
    dead, done = make_job(Status.DEAD_LETTERED), make_job(Status.COMPLETED)
    retry(staff("view_job", "retry_job"), dead, done)
    dead.refresh_from_db()
    assert dead.status == Status.PENDING
    assert [(entry.object_id, entry.change_message) for entry in LogEntry.objects.all()] == [(str(dead.pk), "Retried")]


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


def test_the_page_of_a_job_tells_its_story(admin_client: Client) -> None:
    job = make_job(Status.RUNNING, attempts=2, progress={"done": 30, "total": 120}, last_error="worker lease expired")
    child = make_job(parent=job, task="tests.child")
    AttemptFactory(
        job=job,
        outcome="WORKER_LOST",
        message="worker lease expired",
        started_at=now(timedelta(seconds=-60)),
        finished_at=now(timedelta(seconds=-30)),
        late_outcome="SUCCEEDED",
        late_at=now(timedelta(seconds=-1)),
        traceback="Traceback (most recent call last):\n  it was here",
    )
    sql("UPDATE pulse_django_job SET started_at = clock_timestamp() - interval '20 s' WHERE id = %s", job.pk)
    page = admin_client.get(page_of(job)).content.decode()
    assert "attempt 2 of 10" in page
    assert 'class="pulse-bar pulse-bar-zombie"' in page
    assert "while another run was at work" in page
    assert "Two runs of this job were at work at a time" in page
    assert 'class="pulse-bar pulse-bar-running"' in page
    assert "it was here" in page
    assert f'href="{page_of(child)}"' in page
    assert '<progress max="1" value="0.2500">' in page
    assert "style=" not in page.split("pulse-story")[1].split("</section>")[0], "a strict CSP forbids it"


def test_the_story_of_a_child_leads_to_its_parent_and_of_a_new_job_is_short(admin_client: Client) -> None:
    parent = make_job(Status.COMPLETED)
    page = admin_client.get(page_of(make_job(parent=parent))).content.decode()
    assert f'href="{page_of(parent)}"' in page
    assert "No run has ended yet." in page


@pytest.mark.parametrize("language", ["de", "ar"])
def test_numbers_of_the_drawing_are_the_same_in_every_language(
    admin_client: Client, settings: Any, language: str
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True
    job = make_job(Status.COMPLETED)
    AttemptFactory(job=job, started_at=now(timedelta(days=-2)))
    page = admin_client.get(page_of(job)).content.decode()
    assert re.search(r'<rect class="pulse-bar pulse-bar-good" x="\d+\.\d" y="\d+\.\d" width="\d+\.\d"', page)


class TestPages:
    """By id: each page is as quick as the first."""

    @pytest.fixture
    def jobs(self, monkeypatch: pytest.MonkeyPatch) -> list[Job]:
        monkeypatch.setattr("pulse_django.admin.JobAdmin.list_per_page", 3)
        return [make_job(Status.COMPLETED if number % 2 else Status.PENDING) for number in range(8)]

    def ids(self, page: str) -> list[int]:
        return [int(pk) for pk in re.findall(r'<th class="field-id"><a href="[^"]*/job/(\d+)/change/', page)]

    def link(self, page: str, rel: str) -> str | None:
        found = re.search(rf'<a rel="{rel}" href="([^"]*)"', page)
        return LIST + html.unescape(found[1]) if found else None

    def test_they_lead_through_all_jobs_and_back(self, admin_client: Client, jobs: list[Job]) -> None:
        newest_first = [job.pk for job in reversed(jobs)]
        seen: list[int] = []
        url: str | None = LIST
        pages = []
        while url is not None:
            page = admin_client.get(url).content.decode()
            pages.append(self.ids(page))
            seen += pages[-1]
            last, url = page, self.link(page, "next")
        assert seen == newest_first
        back = self.link(last, "prev")
        assert back is not None
        assert self.ids(admin_client.get(back).content.decode()) == pages[-2]
        first = self.link(admin_client.get(back).content.decode(), "prev")
        assert first is not None
        page = admin_client.get(first).content.decode()
        assert self.ids(page) == pages[0]
        assert self.link(page, "prev") is None

    def test_filters_are_kept(self, admin_client: Client, jobs: list[Job]) -> None:
        page = admin_client.get(LIST, {"status__exact": "COMPLETED"}).content.decode()
        following = self.link(page, "next")
        assert following is not None
        rest = self.ids(admin_client.get(following).content.decode())
        assert [*self.ids(page), *rest] == [job.pk for job in reversed(jobs) if job.status == Status.COMPLETED]

    @pytest.mark.parametrize("nonsense", ["x", "-1", "9" * 30, "٣", "1; DROP TABLE"])
    def test_nonsense_in_the_address_is_ignored(self, admin_client: Client, jobs: list[Job], nonsense: str) -> None:
        page = admin_client.get(LIST, {"older": nonsense})
        assert self.ids(page.content.decode()) == [job.pk for job in reversed(jobs)][:3]

    def test_nothing_is_counted(self, admin_client: Client, jobs: list[Job]) -> None:
        with CaptureQueriesContext(connection) as queries:
            admin_client.get(LIST, {"_facets": ""})
        about_jobs = [query["sql"] for query in queries if 'FROM "pulse_django_job"' in query["sql"]]
        assert len(about_jobs) == 1
        assert "COUNT(" not in about_jobs[0].upper()
        assert "OFFSET" not in about_jobs[0].upper()
        assert '"args"' not in about_jobs[0], "a megabyte each, and nobody sees them here"
