"""A project may refer to jobs by foreign key. Such jobs are kept, and keep no other from being pruned."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connection

from pulse_django.models import Attempt, Job
from pulse_django.protocol import prune
from pulse_django.words.states import Status
from tests.factories import AttemptFactory, make_job, now
from tests.protocol.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

OLD = timedelta(days=10)
HOUR = timedelta(hours=1)


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.fixture(params=["pulse_django_job", "pulse_django_attempt"])
def target(request: pytest.FixtureRequest) -> Iterator[str]:
    """A table of the project's, with names that need quotes, and the foreign key that Django would make."""
    run(
        f'CREATE TABLE "the 100% shop" ("of job" bigint REFERENCES {request.param} (id) DEFERRABLE INITIALLY DEFERRED,'
        " note bigint REFERENCES pulse_django_job (id) ON DELETE SET NULL)"
    )
    prune._referring.clear()
    yield request.param
    run('DROP TABLE "the 100% shop"')
    prune._referring.clear()


def finished(count: int) -> list[Job]:
    jobs = [make_job(Status.COMPLETED, finished_at=now(-OLD)) for _ in range(count)]
    for job in jobs:
        AttemptFactory(job=job, number=1)
    return jobs


def refer(target: str, job: Job) -> None:
    row = job.pk if target == "pulse_django_job" else Attempt.objects.get(job=job).pk
    sql('INSERT INTO "the 100%% shop" ("of job") VALUES (%s) RETURNING 1', row)


def test_prune_deletes_all_others_and_says_what_it_keeps(target: str, caplog: pytest.LogCaptureFixture) -> None:
    jobs = finished(5)
    refer(target, jobs[0])
    refer(target, jobs[3])
    assert Job.objects.prune(Status.COMPLETED, older_than=HOUR) == 3
    kept = [jobs[0].pk, jobs[3].pk]
    assert list(Job.objects.order_by("pk").values_list("pk", flat=True)) == kept
    assert list(Attempt.objects.order_by("job_id").values_list("job_id", flat=True)) == kept
    [record] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert '"the 100% shop"."of job"' in record.getMessage()


def test_those_that_are_kept_do_not_fill_every_batch(target: str) -> None:
    jobs = finished(4)
    for job in jobs[:2]:
        refer(target, job)
    assert [Job.objects.prune(Status.COMPLETED, older_than=HOUR, limit=1) for _ in range(3)] == [1, 1, 0]


def test_prune_these_answers_which_it_deleted(target: str) -> None:
    jobs = finished(3)
    refer(target, jobs[1])
    assert Job.objects.prune_these([job.pk for job in jobs]) == [jobs[0].pk, jobs[2].pk]


def test_a_job_that_is_not_referred_to_any_more_is_pruned(target: str) -> None:
    [job] = finished(1)
    refer(target, job)
    assert Job.objects.prune(Status.COMPLETED, older_than=HOUR) == 0
    run('DELETE FROM "the 100% shop"')
    assert Job.objects.prune(Status.COMPLETED, older_than=HOUR) == 1


def test_a_key_that_says_what_becomes_of_its_row_keeps_nothing(target: str) -> None:
    [job] = finished(1)
    sql('INSERT INTO "the 100%% shop" (note) VALUES (%s) RETURNING 1', job.pk)
    assert Job.objects.prune(Status.COMPLETED, older_than=HOUR) == 1
