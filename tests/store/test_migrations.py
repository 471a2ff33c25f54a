from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, connection, connections, models
from django.db.migrations.executor import MigrationExecutor
from django.test.utils import isolate_apps

from pulse_django import checks, database_checks, protocol
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.models import Attempt, Job, PausedKey
from pulse_django.words.job_options import NewJob
from pulse_django.words.leases import Identity
from pulse_django.words.limiting import lane_key
from tests.faults import all_faults
from tests.protocol.steps import claim_one, sql, success

pytestmark = pytest.mark.usefixtures("pulse_db")


def objects_of_the_app() -> set[str]:
    """Return the names of tables, indexes and sequences. Which days there are depends on the day of the migration."""
    names = sql("SELECT relname FROM pg_class WHERE relname LIKE 'pulse_%%'")
    return {re.sub(r"(?<=_job_)\d{8}", "<day>", name) for (name,) in names}


@pytest.mark.one_server("a distributed schema is not migrated backwards")
def test_every_migration_can_be_undone_and_done_again() -> None:
    before = objects_of_the_app()
    try:
        call_command("migrate", "pulse_django", "zero", verbosity=0)
        assert objects_of_the_app() == set()
    finally:
        call_command("migrate", "pulse_django", verbosity=0)
    assert objects_of_the_app() == before


@pytest.mark.one_server("a distributed schema is not migrated backwards")
def test_jobs_that_are_set_aside_are_in_line_again_after_a_step_back() -> None:
    """And paused tasks, which the release before would take for keys, are gone."""
    ids = Job.objects.enqueue_many([NewJob(task="t"), NewJob(task="t", lane_key="k", run_after=timedelta(hours=1))])
    Job.objects.update(ready=None)
    PausedKey.objects.pause_task("x" * 200)
    PausedKey.objects.pause(lane_key("", "acme"))
    try:
        call_command("migrate", "pulse_django", "0016", verbosity=0)
        assert sql("SELECT ready FROM pulse_django_job ORDER BY id") == [(True,), (False,)]
        assert sql("SELECT lane_key FROM pulse_django_pausedkey") == [(lane_key("", "acme"),)]
        with pytest.raises(IntegrityError):
            sql("UPDATE pulse_django_job SET ready = NULL WHERE id = %s", ids[0])
    finally:
        call_command("migrate", "pulse_django", verbosity=0)
    sql("UPDATE pulse_django_job SET ready = NULL WHERE id = %s", ids[0])


def test_the_models_need_no_further_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_every_migration_is_reversible() -> None:
    loader = MigrationExecutor(connection).loader
    for (app, _), migration in loader.disk_migrations.items():
        if app == "pulse_django":
            assert all(operation.reversible for operation in migration.operations), migration


def test_every_migration_does_nothing_on_other_databases() -> None:
    migrations = MigrationExecutor(connection).loader.disk_migrations
    ours = [migration for (app, _), migration in migrations.items() if app == "pulse_django"]
    assert ours
    assert [migration.name for migration in ours if not isinstance(migration, PostgresMigration)] == []


def test_the_table_has_its_storage_parameters() -> None:
    [(options,)] = sql("SELECT reloptions FROM pg_class WHERE oid = 'pulse_django_job_hot'::regclass")
    assert "fillfactor=50" in options
    assert "autovacuum_vacuum_scale_factor=0" in options
    assert "autovacuum_vacuum_threshold=5000" in options


VERBS = [import_module(one.name) for one in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}.")]


def test_the_statements_name_the_tables_that_the_models_have() -> None:
    from pulse_django.models import IdempotencyKey, Queue, StoredAttempt
    from pulse_django.store import job_queries, queues

    text = "".join(
        value
        for module in (*VERBS, queues, job_queries)
        for name, value in vars(module).items()
        if isinstance(value, str) and "pulse_django_" in value
    )
    for model in (Job, StoredAttempt, IdempotencyKey, Queue):
        assert model._meta.db_table in text


class TestDatabaseChecks:
    def test_this_server_passes(self) -> None:
        assert [m for m in run_checks(databases=["default"]) if str(m.id).startswith("pulse_django")] == []

    def test_a_server_before_15_is_refused(self) -> None:
        with all_faults() as about:
            for version, refused in [("140009", True), ("149999", True), ("150000", False)]:
                with about((version, refused)):
                    found = {
                        "server_version_num": version,
                        "server_version": "14.9",
                        "fsync": "on",
                        "full_page_writes": "on",
                    }
                    messages = database_checks._check_version(found)
                    assert [message.id for message in messages] == (["pulse_django.E008"] if refused else [])

    def test_a_server_that_may_forget_is_warned_about(self) -> None:
        with all_faults() as about:
            for off in ["fsync", "full_page_writes"]:
                with about(off):
                    [message] = database_checks._check_durability(
                        {"fsync": "on", "full_page_writes": "on"} | {off: "off"}
                    )
                    assert message.id == "pulse_django.W002"
                    assert off in message.msg
                    assert not message.is_serious()

    def test_a_careless_role_is_warned_about(self) -> None:
        cases = [("synchronous_commit", "off"), ("default_transaction_isolation", "serializable")]
        with all_faults() as about:
            for name, value in cases:
                with about((name, value)):
                    good = {"synchronous_commit": "on", "default_transaction_isolation": "read committed"}
                    assert database_checks._check_session(good) == []
                    [message] = database_checks._check_session(good | {name: value})
                    assert message.id == "pulse_django.W003"
                    assert f"{name} is {value}" in message.msg

    def test_another_vendor_is_refused_without_connecting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections["default"], "vendor", "sqlite")
        [message] = checks.check_vendor()
        assert message.id == "pulse_django.W011"
        assert not message.is_serious(), "tests of a project may run there"
        assert "PostgreSQL 15" in str(message.hint)
        assert database_checks.check_database(databases=["default"]) == []

    def test_nothing_is_asked_of_databases_that_are_not_being_checked(self) -> None:
        assert database_checks.check_database(databases=None) == []
        assert database_checks.check_database(databases=["other"]) == []


@pytest.mark.one_server("a distributed schema is not migrated backwards")
class TestTheWayToErasAndBack:
    @pytest.fixture(autouse=True)
    def _forward_again(self, pulse_db: None) -> Iterator[None]:
        yield
        sql("DROP TABLE IF EXISTS of_the_project")
        call_command("migrate", "pulse_django", verbosity=0)

    def test_nothing_is_lost(self) -> None:
        new = NewJob(task="tests.add", idempotency_key="k")
        waiting, completed = Job.objects.enqueue(NewJob(task="tests.add", priority=-1)), Job.objects.enqueue(new)
        claim = claim_one(Identity("me"))
        Job.objects.settle([success(claim)])
        call_command("migrate", "pulse_django", "0001", verbosity=0)
        assert sql("SELECT id, status FROM pulse_django_job ORDER BY id") == [
            (waiting.pk, "PENDING"),
            (completed.pk, "COMPLETED"),
        ]
        ledger = "SELECT job_id, number, token, worker, outcome FROM pulse_django_attempt"
        assert sql(ledger) == [(completed.pk, 1, claim.token, claim.lease.holder, "SUCCEEDED")]
        [(younger,)] = sql(
            "INSERT INTO pulse_django_job (task, idempotency_key) VALUES ('tests.add', 'l') RETURNING id"
        )
        call_command("migrate", "pulse_django", verbosity=0)
        assert Job.objects.get_or_enqueue(new)[0].pk == completed.pk
        assert Job.objects.get_or_enqueue(NewJob(task="tests.add", idempotency_key="l"))[0].pk == younger
        assert Job.objects.enqueue(NewJob(task="tests.add")).pk > younger
        assert [run.outcome for run in Job.objects.get(pk=completed.pk).ledger.all()] == ["SUCCEEDED"]

    def test_what_a_role_may_do_it_may_do_afterwards(self) -> None:
        call_command("migrate", "pulse_django", "0001", verbosity=0)
        sql("CREATE ROLE of_old NOLOGIN")
        try:
            sql("GRANT INSERT, SELECT ON pulse_django_job, pulse_django_attempt TO of_old")
            sql("GRANT UPDATE (status) ON pulse_django_job TO of_old")
            call_command("migrate", "pulse_django", verbosity=0)
            may = "has_table_privilege('of_old', %s, %s)"
            for table, what in (("job", "INSERT"), ("job", "SELECT"), ("ledger", "SELECT"), ("key", "INSERT")):
                assert sql(f"SELECT {may}", f"pulse_django_{table}", what) == [(True,)], (table, what)
            assert sql("SELECT has_column_privilege('of_old', 'pulse_django_job', 'status', 'UPDATE')") == [(True,)]
            assert sql("SELECT has_sequence_privilege('of_old', 'pulse_django_job_id_seq', 'USAGE')") == [(True,)]
        finally:
            sql("DROP OWNED BY of_old; DROP ROLE of_old")

    @pytest.mark.parametrize("table", ["pulse_django_job", "pulse_django_attempt"])
    def test_a_foreign_key_of_the_project_is_refused_before_anything_is_changed(self, table: str) -> None:
        call_command("migrate", "pulse_django", "0001", verbosity=0)
        sql(f"CREATE TABLE of_the_project (job_id bigint REFERENCES {table} (id))")
        with pytest.raises(DatabaseError, match=r"Foreign keys refer to the jobs of Pulse: .* of of_the_project"):
            call_command("migrate", "pulse_django", verbosity=0)
        assert sql("SELECT max(name) FROM django_migrations WHERE app = 'pulse_django'") == [("0001_initial",)]


def test_a_foreign_key_is_found_by_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with isolate_apps("tests"):

        class Order(models.Model):  # noqa: DJ008
            job = models.ForeignKey(Job, models.DO_NOTHING)
            run = models.ForeignKey(Attempt, models.DO_NOTHING, db_constraint=False)
            missing = models.ForeignKey("tests.Missing", models.DO_NOTHING)

            class Meta:
                app_label = "tests"

    monkeypatch.setattr(checks.apps, "get_models", lambda **_: [Order, Job])
    [message] = checks.check_foreign_keys()
    assert message.id == "pulse_django.E012"
    assert "tests.Order.job refers to pulse_django.Job" in message.msg
