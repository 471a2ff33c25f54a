"""Run a job again from one of its durable steps, and send an event that it waits for, on the page of the job."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from pulse_django.models import Event, Job, Step
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows import rewind
from pulse_django.workflows.needs import add_needs
from pulse_django.workflows.rules import Need
from tests.console.staff import staff
from tests.faults import each_of
from tests.queue.steps import sql
from tests.undoing import undone
from tests.workflows.tasks import BROKEN, approved, stepwise

pytestmark = pytest.mark.django_db

STEPS = ["first", "second"]


def url(view: str, job: Job, query: str = "") -> str:
    return reverse(f"admin:pulse_django_job_{view}", args=[job.pk]) + query


def done() -> Job:
    made = stepwise.enqueue("order")
    drain(failures="keep")
    return Job.objects.get(pk=made.id)


def dead() -> Job:
    """It did its first step, and then failed."""
    BROKEN.add("order")
    job = done()
    BROKEN.clear()
    assert (job.status, [one.name for one in steps_of(job)]) == (Status.DEAD_LETTERED, ["first"])
    return job


def steps_of(job: Job) -> list[Step]:
    return list(Step.objects.filter(job_id=job.pk).order_by("number"))


def post(client: Client, job: Job, way: str, *, step: str = "first", attempts: int | None = None) -> str:
    given = {"way": way, "attempts": job.attempts if attempts is None else attempts, "reason": "the rate was wrong"}
    answer = client.post(url("rewind", job, f"?step={step}"), given, follow=True)
    assert answer.status_code == 200
    return str(answer.content.decode())


def test_the_steps_of_a_job_lead_to_the_preview() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), done()
    page = client.get(url("change", job)).content.decode()
    assert f'{url("rewind", job)}?step=second"' in page
    preview = client.get(url("rewind", job, "?step=second")).content.decode()
    first, second = preview.index("<bdi>first</bdi>"), preview.index("<bdi>second</bdi>")
    assert "kept: its result is used" in preview[first:second]
    assert "runs again" in preview[second:]
    assert "Run a copy from here" in preview
    assert "Retry this job from here" not in preview, "it is no dead letter"
    assert [one.name for one in steps_of(job)] == STEPS, "nothing was done"


def test_a_dead_letter_is_retried_from_a_step() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), dead()
    assert "Retry this job from here" in client.get(url("rewind", job, "?step=first")).content.decode()
    assert "Retried from step first" in post(client, job, "retry")
    assert not steps_of(job)
    assert "the rate was wrong" in LogEntry.objects.get().change_message
    drain()
    job.refresh_from_db()
    assert (job.status, [one.name for one in steps_of(job)]) == (Status.COMPLETED, STEPS)


def test_a_copy_runs_from_a_step_and_the_job_stays_as_it_is() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), done()
    old = [one.at for one in steps_of(job)]
    page = post(client, job, "fork", step="second")
    copy = Job.objects.exclude(pk=job.pk).get()
    assert f"A copy runs from step second: job {copy.pk}" in page
    assert [one.name for one in steps_of(copy)] == ["first"]
    drain()
    assert [one.name for one in steps_of(copy)] == STEPS
    assert [one.at for one in steps_of(job)] == old


def test_what_an_old_page_showed_is_not_acted_on() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), dead()
    assert "has changed in the meantime" in post(client, job, "retry", attempts=job.attempts - 1)
    job.refresh_from_db()
    assert (job.status, len(steps_of(job))) == (Status.DEAD_LETTERED, 1)
    assert not LogEntry.objects.exists()


def test_a_job_that_is_no_dead_letter_is_not_retried() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), done()
    assert "Only a dead letter is retried" in post(client, job, "retry")
    assert [one.name for one in steps_of(job)] == STEPS


@each_of("retry", "fork", around=undone)
def test_nobody_rewinds_without_the_permission(*, way: Any) -> None:
    client, job = staff("pulse_view_jobs"), dead()
    assert "Run again from here" not in client.get(url("change", job)).content.decode()
    answer = client.post(url("rewind", job, "?step=first"), {"way": way, "attempts": job.attempts})
    assert answer.status_code == 403
    assert Job.objects.count() == 1
    assert len(steps_of(job)) == 1


@each_of("", "?step=third", "?step=%00", "?step=" + "x" * 5_000, around=undone)
def test_a_step_that_was_not_done_has_no_page(*, query: Any) -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), done()
    assert client.get(url("rewind", job, query)).status_code == 404


@each_of({}, {"way": "delete"}, {"way": "fork", "attempts": "x"}, around=undone)
def test_a_form_that_says_nothing_does_nothing(*, given: Any) -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), done()
    assert client.post(url("rewind", job, "?step=first"), given).status_code == 200
    assert Job.objects.count() == 1


def waiting() -> Job:
    made = approved.enqueue("approved:42")
    drain()
    job = Job.objects.get(pk=made.id)
    assert job.status == Status.WAITING
    return job


def test_an_event_that_a_job_waits_for_is_sent_from_its_page() -> None:
    client, job = staff("pulse_view_jobs", "pulse_schedule_jobs"), waiting()
    assert f'action="{url("event", job)}"' in client.get(url("change", job)).content.decode()
    page = client.post(url("event", job), {"event": "approved:42"}, follow=True).content.decode()
    assert "Event sent: approved:42" in page
    assert (Event.objects.get().payload, Event.objects.get().sent_by) == ({"by": "operator"}, "operator")
    assert "approved:42" in LogEntry.objects.get().change_message
    drain()
    job.refresh_from_db()
    assert job.status == Status.COMPLETED
    assert "has changed" in client.post(url("event", job), {"event": "approved:42"}, follow=True).content.decode()


def test_no_other_event_is_sent_from_the_page_of_a_job() -> None:
    client, job = staff("pulse_view_jobs", "pulse_schedule_jobs"), waiting()
    for event in ("approved:43", "", "x" * 5_000, "a\x00b"):
        assert "has changed" in client.post(url("event", job), {"event": event}, follow=True).content.decode()
    assert not Event.objects.exists()


def test_nobody_sends_events_without_the_permission() -> None:
    client, job = staff("pulse_view_jobs", "pulse_retry_jobs"), waiting()
    assert url("event", job) not in client.get(url("change", job)).content.decode()
    assert client.post(url("event", job), {"event": "approved:42"}).status_code == 403
    assert client.get(url("event", job)).status_code == 405
    assert not Event.objects.exists()


def test_an_awaited_job_is_no_event() -> None:
    client, job = staff("pulse_view_jobs", "pulse_schedule_jobs"), waiting()
    other = waiting_for_a_job(job)
    assert url("event", other) not in client.get(url("change", other)).content.decode()


def waiting_for_a_job(job: Job) -> Job:
    made = approved.enqueue("never")
    sql("UPDATE pulse_django_job SET status = 'WAITING' WHERE id = %s", int(made.id))
    add_needs(Job.objects, [(int(made.id), Need(job_id=job.pk))])
    return Job.objects.get(pk=made.id)


def test_a_copy_keeps_the_masks_of_its_job() -> None:
    made = stepwise.enqueue("order")
    drain()
    masks = '{"positions":[0]}'
    sql("UPDATE pulse_django_job SET sensitive = %s WHERE id = %s", masks, int(made.id))
    assert Job.objects.get(pk=rewind.fork(made.id, "first").job_id).sensitive == masks
