"""What the list of jobs shows of each in one line."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.encryption.values import MASK
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.console.test_job_list import page_at
from tests.encryption.test_searched_tasks import silent
from tests.factories import make_job, now
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db


def cells(client: Client, column: str) -> list[str]:
    page = page_at(client, reverse("admin:pulse_django_job_changelist"))
    return [one.partition("<")[0] for one in page.split(f'<td class="field-{column}">')[1:]]


@each_of(
    ({"args": [4711, "a b"], "kwargs": {"note": "x"}}, "4711, &quot;a b&quot;, note=&quot;x&quot;"),
    ({"args": ["line\nbreak"]}, "&quot;line\\nbreak&quot;"),
    ({"kwargs": {"text": "x" * 500}}, f"text=&quot;{'x' * 51}..."),
    ({"args": []}, ""),
    around=undone,
)
def test_arguments_are_one_line(admin_client: Client, *, given: Any, shown: Any) -> None:
    size = 4 + sum(len(str(value)) for value in given.values())
    make_job(task=silent.name, payload_bytes=size, **given)
    assert cells(admin_client, "arguments_in_short") == [shown]


def test_long_ones_are_not_read(admin_client: Client) -> None:
    make_job(task=silent.name, args=["x" * 5_000], payload_bytes=5_004)
    assert cells(admin_client, "arguments_in_short") == ["too long"]


def test_they_need_their_permission_and_masks_are_obeyed(admin_client: Client) -> None:
    make_job(task=silent.name, args=["hunter2"], sensitive='{"positions":[0]}', payload_bytes=11)
    make_job(task="gone.away", args=["hunter2"], payload_bytes=11)
    assert cells(admin_client, "arguments_in_short") == ["–", f"&quot;{MASK}&quot;"]
    page = page_at(staff("pulse_view_jobs"), reverse("admin:pulse_django_job_changelist"))
    assert "hunter2" not in page
    assert "field-arguments_in_short" not in page


def test_the_duration_is_that_of_the_latest_run(admin_client: Client) -> None:
    job = make_job(Status.RUNNING, started_at=now(-timedelta(minutes=5)))
    make_job()
    assert cells(admin_client, "duration") == ["", "5m"]
    assert cells(admin_client, "held_by") == ["", str(job.locked_by).partition(":")[0]]
    over = make_job(Status.COMPLETED, started_at=now(-timedelta(minutes=9)), finished_at=now(-timedelta(minutes=6)))
    assert cells(admin_client, "duration")[0] == "3m", over
    assert Job.objects.count() == 3
