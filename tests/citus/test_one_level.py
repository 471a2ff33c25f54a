"""History in one level of partitions, as on Citus: shown on plain PostgreSQL, so that no cluster is needed for it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection

from pulse_django.health import conditions
from pulse_django.migrations import _days
from pulse_django.models import Job
from pulse_django.queue import prune
from pulse_django.queue.database import dialects
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status, era_of
from pulse_django.workflows.models import StoredBatch
from tests.factories import make_job, today
from tests.queue.steps import claim_one, sql, success
from tests.queue.test_eras import OLD

pytestmark = [
    pytest.mark.usefixtures("pulse_db"),
    pytest.mark.one_server("there it is what all tests run on, and a distributed schema is not migrated backwards"),
]

_PARENTS = """
SELECT parent.relname::text, pg_catalog.count(*)
FROM pg_inherits AS link
JOIN pg_class AS day ON day.oid = link.inhrelid
JOIN pg_class AS parent ON parent.oid = link.inhparent
WHERE day.relname ~ '^pulse_django_job_' AND day.relkind IN ('r', 'p')
GROUP BY 1 ORDER BY 1
"""


def migrate_anew() -> None:
    call_command("migrate", "pulse_django", "zero", verbosity=0)
    call_command("migrate", "pulse_django", verbosity=0)
    dialects.forget()


@pytest.fixture
def one_level(pulse_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(_days, "_IS_CITUS", "SELECT true")
        patch.setattr(_days, "_IS_DISTRIBUTED", "SELECT false")
        migrate_anew()
    yield
    migrate_anew()


def test_two_levels_are_what_plain_postgresql_has() -> None:
    assert [parent for parent, _ in sql(_PARENTS)] == ["pulse_django_job", "pulse_django_job_over"]


@pytest.mark.usefixtures("one_level")
def test_days_are_partitions_of_the_table_of_all_jobs() -> None:
    hot_other_and_days = 2 + 1 + prune.DAYS_AHEAD
    assert sql(_PARENTS) == [("pulse_django_job", hot_other_and_days)]
    [(has_indexes,)] = sql(
        "SELECT pg_catalog.count(*) FROM pg_indexes WHERE tablename = %s", f"pulse_django_job_{today()}"
    )
    assert has_indexes == 1 + len(_days.INDEXES)


@pytest.mark.usefixtures("one_level")
@pytest.mark.alters_statements
def test_jobs_end_in_their_day_and_go_with_it() -> None:
    job = make_job()
    Job.objects.settle([success(claim_one(Identity("me")))])
    assert sql("SELECT tableoid::regclass::text FROM pulse_django_job") == [(f"pulse_django_job_{today()}",)]
    make_job(Status.COMPLETED, era=era_of(OLD))
    assert conditions.ask(conditions.named("day-missing"), "default").subjects[0].key == str(era_of(OLD))
    assert Job.objects.make_days() == [OLD]
    assert conditions.ask(conditions.named("day-missing"), "default").is_clear
    assert Job.objects.drop_days(older_than=timedelta(days=7)) == [OLD]
    assert [one.pk for one in Job.objects.all()] == [job.pk]


@pytest.mark.usefixtures("one_level")
def test_members_of_open_batches_are_carried_to_today() -> None:
    sql("SELECT pulse_django_make_day(%s, 0)", era_of(OLD))
    job = make_job(Status.COMPLETED, era=era_of(OLD), batch=StoredBatch.objects.create())
    assert Job.objects.drop_days(older_than=timedelta(days=7)) == [OLD]
    assert Job.objects.get(pk=job.pk).era == today()


def test_a_schema_that_is_distributed_already_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_days, "_IS_CITUS", "SELECT true")
    monkeypatch.setattr(_days, "_IS_DISTRIBUTED", "SELECT true")
    with pytest.raises(ImproperlyConfigured, match="pulse_shards add"):
        _days.refuse_distributed_schema(None, SimpleNamespace(connection=connection))
