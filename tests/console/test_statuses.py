"""A status has a shape, a colour and a word; an error that was got over is told calmly; a delay says until when."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.console.statuses import SHAPES, STATUSES, due_shown, status_shown
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.factories import AttemptFactory, make_job, now
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

ERROR = "TimeoutError: the bank took 31 s"


def page_of(client: Client, job: Job) -> str:
    return client.get(reverse("admin:pulse_django_job_change", args=[job.pk])).content.decode()


def cell(client: Client, column: str) -> str:
    page = client.get(reverse("admin:pulse_django_job_changelist")).content.decode()
    return re.findall(rf'<td class="field-{column}[^>]*>(.*?)</td>', page)[0]


def test_each_status_has_a_shape_of_its_own() -> None:
    assert list(SHAPES) == list(Status)
    assert len(set(SHAPES.values())) == len(Status)


@each_of(*list(Status), around=undone)
def test_list_and_page_show_shape_and_word(admin_client: Client, *, status: Any) -> None:
    job = make_job(status)
    shown = status_shown(status)
    assert f'<span aria-hidden="true">{SHAPES[status]}</span> {STATUSES[status]}</span>' in shown
    assert shown in page_of(admin_client, job)
    assert shown in cell(admin_client, "standing")


@each_of(Status.COMPLETED, Status.RUNNING, Status.PENDING, Status.CANCELLED, around=undone)
def test_an_error_that_a_job_got_over_is_told_calmly(admin_client: Client, *, status: Any) -> None:
    job = make_job(status, last_error=ERROR, attempts=3)
    AttemptFactory(job=job, number=2, outcome="FAILED")
    page = page_of(admin_client, job)
    assert f'<pre class="pulse-error">{ERROR}' not in page
    assert f'<div class="pulse-past"><p>Error of attempt 2</p><pre>{ERROR}</pre>' in page
    assert page.index('class="pulse-timeline"') < page.index('class="pulse-past"')
    assert cell(admin_client, "error_in_short") == f'<span class="quiet">earlier: {ERROR}</span>'


@each_of(Status.DEAD_LETTERED, Status.RETRYING, around=undone)
def test_the_error_that_a_job_has_is_told_first(admin_client: Client, *, status: Any) -> None:
    job = make_job(status, last_error=ERROR)
    page = page_of(admin_client, job)
    assert f'<pre class="pulse-error">{ERROR}' in page
    assert 'class="pulse-past"' not in page
    assert cell(admin_client, "error_in_short") == ERROR


def test_a_delay_over_a_change_of_clocks_counts_seconds_also_without_time_zones(settings: Any) -> None:
    settings.USE_TZ, settings.TIME_ZONE = False, "Europe/Berlin"
    job = Job(status="PENDING", next_run_at=datetime(2026, 10, 25, 3))  # noqa: DTZ001 - as Django reads it
    assert ">due in 3h<" in due_shown(job, datetime(2026, 10, 25, 1))  # noqa: DTZ001


def test_a_job_with_a_delay_says_when_it_is_due(admin_client: Client) -> None:
    job = make_job(next_run_at=now(timedelta(minutes=5)))
    due = re.compile(r'<time datetime="[^"]+" title="[\d-]+ [\d:]+ UTC">due in (4m \d+s|5m)</time>')
    assert due.search(page_of(admin_client, job))
    assert due.search(cell(admin_client, "standing"))
    assert not due.search(page_of(admin_client, make_job()))
