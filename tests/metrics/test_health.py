"""The probe over HTTP: what it says, and to whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import OperationalError
from django.test import Client

from pulse_django.models import Worker
from tests.factories import make_job, now, presence

pytestmark = pytest.mark.django_db

URL = "/health"


@pytest.fixture
def token(settings: Any) -> dict[str, str]:
    settings.PULSE = {"METRICS_TOKEN": "a-long-secret"}
    return {"Authorization": "Bearer a-long-secret"}


def test_a_fleet_that_is_well_is_200_and_one_that_is_not_503(token: dict[str, str]) -> None:
    Worker.objects.note(presence(slots=1))
    answer = Client().get(URL, headers=token)
    assert (answer.status_code, answer.json()["is_well"]) == (200, True)
    make_job(next_run_at=now(timedelta(hours=-1)))
    answer = Client().get(URL, headers=token)
    assert (answer.status_code, answer.json()["is_well"]) == (503, False)
    assert [one["name"] for one in answer.json()["conditions"]] == ["queue-overdue"]
    assert "the oldest job has been due for" in answer.json()["says"]
    assert answer["Cache-Control"] == "no-store"


def test_strangers_learn_nothing(token: dict[str, str]) -> None:
    make_job(next_run_at=now(timedelta(hours=-1)))
    for headers, status in (({}, 401), ({"Authorization": "Bearer wrong"}, 403), ({"Authorization": "Bearer "}, 403)):
        answer = Client().get(URL, headers=headers)
        assert answer.status_code == status
        assert b"due" not in answer.content


def test_staff_need_the_permission(token: dict[str, str]) -> None:
    user = User.objects.create_user("staff", is_staff=True)
    client = Client()
    client.force_login(user)
    assert client.get(URL).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="pulse_view_board"))
    assert client.get(URL).status_code == 200
    assert client.head(URL).status_code == 200
    assert client.post(URL).status_code == 405


def test_a_stranger_with_a_cookie_learns_nothing_of_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cookie is made up: to look its session up, the database is asked."""

    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError('connection to server at "db.internal" (10.0.0.7), port 5432 failed')

    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", fail)
    client = Client()
    client.cookies["sessionid"] = "madeupmadeupmadeup"
    answer = client.get(URL)
    assert (answer.status_code, answer.json()) == (503, {"is_well": None, "says": "the database does not respond"})


def test_a_database_that_does_not_answer_is_unknown(token: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OperationalError("gone")

    monkeypatch.setattr("pulse_django.shards.fleet.ask_all", fail)
    answer = Client().get(URL, headers=token)
    assert (answer.status_code, answer.json()) == (503, {"is_well": None, "says": "gone"})
