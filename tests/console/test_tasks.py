"""The pages of tasks: right numbers, few statements, nothing for who may not see jobs."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.charts import charts_of
from pulse_django.metrics import traffic
from pulse_django.metrics.spans import WINDOWS, Course
from pulse_django.models import Pause, Release
from pulse_django.queue.words.counters import OTHER, TrafficCounts, TrafficKind
from tests.console.staff import staff, text
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_taskoverview_changelist")
ONE = reverse("admin:pulse_django_taskoverview_one")
EVIL = "<script>evil()</script>"


def counts(succeeded: int = 8, failed: int = 2, seconds: float = 0.25) -> TrafficCounts:
    found = TrafficCounts(enqueued=10, started=10, succeeded=succeeded, failed=failed, died=1)
    found.ran.measure(16, found.runs, seconds * found.runs)
    found.waited.measure(4, found.runs, 0.004 * found.runs)
    return found


def recorded(**tasks: TrafficCounts) -> datetime:
    [(last,)] = sql("SELECT date_trunc('minute', clock_timestamp()) - interval '2 min'")
    by_key = {(TrafficKind.TASK, name.replace("__", ".")): one for name, one in tasks.items()}
    traffic.write("default", last, by_key)
    found: datetime = last
    return found


def names_of(page: str) -> list[str]:
    return re.findall(r'<th scope="row">\s*(?:<a[^>]*>)?([^<]*)', page)


class TestTheList:
    def test_each_task_is_told_with_its_runs_failures_and_times(self, admin_client: Client) -> None:
        recorded(shop__send=counts())
        page = text(admin_client, LIST, window="hour")
        row = page.split(">shop.send</a>")[1].split("</tr>")[0]
        cells = re.findall(r'<td class="pulse-number">([^<]*)', row)
        assert cells == ["10", "2 (20.0%)", "1", "256ms, 256ms, 256ms", "4ms, 4ms, 4ms"]

    def test_a_registered_task_that_never_ran_is_listed(self, admin_client: Client) -> None:
        assert "shop.echo" in names_of(text(admin_client, LIST))

    @each_of(("runs", "busy"), ("failed", "failing"), ("ran", "slow"), ("name", "a"), around=undone)
    def test_it_is_sorted_by_what_is_asked_for(self, admin_client: Client, *, order: Any, first: Any) -> None:
        slow = counts(1, 0)
        slow.ran.measure(30, 1, 30.0)
        recorded(a=counts(1, 0), busy=counts(500, 0), failing=counts(1, 1), slow=slow)
        assert names_of(text(admin_client, LIST, order=order))[0] == first

    def test_what_was_added_up_as_others_has_no_page(self, admin_client: Client) -> None:
        traffic.write("default", recorded(), {(TrafficKind.TASK, OTHER): counts()})
        page = text(admin_client, LIST)
        assert "Other tasks" in page
        assert OTHER not in page

    @each_of({"window": "year"}, {"order": EVIL}, {"window": EVIL}, around=undone)
    def test_an_odd_address_gives_the_usual_page(self, admin_client: Client, *, query: Any) -> None:
        page = text(admin_client, LIST, **query)
        assert EVIL not in page
        assert '<strong aria-current="true">Last day</strong>' in page


class TestOne:
    def test_it_has_charts_with_a_value_at_each_point(self, admin_client: Client) -> None:
        recorded(shop__send=counts())
        page = text(admin_client, ONE, name="shop.send", window="hour")
        assert page.count("<svg role=") == 3
        assert page.count("pulse-chart-hover") == 3 * WINDOWS["hour"].points
        assert "8 succeeded, 2 failed, 1 dead-lettered, 10 enqueued</title>" in page
        assert "p50 256ms, p95 256ms, p99 256ms</title>" in page

    @pytest.mark.parametrize("use_tz", [True, False])
    def test_a_release_is_a_mark(self, admin_client: Client, settings: Any, use_tz: bool) -> None:
        settings.USE_TZ = use_tz
        last = recorded(shop__send=counts())
        Release.objects.create(version=EVIL, seen_at=last - timedelta(minutes=20))
        page = text(admin_client, ONE, name="shop.send", window="hour")
        assert page.count("pulse-chart-mark") == 3
        assert "Release &lt;script&gt;" in page
        assert EVIL not in page

    def test_a_pause_is_told(self, admin_client: Client) -> None:
        Pause.objects.pause("shop.send", reason="the provider is down")
        page = text(admin_client, ONE, name="shop.send")
        assert "the provider is down" in page
        assert "This process has no task of that name." in page

    def test_so_is_a_pause_in_one_queue_alone(self, admin_client: Client) -> None:
        Pause.objects.pause("shop.send", queue="mail", reason="the provider is down")
        page = " ".join(text(admin_client, ONE, name="shop.send").split())
        assert "</strong> in queue mail until resumed: the provider is down" in page
        assert "Paused" not in text(admin_client, LIST)

    def test_a_name_that_nothing_has_is_a_page_without_charts(self, admin_client: Client) -> None:
        page = text(admin_client, ONE, name=EVIL)
        assert EVIL not in page
        assert charts_of(Course(window=WINDOWS["day"])) == []

    def test_without_a_name_it_leads_to_the_list(self, admin_client: Client) -> None:
        assert admin_client.get(ONE)["Location"] == LIST


@each_of(("pulse_view_queues", 403), ("pulse_view_jobs", 200), around=undone)
def test_the_pages_are_for_who_may_see_jobs(*, permission: Any, code: Any) -> None:
    client = staff(permission)
    assert [client.get(url, {"name": "x"}).status_code for url in (LIST, ONE)] == [code, code]


@each_of(LIST, ONE, around=undone)
def test_a_page_takes_few_statements(admin_client: Client, *, url: Any) -> None:
    recorded(**{f"task{number}": counts() for number in range(50)})
    with CaptureQueriesContext(connection) as asked:
        text(admin_client, url, name="task7", window="weeks")
    assert len(asked) <= 10
