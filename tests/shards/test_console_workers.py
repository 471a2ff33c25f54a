"""The page of a worker of several shards: a loss is acknowledged in all, and a job is asked about in its own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.urls import reverse

from pulse_django.models import Job, Worker
from tests.console.test_every_page import presence
from tests.shards.console import SHARDED
from tests.two_databases import SECOND, SHARDS

pytestmark = SHARDED
EVERYWHERE = list(SHARDS)


@pytest.fixture(autouse=True)
def _none_left(operator: Client) -> Iterator[None]:
    yield
    for alias in EVERYWHERE:
        Worker.objects.using(alias).all().delete()


def row(alias: str) -> Worker:
    return Worker.objects.using(alias).get()


def act(name: str, worker: Worker) -> str:
    return reverse(f"admin:pulse_django_worker_{name}", args=[worker.pk])


def test_a_loss_is_acknowledged_in_all_shards(operator: Client) -> None:
    for alias in EVERYWHERE:
        Worker.objects.db_manager(alias).note(presence("both"))
        Worker.objects.db_manager(alias).mark_lost(-timedelta(minutes=1))
    listed = operator.get(reverse("admin:pulse_django_worker_changelist")).content.decode()
    assert listed.count('<strong class="pulse-error">lost</strong>') == 1
    assert "Acknowledged." in operator.post(act("act", row(SECOND)), follow=True).content.decode()
    assert [row(alias).acknowledged_by for alias in EVERYWHERE] == ["operator", "operator"]


def test_a_job_is_asked_about_in_its_shard_and_the_answer_is_on_the_page_of_both(operator: Client) -> None:
    for alias in EVERYWHERE:
        Worker.objects.db_manager(alias).note(presence("both"))
    job = Job.objects.using(SECOND).create(task="shop.add")
    operator.post(act("act_stack", row("default")), {"job": job.pk})
    assert [row(alias).stack_wanted for alias in EVERYWHERE] == [None, job.pk]
    Worker.objects.db_manager(SECOND).answer_stack("both", "b", job.pk, "in shop.add")
    for alias in EVERYWHERE:
        assert "in shop.add" in operator.get(act("change", row(alias))).content.decode()
