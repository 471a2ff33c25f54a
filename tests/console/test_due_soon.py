"""The page of what is due in the next hour."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.console.jobs import due_soon
from pulse_django.models import Job
from tests.factories import make_job, now

pytestmark = pytest.mark.django_db

PAGE = reverse("admin:pulse_django_job_due")


def due_in(minutes: float, **options: Any) -> Job:
    return make_job(next_run_at=now(timedelta(minutes=minutes)), **options)


def test_it_lists_what_is_due_in_the_order_of_its_time_whatever_the_lane(admin_client: Client) -> None:
    jobs = [
        due_in(30, queue="b"),
        due_in(10, queue="a", priority=5),
        due_in(20, queue="a"),
        due_in(40, queue="a", lane_key="mail:1", ready=False),
        due_in(5, queue="a", lane_key="mail:2", ready=False),
        due_in(50, queue="a", lane_key=":3"),
    ]
    late, overdue = due_in(90), due_in(-1)
    found, is_partial = due_soon.due_soon("default")
    assert [one.id for one in found] == [jobs[place].pk for place in (4, 1, 2, 0, 3, 5)]
    assert not is_partial
    page = admin_client.get(PAGE).content.decode()
    assert "6 waiting jobs are due in the next hour." in page
    listed = [overdue.pk, *(one.id for one in found), late.pk]
    assert re.findall(r'job/(\d+)/change/">', page) == [str(one) for one in listed]
    assert "in the next hour" not in admin_client.get(PAGE, {"queue": "a"}).content.decode()


def test_the_chart_says_what_is_due_in_each_minute(admin_client: Client) -> None:
    due_in(10.5, task="a.b"), due_in(10.6, task="a.b"), due_in(10.7, task="c.d"), due_in(30.5, task="c.d")
    page = admin_client.get(PAGE).content.decode()
    assert "<title>in 10 minutes: 3 (a.b 2, c.d 1)</title>" in page
    assert "<title>in 30 minutes: 1 (c.d 1)</title>" in page
    assert page.count("<rect") == due_soon.MINUTES
    assert "style=" not in page.split('class="pulse-board"')[1]


def test_more_lanes_than_are_walked_are_told(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_soon, "MOST_LANES", 2)
    for number in range(5):
        due_in(10, queue=f"q{number}")
    assert "There are more than 2 lanes" in admin_client.get(PAGE).content.decode()


def test_nothing_is_due(admin_client: Client) -> None:
    page = admin_client.get(PAGE).content.decode()
    assert "0 waiting jobs are due" in page
    assert "<rect" not in page
