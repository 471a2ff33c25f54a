"""Jobs of a filtered list as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.jobs import exporting
from pulse_django.encryption.values import MASK
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.console.test_job_list import page_at
from tests.encryption.test_searched_tasks import ship
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db


def body(client: Client, kind: str, **query: str) -> str:
    response = client.get(reverse("admin:pulse_django_job_export", args=[kind]), query)
    assert response.status_code == 200
    assert response["Content-Disposition"] == f'attachment; filename="jobs.{kind}"'
    return response.getvalue().decode()  # type: ignore[no-any-return,attr-defined]  # it is streamed


def as_csv(client: Client, **query: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(body(client, "csv", **query))))


def as_json(client: Client, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(body(client, "json", **query))
    return found


def test_all_that_match_are_in_it_and_nothing_else(admin_client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(exporting, "BATCH_WITH_ARGUMENTS", 2)
    jobs = [make_job(queue="mail", args=[number], kwargs={"a": "ü"}, tags=["x"]) for number in range(5)]
    make_job(queue="other")
    rows = as_csv(admin_client, queue="mail")
    assert [row["id"] for row in rows] == [str(job.pk) for job in jobs]
    assert rows[0]["created_at"] == jobs[0].created_at.isoformat()
    [first, *_] = as_json(admin_client, queue="mail")
    assert (first["id"], first["status"], first["tags"]) == (jobs[0].pk, "PENDING", ["x"])
    assert as_json(admin_client, queue="mail", status__exact="RUNNING") == []
    assert as_csv(admin_client, queue="none") == []


def test_a_large_list_takes_one_statement_for_each_batch(admin_client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(exporting, "BATCH_WITH_ARGUMENTS", 3)
    for _ in range(7):
        make_job(queue="mail")
    with CaptureQueriesContext(connection) as queries:
        body(admin_client, "csv", queue="mail")
    assert len([one for one in queries if "pulse_django_job" in one["sql"] and "LIMIT 3" in one["sql"]]) == 3


@each_of("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\uff1d1", "\n=cmd|' /C calc'!A0", around=undone)
def test_no_cell_is_a_formula(admin_client: Client, *, text: Any) -> None:
    make_job(Status.DEAD_LETTERED, queue="mail", task=text, last_error=text, kwargs={text: text}, args=[text])
    [row] = as_csv(admin_client, queue="mail")
    for name in ("task", "last_error"):
        assert row[name].startswith("'")
        assert "\n" not in row[name]
    [row] = as_json(admin_client, queue="mail")
    assert row["last_error"] == text, "JSON has no formulas"


def test_no_cell_is_a_formula_where_another_sign_separates(admin_client: Client) -> None:
    """Programs take the separator of their country, and split what a file of commas holds as one cell."""
    texts = [
        *("a;=1+1", "a,=1+1", "a\t=1+1", "a\n=1+1", "a\r\n=1+1", "a;;=1+1", "a; =1+1", "a;\xa0=1+1", "a;+1;-1;@x"),
        *('a;"=1+1', 'a;""=1+1', 'a";=1+1', "a;\uff1d1", ";=1+1", '";"=1+1', "a,;\t\n=1+1"),
    ]
    with all_faults() as about:
        for text in texts:
            for separator in ",;\t":
                with about((text, separator)), undone():
                    make_job(
                        Status.DEAD_LETTERED, queue="mail", task=text, last_error=text, args=[text], kwargs={"x": text}
                    )
                    written = body(admin_client, "csv", queue="mail").splitlines()[1]
                    for cell in next(csv.reader([written], delimiter=separator)):
                        assert cell.lstrip(' "\xa0')[:1] not in tuple("=+@\uff1d"), cell
                        assert not cell.startswith("-") or cell.removeprefix("-").isdigit(), cell


def test_each_cell_is_quoted_and_numbers_stay_numbers(admin_client: Client) -> None:
    make_job(queue="mail", task="a;b", tags=["x\ty"], priority=-5)
    header, row, end = body(admin_client, "csv", queue="mail").split("\r\n")
    assert header.startswith('"id","task"')
    assert '"a;b"' in row
    assert end == ""
    assert as_csv(admin_client, queue="mail")[0]["priority"] == "-5"


def test_long_runs_of_separators_take_no_longer(admin_client: Client) -> None:
    def seconds(length: int) -> float:
        began = time.process_time()
        exporting._cell(";" * length + "\t" * length + " " * length + "x")
        return time.process_time() - began

    short = min(seconds(50_000) for _ in range(3))
    assert min(seconds(400_000) for _ in range(3)) < 24 * short, (
        "the time grows with the square of the length: 64 times"
    )


class TestArguments:
    def test_they_need_their_permission(self) -> None:
        ship.enqueue(4711)
        client = staff("pulse_view_jobs")
        assert not {"args", "kwargs", "result"} & as_csv(client, task="search.ship")[0].keys()
        assert "4711" not in body(client, "json", task="search.ship")

    def test_masks_are_obeyed(self, admin_client: Client) -> None:
        make_job(task="testproject.shop.tasks.login", args=["ada", "hunter2"], sensitive='{"positions":[1]}')
        make_job(task="gone.away", queue="gone", args=["hunter2"])
        for kind in ("csv", "json"):
            for query in ({"task": "testproject.shop.tasks.login"}, {"queue": "gone"}):
                assert "hunter2" not in body(admin_client, kind, **query)

    def test_what_may_be_seen_is_as_it_was_given(self, admin_client: Client) -> None:
        make_job(Status.COMPLETED, task="search.ship", kwargs={"order_id": 17}, result={"ok": True})
        [row] = as_json(admin_client, task="search.ship")
        assert (row["args"], row["kwargs"], row["result"]) == ([], {"order_id": 17}, {"ok": True})
        assert MASK not in body(admin_client, "csv", task="search.ship")


class TestWhoMay:
    def test_the_list_offers_it_once_it_is_filtered(self, admin_client: Client) -> None:
        make_job(queue="mail")
        assert "/export/" not in page_at(admin_client)
        page = page_at(admin_client, queue="mail")
        assert f"{reverse('admin:pulse_django_job_export', args=['csv'])}?queue=mail" in page

    @each_of({}, {"args__icontains": "x"}, {"q": "4711"}, around=undone)
    def test_an_address_that_is_no_filter_is_refused(self, admin_client: Client, *, query: Any) -> None:
        url = reverse("admin:pulse_django_job_export", args=["csv"])
        assert admin_client.get(url, query).status_code == 302

    def test_arguments_are_no_oracle_here_either(self) -> None:
        ship.enqueue(4711)
        url = reverse("admin:pulse_django_job_export", args=["csv"])
        assert staff("pulse_view_jobs").get(f"{url}?{urlencode({'q': 'order_id:4711'})}").status_code == 302

    def test_others_get_nothing(self, admin_client: Client) -> None:
        url = reverse("admin:pulse_django_job_export", args=["csv"])
        assert staff("pulse_view_queues").get(url, {"queue": "mail"}).status_code == 403
        assert admin_client.post(f"{url}?queue=mail").status_code == 405
        assert (
            admin_client.get(reverse("admin:pulse_django_job_export", args=["xml"]), {"queue": "x"}).status_code == 404
        )


def test_it_is_not_all_read_before_the_first_row_is_sent(admin_client: Client, monkeypatch: Any) -> None:
    monkeypatch.setattr(exporting, "BATCH_WITH_ARGUMENTS", 1)
    for _ in range(3):
        make_job(queue="mail")
    response = admin_client.get(reverse("admin:pulse_django_job_export", args=["csv"]), {"queue": "mail"})
    lines = iter(response.streaming_content)  # type: ignore[attr-defined]  # it is streamed
    next(lines), next(lines)
    Job.objects.all().delete()
    assert list(lines) == []
