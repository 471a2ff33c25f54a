"""The page of a queue names the workers that serve it, and where there is none, the command that starts one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.console.queues.admin import MOST_NAMED
from tests.console.staff import staff
from tests.factories import WorkerFactory, now
from tests.faults import each_of

pytestmark = pytest.mark.django_db

UNSERVED = "No live worker serves this queue."
AGO = timedelta(hours=-1)


def page(client: Client, name: str = "mail") -> str:
    return client.get(reverse("admin:pulse_django_queue_one"), {"name": name}).content.decode()


def test_those_that_serve_it_are_links(admin_client: Client) -> None:
    some = WorkerFactory(name="some", queues=["mail", "other"])
    WorkerFactory(name="every", queues=[])
    WorkerFactory(name="another", queues=["other"])
    WorkerFactory(name="silent", queues=["mail"], last_beat_at=now(AGO))
    WorkerFactory(name="stopped", queues=["mail"], last_beat_at=now(AGO), stopped_at=now(AGO))
    found = page(admin_client)
    assert UNSERVED not in found
    assert f'<a href="{reverse("admin:pulse_django_worker_change", args=[some.pk])}">some</a>' in found
    assert ">every</a>" in found
    assert [name for name in ("another", "silent", "stopped") if f">{name}</a>" in found] == []


def test_without_one_it_says_what_to_start(admin_client: Client) -> None:
    WorkerFactory(name="another", queues=["other"])
    found = page(admin_client, "mail of today")
    assert UNSERVED in found
    assert "<code>python manage.py pulse_worker --queues=&#x27;mail of today&#x27;</code>" in found


@each_of("a,b", " mail")
def test_a_queue_that_no_option_can_name_is_served_by_a_worker_for_all(admin_client: Client, *, name: Any) -> None:
    assert "<code>python manage.py pulse_worker</code>" in page(admin_client, name)


def test_who_may_not_see_workers_gets_names_and_no_links(admin_client: Client) -> None:
    WorkerFactory(name="some", queues=["mail"])
    found = page(staff("pulse_view_queues"))
    assert "some" in found
    assert ">some</a>" not in found


def test_of_many_only_some_are_named(admin_client: Client) -> None:
    for number in range(MOST_NAMED + 1):
        WorkerFactory(name=f"worker-{number}", queues=[])
    found = page(admin_client)
    assert found.count(">worker-") == MOST_NAMED
    assert ", …" in found
