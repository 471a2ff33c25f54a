"""Retry a few dead letters first, watch them, and go on or stop."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.console.mass.work import WATCH_EVERY
from pulse_django.models import Job, Step
from pulse_django.queue.words.own_tasks import ACT, PLAN
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows.batches import Batch
from tests.console.staff import staff
from tests.console.test_mass_operations import DEAD, PERMISSIONS, begin, lines, statuses
from tests.factories import make_job
from tests.queue.steps import sql

pytestmark = pytest.mark.django_db

GOOD, BAD = "shop.echo", "testproject.shop.tasks.fail"


@pytest.fixture
def client(db: None) -> Client:
    return staff(*PERMISSIONS)


def dead(count: int, task: str = GOOD) -> list[int]:
    return [make_job(Status.DEAD_LETTERED, queue="mail", task=task, args=["x"]).pk for _ in range(count)]


def start(client: Client, **given: Any) -> Batch:
    return begin(client, "retry", f"{DEAD}&queue=mail", **{"first": 2, "patience": 30, "per_minute": 3} | given)


def time_passes() -> None:
    """Let what sleeps or waits for its time be due."""
    sql("UPDATE pulse_django_step SET at = at - interval '1 hour'")
    sql("UPDATE pulse_django_job_hot SET next_run_at = statement_timestamp() WHERE next_run_at > statement_timestamp()")


def test_the_first_are_retried_and_nothing_else_until_they_have_succeeded(client: Client) -> None:
    ids = dead(9)
    batch = start(client)
    drain(queues=["default"])
    assert statuses(ids) == [Status.PENDING] * 2 + [Status.DEAD_LETTERED] * 7
    time_passes()
    drain(queues=["default"])
    assert statuses(ids)[2:] == [Status.DEAD_LETTERED] * 7, "the first still wait"
    drain(queues=["mail"])
    time_passes()
    drain(queues=["default"])
    waiting = Job.objects.filter(task=ACT, status=Status.PENDING).order_by("pk")
    assert [job.kwargs["ids"] for job in waiting] == [ids[2:5], ids[5:8], ids[8:]]
    gaps = [(job.next_run_at - waiting[0].next_run_at).total_seconds() for job in waiting]
    assert gaps == pytest.approx([0, 60, 120], abs=5)
    assert lines(batch)[4:7] == ("2 of these succeeded", "0 died again", "0 are waiting or running")
    assert "the last retry is in" in lines(batch)[7]
    time_passes()
    drain(queues=["default"])
    time_passes()
    drain(queues=["mail"])
    assert statuses(ids) == [Status.COMPLETED] * 9
    assert lines(batch)[:2] == ("9 retried", "0 no longer matched")
    assert lines(batch)[4] == "9 of these succeeded"


def test_it_stops_by_itself_when_one_of_them_dies(client: Client) -> None:
    ids = [*dead(1, BAD), *dead(5)]
    batch = start(client)
    drain(queues=["default"])
    drain(queues=["mail"], failures="keep")
    time_passes()
    drain(queues=["default"])
    assert batch.row.cancelled_at is not None
    assert "1 of the first 2 died again" in batch.row.cancel_reason
    assert statuses(ids) == [Status.DEAD_LETTERED, Status.COMPLETED] + [Status.DEAD_LETTERED] * 4
    assert not Job.objects.filter(task__in=(PLAN, ACT)).claimable().exists()
    assert lines(batch)[4:6] == ("1 of these succeeded", "1 died again")


def test_it_stops_if_they_take_too_long(client: Client) -> None:
    ids = dead(4)
    batch = start(client, patience=1)
    for _ in range(int(60 / WATCH_EVERY.total_seconds()) + 2):
        drain(queues=["default"])
        time_passes()
    assert "have not ended in time" in batch.row.cancel_reason
    assert statuses(ids)[2:] == [Status.DEAD_LETTERED] * 2


def test_it_stops_if_none_of_them_can_be_retried(client: Client) -> None:
    ids = dead(3)
    batch = start(client, first=1)
    sql("DELETE FROM pulse_django_job WHERE id = %s", ids[0])
    sql("UPDATE pulse_django_job SET finished_at = statement_timestamp() + interval '1 hour' WHERE id = %s", ids[1])
    sql("UPDATE pulse_django_job SET finished_at = statement_timestamp() + interval '1 hour' WHERE id = %s", ids[2])
    drain(queues=["default"])
    assert batch.row.finished_at is not None
    assert statuses(ids[1:]) == [Status.DEAD_LETTERED] * 2


def test_stopping_it_leaves_the_others(client: Client) -> None:
    ids = dead(9)
    batch = start(client)
    drain(queues=["default"])
    drain(queues=["mail"])
    time_passes()
    drain(queues=["default"])
    assert batch.cancel(reason="enough")
    time_passes()
    drain(queues=["default"])
    assert statuses(ids)[2:] == [Status.DEAD_LETTERED] * 7


def test_the_page_of_a_group_starts_it_with_one_button(client: Client) -> None:
    ids = dead(12)
    group = reverse("admin:pulse_django_deadletter_group")
    page = client.get(group, {"error": "ValueError: no"}).content.decode()
    assert 'name="first" value="10"' in page
    url = reverse("admin:pulse_django_deadletter_mass", args=["retry"]) + "?error=ValueError: no"
    asked_at = page.split('name="asked_at" value="')[1].split('"')[0]
    response = client.post(url, {"first": 10, "asked_at": asked_at, "runs": 1, "per_minute": 30, "reason": "x"})
    assert response.status_code == 302
    drain(queues=["default"])
    assert statuses(ids) == [Status.PENDING] * 10 + [Status.DEAD_LETTERED] * 2


def test_a_worker_that_dies_behind_the_watch_does_not_watch_again(client: Client, monkeypatch: Any) -> None:
    ids = dead(5)
    start(client)
    drain(queues=["default"])
    drain(queues=["mail"])
    time_passes()
    seal = Batch.seal
    monkeypatch.setattr(Batch, "seal", lambda self: (_ for _ in ()).throw(RuntimeError("died")))
    drain(queues=["default"], failures="keep")
    monkeypatch.setattr(Batch, "seal", seal)
    watched = Step.objects.filter(name__startswith="watch").count()
    for queue in ("default", "default", "mail"):  # it is retried, and then its chunks are due
        time_passes()
        drain(queues=[queue])
    assert statuses(ids)[:2] == [Status.COMPLETED] * 2
    assert Job.objects.filter(task=ACT).count() == 2, "each chunk once"
    time_passes()
    drain(queues=["mail"])
    assert statuses(ids) == [Status.COMPLETED] * 5
    assert Step.objects.filter(name__startswith="watch").count() == watched
