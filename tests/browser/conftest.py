"""Chromium on the pages of a live server, under a strict Content-Security-Policy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import reverse
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright
from pytest_django.live_server_helper import LiveServer

CHROMIUM = os.environ.get("CHROME_BIN") or shutil.which("chromium") or shutil.which("google-chrome")
PASSWORD = "correct horse battery staple"
VIEWPORT = {"width": 1280, "height": 900}

# ``make themes`` runs it once for each theme. Without one there is nothing to run.
collect_ignore = [] if settings.THEME else ["test_themes.py"]


def strict(get_response: Any) -> Any:
    """Allow nothing but what this very site serves as files."""

    def respond(request: HttpRequest) -> HttpResponse:
        response: HttpResponse = get_response(request)
        response["Content-Security-Policy"] = "default-src 'self'"
        return response

    return respond


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for a file, and gone after it: while it is there, no other event loop can run in this thread."""
    if CHROMIUM is None:
        if os.environ.get("PULSE_NEEDS_BROWSER"):
            pytest.fail("no Chromium was found, and this run must have one")
        pytest.skip("no Chromium: apt-get install chromium, or set CHROME_BIN")
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with sync_playwright() as playwright, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")  # the browser's event loop runs in this thread
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)


@pytest.fixture
def site(browser: Browser, pulse_db: None, settings: Any) -> Iterator[str]:
    """The address of a server that works on the test database, under the strict policy."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "tests.browser.conftest.strict"]
    with serving() as url:
        yield url


@contextmanager
def serving() -> Iterator[str]:
    """Serve the test database to an operator."""
    User.objects.create_superuser("operator", password=PASSWORD)
    server = LiveServer("127.0.0.1")
    yield server.url
    server.stop()
    for model in (LogEntry, Session, User):
        model.objects.all().delete()


@dataclass
class Visit:
    """A page that is looked at, and all that went wrong on it."""

    page: Page
    site: str
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._note)

    def go(self, view: str, *args: Any, query: str = "") -> Page:
        self.page.goto(f"{self.site}{reverse(f'admin:{view}', args=args)}{query}")
        return self.page

    def _note(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "favicon" not in message.location.get("url", ""):
            self.troubles.append(message.text)


def logged_in(context: BrowserContext, site: str) -> Page:
    """Open a page of somebody who has logged in before."""
    client = Client()
    client.force_login(User.objects.get(username="operator"))
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": site}])
    return context.new_page()


@pytest.fixture
def visit(browser: Browser, site: str) -> Iterator[Visit]:
    """An operator who has logged in. At the end nothing may have been complained about."""
    context = browser.new_context(viewport=VIEWPORT, locale="en-US", timezone_id="UTC")  # type: ignore[arg-type]
    visit = Visit(logged_in(context, site), site)
    yield visit
    context.close()
    assert visit.troubles == []
