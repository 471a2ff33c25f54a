"""The form that changes the arguments of a waiting job, and the list of the old ones."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django import Unique, api, task
from pulse_django.amendments import amending as execution
from pulse_django.amendments import page as amending
from pulse_django.models import Amendment, Job
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.console.test_acts import page_of
from tests.factories import make_job
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db

MAY = ("pulse_view_jobs", "pulse_view_arguments", "pulse_amend_jobs")


@task(name="amending.order")
def order(number: int, note: str = "") -> None: ...


@task(name="amending.unique", unique=Unique())
def unique(number: int) -> None: ...


@task(name="amending.masked", sensitive=("card",))
def sensitive(card: str, note: str = "") -> None: ...


def url_of(job: Job) -> str:
    return reverse("admin:pulse_django_job_amend", args=[job.pk])


def form_of(client: Client, job: Job, **changes: Any) -> dict[str, Any]:
    """Open the page, and fill in its form."""
    page = client.get(url_of(job)).content.decode()
    hidden = dict(re.findall(r'<input type="hidden" name="(attempts|seen)" value="(\w+)"', page))
    assert hidden.keys() == {"attempts", "seen"}
    return hidden | {"args": "[2]", "kwargs": "{}", "reason": "the customer called"} | changes


def waiting(**fields: Any) -> Job:
    job: Job = make_job(**{"task": order.registered_name, "args": [1], "kwargs": {"note": "a"}} | fields)
    return job


def test_it_is_done_and_logged_with_who_and_why() -> None:
    client, job = staff(*MAY), waiting()
    assert url_of(job) in client.get(page_of(job)).content.decode()
    page = client.post(url_of(job), form_of(client, job), follow=True).content.decode()
    assert "Amended the arguments" in page
    assert "the customer called" in page, "in the list of amendments"
    assert "note = &quot;a&quot;" in page, "the old arguments are listed"
    assert "arguments amended after" in page, "the timeline shows it"
    assert "by operator" in page
    job.refresh_from_db()
    assert (job.args, job.kwargs) == ([2], {})
    assert Amendment.objects.get().by == "operator"
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id) == ("operator", str(job.pk))
    assert entry.change_message == "Amended the arguments: the customer called"


def test_a_preview_changes_nothing() -> None:
    client, job = staff(*MAY), waiting()
    page = client.post(url_of(job), form_of(client, job, args='[{"a":1}]', preview="1")).content.decode()
    assert "Preview" in page
    assert "&quot;a&quot;: 1" in page
    job.refresh_from_db()
    assert job.args == [1]
    assert not LogEntry.objects.exists()


@each_of(
    ({"args": "[1"}, "Enter a JSON list"),
    ({"args": "[" * 100_000}, "Enter a JSON list"),
    ({"args": "{}"}, "Enter a JSON list"),
    ({"args": ""}, "Enter a JSON list"),
    ({"kwargs": "[]"}, "Enter a JSON object"),
    ({"args": "[]"}, "missing a required argument"),
    ({"kwargs": '{"color":1}'}, "unexpected keyword argument"),
    ({"args": "[NaN]"}, "JSON cannot hold this value"),
)
def test_what_is_wrong_is_shown_beside_what_was_typed(*, given: Any, says: Any) -> None:
    with undone():
        client, job = staff(*MAY), waiting()
        response = client.post(url_of(job), form_of(client, job, **given))
        page = response.content.decode()
        assert response.status_code == 200
        assert says in page or says in page.replace("Enter a valid JSON.", "Enter a JSON list")
        assert "the customer called" in page, "nothing that was typed is lost"
        job.refresh_from_db()
        assert job.args == [1]
        assert not LogEntry.objects.exists()


def test_a_job_that_was_claimed_meanwhile_is_left_alone() -> None:
    client, job = staff(*MAY), waiting()
    form = form_of(client, job)
    running = make_job(Status.RUNNING)
    fields = ("status", "attempts", "locked_by", "lease_until", "token", "started_at")
    Job.objects.filter(pk=job.pk).update(**{name: getattr(running, name) for name in fields})
    page = client.post(url_of(job), form, follow=True).content.decode()
    assert "Only a waiting job can be amended" in page
    Job.objects.filter(pk=job.pk).update(
        status=Status.RETRYING, locked_by=None, lease_until=None, token=None, deadline=None
    )
    page = client.post(url_of(job), form, follow=True).content.decode()
    assert "The job has changed in the meantime" in page, "it has had an attempt since"
    job.refresh_from_db()
    assert job.args == [1]
    assert not LogEntry.objects.exists()


def test_a_job_that_is_claimed_while_the_form_is_read_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    client, job = staff(*MAY), waiting()
    form, real = form_of(client, job), execution.amend

    def claimed_first(*args: Any, **options: Any) -> Any:
        running = make_job(Status.RUNNING)
        fields = ("status", "attempts", "locked_by", "lease_until", "token", "started_at")
        Job.objects.filter(pk=job.pk).update(**{name: getattr(running, name) for name in fields})
        return real(*args, **options)

    monkeypatch.setattr(execution, "amend", claimed_first)
    page = client.post(url_of(job), form, follow=True).content.decode()
    assert "A worker has claimed the job in the meantime" in page


def test_another_amendment_meanwhile_is_not_overwritten() -> None:
    client, job = staff(*MAY), waiting()
    form = form_of(client, job)
    assert api.amend(job.pk, args=[7])
    assert "The job has changed in the meantime" in client.post(url_of(job), form, follow=True).content.decode()
    job.refresh_from_db()
    assert job.args == [7]


def test_a_unique_key_of_another_job_is_named() -> None:
    client, job, other = staff(*MAY), unique.enqueue(1), unique.enqueue(2)
    row = Job.objects.get(pk=job.id)
    page = client.post(url_of(row), form_of(client, row), follow=True).content.decode()
    assert f"Job {other.id} has the unique key of these arguments" in page


@each_of(*MAY)
def test_without_a_permission_there_is_no_form(*, missing: Any) -> None:
    with undone():
        client, job = staff(*(one for one in MAY if one != missing)), waiting()
        api.amend(job.pk, args=["old"])
        assert client.get(url_of(job)).status_code == 403
        assert client.post(url_of(job), {"args": "[9]"}).status_code == 403
        if missing != "pulse_view_jobs":
            page = client.get(page_of(job)).content.decode()
            assert url_of(job) not in page
            assert ("<pre>1" in page) is (missing != "pulse_view_arguments"), "old arguments are arguments"


@each_of(True, False)
def test_only_what_the_page_shows_of_old_arguments_is_read(*, may_see: Any) -> None:
    with undone():
        job = waiting(args=["x" * 30_000])
        assert api.amend(job.pk, args=[4711])
        assert api.amend(job.pk, args=[2])
        client = staff(*MAY) if may_see else staff("pulse_view_jobs")
        with CaptureQueriesContext(connection) as queries:
            page = client.get(page_of(job)).content.decode()
        assert ("too long: 30" in page) is may_see
        assert ("<pre>4711" in page) is may_see
        read = [one["sql"] for one in queries if '"pulse_django_amendment"."kwargs",' in one["sql"]]
        short = Amendment.objects.latest("id").pk
        assert [f"IN ({short})" in sql for sql in read] == [True] * may_see, "the long one is not read"


def test_what_is_masked_is_neither_offered_nor_listed() -> None:
    client, job = staff(*MAY), waiting(task=sensitive.registered_name, args=["4711"], kwargs={})
    assert api.amend(job.pk, args=["4712"])
    page = client.get(page_of(job)).content.decode()
    assert url_of(job) not in page
    assert "4711" not in page
    assert client.get(url_of(job)).status_code == 403


def test_a_job_that_does_not_wait_and_a_task_that_is_gone_say_so() -> None:
    client = staff(*MAY)
    for job, says in (
        (make_job(Status.COMPLETED, task=order.registered_name), "Only a waiting job"),
        (make_job(task="gone"), "does not have the task"),
    ):
        assert url_of(job) not in client.get(page_of(job)).content.decode()
        assert says in client.get(url_of(job), follow=True).content.decode()


def test_what_cannot_be_read_or_is_missing_is_an_error_of_the_form() -> None:
    client, job = staff(*MAY), waiting()
    for args in ("[" + "9" * 5_000 + "]", '["\\ud800"]', "[" * 100_000):
        for button in ({}, {"preview": "1"}):
            response = client.post(url_of(job), form_of(client, job, args=args, **button))
            assert response.status_code == 200
            assert "Enter a JSON list." in response.content.decode()
    for name in ("attempts", "seen"):
        given = form_of(client, job)
        del given[name]
        page = client.post(url_of(job), given).content.decode()
        assert f"(Hidden field {name}) This field is required." in page
    job.refresh_from_db()
    assert job.args == [1]


def test_an_amendment_that_came_between_is_not_overwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    client, job = staff(*MAY), waiting()
    given = form_of(client, job)
    read = amending.read_for_amending

    def read_and_lose(*args: Any) -> Any:
        found = read(*args)
        assert api.amend(job.pk, args=[7], by="grace")
        return found

    monkeypatch.setattr(amending, "read_for_amending", read_and_lose)
    page = client.post(url_of(job), given, follow=True).content.decode()
    assert "The job has changed in the meantime" in page
    job.refresh_from_db()
    assert job.args == [7]
