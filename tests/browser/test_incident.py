"""A bad day at the console: six misfortunes at once, each found in three clicks and remedied in five.

After every step each outlet is asked, and all say the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.browser import incident
from tests.browser.clicks import TO_THE_CAUSE, TO_THE_REMEDY, Walk
from tests.browser.conftest import Visit
from tests.crash.workers import Workers, wait_until
from tests.health.outlets import OURS, alerted, by_metrics, expect_all_to_say

pytestmark = pytest.mark.usefixtures("vacuumed")

WEB_1 = ("web-1", "default", "mail", "reports", "slow")


@pytest.fixture
def workers(site: str, pulse_db: None, tmp_path: Path) -> Iterator[Workers]:
    with Workers(tmp_path) as workers:
        yield workers


@pytest.fixture
def walk(visit: Visit, settings: Any) -> Walk:
    settings.PULSE = incident.SETTINGS
    return Walk(visit)


def expect_everywhere(names: set[str], walk: Walk) -> None:
    """Expect the same of each outlet: the board in the browser, commands, probe, doctor, metrics and alerts."""
    incident.forget_what_was_asked()
    assert alerted() == {name for name in names if OURS[name].severity.is_problem}, "what pages"
    assert by_metrics() == names
    expect_all_to_say(names)
    assert walk.begin() == names


def status_of(job: Job) -> str:
    return Job.objects.values_list("status", flat=True).get(pk=job.pk)


def test_each_part_of_an_incident_is_found_and_remedied(walk: Walk, workers: Workers) -> None:
    incident.smtp_goes_down()
    held = incident.a_host_freezes(workers)
    worker = incident.start(workers, *WEB_1)
    lost = incident.its_worker_is_noticed_as_lost()
    wait_until(lambda: status_of(held) == Status.COMPLETED)  # before another job kills its process
    poison = incident.a_job_kills_its_workers()
    hanging = incident.a_handler_hangs()
    incident.a_queue_is_paused_and_forgotten()
    unserved = incident.a_queue_has_no_worker()

    wrong = set(incident.ALL)
    expect_everywhere(wrong, walk)
    retry_the_mails(walk)
    expect_everywhere(wrong := wrong - incident.OF_MAIL, walk)
    delete_the_poison(walk, poison)
    expect_everywhere(wrong, walk)
    cancel_what_hangs(walk, hanging)
    incident.restart(worker, workers, *WEB_1)
    expect_everywhere(wrong := wrong - {"slots-stuck"}, walk)
    resume_what_is_paused(walk)
    expect_everywhere(wrong := wrong - {"paused-backlog"}, walk)
    acknowledge_the_lost(walk, lost.name, held)
    expect_everywhere(wrong := wrong - {"worker-lost"}, walk)
    find_what_to_start(walk)
    incident.start(workers, "web-3", "exports")
    wait_until(lambda: status_of(unserved) == Status.COMPLETED)
    assert wrong == {"queue-without-worker"}
    expect_everywhere(set(), walk)
    expect(walk.page.locator("#pulse-verdict")).to_have_text("No problems")


def retry_the_mails(walk: Walk) -> None:
    """The queue of mails: one error, three hundred times."""
    page = walk.page
    expect(walk.alarm("dead-letters")).to_contain_text(f"{incident.MAILS} dead letters in the last hour")
    walk.click(walk.alarm("dead-letters").get_by_role("link", name="Show the cause"))
    walk.click(page.get_by_role("link", name=re.compile("ConnectionRefusedError")))
    walk.sees_the_cause(page.get_by_text("in send_mail"), page.locator(".pulse-fingerprint"))
    walk.click(page.get_by_role("button", name=re.compile("Retry all")))
    walk.click(page.get_by_role("button", name="Retry all that match"))
    mails = Job.objects.filter(task="shop.send_mail")
    wait_until(lambda: mails.filter(status=Status.COMPLETED).count() == incident.MAILS)
    incident.later(10)  # failures count for a quarter of an hour


def delete_the_poison(walk: Walk, poison: Job) -> None:
    """One job that killed its worker each time. It is too few to be an alarm."""
    page = walk.page
    walk.click(page.locator("#content").get_by_role("link", name="Dead letters", exact=True))
    walk.click(page.get_by_role("link", name=re.compile("lost 2 workers")))
    walk.sees_the_cause(
        page.get_by_text("killed by SIGKILL").first, page.get_by_role("link", name=str(poison.pk)).first
    )
    walk.click(page.get_by_role("button", name="Delete all of this error"))
    page.get_by_label("Reason").fill("it kills its workers")
    page.get_by_label("Delete them permanently").check()
    walk.click(page.get_by_role("button", name="Delete all that match"))
    expect(page.get_by_text("1 deleted")).to_be_visible()
    assert not Job.objects.filter(pk=poison.pk).exists()


def cancel_what_hangs(walk: Walk, hanging: Job) -> None:
    """A handler that went on after its time limit: the stack says where it is."""
    page = walk.page
    incident.is_put_back_for_a_while(hanging)
    walk.click(walk.alarm("slots-stuck").get_by_role("link").first)
    walk.click(page.locator("#result_list .field-name").get_by_role("link").first)
    walk.click(page.get_by_role("link", name=f"{hanging.pk} {hanging.task}"))
    walk.sees_the_cause(page.get_by_text("in hangs").first)
    walk.click(page.get_by_text("Cancel", exact=True).first)
    page.get_by_role("textbox", name="reason").fill("it hangs")
    walk.click(page.get_by_role("button", name="Cancel"))
    expect(page.locator(".pulse-verdict")).to_contain_text("Cancelled")
    assert status_of(hanging) == Status.CANCELLED


def resume_what_is_paused(walk: Walk) -> None:
    page = walk.page
    walk.click(walk.alarm("paused-backlog").get_by_role("link", name="reports"))
    walk.sees_the_cause(page.get_by_text(incident.WHY_PAUSED))
    walk.click(page.get_by_role("button", name="Resume"))
    expect(page.get_by_text("Not paused")).to_be_visible()
    wait_until(lambda: not Job.objects.filter(queue="reports").exclude(status=Status.COMPLETED).exists())


def acknowledge_the_lost(walk: Walk, name: str, held: Job) -> None:
    """A worker that did not say goodbye: its page says what it held, and what became of it."""
    page = walk.page
    walk.click(walk.alarm("worker-lost").get_by_role("link").first)
    walk.click(page.locator("#result_list").get_by_role("link", name=name))
    run = page.get_by_role("row", name=re.compile(str(held)))
    walk.sees_the_cause(page.get_by_text("This worker is lost"), run)
    expect(run).to_contain_text("Completed")
    walk.click(page.get_by_role("button", name="Acknowledge"))
    expect(page.get_by_text("Acknowledged.")).to_be_visible()


def find_what_to_start(walk: Walk) -> None:
    page = walk.page
    walk.click(walk.alarm("queue-without-worker").get_by_role("link", name="exports"))
    walk.sees_the_cause(page.get_by_text("No live worker serves this queue."))
    expect(page.get_by_text("pulse_worker --queues=exports")).to_be_visible()


def test_a_click_too_many_is_noticed(walk: Walk) -> None:
    """The test above trusts the count."""
    walk.begin()
    heading = walk.page.locator("#pulse-verdict")
    for _ in range(TO_THE_CAUSE + 1):
        walk.click(heading)
    with pytest.raises(AssertionError, match="the cause took 4 clicks"):
        walk.sees_the_cause(heading)
    walk.click(heading)
    assert walk.clicks == TO_THE_REMEDY
    with pytest.raises(AssertionError, match="more than 5 clicks"):
        walk.click(heading)
