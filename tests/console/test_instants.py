"""Each time on a page has its seconds and its zone on hover."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from django.test import Client, override_settings
from django.urls import reverse

from pulse_django.console.statuses import here, instant_shown
from tests.browser.scene import build
from tests.console.pages import Texts, pages, rows
from tests.faults import all_faults

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d|\d{4}, (\d{1,2}(:\d\d)? [ap]\.m\.|noon|midnight)")
EXACT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d( [A-Z]{3,4}|[+-]\d\d)")
ENTERED = {"pre", "textarea", "option", "title", "code"}  # what rows say, and what is typed


@override_settings(TIME_ZONE="Europe/Berlin")
def test_an_instant_says_its_seconds_and_its_zone() -> None:
    at = here(datetime(2026, 7, 1, 12, 0, 5, tzinfo=UTC))
    shown = instant_shown(at, form="H:i")
    assert shown == '<time datetime="2026-07-01T14:00:05+02:00" title="2026-07-01 14:00:05 CEST">14:00</time>'
    assert instant_shown(at, "<5m ago").endswith(">&lt;5m ago</time>")
    assert instant_shown(None) == ""


@pytest.mark.django_db
def test_each_time_of_each_page_says_them(admin_client: Client) -> None:
    bare, exact = set(), set()
    for address, page in pages(admin_client, rows()):
        for text, around in Texts(page).found:
            if not TIME.search(text) or EXACT.search(text) or ENTERED & {tag for tag, _ in around}:
                continue
            if around[-1][0] == "time" and EXACT.fullmatch(around[-1][1].get("title", "")):
                exact.add(address.name)
            elif not any(tag in ("svg", "figure") for tag, _ in around):
                bare.add((address.name, text[:80]))
    assert bare == set()
    assert len(exact) > 6


@pytest.mark.django_db
def test_how_long_ago_says_when(admin_client: Client) -> None:
    columns = ["job: age", "worker: last_beat", "schedule: next", "schedule: last"]
    build()
    with all_faults() as about:
        for column in columns:
            with about(column):
                model, _, name = column.partition(": ")
                page = admin_client.get(reverse(f"admin:pulse_django_{model}_changelist")).content.decode()
                cells = re.findall(rf'<td class="field-{name}[^>]*>(.*?)</td>', page)
                assert cells
                assert any(re.search(r'<time datetime="[^"]+" title="[^"]+ UTC">[^<]+</time>', cell) for cell in cells)
