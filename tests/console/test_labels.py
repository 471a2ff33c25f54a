"""What the admin shows of tags, meta and expiry, how jobs are found by tag, and the jobs of an object."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.console.jobs import of_object, page_window
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from testproject.shop.models import Order
from tests.console.staff import page_of, text
from tests.database import empty_tables
from tests.factories import WorkerFactory, make_job, now
from tests.faults import each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

LIST = "admin:pulse_django_job_changelist"


def listed(client: Client, **query: str) -> set[int]:
    page = client.get(reverse(LIST), query)
    assert page.status_code == 200
    return {job.pk for job in page.context["cl"].result_list}


class TestThePageOfAJob:
    def test_it_shows_tags_as_links_meta_and_until_when_it_may_start(self, admin_client: Client) -> None:
        job = make_job(
            tags=["billing", "shop.order:7"],
            meta={"request": "<b>9</b>"},
            expires_at=now(timedelta(days=2)),
            give_up_after=timedelta(hours=3),
        )
        page = admin_client.get(page_of(job)).content.decode()
        assert f'<a href="{reverse(LIST)}?tag=billing">billing</a>' in page
        assert "?tag=shop.order%3A7" in page
        assert "&quot;request&quot;: &quot;&lt;b&gt;9&lt;/b&gt;&quot;" in page
        assert "3:00:00" in page
        assert job.expires_at.strftime("%Y") in page

    def test_an_expired_job_says_why_it_was_cancelled(self, admin_client: Client) -> None:
        job = make_job(expires_at=now(-timedelta(seconds=1)))
        Job.objects.expire()
        assert "not started in time" in admin_client.get(page_of(job)).content.decode()


class TestTheList:
    def test_jobs_are_found_by_tag_whether_they_are_over_or_not(self, admin_client: Client) -> None:
        WorkerFactory(tasks=["mail.send"])
        one, over = make_job(tags=["a", "b"], task="mail.send"), make_job(Status.COMPLETED, tags=["a"])
        make_job(tags=["ab"]), make_job()
        assert listed(admin_client, tag="a") == listed(admin_client, q="tag:a") == {one.pk, over.pk}
        assert listed(admin_client, q="tag:a tag:b") == {one.pk}
        assert listed(admin_client, q="mail tag:a") == {one.pk}
        assert listed(admin_client, q=" ".join(f"tag:{number}" for number in range(21))) == set()
        assert listed(admin_client, q="tag:a", status__exact="COMPLETED") == {over.pk}
        assert listed(admin_client, q="tag:nobody") == set()

    @each_of("a b", "x" * 300, "nul\0")
    def test_what_can_be_no_tag_finds_nothing_and_breaks_nothing(self, admin_client: Client, *, text: Any) -> None:
        empty_tables()
        job = make_job(tags=["a"])
        assert listed(admin_client, tag=text) == {job.pk}  # as with every filter that says nothing
        assert listed(admin_client, q=f'"tag:{text}"') in (set(), {job.pk})

    def test_many_jobs_of_one_tag_are_looked_at_window_by_window(
        self, admin_client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(page_window, "FEW", 2)
        monkeypatch.setattr(page_window, "WINDOW", 3)
        jobs = [make_job(tags=["a"]) for _ in range(5)]
        assert listed(admin_client, tag="a") == {job.pk for job in jobs[2:]}


class TestCommands:
    def test_jobs_are_cancelled_by_tag(self) -> None:
        one, other = make_job(tags=["a", "b"]), make_job(tags=["a"])
        call_command("pulse_cancel", "--tag", "a", "--tag", "b", "--yes", stdout=io.StringIO())
        assert Job.objects.get(pk=one.pk).status == Status.CANCELLED
        assert Job.objects.get(pk=other.pk).status == Status.PENDING

    def test_the_status_counts_by_tag(self) -> None:
        make_job(tags=["a"]), make_job()
        said = io.StringIO()
        call_command("pulse_status", "--tag", "a", "--json", stdout=said)
        assert [kind["jobs"] for kind in json.loads(said.getvalue())["kinds"]] == [1]

    def test_what_can_be_no_tag_is_refused(self) -> None:
        with pytest.raises(CommandError, match="contains spaces"):
            call_command("pulse_cancel", "--tag", "a b")


class TestTheJobsOfAnObject:
    @pytest.fixture
    def order(self, db: Any) -> Order:
        return Order.objects.create(number=1)

    def page(self, client: Client, order: Order) -> str:
        return text(client, reverse("admin:shop_order_change", args=[order.pk]))

    def test_its_page_links_the_latest_and_the_list_of_all(
        self, admin_client: Client, order: Order, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(of_object.JobsOfObject, "most_jobs", 2)
        tag = f"shop.order:{order.pk}"
        jobs = [make_job(tags=[tag]) for _ in range(2)] + [make_job(Status.COMPLETED, tags=["x", tag])]
        other = make_job(tags=[f"{tag}0"])
        page = self.page(admin_client, order)
        assert [f">#{job.pk}<" in page for job in (*jobs, other)] == [False, True, True, False]
        assert f"{reverse(LIST)}?tag=shop.order%3A{order.pk}" in page

    def test_an_object_without_jobs_says_so_and_a_new_one_shows_nothing(
        self, admin_client: Client, order: Order
    ) -> None:
        assert "jobs_of_object" in self.page(admin_client, order).replace("-", "_")
        assert admin_client.get(reverse("admin:shop_order_add")).status_code == 200

    def test_who_may_not_see_jobs_sees_none(self, client: Client, order: Order) -> None:
        job = make_job(tags=[f"shop.order:{order.pk}"])
        clerk = User.objects.create_user("clerk", is_staff=True)
        clerk.user_permissions.add(Permission.objects.get(codename="change_order"))
        client.force_login(clerk)
        assert f"#{job.pk}" not in self.page(client, order)

    def test_it_takes_two_queries_and_with_very_many_jobs_it_looks_at_the_latest_of_all(
        self, order: Order, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        jobs = [make_job(tags=[f"shop.order:{order.pk}"]) for _ in range(5)]
        with CaptureQueriesContext(connection) as queries:
            assert [job.pk for job in of_object.latest_jobs_of(order, 2, "default")] == [jobs[4].pk, jobs[3].pk]
        assert len(queries) == 2
        monkeypatch.setattr(page_window, "FEW", 2)
        monkeypatch.setattr(page_window, "WINDOW", 3)
        assert [job.pk for job in of_object.latest_jobs_of(order, 10, "default")] == [job.pk for job in jobs[:1:-1]]
