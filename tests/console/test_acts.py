"""The buttons of a job's page: who may press which, when, and what is told when the job has moved on."""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import translation

from pulse_django.models import Attempt, Job
from pulse_django.operations import acts
from pulse_django.operations.acts import Act
from pulse_django.queue.words.masks import Masks
from pulse_django.queue.words.states import Status
from tests.console.staff import page_of as page_of
from tests.console.staff import staff
from tests.factories import make_job, now
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.django_db

VALID: dict[str, dict[str, Any]] = {
    "retry": {"runs": 2, "reason": "the bank is back"},
    "run-now": {"reason": "a customer waits"},
    "postpone": {"delay": 3600, "reason": "after the backup"},
    "move": {"queue": "quick", "priority": 5, "reason": "a customer waits"},
    "cancel": {"reason": "not wanted"},
    "release": {"reason": "its host hangs"},
}
ACTS = [act for act in acts.ACTS.values() if act.label]
PERMISSIONS = ("pulse_retry_jobs", "pulse_cancel_jobs", "pulse_schedule_jobs")


def url_of(job: Job, act: str) -> str:
    return reverse("admin:pulse_django_job_act", args=[job.pk, act])


def press(client: Client, job: Job, act: str, **data: Any) -> Any:
    seen = {"attempts": job.attempts}  # on the page, when it was opened
    form = {f"{act}-{name}": value for name, value in (VALID[act] | seen | data).items()}
    return client.post(url_of(job, act), form, follow=True)


def job_for(act: Act) -> Job:
    return make_job(act.statuses[0], next_run_at=now(timedelta(days=1)))


def rows() -> list[dict[str, Any]]:
    return list(Job.objects.order_by("pk").values())


def test_every_act_is_tested_with_what_it_needs() -> None:
    assert set(VALID) == {act.name for act in ACTS}
    assert {act.permission for act in ACTS} == set(PERMISSIONS)


@each_of(*ACTS, around=undone)
def test_it_is_done_told_and_logged_with_who_and_why(*, act: Any) -> None:
    job = job_for(act)
    client = staff("pulse_view_jobs", act.permission)
    before = rows()
    page = press(client, job, act.name).content.decode()
    assert rows() != before
    assert str(act.done) in page
    entry = LogEntry.objects.get()
    assert (entry.user.username, entry.object_id) == ("operator", str(job.pk))
    for value in ({3600: "1 hour"}.get(value, value) for value in VALID[act.name].values()):
        assert str(value) in entry.change_message


@each_of(*ACTS, around=undone)
def test_without_its_permission_it_is_refused_and_not_offered(*, act: Any) -> None:
    job = job_for(act)
    others = [permission for permission in PERMISSIONS if permission != act.permission]
    client = staff("pulse_view_jobs", *others)
    before = rows()
    assert press(client, job, act.name).status_code == 403
    assert rows() == before
    assert url_of(job, act.name) not in client.get(page_of(job)).content.decode()
    assert not LogEntry.objects.exists()


@each_of(*ACTS, around=undone)
def test_who_may_not_see_jobs_may_not_touch_them(*, act: Any) -> None:
    job = job_for(act)
    before = rows()
    assert press(staff(act.permission), job, act.name).status_code == 403
    assert Client().post(url_of(job, act.name), VALID[act.name]).status_code == 302, "to the login"
    assert rows() == before


@each_of(*ACTS, around=undone)
def test_a_job_that_moved_on_is_left_alone_and_that_is_told(*, act: Any) -> None:
    """The page was opened before, and the button pressed now."""
    job = make_job(Status.COMPLETED)  # no act fits that
    before = rows()
    page = press(staff("pulse_view_jobs", act.permission), job, act.name).content.decode()
    assert "The job has changed in the meantime. Nothing was changed." in page
    assert rows() == before
    assert not LogEntry.objects.exists()


@each_of(*product(ACTS, ["", "x", "-1", "9" * 30, "another"]), around=undone)
def test_a_page_that_showed_another_attempt_changes_nothing(admin_client: Client, *, act: Any, seen: Any) -> None:
    """The status is the same again, and yet it is another run, or another death."""
    job = job_for(act)
    before = rows()
    page = press(admin_client, job, act.name, attempts=job.attempts + 1 if seen == "another" else seen).content.decode()
    assert "The job has changed in the meantime. Nothing was changed." in page
    assert rows() == before
    assert not LogEntry.objects.exists()


@each_of(*ACTS, around=undone)
def test_the_page_says_which_attempt_it_shows(admin_client: Client, *, act: Any) -> None:
    job = make_job(act.statuses[0], attempts=7)
    form = admin_client.get(page_of(job)).content.decode().split(f'action="{url_of(job, act.name)}"')[1]
    assert f'type="hidden" name="{act.name}-attempts" value="7"' in form.split("</form>")[0]


def test_a_run_that_another_worker_began_since_is_not_taken_from_it(admin_client: Client) -> None:
    job = make_job(Status.RUNNING)
    sql("UPDATE pulse_django_job SET attempts = 2, locked_by = 'host-2:boot:9', token = 99 WHERE id = %s", job.pk)
    press(admin_client, job, "release")
    job.refresh_from_db()
    assert (job.status, job.locked_by) == (Status.RUNNING, "host-2:boot:9")


@each_of(*Status, around=undone)
def test_the_buttons_fit_the_status(admin_client: Client, *, status: Any) -> None:
    job = make_job(status)
    page = admin_client.get(page_of(job)).content.decode()
    offered = {act.name for act in ACTS if f'action="{url_of(job, act.name)}"' in page}
    assert offered == {act.name for act in ACTS if status in act.statuses}


@each_of(
    ("retry", {"runs": 0}),
    ("retry", {"runs": "many"}),
    ("cancel", {"reason": ""}),
    ("cancel", {"reason": "x" * 501}),
    ("postpone", {"delay": 1}),
    ("move", {"queue": ""}),
    ("move", {"priority": 101}),
    ("move", {"queue": "a\u200bb"}),  # which nobody could see, nor type once more
    ("move", {"queue": "a\tb"}),
    around=undone,
)
def test_nonsense_is_refused_with_a_reason(admin_client: Client, *, act: Any, data: Any) -> None:
    job = job_for(acts.ACTS[act])
    before = rows()
    page = press(admin_client, job, act, **data).content.decode()
    assert 'class="error"' in page
    assert rows() == before


def test_a_job_is_moved_to_the_very_queue_that_was_typed(admin_client: Client) -> None:
    job = make_job(queue="mail ", next_run_at=now(timedelta(days=1)))
    press(admin_client, job, "move", queue="mail ", priority=5)
    job.refresh_from_db()
    assert (job.queue, job.priority) == ("mail ", 5)


def test_an_act_or_a_job_that_there_is_not(admin_client: Client) -> None:
    job = make_job()
    assert admin_client.post(url_of(job, "explode")).status_code == 404
    assert admin_client.post(reverse("admin:pulse_django_job_act", args=[10**12, "cancel"])).status_code == 404


def test_a_job_that_is_taken_from_its_worker_has_had_an_attempt(admin_client: Client) -> None:
    job = make_job(Status.RUNNING)
    press(admin_client, job, "release")
    job.refresh_from_db()
    assert (job.status, job.refunds) == (Status.RETRYING, 0)
    assert Attempt.objects.get().outcome == "WORKER_LOST"


def test_arguments_and_results_are_for_those_who_may_see_them() -> None:
    secrets = {
        "args": ["a secret"],
        "kwargs": {"iban": "another"},
        "result": "a third",
        "progress": {"saved": "a fourth"},
    }
    job = make_job(Status.COMPLETED, task="shop.echo", **secrets)
    words = ("a secret", "iban", "another", "a third", "a fourth")
    page = staff("pulse_view_jobs").get(page_of(job)).content.decode()
    assert not [word for word in words if word in page]
    User.objects.all().delete()
    page = staff("pulse_view_jobs", "pulse_view_arguments").get(page_of(job)).content.decode()
    assert [word for word in words if word in page] == list(words)


def test_what_a_task_masks_is_nobodys_business(admin_client: Client) -> None:
    job = make_job(Status.COMPLETED, task="shop.send_invoice", args=[17, "4111 1111"], kwargs={"card": "4222 2222"})
    page = admin_client.get(page_of(job)).content.decode()
    assert "17" in page
    assert "4111" not in page
    assert "4222" not in page


def test_what_a_task_masked_when_the_job_was_enqueued_stays_masked(admin_client: Client) -> None:
    """Its declaration was dropped, or names another parameter by now."""
    sensitive = Masks(positions=(0,), names=("value",), returned=True).text
    values = {"args": ["4111 1111"], "kwargs": {"value": "4222 2222"}, "result": "4333 3333"}
    job = make_job(Status.COMPLETED, task="shop.echo", sensitive=sensitive, **values)
    page = admin_client.get(page_of(job)).content.decode()
    assert "value = &quot;••••&quot;" in page
    assert not re.search("4111|4222|4333", page)


def test_of_an_unknown_task_nothing_is_shown_because_nobody_knows_what_it_masks(admin_client: Client) -> None:
    job = make_job(Status.COMPLETED, task="gone.away", args=["a secret"], result="another")
    page = admin_client.get(page_of(job)).content.decode()
    assert "the task is not registered in this process" in page
    assert "a secret" not in page
    assert "another" not in page


def test_hostile_reasons_are_text(admin_client: Client) -> None:
    job = make_job()
    page = press(admin_client, job, "cancel", reason="<img src=x onerror=alert(1)>\x00").content.decode()
    assert "<img src=x" not in page


def test_what_was_done_is_said_in_one_language() -> None:
    retry = acts.RetryForm({"runs": 2, "first": 3, "cancelled_too": "on", "reason": "x"})
    postpone = acts.PostponeForm({"delay": 3600, "reason": "x"})
    assert retry.is_valid()
    assert postpone.is_valid()
    assert retry.done_in_words(acts.ACTS["retry"].done) == (
        "Retried: minimum runs 2, Maximum jobs per minute 60, jobs to retry first 3, maximum minutes for these jobs 30"
        ", also if their workflow was cancelled, reason x"
    )
    assert postpone.done_in_words(acts.ACTS["postpone"].done) == "Postponed: by 1 hour, reason x"
    with translation.override("de"):
        said = postpone.done_in_words(acts.ACTS["postpone"].done)
    assert not set(said.replace(",", "").split()) & {"delay", "by", "hour", "reason", "3600"}
