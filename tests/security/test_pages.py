"""The pages of the admin: rows are text on them, and they tell nobody what he may not see.

Who gets in, that looking changes nothing and that hostile rows come out as text: tests/console/test_every_page.py,
which goes through every address.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.console.test_every_page import _patterns, names, somebody
from tests.factories import AttemptFactory, WorkerFactory, make_job
from tests.queue.steps import sql
from tests.security.handlers import CANARY

pytestmark = pytest.mark.django_db

VIEWING = ("pulse_view_jobs", "pulse_view_queues", "pulse_view_workers", "pulse_view_board")

# ---------------------------------------------------------------------------------------- what is not everybody's


@pytest.fixture
def secret() -> Job:
    """A job with a word in everything that may be secret, and in nothing else."""
    value = [{"card": CANARY}]
    make_job(Status.COMPLETED, task="security.echo", args=value, kwargs={"x": value}, result=value)
    make_job(Status.RUNNING, task="security.echo", args=value, progress={"done": 1, "total": 2, "x": CANARY})
    job = make_job(Status.DEAD_LETTERED, task="security.echo", args=value, kwargs={"x": value}, progress=value)
    AttemptFactory(job=job, number=10, outcome="FAILED")
    return job


def pages(pk: int) -> Iterator[str]:
    for name in names():
        arguments = [pk, "retry"][: sum(map(len, _patterns(name)))]
        yield reverse(f"admin:{name}", args=arguments)


def test_who_may_not_see_arguments_finds_them_on_no_page(secret: Job, admin_client: Client) -> None:
    client, seen = (
        somebody(*VIEWING, "pulse_retry_jobs", "pulse_cancel_jobs", "pulse_schedule_jobs", "pulse_delete_jobs"),
        0,
    )
    for job in Job.objects.all():
        for url in pages(job.pk):
            assert CANARY not in client.get(url, {"error": "ValueError: no"}).content.decode(), url
        seen += CANARY in admin_client.get(reverse("admin:pulse_django_job_change", args=[job.pk])).content.decode()
    assert seen == 3, "who may see them does"
    found = client.get(reverse("admin:pulse_django_job_changelist"), {"q": CANARY}).content.decode()
    assert "security.echo" not in found.partition("result_list")[2], "nor are they searched"


LOOKUPS = (
    "args__icontains", "args__0__card__startswith", "args__regex", "kwargs__x__0__card", "result__icontains",
    "progress__icontains", "progress__x", "ledger__message__icontains", "children__args__icontains", "args",
    "parent__args",
)  # fmt: skip


@pytest.mark.parametrize("model", ["job", "deadletter", "worker", "queue", "board"])
def test_no_address_tells_whether_a_guess_at_an_argument_is_right(secret: Job, model: str) -> None:
    """Django lets every field of a list be looked up from the address; a letter at a time tells the whole."""
    WorkerFactory()
    client, url = somebody(*VIEWING), reverse(f"admin:pulse_django_{model}_changelist")
    for lookup in LOOKUPS:
        right, wrong = (client.get(url, {lookup: guess}) for guess in (CANARY[:4], "never"))
        assert right.status_code == wrong.status_code
        assert right.headers.get("Location") == wrong.headers.get("Location")
        if right.status_code == 200:
            assert shown(right) == shown(wrong), lookup


def shown(response: Any) -> str:
    """The page without what repeats the address, and what changes from one moment to the next."""
    return re.sub(r"[?&][^\"]*|value=\"[^\"]*\"|\d+(\.\d+)?s|\d\d:\d\d(:\d\d)?", "", response.content.decode())


def test_what_comes_with_a_wrong_shape_is_no_error_of_ours(admin_client: Client) -> None:
    dead = make_job(Status.DEAD_LETTERED)
    for selected in ("x", "1 OR 1=1", "-1", "9" * 30, "\u0661", ""):
        data = {"action": "retry_dead_letters", "_selected_action": [selected, str(dead.pk)[:0]], "index": "0"}
        assert admin_client.post(reverse("admin:pulse_django_job_changelist"), data).status_code in (200, 302)
    dead.refresh_from_db()
    assert dead.status == Status.DEAD_LETTERED


def test_jobs_are_not_made_in_the_admin_and_their_work_cannot_be_changed_there(admin_client: Client) -> None:
    job = make_job(task="security.echo", args=[1])
    assert not {"save_model", "enqueue"} & set(vars(type(admin.site._registry[Job])))
    forged = {"task": "security.crashes", "args": "[2]", "kwargs": "{}", "status": "COMPLETED", "_save": "Save"}
    for name, arguments in (("add", []), ("change", [job.pk]), ("delete", [job.pk])):
        response = admin_client.post(reverse(f"admin:pulse_django_job_{name}", args=arguments), forged)
        assert response.status_code in (403, 404), name
    job.refresh_from_db()
    assert (Job.objects.count(), job.task, job.args, job.status) == (1, "security.echo", [1], Status.PENDING)


# ----------------------------------------------------------------------------------------------------- many at once

ROWS, RUNNING = 100_000, 500
_FILL = """
INSERT INTO pulse_django_job
    (task, status, attempts, finished_at, last_error, locked_by, lease_until, token, started_at)
SELECT
    'security.echo', CASE WHEN is_dead THEN 'DEAD_LETTERED' ELSE 'RUNNING' END, 1,
    CASE WHEN is_dead THEN statement_timestamp() END, 'KeyError: x',
    CASE WHEN NOT is_dead THEN 'host-1:b:1' END,
    CASE WHEN NOT is_dead THEN statement_timestamp() + interval '1 hour' END,
    CASE WHEN NOT is_dead THEN n END,
    statement_timestamp()
FROM (SELECT n, n > %s AS is_dead FROM generate_series(1, %s) AS n) AS made
"""


def test_a_press_on_a_hundred_thousand_rows_is_over_soon_and_touches_no_other(admin_client: Client) -> None:
    """Also with ``select_across``, which Django's form for "all of them" says."""
    sql(_FILL, RUNNING, ROWS)
    sql("ANALYZE pulse_django_job")
    other = make_job(Status.DEAD_LETTERED, last_error="ValueError: of another group")
    running = sql("SELECT * FROM pulse_django_job WHERE status = 'RUNNING' ORDER BY id")
    [first] = Job.objects.dead_letters().order_by("id")[:1]
    data = {"action": "retry_dead_letters", "select_across": "1", "_selected_action": [str(first.pk)]}
    began = time.monotonic()
    admin_client.post(f"{reverse('admin:pulse_django_job_changelist')}?status__exact=DEAD_LETTERED", data)
    assert time.monotonic() - began < 5
    assert Job.objects.filter(status=Status.PENDING).count() == 1, "the selected one, whatever else the form says"
    url = f"{reverse('admin:pulse_django_deadletter_mass', args=['retry'])}?error=KeyError%3A+x"
    began = time.monotonic()
    admin_client.post(url, {"runs": 1})
    assert time.monotonic() - began < 5
    assert 1 < Job.objects.filter(status=Status.PENDING).count() <= 20_001, "a press has a bound"
    assert sql("SELECT * FROM pulse_django_job WHERE status = 'RUNNING' ORDER BY id") == running
    other.refresh_from_db()
    assert other.status == Status.DEAD_LETTERED


# ------------------------------------------------------------------------------------------------------- machines


@pytest.mark.parametrize("path", ["/metrics", "/health"])
def test_a_stranger_gets_nothing_from_the_pages_for_machines_and_costs_no_query(client: Client, path: str) -> None:
    make_job(task="security.echo", queue="of-nobodys-business", args=[CANARY])
    cache.clear()
    for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer x"}, {"Authorization": "Basic eDp4"}):
        with CaptureQueriesContext(connection) as queries:
            response = client.get(path, headers=headers)
        assert response.status_code in (401, 403)
        assert b"pulse" not in response.content.lower()
        assert len(queries) == 0
