"""The page of a job in the admin, where jobs are in several shards."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from pulse_django.execution import moving, placement
from pulse_django.models import Job
from pulse_django.protocol import transfer
from pulse_django.words.states import Status
from testproject.shop import tasks
from testproject.shop.models import Order
from tests.faults import all_faults
from tests.shards.conftest import away, empty_shards
from tests.shards.console import SHARDED, moved
from tests.two_databases import SECOND

pytestmark = SHARDED


def page(job_id: Any) -> str:
    return reverse("admin:pulse_django_job_change", args=[job_id])


def act(client: Client, job: Any, name: str, **data: Any) -> Any:
    form = {f"{name}-{field}": value for field, value in {"attempts": 0, "why": "why not", **data}.items()}
    return client.post(reverse("admin:pulse_django_job_act", args=[job.id, name]), form, follow=True)


def test_the_page_of_a_job_opens_whichever_shard_it_is_in(operator: Client) -> None:
    here, there = tasks.add.enqueue(1, 1), tasks.add.using(database=SECOND).enqueue(20, 22)
    assert "20" in operator.get(page(there.id)).content.decode()
    assert operator.get(page(here.id)).status_code == 200
    for name in ("history", "amend"):
        assert operator.get(f"{page(there.id).removesuffix('change/')}{name}/").status_code == 200


def test_an_act_reaches_the_job_in_its_shard(operator: Client) -> None:
    cases = [
        ("cancel", {}, Status.CANCELLED),
        ("move", {"queue": "elsewhere", "priority": 3}, Status.PENDING),
        ("postpone", {"delay": 300}, Status.PENDING),
    ]
    with all_faults() as about:
        for name, data, status in cases:
            with about(name):
                empty_shards()
                there = tasks.add.using(database=SECOND).enqueue(2, 2)
                before = Job.objects.using(SECOND).get()
                assert "changed in the meantime" not in act(operator, there, name, **data).content.decode()
                job = Job.objects.using(SECOND).get()
                assert job.status == status
                assert (job.queue, job.status, job.next_run_at) != (before.queue, before.status, before.next_run_at)


def test_it_follows_a_job_that_was_moved(operator: Client) -> None:
    there = tasks.add.using(database=SECOND).enqueue(20, 22)
    moved(SECOND, "default")
    assert "22" in operator.get(page(there.id)).content.decode()
    act(operator, there, "cancel")
    assert Job.objects.using("default").get().status == Status.CANCELLED


def test_a_family_is_shown_together_though_a_child_was_moved(operator: Client) -> None:
    parent = tasks.add.using(database=SECOND).enqueue(1, 1)
    child = Job.objects.using(SECOND).create(task="shop.add", parent_id=int(parent.id))
    child.save(using="default", force_insert=True)
    Job.objects.using(SECOND).filter(pk=child.pk).delete()
    assert page(child.pk) in operator.get(page(parent.id)).content.decode()
    assert page(parent.id) in operator.get(page(child.pk)).content.decode()


def test_a_page_says_that_its_shard_is_away(operator: Client) -> None:
    there, here = tasks.add.using(database=SECOND).enqueue(2, 2), tasks.add.enqueue(1, 1)
    with away(SECOND):
        history = f"{page(there.id).removesuffix('change/')}history/"
        answers = [operator.get(page(there.id)), operator.get(history), act(operator, there, "cancel")]
        assert operator.get(page(here.id)).status_code == 200
    for answer in answers:
        assert answer.status_code == 503
        assert "Shard s2 could not be read: " in answer.content.decode()
    assert operator.get(page(there.id)).status_code == 200


def test_a_page_says_that_its_job_is_on_its_way(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "LONGEST_WAIT", 0)
    there = tasks.add.using(database=SECOND).enqueue(2, 2)
    transfer.depart(Job.objects.db_manager(SECOND), moving.movable(Job.objects.using(SECOND).all()), 0)
    answer = operator.get(page(there.id))
    assert answer.status_code == 503
    assert "left one shard and did not arrive in another" in answer.content.decode()
    moving.finish(SECOND)
    assert operator.get(page(there.id)).status_code == 200


def test_nobody_sees_more_than_before(operator: Client) -> None:
    there, client = tasks.add.using(database=SECOND).enqueue(2, 2), Client()
    client.force_login(User.objects.create_user("staff", is_staff=True))
    assert client.get(page(there.id)).status_code == 403
    assert act(client, there, "cancel").status_code == 403
    with away(SECOND):
        assert client.get(page(there.id)).status_code == 403


def test_an_id_of_no_job_is_no_error(operator: Client) -> None:
    with all_faults() as about:
        for strange in ["x", "9" * 30, (7 << 48) + 1, (1 << 48) + 999_999]:
            with about(strange):
                assert operator.get(page(strange), follow=True).status_code == 200


def test_the_page_of_an_object_has_its_jobs_of_all_shards(operator: Client) -> None:
    order = Order.objects.create(number=1)
    add, address = tasks.add.using(tags=[order]), reverse("admin:shop_order_change", args=[order.pk])
    here, there = add.enqueue(1, 1), add.using(database=SECOND).enqueue(2, 2)
    shown = operator.get(address).content.decode()
    assert shown.index(f">#{there.id}<") < shown.index(f">#{here.id}<")
    with away(SECOND):
        shown = operator.get(address).content.decode()
    assert f">#{here.id}<" in shown
    assert "Shard s2 could not be read: " in shown
