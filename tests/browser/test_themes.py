"""Under a theme of the admin, every page of ours opens with its content, and acts act."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from pulse_django.models import Job, Pause
from pulse_django.queue.words.states import Status
from tests.browser import scene
from tests.browser.conftest import logged_in, serving
from tests.console.test_every_page import with_rows
from tests.factories import make_job

PICTURES = os.environ.get("PULSE_PICTURES")
PAGES = {
    "board": ("admin:pulse_django_board_changelist", ""),
    "jobs": ("admin:pulse_django_job_changelist", ""),
    "dead-letters": ("admin:pulse_django_deadletter_changelist", ""),
    "tasks": ("admin:pulse_django_taskoverview_changelist", ""),
}


@pytest.mark.django_db
def test_every_page_opens_with_its_content(admin_client: Client) -> None:
    opened = 0
    for address in with_rows():
        answer = admin_client.get(address.url)
        if answer.status_code in (403, 404, 405):  # nothing is added, not every job is of a workflow, acts are posted
            continue
        assert answer.status_code in (200, 302), address.name
        if answer.status_code == 200 and "html" in answer["Content-Type"]:
            opened += 1
            page = answer.content.decode()
            assert "Traceback (most recent" not in page, address.name
            assert re.search(rf"{settings.THEME}|grp-", page), f"{address.name} is not in the theme"
    assert opened > 20


@pytest.mark.django_db
def test_the_actions_of_the_lists_act(admin_client: Client) -> None:
    dead = make_job(Status.DEAD_LETTERED, attempts=1, last_error="KeyError: 1")
    data = {"action": "retry_dead_letters", "_selected_action": [dead.pk], "index": 0}
    admin_client.post(reverse("admin:pulse_django_job_changelist"), data, follow=True)
    assert Job.objects.get().status == Status.PENDING


@pytest.mark.django_db
def test_the_forms_of_pages_act(admin_client: Client) -> None:
    job = make_job(queue="mail")
    page = admin_client.get(reverse("admin:pulse_django_job_change", args=[job.pk])).content.decode()
    url = reverse("admin:pulse_django_job_act", args=[job.pk, "cancel"])
    assert url in page
    admin_client.post(url, {"cancel-attempts": 0, "cancel-reason": "not needed"})
    assert Job.objects.get().status == Status.CANCELLED
    page = admin_client.get(reverse("admin:pulse_django_queue_one"), {"name": "mail"}).content.decode()
    assert "pause" in page
    assert not Pause.objects.exists()


@pytest.fixture
def site(browser: Any, pulse_db: None) -> Iterator[str]:
    """The address of a server, without the strict policy: themes have inline scripts."""
    with serving() as url:
        yield url


def test_the_pages_are_drawn_in_a_browser(browser: Any, site: str) -> None:
    dead = scene.build().dead
    context = browser.new_context(viewport={"width": 1366, "height": 900}, locale="en-US", timezone_id="UTC")
    page = logged_in(context, site)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    addresses = {name: f"{reverse(view)}{query}" for name, (view, query) in PAGES.items()}
    addresses["job"] = reverse("admin:pulse_django_job_change", args=[dead.pk])
    for name, url in addresses.items():
        answer = page.goto(f"{site}{url}")
        assert answer is not None
        assert answer.status == 200, name
        if PICTURES:
            page.screenshot(path=Path(PICTURES) / f"{settings.THEME}-{name}.png")
        content = page.locator(".pulse-board, #result_list, .pulse-story, .pulse-groups").first.bounding_box()
        assert content is not None, name
        assert content["width"] > 500, name
    context.close()
    assert errors == []
