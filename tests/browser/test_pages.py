"""Every page as a browser shows it, light and dark, under a strict Content-Security-Policy.

``make pictures`` keeps what they look like for the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse
from playwright.sync_api import Browser, Page

from pulse_django.models import Job
from pulse_django.queue.database.sql_functions import Fingerprint
from pulse_django.queue.words.states import Status
from tests.browser import scene
from tests.browser.conftest import VIEWPORT, Visit, logged_in
from tests.factories import AttemptFactory, make_job

PICTURES = os.environ.get("PULSE_PICTURES")  # a folder

PAGES: dict[str, Callable[[Any], tuple[str, str]]] = {
    "board": lambda scene: (reverse("admin:pulse_django_board_changelist"), "?still"),
    "queues": lambda scene: (reverse("admin:pulse_django_queue_changelist"), ""),
    "queue": lambda scene: (reverse("admin:pulse_django_queue_one"), "?name=mail"),
    "workers": lambda scene: (reverse("admin:pulse_django_worker_changelist"), ""),
    "worker": lambda scene: (reverse("admin:pulse_django_worker_change", args=[scene.lost_worker.pk]), ""),
    "jobs": lambda scene: (reverse("admin:pulse_django_job_changelist"), ""),
    "job-zombie": lambda scene: (reverse("admin:pulse_django_job_change", args=[scene.zombie.pk]), ""),
    "job-running": lambda scene: (reverse("admin:pulse_django_job_change", args=[scene.running.pk]), ""),
    "job-dead": lambda scene: (reverse("admin:pulse_django_job_change", args=[scene.dead.pk]), ""),
    "schedules": lambda scene: (reverse("admin:pulse_django_schedule_changelist"), ""),
    "schedule": lambda scene: (reverse("admin:pulse_django_schedule_change", args=[scene.nightly.pk]), ""),
    "workflows": lambda scene: (reverse("admin:pulse_django_storedbatch_changelist"), ""),
    "workflow": lambda scene: (reverse("admin:pulse_django_storedbatch_change", args=[scene.order.pk]), ""),
    "dead-letters": lambda scene: (reverse("admin:pulse_django_deadletter_changelist"), ""),
    "dead-letter-group": lambda scene: (
        reverse("admin:pulse_django_deadletter_group"),
        f"?error={group_of(scene.dead)}",
    ),
}


def group_of(job: Job) -> str:
    found: str = Job.objects.filter(pk=job.pk).values_list(Fingerprint("last_error"), flat=True)[0]
    return found.replace("#", "%23")


@pytest.fixture(params=["light", "dark"])
def visit(browser: Browser, site: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    context = browser.new_context(
        viewport=VIEWPORT,
        color_scheme=request.param,
        locale="en-US",
        timezone_id="UTC",  # type: ignore[arg-type]
    )
    visit = Visit(logged_in(context, site), site)
    yield visit
    context.close()
    assert visit.troubles == []


def test_every_page_is_quiet_complete_and_readable(visit: Visit, request: pytest.FixtureRequest) -> None:
    scheme = request.node.callspec.params["visit"]
    shown = scene.build()
    for name, address in PAGES.items():
        url, query = address(shown)
        response = visit.page.goto(f"{visit.site}{url}{query}")
        assert response is not None
        assert response.status == 200, name
        assert unlabelled(visit.page) == [], name
        assert faint(visit.page) == [], name
        assert "broken" not in visit.page.inner_text("body"), name
        if PICTURES:
            picture = Path(PICTURES) / f"{name}-{scheme}.png"
            visit.page.screenshot(path=picture, full_page=name != "jobs")


@pytest.mark.parametrize("width", [320, 768])
def test_no_page_of_ours_is_wider_than_the_screen(browser: Browser, site: str, width: int) -> None:
    """Whatever is told in one word of thousands of letters; wide tables scroll by themselves."""
    shown = scene.build()
    long = make_job(
        Status.DEAD_LETTERED, task="shop." + "a" * 190, queue="q" * 100, last_error="E" * 2_000,
        idempotency_key="k" * 200, cancel_reason="c" * 2_000,
    )  # fmt: skip
    AttemptFactory(job=long, worker="w" * 150, error_class="c" * 200, message="m" * 3_000, traceback="t" * 5_000)
    pages = {name: address(shown) for name, address in PAGES.items()}
    pages["a long job"] = (reverse("admin:pulse_django_job_change", args=[long.pk]), "")
    pages["a long group"] = (reverse("admin:pulse_django_deadletter_group"), f"?error={'E' * 200}")
    pages["a long queue"] = (reverse("admin:pulse_django_queue_one"), f"?name={'q' * 100}")
    context = browser.new_context(viewport={"width": width, "height": 800})
    page = logged_in(context, site)
    found = {}
    for name, (url, query) in pages.items():
        page.goto(f"{site}{url}{query}")
        found[name] = page.evaluate(TOO_WIDE)
    context.close()
    assert {name: wide for name, wide in found.items() if wide} == {}


def test_what_the_policy_forbids_is_noticed(browser: Browser, site: str) -> None:
    """The other tests trust that a violation would reach them."""
    visit = Visit(browser.new_context().new_page(), site)
    visit.go("login").evaluate("document.body.setAttribute('style', 'color: red')")
    assert any("Content Security Policy" in trouble for trouble in visit.troubles)


def unlabelled(page: Page) -> list[str]:
    """Return what can be typed into or pressed and has no name for those who hear the page."""
    found: list[str] = page.evaluate(
        """() => {
            // The title of an icon is the name of the button that refers to it, as in the calendars of Django 6.1.
            const text = one => one.ariaLabel || one.title || one.textContent.trim();
            const named = one => (one.getAttribute('aria-labelledby') || '').split(/\\s+/).filter(Boolean)
                .some(id => document.getElementById(id) && text(document.getElementById(id)));
            return [...document.querySelectorAll('#content input, #content select, #content button, #content textarea')]
            .filter(one => one.type !== 'hidden' && !one.labels?.length && !one.ariaLabel && !one.title
                && !named(one) && !one.textContent.trim() && !(one.type === 'submit' && one.value))
            .map(one => one.outerHTML);
        }"""
    )
    return found


def faint(page: Page) -> list[str]:
    """Return texts of ours whose contrast is below what WCAG AA asks for: 4.5 to 1, or 3 to 1 if large."""
    found: list[Any] = page.evaluate(CONTRAST)
    return [f"{one['ratio']:.2f}: {one['text']}" for one in found]


# The page itself, or a table that would have to be scrolled through several screens.
TOO_WIDE = """() => {
    const page = document.documentElement, most = Math.max(1000, 2 * window.innerWidth);
    return [...document.querySelectorAll('#content table')].filter(one => one.scrollWidth > most)
        .concat(page.scrollWidth > window.innerWidth ? [page] : [])
        .map(one => `${one.tagName} ${one.className} ${one.scrollWidth}`);
}"""

CONTRAST = """() => {
    const parts = colour => (colour.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = one => {
        for (; one; one = one.parentElement) {
            const colour = parts(getComputedStyle(one).backgroundColor);
            if (colour.length === 3 || colour[3] > 0.99) return colour;
        }
        return [255, 255, 255];
    };
    const ours = document.querySelectorAll(
        '[class*=pulse] :is(td, th, dt, dd, p, li, a, strong, span, summary, label, h2, code, pre)');
    return [...ours].filter(one => one.offsetParent && [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
        .map(one => {
            const style = getComputedStyle(one), size = parseFloat(style.fontSize);
            const [a, b] = [light(parts(style.color)), light(behind(one))].sort((x, y) => y - x);
            return {text: one.textContent.trim().slice(0, 60), ratio: (a + 0.05) / (b + 0.05),
                    needed: size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5};
        }).filter(one => one.ratio < one.needed);
}"""
