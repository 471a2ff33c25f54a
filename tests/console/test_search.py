"""The search of the list of jobs: what each kind finds, what it says of it, and who may search arguments."""

from __future__ import annotations

import html
from types import ModuleType
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.console.jobs import page_window
from pulse_django.console.mass.criteria import Criteria, InvalidCriteria
from pulse_django.console.search_terms import Search, search_in
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.console.test_job_list import found, link, newest_first, page_at
from tests.encryption.test_encryption import tasks as encrypted_tasks
from tests.encryption.test_searched_tasks import ship
from tests.factories import WorkerFactory, make_job
from tests.faults import each_of
from tests.queue.steps import sql

__all__ = ["encrypted_tasks"]

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_job_changelist")


def job_of(result: Any) -> Job:
    return Job.objects.get(pk=result.id)


@each_of(
    ("4711", Search(job_id=4711, number="4711")),
    (" #4711 ", Search(job_id=4711)),
    ("order_id:4711", Search(arguments=(("order_id", "4711"),))),
    ('email:"a b"', Search(arguments=(("email", "a b"),))),
    ("email:a:b", Search(arguments=(("email", "a:b"),))),
    ("parent:17 parent:#18", Search(parents=(17, 18))),
    ("parent:x", Search(parents=(0,))),
    ('error:"connection refused" tag:a', Search(errors=("connection refused",), tags=("a",))),
    ("task:mail", Search(tasks=("mail",))),
    ('"order_id:4711" x', Search(words=("order_id:4711", "x"))),
    ("ValueError: no", Search(words=("ValueError:", "no"))),
    ("\"\" ''", Search()),
)
def test_what_is_typed_means(*, text: Any, meant: Any) -> None:
    assert search_in(text) == meant


class TestArguments:
    def test_by_name_and_value_whatever_became_of_the_job(self, admin_client: Client) -> None:
        one, other = job_of(ship.enqueue(4711, "a b")), job_of(ship.enqueue(4712))
        over = make_job(Status.COMPLETED, task="search.ship", search_terms=["order_id:4711"])
        make_job(kwargs={"order_id": 4711})
        assert found(admin_client, q="order_id:4711") == newest_first(one, over)
        assert found(admin_client, q='order_id:4711 email:"a b"') == [one.pk]
        assert found(admin_client, q="order_id:4712", status__exact="PENDING") == [other.pk]
        assert found(admin_client, q="order_id:471") == []
        assert found(admin_client, q="note:x") == []

    def test_of_an_encrypted_job(self, admin_client: Client, encrypted_tasks: ModuleType) -> None:
        job = job_of(encrypted_tasks.found.enqueue("a@b.example"))
        assert found(admin_client, q="email:a@b.example") == [job.pk]

    def test_a_number_is_the_job_and_the_argument_and_the_page_says_which(self, admin_client: Client) -> None:
        job = make_job()
        hit, other = job_of(ship.enqueue(job.pk)), job_of(ship.enqueue(987_654_321))
        assert found(admin_client, q=str(job.pk)) == newest_first(job, hit)
        assert found(admin_client, q=f"#{job.pk}") == [job.pk]
        page = page_at(admin_client, q=str(job.pk))
        assert f"There is a job {job.pk}." in page
        assert f"All other jobs have the value {job.pk} as one of these arguments: email, order_id." in page
        assert found(admin_client, q="987654321") == [other.pk]
        assert "There is no job 987654321." in page_at(admin_client, q="987654321")

    def test_a_common_value_is_looked_for_in_windows(self, admin_client: Client, monkeypatch: Any) -> None:
        monkeypatch.setattr(page_window, "FEW", 2)
        monkeypatch.setattr(page_window, "WINDOW", 2)
        jobs = [job_of(ship.enqueue(7)) for _ in range(4)]
        assert found(admin_client, q="order_id:7") == newest_first(*jobs[2:])


class TestWhoMay:
    def test_without_the_permission_arguments_are_no_oracle(self) -> None:
        for order in (4711, 987_654_321):
            ship.enqueue(order)
        client = staff("pulse_view_jobs", "pulse_cancel_jobs")
        for text in ("order_id:4711", "order_id:4712"):
            page = page_at(client, q=text)
            assert "field-id" not in page, text
            assert "You need the permission to see arguments to search them." in page
            assert "mass/" not in page, "nor is the count of an operation"
            response = client.get(reverse("admin:pulse_django_job_mass", args=["cancel"]), {"q": text})
            assert response.status_code == 302
        page = page_at(client, q="987654321")
        assert "field-id" not in page, "a number is a job"
        assert "Arguments were not searched: you need the permission to see them." in page

    def test_with_it_all_that_match_can_be_meant_but_by_one_meaning_of_a_number(self, admin_client: Client) -> None:
        job, _ = job_of(ship.enqueue(4711)), ship.enqueue(4712)
        assert "mass/cancel/" in page_at(admin_client, q="order_id:4711")
        assert [one.pk for one in Criteria.read("q=order_id:4711").jobs("default")] == [job.pk]
        assert "mass/" not in page_at(admin_client, q="4711")
        with pytest.raises(InvalidCriteria, match="Type # before the number"):
            Criteria.read("q=4711")


class TestRelationsAndErrors:
    def test_by_parent(self, admin_client: Client) -> None:
        parent = make_job()
        children = [make_job(parent=parent), make_job(Status.COMPLETED, parent=parent)]
        make_job()
        assert found(admin_client, q=f"parent:{parent.pk}") == newest_first(*children)
        assert found(admin_client, q="parent:x") == []

    def test_by_error_whatever_became_of_the_job(self, admin_client: Client) -> None:
        jobs = [
            make_job(status, last_error="OSError: Connection refused by 10.0.0.1")
            for status in (Status.RETRYING, Status.DEAD_LETTERED, Status.COMPLETED)
        ]
        make_job(Status.DEAD_LETTERED, last_error="ValueError: refused"), make_job(task="connection refused")
        assert found(admin_client, q='error:"connection refused"') == newest_first(*jobs)
        assert found(admin_client, q="error:connection error:10.0") == newest_first(*jobs)
        assert found(admin_client, q="error:nothing") == []


class TestWords:
    def test_in_no_name_of_a_task_they_are_answered_by_the_index_of_errors_at_once(
        self, admin_client: Client, monkeypatch: Any
    ) -> None:
        monkeypatch.setattr(page_window, "WINDOW", 2)
        old = make_job(Status.DEAD_LETTERED, last_error="the QUUX is gone")
        for _ in range(10):
            make_job()
        page = page_at(admin_client, q="quux")
        assert [one.pk for one in admin_client.get(LIST, {"q": "quux"}).context["cl"].result_list] == [old.pk]
        assert "No known task has “quux” in its name" in html.unescape(page)
        assert "Search older jobs" not in page
        assert "No matching jobs." in page_at(admin_client, q="quuux quuuy")

    def test_many_errors_are_looked_at_in_windows_of_those_alone(self, admin_client: Client, monkeypatch: Any) -> None:
        monkeypatch.setattr(page_window, "FEW", 1)
        monkeypatch.setattr(page_window, "WINDOW_OF_ERRORS", 2)
        old = make_job(Status.DEAD_LETTERED, last_error="the quux is gone")
        for _ in range(3):
            make_job(), make_job(Status.DEAD_LETTERED, last_error="other")
        page = page_at(admin_client, q="quux")
        assert "Search older jobs" in page
        address = link(page, "next")
        assert found(admin_client, q="quux") == []
        response = admin_client.get(address)
        assert [one.pk for one in response.context["cl"].result_list] == [old.pk]

    def test_in_a_name_of_a_task_the_page_says_which(self, admin_client: Client) -> None:
        WorkerFactory(tasks=["shop.send_quux"])
        job, unknown = make_job(task="shop.send_quux"), make_job(task="gone.long_ago")
        assert found(admin_client, q="Quux") == [job.pk]
        assert "Tasks with “Quux” in their names: shop.send_quux." in html.unescape(page_at(admin_client, q="Quux"))
        assert found(admin_client, q="task:LONG_ago") == [unknown.pk], "though nobody knows it"
        assert "task:long_ago" in page_at(admin_client, q="long_ago")

    def test_what_was_typed_is_shown_inert(self, admin_client: Client) -> None:
        page = page_at(admin_client, q="<b>\u202e")
        assert "\u202e" not in page.partition('role="note"')[2].partition("</p>")[0]


def test_a_new_day_has_the_indexes() -> None:
    assert sql("SELECT pulse_django_make_day(20200101, 0)") == [(True,)]
    found = dict(sql("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'pulse_django_job_20200101'"))
    assert "last_error <> ''::text" in found["pulse_django_job_20200101_errors"]
    assert "gin (search_terms)" in found["pulse_django_job_20200101_search"]
