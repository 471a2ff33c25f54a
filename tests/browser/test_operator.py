"""What an operator does, with real workers behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from pulse_django.models import Attempt, Job, Pause
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from tests.browser.conftest import PASSWORD, VIEWPORT, Visit
from tests.crash.workers import Workers, wait_until
from tests.factories import AttemptFactory, make_job
from tests.worker import handlers

SETTINGS = {"LEASE_TTL": 3, "HEARTBEAT_INTERVAL": 0.5}
SAFE = {"DJANGO_ALLOW_ASYNC_UNSAFE": ""}  # workers have no browser
DECLINED = "GatewayError: order {} was declined by the bank"


@pytest.fixture
def workers(site: str, pulse_db: None, tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path) as workers:
        yield workers


def status_of(job: Job) -> str:
    return Job.objects.values_list("status", flat=True).get(pk=job.pk)


def dead_letters(count: int) -> list[Job]:
    jobs = []
    for number in range(count):
        error = DECLINED.format(number)
        jobs.append(make_job(Status.DEAD_LETTERED, task="shop.send_invoice", args=[number], last_error=error))
        AttemptFactory(job=jobs[-1], number=10, outcome="FAILED", message=error, traceback="in charge()\n  raise")
    return jobs


def test_dead_letters_are_found_read_and_retried_until_they_complete(
    browser: Browser, site: str, workers: Workers
) -> None:
    jobs = dead_letters(3)
    other = make_job(Status.DEAD_LETTERED, last_error="KeyError: 'other'")
    context = browser.new_context(viewport=VIEWPORT, locale="en-US")  # type: ignore[arg-type]
    visit = Visit(context.new_page(), site)
    page = visit.go("index")
    page.get_by_label("Username").fill("operator")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Dead letters", exact=True).first.click()
    page.get_by_role("link", name=re.compile("GatewayError")).click()
    expect(page.get_by_text("in charge()").first).to_be_visible()
    page.get_by_role("button", name=re.compile("Retry all")).click()
    expect(page.get_by_text("Matching jobs that this action can change: 3.")).to_be_visible()
    page.get_by_role("button", name="Retry all that match").click()
    expect(page.get_by_text("3 retried")).to_be_visible()
    workers.ready(settings=SETTINGS, env=SAFE)
    wait_until(lambda: all(status_of(job) == Status.COMPLETED for job in jobs))
    visit.go("pulse_django_job_change", jobs[0].pk)
    expect(page.locator(".pulse-verdict")).to_contain_text("Completed")
    assert status_of(other) == Status.DEAD_LETTERED
    context.close()
    assert visit.troubles == []


def test_a_paused_queue_waits_and_a_resumed_one_goes_on(visit: Visit, workers: Workers) -> None:
    page = visit.go("pulse_django_queue_one", query="?name=default")
    page.get_by_label("reason").fill("the provider is down")
    page.get_by_label("for").select_option("1 hour")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused (1 hour): the provider is down")).to_be_visible()
    workers.ready(settings=SETTINGS, env=SAFE)
    tasks.send_mail.enqueue(17)
    tasks.send_mail.using(queue_name="other").enqueue(18)
    wait_until(lambda: Job.objects.get(queue="other").status == Status.COMPLETED)
    assert Job.objects.get(queue="default").status == Status.PENDING
    page = visit.go("pulse_django_board_changelist", query="?still")
    expect(page.get_by_role("row", name=re.compile("default"))).to_contain_text("Paused: the provider is down")
    page.get_by_role("table").get_by_role("link", name="default", exact=True).click()
    page.get_by_role("button", name="Resume").click()
    wait_until(lambda: Job.objects.get(queue="default").status == Status.COMPLETED)
    assert not Pause.objects.exists()


def test_a_running_job_is_cancelled_with_a_reason(visit: Visit, workers: Workers) -> None:
    workers.ready(settings=SETTINGS, env=SAFE)
    tasks.export_report.enqueue("2026-10")
    wait_until(lambda: Job.objects.filter(status=Status.RUNNING, progress__isnull=False).exists())
    job = Job.objects.get()
    page = visit.go("pulse_django_job_change", job.pk)
    expect(page.get_by_role("progressbar").first).to_be_visible()
    page.get_by_text("Cancel", exact=True).first.click()
    page.get_by_label("reason").locator("visible=true").fill("the wrong month")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("Cancelled, or asked to stop: reason the wrong month")).to_be_visible()
    wait_until(lambda: status_of(job) == Status.CANCELLED)
    page.reload()
    expect(page.locator(".pulse-verdict")).to_contain_text("Cancelled")
    expect(page.locator(".pulse-reason")).to_contain_text("the wrong month")


def test_a_zombies_late_verdict_is_seen(visit: Visit, workers: Workers) -> None:
    """A worker is frozen for longer than its lease, another one does the work, and then the first wakes up."""
    first = workers.ready(settings=SETTINGS, env=SAFE)
    handlers.naps.enqueue(1.5)
    job = Job.objects.get()
    wait_until(lambda: bool(workers.trace.of(job.pk, "begin")))  # with its lease alone it would be handed back
    first.freeze()
    workers.ready(settings=SETTINGS, env=SAFE)
    wait_until(lambda: status_of(job) == Status.COMPLETED)
    page = visit.go("pulse_django_job_change", job.pk)
    expect(page.get_by_role("row", name=re.compile("Worker lost"))).to_be_visible()
    first.thaw()
    wait_until(lambda: bool(Attempt.objects.get(number=1).late_outcome))
    page.reload()
    expect(page.get_by_text(re.compile("reported Succeeded too late"))).to_be_visible()
    page = visit.go("pulse_django_worker_changelist")
    page.get_by_role("row", name=re.compile(f"-{first.pid}")).get_by_role("link").first.click()
    expect(page.get_by_role("row", name=re.compile(str(job)))).to_contain_text("and was refused")
