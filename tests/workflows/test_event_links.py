"""Signed links: a page that sends an event once somebody confirms it, and what may not be done with it."""

from __future__ import annotations

import time
import types
from datetime import timedelta
from typing import Any

import pytest
from django.core import signing
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings
from django.urls import include, path

from pulse_django import event_link, send_event
from pulse_django.exceptions import InvalidJob, InvalidWorkflow
from pulse_django.models import Event, Job
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows import batches
from tests.faults import all_faults, each_of
from tests.undoing import undone
from tests.workflows.tasks import approved

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]

urlpatterns = [path("pulse/", include("pulse_django.urls"))]
YES = {"approved": True}


def link(payload: Any = YES, **options: Any) -> str:
    return event_link("approved:42", payload, **({"title": "Ship order 42?", "by": "ada@example.com"} | options))


def expired(monkeypatch: pytest.MonkeyPatch) -> str:
    made = link(expires_in=timedelta(hours=1))
    later = time.time() + 3_601
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    return made


def test_who_confirms_sends_the_event_and_the_waiting_job_goes_on(client: Client) -> None:
    job = approved.enqueue("approved:42")
    drain()
    assert Job.objects.get(pk=job.id).status == Status.WAITING
    page = client.get(link())
    assert page.status_code == 200
    assert "Ship order 42?" in page.content.decode()
    assert "ada@example.com" in page.content.decode()
    said = client.post(link()).content.decode()
    assert "Your answer is recorded." in said
    event = Event.objects.get()
    assert (event.name, event.payload, event.sent_by) == ("approved:42", YES, "ada@example.com")
    drain()
    assert Job.objects.get(pk=job.id).status == Status.COMPLETED


@each_of("get", "head", around=undone)
def test_a_program_that_opens_links_in_mail_sends_nothing(client: Client, *, method: Any) -> None:
    assert getattr(client, method)(link()).status_code == 200
    assert not Event.objects.exists()


def test_a_link_whose_database_is_gone_says_so_before_it_asks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "alias_of_jobs", lambda using: "jobs_9")
    made = link()
    monkeypatch.undo()
    for method in ("get", "head", "post"):
        answer = getattr(client, method)(made)
        assert answer.status_code == 410
    assert not Event.objects.exists()


def test_it_needs_no_login_where_all_other_pages_do(client: Client, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    assert client.get(link()).status_code == 200
    assert client.post(link()).status_code == 200
    assert Event.objects.exists()


def test_the_first_answer_counts(client: Client) -> None:
    yes, no = link(), link({"approved": False})
    client.post(no)
    assert "was answered before" in client.post(yes).content.decode()
    assert "was answered before" in client.post(no).content.decode()
    assert Event.objects.get().payload == {"approved": False}


def test_an_event_that_was_sent_elsewhere_counts_too(client: Client) -> None:
    send_event("approved:42", by="admin")
    assert "was answered before" in client.post(link()).content.decode()
    assert Event.objects.get().sent_by == "admin"


def test_an_expired_link_sends_nothing(client: Client) -> None:
    with all_faults() as about:
        for method in ["get", "post"]:
            with about(method), pytest.MonkeyPatch.context() as patch, undone():
                page = getattr(client, method)(expired(patch))
                assert page.status_code == 410
                assert "has expired" in page.content.decode()
                assert "<form" not in page.content.decode()
                assert not Event.objects.exists()


@each_of("get", "post", around=undone)
def test_a_link_that_was_changed_is_not_found(client: Client, *, method: Any) -> None:
    made = link()
    token = made.split("/")[-2]
    for other in (
        token[:-1] + ("A" if token[-1] != "A" else "B"),
        token.swapcase(),
        "x" * 5_000,
        "a:b:c",
        "%00",
    ):
        assert getattr(client, method)(made.replace(token, other)).status_code == 404
    assert not Event.objects.exists()


def test_a_link_of_another_use_of_the_key_is_not_found(client: Client) -> None:
    token = signing.dumps(["approved:42", None, "t", "by", "default", 60], salt="another")
    assert client.post(f"/pulse/event/{token}/").status_code == 404


def test_a_link_outlives_the_rotation_of_keys(client: Client) -> None:
    with override_settings(SECRET_KEY="old" * 20):
        made = link()
    assert client.get(made).status_code == 404
    with override_settings(SECRET_KEY="new" * 20, SECRET_KEY_FALLBACKS=["old" * 20]):
        assert client.get(made).status_code == 200


def test_other_sites_cannot_confirm_it() -> None:
    page = Client(enforce_csrf_checks=True).post(link())
    assert page.status_code == 403
    assert not Event.objects.exists()


def test_the_page_is_kept_by_nobody_and_shown_in_no_frame(client: Client) -> None:
    headers = client.get(link()).headers
    assert "no-store" in headers["Cache-Control"]
    assert (headers["X-Frame-Options"], headers["Referrer-Policy"]) == ("DENY", "same-origin")


def test_what_a_link_says_is_text(client: Client) -> None:
    page = client.get(link(title="<script>alert(1)</script>", by="<b>")).content.decode()
    assert "<script>" not in page
    assert "<b>" not in page


@each_of(
    ({"title": ""}, InvalidJob, "title"),
    ({"by": "b" * 151}, InvalidJob, "by"),
    ({"payload": {1, 2}}, InvalidJob, "payload"),
    ({"payload": {"note": "x" * 1_800}}, InvalidWorkflow, "send less"),
    ({"expires_in": timedelta()}, InvalidWorkflow, "expires_in"),
    around=undone,
)
def test_a_link_that_could_not_be_used_is_refused(*, options: Any, error: Any, says: Any) -> None:
    with pytest.raises(error, match=says):
        link(**options)


def test_a_project_without_the_page_is_told_what_to_add(settings: Any) -> None:
    settings.ROOT_URLCONF = types.ModuleType("urls_of_a_project")
    settings.ROOT_URLCONF.urlpatterns = []
    with pytest.raises(ImproperlyConfigured, match=r'include\("pulse_django.urls"\)'):
        link()
