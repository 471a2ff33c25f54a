"""On a screen of 390 pixels the status, the error and what is stuck are seen without scrolling sideways."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser

from tests.browser import scene
from tests.browser.conftest import Visit, logged_in

WIDTH = 390

# What has to be seen of each page, as selectors.
SEEN: dict[str, list[str]] = {
    "jobs": ["#result_list .field-standing .pulse-status", "#result_list .field-error_in_short"],
    "dead-letters": [".pulse-groups th[scope=row] a"],
    "board": [".pulse-troubles strong", ".pulse-stuck"],
    "job": [".pulse-verdict .pulse-status", "pre.pulse-error"],
}

OUTSIDE = """([selectors]) => selectors.flatMap(selector => {
    const found = [...document.querySelectorAll(selector)].filter(one => one.textContent.trim());
    if (!found.length || !found.some(one => one.offsetParent)) return [`${selector}: not there`];
    return found.map(one => one.getBoundingClientRect()).filter(box => box.left < 0 || box.right > window.innerWidth)
        .map(box => `${selector}: ${box.left} to ${box.right}`);
})"""


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[Visit]:
    size: Any = {"width": WIDTH, "height": 844}
    context = browser.new_context(viewport=size, locale="en-US", timezone_id="UTC")
    visit = Visit(logged_in(context, site), site)
    yield visit
    context.close()
    assert visit.troubles == []


def test_what_matters_is_seen_without_scrolling_sideways(visit: Visit) -> None:
    shown = scene.build()
    urls = {
        "jobs": reverse("admin:pulse_django_job_changelist") + "?status__exact=DEAD_LETTERED",
        "dead-letters": reverse("admin:pulse_django_deadletter_changelist"),
        "board": reverse("admin:pulse_django_board_changelist") + "?still",
        "job": reverse("admin:pulse_django_job_change", args=[shown.dead.pk]),
    }
    wrong: dict[str, Any] = {}
    for name, url in urls.items():
        visit.page.goto(f"{visit.site}{url}")
        wide = visit.page.evaluate("document.documentElement.scrollWidth")
        wrong[name] = visit.page.evaluate(OUTSIDE, [SEEN[name]]) + ([f"{wide} wide"] if wide > WIDTH else [])
    assert {name: found for name, found in wrong.items() if found} == {}
