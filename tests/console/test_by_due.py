"""The page of waiting jobs in the order in which they are due."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django.console.jobs import due_soon
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import make_job, now
from tests.faults import all_faults
from tests.undoing import undone

pytestmark = pytest.mark.django_db

PAGE = reverse("admin:pulse_django_job_due")


def due_in(minutes: float, **options: Any) -> Job:
    return make_job(next_run_at=now(timedelta(minutes=minutes)), **options)


def listed(page: str) -> list[int]:
    return [int(found) for found in re.findall(r'job/(\d+)/change/">', page)]


def shown(client: Client, query: str = "") -> str:
    answer = client.get(f"{PAGE}{query}")
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_all_that_wait_whatever_the_lane_and_what_is_overdue_first(admin_client: Client) -> None:
    jobs = [
        due_in(30, queue="b"),
        due_in(-10, queue="a", priority=5),
        due_in(60 * 48, queue="a"),
        due_in(40, queue="a", lane_key="mail:1", ready=False),
        due_in(-20, queue="a", lane_key=":3"),
        due_in(-1, queue="b", status=Status.RETRYING),
    ]
    make_job(Status.COMPLETED), make_job(Status.RUNNING)
    page = shown(admin_client)
    assert listed(page) == [jobs[place].pk for place in (4, 1, 5, 0, 3, 2)]
    assert ">for 20m</time>" in page
    assert re.search(r">in (29m 5\ds|30m)</time>", page)
    assert "Next page" not in page


def test_of_one_queue(admin_client: Client) -> None:
    jobs = [due_in(3, queue="mail"), due_in(2), due_in(1, queue="mail")]
    assert listed(shown(admin_client, "?queue=mail")) == [jobs[2].pk, jobs[0].pk]
    assert "No claimable jobs are waiting." in shown(admin_client, "?queue='%25s<b>")
    refused = shown(admin_client, f"?queue={'x' * 101}")
    assert "at most 100 characters" in refused
    assert listed(refused) == []


def test_pages_follow_one_another_though_many_are_due_at_the_same_instant(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_soon, "PER_PAGE", 3)
    at = now(timedelta(minutes=5))
    jobs = [make_job(next_run_at=at, queue="ab"[place % 2], priority=place % 3) for place in range(8)]
    found, query = [], "?queue="
    for _ in range(3):
        page = shown(admin_client, query)
        found += listed(page)
        query = next(iter(re.findall(r'href="(\?[^"]*after=[^"]*)"', page)), "").replace("&amp;", "&")
    assert found == sorted(job.pk for job in jobs)
    assert query == ""
    assert '<a href="?queue=">First page</a>' in page


def test_a_cursor_that_is_none_is_the_beginning(admin_client: Client) -> None:
    cursors = ["x", "_", "2026-11-26T00:00+00:00_1", "1_x", "1_-1", "\0", "1_2_3", "9223372036854775807_0"]
    with all_faults() as about:
        for after in cursors:
            with about(after), undone():
                job = due_in(-60)
                assert listed(admin_client.get(PAGE, {"after": after}).content.decode()) == [job.pk]


def test_a_page_may_begin_before_1970(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_soon, "PER_PAGE", 1)
    jobs = [make_job(next_run_at=datetime(1960, 1, day, tzinfo=UTC)) for day in (1, 2)]
    [query] = re.findall(r'href="(\?[^"]*after=[^"]*)"', shown(admin_client))
    assert listed(shown(admin_client, query.replace("&amp;", "&"))) == [jobs[1].pk]


def test_more_lanes_than_are_walked_are_told(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_soon, "MOST_LANES", 2)
    for number in range(5):
        due_in(10, queue=f"q{number}")
    assert "There are more than 2 lanes" in shown(admin_client)
    due_in(10, queue="zzz")
    assert len(listed(shown(admin_client, "?queue=zzz"))) == 1, "its lanes alone count"
    far = shown(admin_client, "?after=4102444800000000_0")
    assert "There are more than 2 lanes" in far, "also on a page without jobs"


def test_pages_follow_one_another_without_time_zones(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_soon, "PER_PAGE", 1)
    jobs = [due_in(5), due_in(6)]
    with override_settings(USE_TZ=False):
        page = shown(admin_client)
        [query] = re.findall(r'href="(\?[^"]*after=[^"]*)"', page)
        assert listed(page) == [jobs[0].pk]
        assert listed(shown(admin_client, query.replace("&amp;", "&"))) == [jobs[1].pk]


def test_it_needs_the_permission_to_see_jobs(admin_client: Client) -> None:
    assert staff("pulse_view_queues").get(PAGE).status_code == 403
    assert admin_client.post(PAGE).status_code == 405


def test_the_list_of_jobs_leads_to_it(admin_client: Client) -> None:
    assert f'href="{PAGE}"' in admin_client.get(reverse("admin:pulse_django_job_changelist")).content.decode()


@override_settings(LANGUAGE_CODE="de")
def test_it_speaks_german(admin_client: Client) -> None:
    due_in(5.5)
    page = shown(admin_client)
    assert "Wartende Jobs nach Fälligkeit" in page
    assert ">in 5m " in page
