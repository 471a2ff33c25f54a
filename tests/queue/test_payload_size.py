"""The table measures payloads as the text that a worker reads, and a claim takes no more of it than it can hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

from pulse_django.models import Job
from pulse_django.queue import claim
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from tests.database import on_empty_tables
from tests.factories import lease_of, make_job
from tests.faults import each_of
from tests.queue.steps import sql, success

pytestmark = pytest.mark.usefixtures("pulse_db")

ME = Identity("me")
TEXT_BOUND, HOOK_BOUND = "pulse_job_payload_text_is_bounded", "pulse_job_hook_is_bounded"


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


def letters(million: float, column: str = "x") -> None:
    """Make a table of one value: a letter so many million times. As it is stored it takes a hundredth of that."""
    run("DROP TABLE IF EXISTS letters")
    text = f"repeat('x', {int(million * 1_000_000)})"
    value = f"jsonb_build_object('x', {text})" if column == "kwargs" else f"jsonb_build_array({text})"
    run(f"CREATE TEMPORARY TABLE letters AS SELECT {value} AS value")


def insert_letters(million: int) -> int:
    """Write a job by hand, with arguments that another table has compressed already."""
    letters(million)
    return insert_again()


def insert_again() -> int:
    [(job_id,)] = sql("INSERT INTO pulse_django_job (task, args) SELECT 'tests.add', value FROM letters RETURNING id")
    return int(job_id)


uncompressed = pytest.mark.one_server("values reach a node uncompressed: the bound on what is stored refuses them")


def update_letters(job: Job, column: str) -> None:
    letters(34, column)
    sql(f"UPDATE pulse_django_job SET {column} = value FROM letters WHERE id = %s RETURNING id", job.pk)


@uncompressed
def test_200_mb_of_one_letter_are_refused_however_small_they_are_stored() -> None:
    letters(200)
    for _ in range(4):
        with pytest.raises(IntegrityError, match=TEXT_BOUND), transaction.atomic():
            insert_again()
    assert not Job.objects.exists()


@uncompressed
@each_of("args", "kwargs", "progress", "on_dead", around=on_empty_tables)
def test_each_column_that_a_claim_brings_is_measured(*, column: Any) -> None:
    job, rule = make_job(), HOOK_BOUND if column == "on_dead" else TEXT_BOUND
    with pytest.raises(IntegrityError, match=rule), transaction.atomic():
        update_letters(job, column)


@uncompressed
def test_what_is_large_only_when_it_is_unpacked_can_be_claimed() -> None:
    """The cast to the rules unpacks it, and the bound is on what is stored: 36 MB in memory, 0.4 MB in the table."""
    run("DROP TABLE IF EXISTS letters")
    numbers = "SELECT jsonb_agg(1) AS value FROM generate_series(1, 3000000)"
    run(f"CREATE TEMPORARY TABLE letters AS {numbers}")
    job_id = insert_again()
    [claim] = Job.objects.claim(ME, limit=10)
    assert (claim.job_id, len(claim.args)) == (job_id, 3_000_000)


def test_a_result_is_measured() -> None:
    job = make_job(Status.COMPLETED)
    with pytest.raises(IntegrityError, match="pulse_job_is_over"), transaction.atomic():
        update_letters(job, "result")


def test_numbers_that_are_short_as_stored_and_long_as_text_are_refused() -> None:
    with pytest.raises((IntegrityError, OperationalError)), transaction.atomic():
        sql(
            "INSERT INTO pulse_django_job (task, args)"
            " SELECT 'tests.add', jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 1000) RETURNING id"
        )


@pytest.fixture
def old_job() -> Iterator[Job]:
    """A row from before the check, larger than it allows."""
    job = make_job()
    with transaction.atomic():
        definition = sql("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", TEXT_BOUND)[0][0]
        run(f"ALTER DOMAIN pulse_django_job_rules DROP CONSTRAINT {TEXT_BOUND}")
        update_letters(job, "args")
        run(f"ALTER DOMAIN pulse_django_job_rules ADD CONSTRAINT {TEXT_BOUND} {definition} NOT VALID")
    yield job
    sql("DELETE FROM pulse_django_job RETURNING id")
    run(f"ALTER DOMAIN pulse_django_job_rules VALIDATE CONSTRAINT {TEXT_BOUND}")


@uncompressed
def test_neither_a_claim_nor_a_heartbeat_nor_a_completion_measures(old_job: Job) -> None:
    """To measure it would refuse its updates."""
    [claim] = Job.objects.claim(ME, limit=10)
    assert len(claim.args[0]) == 34_000_000
    assert claim.lease in Job.objects.heartbeat([claim.lease]).alive
    [ended] = Job.objects.settle([success(claim)]).accepted.values()
    assert ended == Status.COMPLETED


def test_several_large_jobs_are_claimed_one_after_the_other() -> None:
    ids = [insert_letters(30) for _ in range(4)]
    claimed = [[claim.job_id for claim in Job.objects.claim(ME, limit=100)] for _ in range(5)]
    assert claimed == [[one] for one in ids] + [[]]


def test_a_claim_takes_what_fits_in_the_order_of_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint counts, too."""
    monkeypatch.setattr(claim, "CLAIM_BYTES", 1_000)
    sizes = [400, 400, 400, 5_000, 10, 10]
    ids = Job.objects.enqueue_many([NewJob(task="tests.add", args=["x" * size]) for size in sizes])
    claimed = [[ids.index(claim.job_id) for claim in Job.objects.claim(ME, limit=100)] for _ in range(5)]
    assert claimed == [[0, 1], [2], [3], [4, 5], []]
    for _ in range(2):
        make_job(Status.RETRYING, progress={"done": "x" * 900})
    assert [len(Job.objects.claim(ME, limit=100)) for _ in range(3)] == [1, 1, 0]


@each_of(False, True, around=on_empty_tables)
def test_what_is_enqueued_is_measured_in_bytes_of_its_text(*, many: Any) -> None:
    new = NewJob(task="tests.add", args=["é", 1e20], kwargs={"a": 1})
    if many:
        Job.objects.enqueue_many([new])
    else:
        assert Job.objects.enqueue(new).payload_bytes == Job.objects.get().payload_bytes
    assert Job.objects.get().payload_bytes == len('["\\u00e9",100000000000000000000.0]{"a":1}')


@uncompressed
def test_a_run_that_is_lost_with_a_payload_that_may_not_wait_is_a_dead_letter() -> None:
    job = make_job(Status.RUNNING, expired=True)
    update_letters(job, "progress")
    [reaped] = Job.objects.reap()
    assert (reaped.lease, reaped.status) == (lease_of(job), Status.DEAD_LETTERED)
    job.refresh_from_db()
    assert "storing it for another run failed" in job.last_error
