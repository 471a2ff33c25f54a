"""The page of a worker shows the memory and the processor time of its processes, and its stuck handlers by name."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.console.staff import staff, text
from tests.factories import WorkerFactory, make_job
from tests.faults import each_of
from tests.undoing import undone

pytestmark = pytest.mark.django_db


def page_of(client: Client, vitals: Any) -> str:
    worker = WorkerFactory(vitals=vitals)
    return text(client, reverse("admin:pulse_django_worker_change", args=[worker.pk]))


def test_each_process_has_its_use_now_and_lately(admin_client: Client) -> None:
    keeper = {"pid": 17, "rss": {str(place): 60 + place for place in range(12)}, "cpu": {"0": 1}}
    page = page_of(admin_client, {"processes": {"1": {"pid": 1234, "rss": {"0": 812}, "cpu": {}}, "keeper": keeper}})
    assert "71 MiB" in page, "the tenth sample comes after the ninth"
    assert "812 MiB" in page
    assert ">1234<" in page, "a number of a process has no separators"
    assert "1 %" in page
    labels = re.findall(r'class="pulse-spark"[^>]*aria-label="([^"]*)"', page)
    assert labels == ["71 MiB at most", "1.0 % at most", "812 MiB at most"]


def test_stuck_handlers_are_named(admin_client: Client) -> None:
    job = make_job()
    vitals = {"stuck": {f"{job.pk} shop.<b>poll</b>": 90}}
    page = page_of(admin_client, vitals)
    assert f"{job.pk} shop.&lt;b&gt;poll&lt;/b&gt;" in page
    assert reverse("admin:pulse_django_job_change", args=[job.pk]) in page
    assert reverse("admin:pulse_django_job_change", args=[job.pk]) not in page_of(staff("pulse_view_workers"), vitals)


@each_of(
    [],
    "x",
    {"processes": 1, "stuck": []},
    {"processes": [1], "stuck": {"": 1, "x y": 1, "1 y": None}},
    {"processes": {"1": None, "2": {}, "3": []}, "stuck": {"-1 y": 1, "1e5 y": 1, "1 y": "1"}},
    {"processes": {"1": {"pid": "1", "rss": {"0": 1}, "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": {"0": "x"}, "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": {"x": 1}, "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": [1], "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": {"0": -1}, "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": {"0": True}, "cpu": {}}}},
    {"processes": {"1": {"pid": 1, "rss": {"0": 10**400}, "cpu": {}}}, "stuck": {f"{10**30} y": 1}},
    around=undone,
)
def test_what_another_release_says_is_left_out(admin_client: Client, *, vitals: Any) -> None:
    page = page_of(admin_client, vitals)
    assert "Stuck handlers" not in page
    assert "pulse-spark" not in page
