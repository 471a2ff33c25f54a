"""What operators see and may do. Rows are read-only; a retry reports what it revived and what had moved on."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.jobs.admin import SECRETS, JobAdmin
from pulse_django.console.jobs.job_list import LABELS
from pulse_django.console.jobs.story import share_of
from pulse_django.models import Job, StoredAttempt
from pulse_django.queue.words.states import Status
from tests.console.staff import page_of, staff
from tests.factories import AttemptFactory, WorkerFactory, make_job, now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_job_changelist")


def retry(client: Client, *jobs: Job) -> Any:
    data = {"action": "retry_dead_letters", "_selected_action": [job.pk for job in jobs]}
    return client.post(LIST, data, follow=True)


def test_the_page_of_a_job_shows_its_attempts_and_nothing_can_be_typed_into(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, task="shop.echo", args=["the argument"])
    AttemptFactory(job=job, outcome="FAILED", message="the message", late_outcome="")
    page = admin_client.get(page_of(job)).content.decode()
    assert "the argument" in page
    assert "the message" in page
    assert 'name="task"' not in page
    assert 'name="_save"' not in page


def test_who_may_retry_can_and_it_is_logged() -> None:
    dead, done = make_job(Status.DEAD_LETTERED), make_job(Status.COMPLETED)
    retry(staff("pulse_view_jobs", "pulse_retry_jobs"), dead, done)
    dead.refresh_from_db()
    assert dead.status == Status.PENDING
    assert [(entry.object_id, entry.change_message) for entry in LogEntry.objects.all()] == [(str(dead.pk), "Retried")]


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
    assert "while another run was active" in page
    assert "Two runs of this job overlapped" in page
    assert 'class="pulse-bar pulse-bar-running"' in page
    assert "it was here" in page
    assert f'href="{page_of(child)}"' in page
    assert '<progress max="1" value="0.2500">' in page
    assert "style=" not in page.split("pulse-story")[1].split("</section>")[0], "a strict CSP forbids it"


def test_every_field_of_a_job_has_a_name_that_can_be_translated(admin_client: Client) -> None:
    page = admin_client.get(page_of(make_job(Status.DEAD_LETTERED))).content.decode()
    fields = [one for _, options in JobAdmin.fieldsets for one in options["fields"] if one not in SECRETS]
    shown = [one.__name__ if callable(one) else one for one in fields]
    own = {"labels", "facts"}  # which have their names where they are made
    assert set(shown) == set(LABELS) - {"tags", "meta"} | own
    assert "Maximum attempts:" in page
    assert "It never decreases." in page


def test_a_dead_letter_leads_to_all_that_died_of_the_same(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, last_error="ValueError: order 17 is & stays closed")
    page = admin_client.get(page_of(job)).content.decode()
    assert "?error=ValueError%3A%20order%20%23%20is%20%26%20stays%20closed" in page


def test_the_story_of_a_child_leads_to_its_parent_and_of_a_new_job_is_short(admin_client: Client) -> None:
    parent = make_job(Status.COMPLETED)
    page = admin_client.get(page_of(make_job(parent=parent))).content.decode()
    assert f'href="{page_of(parent)}"' in page
    assert "No run has ended yet." in page


@each_of("de", "ar", around=undone)
def test_numbers_of_the_drawing_are_the_same_in_every_language(
    admin_client: Client, settings: Any, *, language: Any
) -> None:
    settings.LANGUAGE_CODE = language
    settings.USE_THOUSAND_SEPARATOR = True
    job = make_job(Status.COMPLETED)
    AttemptFactory(job=job, started_at=now(timedelta(days=-2)))
    page = admin_client.get(page_of(job)).content.decode()
    assert re.search(r'<rect class="pulse-bar pulse-bar-good" x="\d+\.\d" y="\d+" width="\d+\.\d"', page)


def test_what_a_long_story_leaves_out_is_told(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, attempts=500, max_attempts=500)
    rows = [AttemptFactory.build(job=job, number=number, outcome="FAILED") for number in range(1, 501)]
    StoredAttempt.objects.bulk_create(rows)
    for _ in range(60):
        make_job(parent=job)
    page = admin_client.get(page_of(job)).content.decode()
    assert "440 earlier attempts are not drawn." in page
    assert "300 earlier attempts are not listed." in page
    assert page.count("<li>enqueued <a") == 50
    assert "Only the first 50 of the jobs that it enqueued are listed." in page


def test_what_a_short_story_does_not_leave_out_is_not_told(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED)
    for number in (9, 10):  # the ledger was pruned, or restored in part
        AttemptFactory(job=job, number=number, outcome="FAILED")
    make_job(parent=job)
    page = admin_client.get(page_of(job)).content.decode()
    assert "earlier attempt" not in page
    assert "Only the first" not in page


def test_the_latest_traceback_is_open_however_often_the_job_was_put_back_since(admin_client: Client) -> None:
    """A handler that does not end leaves a stack, and then its job is put back again and again."""
    job = make_job(Status.RETRYING, attempts=9, refunds=7, last_error="no")
    for number in range(1, 10):
        text = {"outcome": "TIMED_OUT", "traceback": f"stack {number}"} if number < 3 else {"outcome": "RELEASED"}
        AttemptFactory(job=job, number=number, **text)
    page = admin_client.get(page_of(job)).content.decode()
    assert "<details open><summary>Traceback</summary><pre>stack 2</pre>" in page
    assert "stack 1" not in page
    assert page.count("Its traceback is in the ledger.") == 1


def test_of_many_attempts_the_latest_are_told_in_full(admin_client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, attempts=12, max_attempts=12)
    for number in range(1, 13):
        text = {"message": f"message {number} " + "m" * 9_000, "traceback": f"trace {number}. " + "t" * 60_000}
        AttemptFactory(job=job, number=number, outcome="FAILED", **text)
    with CaptureQueriesContext(connection) as queries:
        page = admin_client.get(page_of(job)).content.decode()
    assert [number for number in range(1, 13) if f"trace {number}." in page] == [8, 9, 10, 11, 12]
    assert page.count("Its traceback is in the ledger. This page shows the latest 5.") == 7
    assert all(f"message {number} " in page for number in range(1, 13))
    assert page.count("m…") == 7, "a message that is cut says so"
    assert len(page) < 450_000
    read = [query["sql"] for query in queries if "pulse_django_ledger" in query["sql"]]
    assert len(read) == 2, "one for all, and one for what is long"


@each_of(
    ({"done": 1, "total": 4}, 0.25),
    ({"done": 9, "total": 4}, 1.0),
    ({"done": -1, "total": 4}, 0.0),
    ({"done": 1, "total": 0}, None),
    ({"done": 10**400, "total": 10**401}, None),  # no float holds them
    ({"done": 10**400, "total": 1.5}, None),
    ({"done": float("inf"), "total": float("inf")}, None),  # how Python reads 1e400
    ({"done": float("nan"), "total": 1}, None),
    ({"done": 1e308, "total": 1e-308}, 1.0),
    ({"done": True, "total": 1}, None),
    ({"done": "1", "total": 2}, None),
    ([1, 2], None),
)
def test_how_much_is_done_is_told_if_both_numbers_can_be_counted_with(*, progress: Any, share: Any) -> None:
    assert share_of(progress) == share


def test_progress_beyond_all_reason_closes_no_page(admin_client: Client) -> None:
    worker = WorkerFactory(name="host-1", boot_id="boot")
    job = make_job(Status.RUNNING, progress={"done": 10**400, "total": 10**401})
    for page in (LIST, page_of(job), reverse("admin:pulse_django_worker_change", args=[worker.pk])):
        assert admin_client.get(page).status_code == 200


@each_of(Status.DEAD_LETTERED, Status.RUNNING, Status.COMPLETED, around=undone)
def test_the_page_of_a_job_takes_few_statements(admin_client: Client, *, status: Any) -> None:
    parent = make_job(args=[1], meta={"by": "ada"})
    job = make_job(status, args=["x"], kwargs={"y": 1}, meta={"by": "ada"}, attempts=3, last_error="KeyError: 1")
    Job.objects.filter(pk=parent.pk).update(parent=job.pk)
    for number in (1, 2, 3):
        AttemptFactory(job=job, number=number, outcome="FAILED", traceback="Traceback")
    with CaptureQueriesContext(connection) as queries:
        assert admin_client.get(page_of(job)).status_code == 200
    assert len(queries) <= 12, [query["sql"] for query in queries]
