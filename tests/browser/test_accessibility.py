"""Every page of the admin is free of grave violations of accessibility, but for those that Django's own pages have."""

from __future__ import annotations

from collections.abc import Iterator

import django
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import reverse
from playwright.sync_api import Browser, Page

from tests.browser import scene
from tests.browser.axe import Violation, axe_script, violations
from tests.browser.conftest import logged_in
from tests.browser.test_pages import PAGES
from tests.console.test_every_page import with_rows

WIDTHS = 1366, 390
BOARD = f"{reverse('admin:pulse_django_board_changelist')}?still"
# By rule and selector. Each has to be on a page of Django's as well, or it counts as ours.
DJANGOS = {
    ("label-title-only", "#searchbar"): "Django hides the label of its search field, and describes it by a help text",
}
ANYWHERE = ""
# By rule alone: before Django 6.0 its style sheet tells links in a text by their colour alone, on all pages.
DJANGOS_STYLE = {("link-in-text-block", ANYWHERE)} if django.VERSION < (6, 0) else set()


@pytest.fixture(scope="session")
def axe() -> str:
    return axe_script()


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=WIDTHS)
def page(axe: str, browser: Browser, site: str, scheme: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": request.param, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
        locale="en-US",
        timezone_id="UTC",
    )
    context.add_init_script(f"localStorage.setItem('theme', '{scheme}')")  # as Django's own button does
    yield logged_in(context, site)
    context.close()


def test_no_page_has_a_grave_violation_of_ours(page: Page, site: str, axe: str) -> None:
    shown = scene.build()
    seen = found_on(page, site, {name: "".join(address(shown)) for name, address in PAGES.items()}, axe)
    assert set(seen) == set(PAGES)
    assert not_excused(seen, djangos(page, site, axe)) == {}


def test_no_address_of_the_admin_has_a_grave_violation_of_ours(page: Page, site: str, axe: str) -> None:
    seen = found_on(page, site, {one.url: one.url for one in with_rows()}, axe)
    assert len(seen) > 20, "pages should have been seen"
    assert not_excused(seen, djangos(page, site, axe)) == {}


FAULTS = """() => {
    const [image, faint] = [document.createElement('img'), document.createElement('p')];
    image.src = '/static/admin/img/icon-yes.svg';
    faint.textContent = 'hardly to be read';
    faint.className = 'too-faint';
    document.querySelector('#content').append(image, faint);
    const sheet = new CSSStyleSheet();
    sheet.replaceSync('.too-faint { color: #ccc !important; background: #ddd !important; }');
    document.adoptedStyleSheets.push(sheet);
}"""


def test_a_violation_is_noticed(page: Page, site: str, axe: str) -> None:
    """The tests above trust that axe sees the page."""
    excused = djangos(page, site, axe)
    page.goto(f"{site}{BOARD}")
    assert not_excused({"board": violations(page, axe)}, excused) == {}
    page.evaluate(FAULTS)
    left = not_excused({"board": violations(page, axe)}, excused)["board"]
    assert {one.partition(" ")[0] for one in left} == {"image-alt", "color-contrast"}


def found_on(page: Page, site: str, urls: dict[str, str], axe: str) -> dict[str, list[Violation]]:
    """Return what is found on each page. Addresses that take posts alone or send files are no pages."""
    return {name: violations(page, axe) for name, url in urls.items() if is_a_page(page, f"{site}{url}")}


def is_a_page(page: Page, url: str) -> bool:
    answer = page.context.request.get(url, max_redirects=0)
    if answer.status != 200 or "text/html" not in answer.headers["content-type"]:
        return False
    page.goto(url)
    return True


def djangos(page: Page, site: str, axe: str) -> set[tuple[str, str]]:
    """Return which of Django's own are on a list of Django's in this very release. It has a help text, as ours have."""
    users = admin.site._registry[User]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "search_help_text", "by name")
        page.goto(f"{site}{reverse('admin:auth_user_changelist')}")
    found = violations(page, axe)
    return {(one.rule, one.selector) for one in found} & set(DJANGOS) | DJANGOS_STYLE


def not_excused(seen: dict[str, list[Violation]], excused: set[tuple[str, str]]) -> dict[str, list[str]]:
    """Return what is left of each page."""
    left = {}
    for name, found in seen.items():
        if ours := [str(one) for one in found if not {(one.rule, one.selector), (one.rule, ANYWHERE)} & excused]:
            left[name] = ours
    return left
