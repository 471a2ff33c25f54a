"""A lost worker in the admin: it is red until it is acknowledged, and its page lists what became of its runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from pulse_django.models import Worker
from pulse_django.queue.words.states import Status
from tests.console.staff import page_of, staff, text
from tests.factories import AttemptFactory, WorkerFactory, make_job, now

pytestmark = pytest.mark.django_db

LIST = reverse("admin:pulse_django_worker_changelist")
BOARD = reverse("admin:pulse_django_board_changelist")
RED = '<strong class="pulse-error">lost</strong>'
AGO = timedelta(hours=-1)


@pytest.fixture
def worker() -> Any:
    WorkerFactory(name="well")
    WorkerFactory(name="stopped", last_beat_at=now(AGO), stopped_at=now(AGO))
    lost = WorkerFactory(name="gone", boot_id="b", last_beat_at=now(AGO), started_at=now(2 * AGO), in_flight=3)
    assert Worker.objects.mark_lost(timedelta(minutes=1)) == ["gone:b"]
    return lost


def act_on(worker: Any) -> str:
    return reverse("admin:pulse_django_worker_act", args=[worker.pk])


def test_a_lost_worker_is_red_on_the_board_and_in_the_list_until_it_is_acknowledged(
    worker: Any, admin_client: Client
) -> None:
    for url in (BOARD, LIST):
        assert text(admin_client, url).count(RED) == 1
    assert "worker-lost" in text(admin_client, BOARD)
    answer = admin_client.post(act_on(worker), follow=True)
    assert "Acknowledged." in answer.content.decode()
    assert "lost, and acknowledged" in text(admin_client, LIST)
    for url in (BOARD, LIST):
        assert RED not in text(admin_client, url)
    assert "worker-lost" not in text(admin_client, BOARD)
    worker.refresh_from_db()
    assert worker.acknowledged_by == "admin"
    assert LogEntry.objects.get().get_change_message() == "Acknowledged that it is lost"
    assert "Nothing was changed" in admin_client.post(act_on(worker), follow=True).content.decode()
    assert LogEntry.objects.count() == 1


def test_its_page_says_what_it_held_and_where_that_went(worker: Any, admin_client: Client) -> None:
    job = make_job(Status.RETRYING, attempts=1)
    AttemptFactory(job=job, number=1, worker="gone:b.1:7", outcome="WORKER_LOST")
    page = text(admin_client, page_of(worker))
    assert "its heartbeats stopped without a shutdown" in page
    assert "<dt>Runs at that time</dt><dd>3</dd>" in page
    assert reverse("admin:pulse_django_job_change", args=[job.pk]) in page
    assert "</span> Retrying</span></td>" in page


def test_a_page_of_a_worker_that_stopped_says_nothing_of_a_loss(worker: Any, admin_client: Client) -> None:
    page = text(admin_client, page_of(Worker.objects.get(name="stopped")))
    assert "its heartbeats stopped without a shutdown" not in page
    assert "Acknowledge" not in page


def test_several_are_acknowledged_in_the_list(worker: Any, admin_client: Client) -> None:
    chosen = [str(one.pk) for one in Worker.objects.all()]
    answer = admin_client.post(LIST, {"action": "acknowledge", "_selected_action": chosen}, follow=True)
    assert "1 worker was acknowledged." in answer.content.decode()
    assert not any(one.is_lost for one in Worker.objects.all())


def test_only_who_may_change_workers_can_acknowledge(worker: Any) -> None:
    client = staff("pulse_view_workers")
    assert "Acknowledge" not in text(client, page_of(worker))
    assert "acknowledge" not in text(client, LIST)
    assert client.post(act_on(worker)).status_code == 403
    client.post(LIST, {"action": "acknowledge", "_selected_action": [worker.pk]})
    worker.refresh_from_db()
    assert worker.is_lost
    assert client.get(act_on(worker)).status_code == 405
