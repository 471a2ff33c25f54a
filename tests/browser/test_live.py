"""Pages renew themselves in a browser: only what changed, and not while they are hidden."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page, expect

from pulse_django.models import Job, Pause
from pulse_django.queue.words.states import Status
from tests.browser.conftest import VIEWPORT, Visit, logged_in
from tests.factories import make_job, now

SOON = 20_000  # milliseconds; it asks each five seconds


@pytest.fixture
def page(visit: Visit) -> Page:
    return visit.page


def test_the_board_shows_what_is_new_and_keeps_focus_and_what_was_opened(page: Page, site: str) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(hours=-1)))
    page.goto(f"{site}{reverse('admin:pulse_django_board_changelist')}")
    page.evaluate("window.isTheSamePage = true")
    page.get_by_text("Meaning and advice").first.click()
    page.get_by_role("link", name="Stop refreshing").focus()
    make_job(queue="late-comer")
    expect(page.get_by_role("link", name="late-comer")).to_be_visible(timeout=SOON)
    assert page.evaluate("window.isTheSamePage")
    assert page.evaluate("document.activeElement.textContent") == "Stop refreshing"
    expect(page.get_by_text("No live worker serves the queue").first).to_be_visible()
    Pause.objects.pause(queue="mail", reason="the provider is down")
    expect(page.get_by_text("the provider is down").first).to_be_visible(timeout=SOON)


FETCHED = """
performance.getEntriesByType('resource').filter((one) => one.initiatorType === 'fetch').map((one) => one.startTime)
"""


def fetched_after(page: Page, instant: float, count: int) -> list[float]:
    """Wait until the script has asked so often after an instant of the page's clock. Return when it did."""
    for _ in range(120):
        found = [at for at in page.evaluate(FETCHED) if at > instant]
        if len(found) >= count:
            return found
        page.wait_for_timeout(500)
    raise AssertionError(f"it asked {len(found)} times in a minute")


def test_a_page_asks_once_in_five_seconds_and_not_while_it_is_hidden(page: Page, site: str) -> None:
    page.goto(f"{site}{reverse('admin:pulse_django_board_changelist')}")
    asked = [0.0, *fetched_after(page, 0.0, 3)]
    assert min(later - one for one, later in pairwise(asked)) > 4_900
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    hidden_at = page.evaluate("performance.now()")
    while page.evaluate("performance.now()") < hidden_at + 12_000:
        page.wait_for_timeout(500)
    assert [at for at in page.evaluate(FETCHED) if at > hidden_at] == []
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    assert fetched_after(page, hidden_at, 1)


def test_a_job_page_moves_on_and_leaves_a_form_alone_that_is_filled_in(page: Page, site: str) -> None:
    job = make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
    page.goto(f"{site}{reverse('admin:pulse_django_job_change', args=[job.pk])}")
    expect(page.locator(".pulse-verdict").first).to_contain_text("Pending")
    page.get_by_text("Cancel", exact=True).first.click()
    why = page.locator("details[open] input[name$=reason]").first
    why.fill("the customer called")
    Job.objects.request_cancel([job.pk], reason="by another operator")
    expect(page.locator(".pulse-verdict").first).to_contain_text("Cancelled", timeout=SOON)
    expect(why).to_have_value("the customer called")
    assert Job.objects.get().status == Status.CANCELLED


def test_a_page_that_cannot_be_renewed_says_so(browser: Browser, site: str) -> None:
    page = logged_in(browser.new_context(viewport=VIEWPORT, locale="en-US"), site)  # type: ignore[arg-type]
    page.goto(f"{site}{reverse('admin:pulse_django_board_changelist')}")
    page.route("**/pulse_django/board/**", lambda route: route.abort())
    note = page.get_by_text("This page could not be refreshed")
    expect(note).to_be_visible(timeout=SOON)
    page.unroute("**/pulse_django/board/**")
    expect(note).to_be_hidden(timeout=SOON)
    page.context.close()
