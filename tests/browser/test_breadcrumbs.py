"""The breadcrumbs of our pages look like Django's own, whichever markup its release has for them."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from tests.browser import scene
from tests.browser.conftest import Visit
from tests.browser.test_pages import PAGES

LOOK = """() => [...document.querySelectorAll('.breadcrumbs')].map(crumbs => {
    const [link, own] = [crumbs.querySelector('a'), getComputedStyle(crumbs)];
    const [box, at] = [crumbs.getBoundingClientRect(), link.getBoundingClientRect()];
    return {
        background: own.backgroundColor, height: Math.round(box.height), first: link.textContent.trim(),
        left: Math.round(at.left - box.left), link: getComputedStyle(link).color,
    };
})"""


def test_breadcrumbs_look_like_djangos_on_each_page(visit: Visit) -> None:
    shown = scene.build()

    def look(url: str) -> Any:
        visit.page.goto(f"{visit.site}{url}")
        return visit.page.evaluate(LOOK)

    [djangos] = look(reverse("admin:auth_user_changelist"))
    assert djangos["first"] == "Home"
    height = djangos.pop("height")
    for name, address in PAGES.items():
        [ours] = look("".join(address(shown)))
        assert abs(ours.pop("height") - height) <= 4, (
            name
        )  # Django 6.1 makes list items of them, which are a bit higher
        assert ours == djangos, name
