"""What the admin shows of unique jobs, and what it says of dead letters whose key another job has."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.unique.rule import Unique, UniqueKey
from tests.console import test_dead_letters as dead_letters
from tests.console.test_acts import page_of, press
from tests.database import on_empty_tables
from tests.factories import make_job
from tests.faults import each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

KEEP, FOLLOW = UniqueKey.of("k", Unique()), UniqueKey.of("k", Unique(on_conflict="follow"))
HOURLY = UniqueKey.of("h", Unique(per=timedelta(hours=1)))


@each_of((KEEP, "until it ends"), (FOLLOW, "until it starts"), (HOURLY, "no other one before"), around=on_empty_tables)
def test_the_page_of_a_job_shows_its_key_and_until_when_it_holds_it(
    admin_client: Client, *, key: Any, says: Any
) -> None:
    job = Job.objects.enqueue(NewJob(task="shop.send_mail", unique=key))
    page = admin_client.get(page_of(job)).content.decode()
    assert f"{key.key} ({says}" in page


def test_the_page_of_another_job_shows_none(admin_client: Client) -> None:
    page = admin_client.get(page_of(make_job())).content.decode()
    assert "until it" not in page


def test_its_page_says_why_a_dead_letter_with_a_twin_is_left(admin_client: Client) -> None:
    dead = make_job(Status.DEAD_LETTERED, task="t", unique_key=KEEP.key)
    twin = Job.objects.enqueue(NewJob(task="t", unique=KEEP))
    assert "Another job has the unique key of this one." in press(admin_client, dead, "retry").content.decode()
    Job.objects.request_cancel([twin.pk])
    assert "Retried" in press(admin_client, dead, "retry").content.decode()


def two_of_which_one_has_a_twin() -> list[Job]:
    dead = [make_job(Status.DEAD_LETTERED, task="t", unique_key=key.key) for key in (KEEP, HOURLY)]
    Job.objects.enqueue(NewJob(task="t", unique=KEEP))
    return dead


def test_the_list_of_jobs_counts_those_that_were_left(admin_client: Client) -> None:
    form = {
        "action": "retry_dead_letters",
        ACTION_CHECKBOX_NAME: [job.pk for job in two_of_which_one_has_a_twin()],
    }
    page = admin_client.post(reverse("admin:pulse_django_job_changelist"), form, follow=True)
    assert "1 retried. 1 left: another job has the unique key." in page.content.decode()


def test_the_page_of_an_error_counts_them(admin_client: Client) -> None:
    two_of_which_one_has_a_twin()
    page = dead_letters.retry(admin_client, dead_letters.ALL, error="ValueError: no")
    assert "1 retried. 1 left: another job has the unique key." in page.content.decode()


def test_the_command_counts_them() -> None:
    two_of_which_one_has_a_twin()
    said = io.StringIO()
    call_command("pulse_retry", "--all", "--yes", stdout=said, stderr=said)
    assert "1 retried. 1 left: another job has the unique key." in said.getvalue()
