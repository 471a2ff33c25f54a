"""A dump of the partitioned table is restored with all that belongs to it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import connections

from pulse_django.embedded import starter
from pulse_django.models import Attempt, IdempotencyKey, Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from testproject.postgres import this_server
from tests.crash.processes import database_url
from tests.queue.steps import claim_one, sql, success

pytestmark = pytest.mark.usefixtures("pulse_db")

COPY = "restored"


@pytest.fixture
def restored() -> Iterator[str]:
    """An alias of the database that is restored from a dump."""
    name = f"restored_{os.getpid()}"
    sql(f"CREATE DATABASE {name}")
    connections.settings[COPY] = {**connections["default"].settings_dict, "NAME": name}
    try:
        yield COPY
    finally:
        connections[COPY].close()
        del connections[COPY]
        del connections.settings[COPY]
        sql(f"DROP DATABASE {name} WITH (FORCE)")


def dump_and_restore(alias: str) -> None:
    server, folder = this_server(), this_server().home / f"dump-{os.getpid()}"
    name = str(connections[alias].settings_dict["NAME"])
    try:
        starter.run_program(server, "pg_dump", "-Fd", "-f", str(folder), "-d", database_url())
        starter.run_program(server, "pg_restore", "--exit-on-error", "-d", database_url(name=name), str(folder))
    finally:
        for path in [*folder.glob("*")]:
            path.unlink()
        folder.rmdir()


@pytest.mark.usefixtures("days")
@pytest.mark.session("pg_dump sets up its session")
@pytest.mark.one_server("its copy is a database that Citus does not know")
def test_a_restored_queue_goes_on(restored: str) -> None:
    keyed = Job.objects.enqueue(NewJob(task="tests.add", idempotency_key="k"))
    Job.objects.settle([success(claim_one(Identity("me")))])
    waiting = Job.objects.enqueue(NewJob(task="tests.add"))
    dump_and_restore(restored)
    jobs = Job.objects.db_manager(restored)
    assert list(jobs.order_by("id").values_list("id", "status")) == [(keyed.pk, "COMPLETED"), (waiting.pk, "PENDING")]
    assert [run.job_id for run in Attempt.objects.using(restored)] == [keyed.pk]
    assert IdempotencyKey.objects.using(restored).get().job_id == keyed.pk
    assert jobs.get_or_enqueue(NewJob(task="tests.add", idempotency_key="k"))[0].pk == keyed.pk
    assert jobs.enqueue(NewJob(task="tests.add")).pk > waiting.pk
    claims = jobs.claim(Identity("me"), limit=2)
    assert len(jobs.settle([success(claim) for claim in claims]).accepted) == 2
    [made] = jobs.make_days(ahead=4)
    assert made
    assert jobs.drop_days(older_than=timedelta(days=7)) == []
