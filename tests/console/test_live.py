"""Pages that renew themselves: an unchanged one costs little, a changed one comes as a whole."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.queue.database.tables import changes_in
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import WorkerFactory, make_job
from tests.faults import all_faults

pytestmark = [pytest.mark.usefixtures("pulse_db"), pytest.mark.alters_statements]

BOARD = reverse("admin:pulse_django_board_changelist")
TASKS = reverse("admin:pulse_django_taskoverview_changelist")


@pytest.fixture
def operator(pulse_db: None) -> Iterator[Client]:
    """The tests commit, because the server counts no rows of a transaction that goes on."""
    client = Client()
    client.force_login(User.objects.create_superuser("ann"))
    yield client
    User.objects.all().delete()


@pytest.fixture(autouse=True)
def one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes by time alone does not change within a test."""
    changes = "pulse_django.queue.database.tables"
    monkeypatch.setattr(f"{changes}._CHANGES", re.sub(r"/ 30::", "/ 1e9::", __import__(changes, fromlist="x")._CHANGES))


def job_page() -> str:
    return reverse("admin:pulse_django_job_change", args=[make_job(Status.DEAD_LETTERED).pk])


def counted() -> None:
    """Let the server count what this connection did."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")


def asked(client: Client, url: str, tag: str = "") -> Any:
    counted()
    return client.get(url, headers={"If-None-Match": tag} if tag else {})


def test_an_unchanged_page_costs_one_short_statement_beside_the_login(operator: Client) -> None:
    pages = {
        "board": BOARD,
        "tasks": TASKS,
        "task": f"{reverse('admin:pulse_django_taskoverview_one')}?name=x",
        "job": job_page(),
        "worker": reverse("admin:pulse_django_worker_change", args=[WorkerFactory().pk]),
    }
    with all_faults() as about:
        for page, url in pages.items():
            with about(page):
                first = asked(operator, url)
                assert 'src="/static/pulse_django/live.js" defer' in first.content.decode()
                assert "data-pulse-live" in first.content.decode()
                counted()
                with CaptureQueriesContext(connection) as sent:
                    again = operator.get(url, headers={"If-None-Match": first["ETag"]})
                assert again.status_code == 304
                assert again.content == b""
                assert len(sent) == 3  # the session, the user, and what changed
                assert operator.get(url, headers={"If-None-Match": f"W/{first['ETag']}"}).status_code == 304


def test_a_changed_page_comes_as_a_whole(operator: Client) -> None:
    tag = asked(operator, BOARD)["ETag"]
    make_job(queue="late-comer")
    again = asked(operator, BOARD, tag)
    assert again.status_code == 200
    assert again["ETag"] != tag
    assert "late-comer" in again.content.decode()


def test_a_page_of_another_user_language_or_address_is_another(operator: Client) -> None:
    tag = asked(operator, BOARD)["ETag"]
    for client, url in (
        (operator, f"{BOARD}?still"),
        (staff("pulse_view_board"), BOARD),
    ):
        assert asked(client, url, tag).status_code == 200
    counted()
    with override_settings(LANGUAGE_CODE="de"):
        assert asked(operator, BOARD, tag).status_code == 200


def test_what_may_not_be_seen_is_not_told_to_be_unchanged(operator: Client) -> None:
    url = job_page()
    tag = asked(operator, url)["ETag"]
    assert asked(staff("pulse_view_queues"), url, tag).status_code == 403


def test_a_change_is_seen_after_half_a_minute_whatever_the_server_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    before = changes_in("default").split()[0]
    assert int(before) == pytest.approx(time.time() / 30, abs=2)


def test_a_server_that_counts_nothing_gives_no_version(operator: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET track_counts = off")
        try:
            assert changes_in("default") == ""
            assert "ETag" not in operator.get(BOARD)
        finally:
            cursor.execute("RESET track_counts")


def test_without_a_script_the_board_is_loaded_again(operator: Client) -> None:
    page = operator.get(BOARD).content.decode()
    assert '<noscript><meta http-equiv="refresh" content="10"></noscript>' in page
    still = operator.get(BOARD, {"still": ""}).content.decode()
    assert "http-equiv" not in still
    assert "live.js" not in still
