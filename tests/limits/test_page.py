"""The page of a limit: which of its keys are at their limit."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from pulse_django.models import Limiter
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import make_job

pytestmark = pytest.mark.django_db

_ROW = re.compile(r'<th scope="row">(\w+)</th><td class="pulse-number">(.*?)</td>')


def rows() -> dict[str, str]:
    url = reverse("admin:pulse_django_limiter_change", args=["stripe"])
    page = staff("pulse_view_limits").get(url).content.decode()
    return {key: re.sub(r"<.*?>", "", runs) for key, runs in _ROW.findall(page)}


def run(key: str, **fields: int) -> None:
    make_job(Status.RUNNING, lane_key=lane_key("stripe", key), **fields)


def test_keys_at_their_limit_are_marked() -> None:
    Limiter.objects.override("stripe", {"max_running_per_key": 2})
    run("acme"), run("acme"), run("beta"), run("heavy", weight=2)
    assert rows() == {"acme": "2 / 2 full", "heavy": "2 / 2 full", "beta": "1 / 2"}


def test_without_a_limit_of_each_key_none_is() -> None:
    Limiter.objects.override("stripe", {"max_running": 2})
    run("acme"), run("acme")
    assert rows() == {"acme": "2"}


def test_a_change_without_numbers_is_refused_with_words() -> None:
    Limiter.objects.override("stripe", {"max_running": 3}, reason="first")
    client = staff("pulse_view_limits", "pulse_change_limits")
    form = {"change-reason": "x", "change-duration": 600, "change-per": 60, "change-key_per": 60}
    page = client.post(reverse("admin:pulse_django_limiter_act", args=["stripe", "change"]), form, follow=True)
    assert "Give at least one number." in page.content.decode()
