"""An operation on many jobs in real workers, one of which is killed in the middle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User

from pulse_django.console.mass.criteria import Criteria
from pulse_django.console.mass.operation import start_operation
from pulse_django.console.mass.totals import totals_of
from pulse_django.models import Job
from pulse_django.operations.acts import ACTS
from pulse_django.queue.words.own_tasks import ACT
from pulse_django.queue.words.states import Status
from tests.crash.workers import Workers, wait_until
from tests.queue.steps import sql

MANY = 10_000


@pytest.fixture
def operator(pulse_db: None) -> Iterator[User]:
    user = User.objects.create_superuser("operator")
    yield user
    user.delete()


def test_a_worker_that_is_killed_in_the_middle_is_followed_by_another(workers: Workers, operator: User) -> None:
    sql(
        "INSERT INTO pulse_django_job (task, queue, status, attempts, finished_at, last_error)"
        " SELECT 'not.run', 'mail', 'DEAD_LETTERED', 1, clock_timestamp(), 'Timeout' FROM generate_series(1, %s)",
        MANY,
    )
    dead = Job.objects.filter(queue="mail", status=Status.DEAD_LETTERED)
    criteria = Criteria.read("status__exact=DEAD_LETTERED&queue=mail")
    given = {"runs": 2, "per_minute": None, "reason": "the bank is back"}
    batch = start_operation("default", ACTS["retry"], criteria, given, operator)
    first = workers.start("--queues", "default", "--concurrency", "1")
    wait_until(lambda: 0 < dead.count() < MANY)
    first.kill()
    assert dead.count() > 0, "or it was not in the middle"
    workers.start("--queues", "default", "--concurrency", "2")
    wait_until(lambda: batch.row.finished_at is not None, patience=60)
    assert not dead.exists()
    assert batch.jobs.filter(task=ACT).count() == MANY / 500
    totals = totals_of(batch)
    assert totals is not None
    assert totals.lines[:2] == ("10,000 retried", "0 no longer matched")
