from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, connections, models
from django.db.migrations.loader import MigrationLoader
from django.test.utils import isolate_apps

from pulse_django import checks, database_checks
from pulse_django import queue as protocol
from pulse_django.migrations import _days
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, grant_like_column, same_owner
from pulse_django.models import Attempt, Job
from tests.factories import today
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


def objects_of_the_app() -> set[str]:
    """Return the names of tables, indexes and sequences. Which days there are depends on the day of the migration."""
    names = sql("SELECT relname FROM pg_class WHERE relname LIKE 'pulse_%%'")
    return {re.sub(r"(?<=_job_)\d{8}", "<day>", name) for (name,) in names}


@pytest.mark.one_server("a distributed schema is not migrated backwards")
def test_the_migration_can_be_undone_and_done_again() -> None:
    before = objects_of_the_app()
    try:
        call_command("migrate", "pulse_django", "zero", verbosity=0)
        assert objects_of_the_app() == set()
    finally:
        call_command("migrate", "pulse_django", verbosity=0)
    assert objects_of_the_app() == before


@pytest.mark.one_server("a distributed schema is not migrated backwards")
def test_tables_that_a_tool_for_tests_has_dropped_are_made_again() -> None:
    """It drops those of the models, and nothing else."""
    before = objects_of_the_app()
    managed = [
        model._meta.db_table for model in apps.get_app_config("pulse_django").get_models() if model._meta.managed
    ]
    try:
        sql(f"DROP TABLE {', '.join(managed)} CASCADE")
        sql("DELETE FROM django_migrations WHERE app = 'pulse_django'")
    finally:
        call_command("migrate", "pulse_django", verbosity=0)
    assert objects_of_the_app() == before


def test_there_is_one_migration_that_the_models_need_and_it_does_nothing_on_other_databases() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
    migrations = MigrationLoader(connection).disk_migrations
    [ours] = [migration for (app, _), migration in migrations.items() if app == "pulse_django"]
    assert isinstance(ours, PostgresMigration)


@pytest.mark.one_server("a distributed schema is not migrated backwards")
def test_a_role_with_rights_on_new_tables_can_add_jobs_and_makes_no_days() -> None:
    sql("CREATE ROLE of_tables NOLOGIN")
    try:
        sql("ALTER DEFAULT PRIVILEGES GRANT SELECT, INSERT ON TABLES TO of_tables")
        call_command("migrate", "pulse_django", "zero", verbosity=0)
        call_command("migrate", "pulse_django", verbosity=0)
        for table in ("job", "ledger", "key"):
            assert sql("SELECT has_table_privilege('of_tables', %s, 'SELECT')", f"pulse_django_{table}") == [(True,)]
        assert sql("SELECT has_sequence_privilege('of_tables', 'pulse_django_job_id_seq', 'USAGE')") == [(True,)]
        makes_days = "has_function_privilege('of_tables', 'pulse_django_make_day(int, int)', 'EXECUTE')"
        assert sql(f"SELECT {makes_days}") == [(False,)]
    finally:
        sql("DROP OWNED BY of_tables; DROP ROLE of_tables")


def execute(statement: str) -> None:
    """Send it as it is: it may hold what looks like a parameter."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.one_server("it makes tables, which Citus would distribute")
class TestHelpersOfLaterMigrations:
    """Migrations after 1.0 need them: what they add belongs to whom the tables belong, and to whom may use those."""

    @pytest.fixture(autouse=True)
    def _roles(self, pulse_db: None) -> Iterator[None]:
        sql("CREATE ROLE of_old NOLOGIN; CREATE TABLE of_later (id bigint)")
        yield
        sql("DROP TABLE of_later; DROP OWNED BY of_old; DROP ROLE of_old")

    def test_a_new_table_gets_the_owner_of_the_table_of_jobs(self) -> None:
        sql("ALTER TABLE of_later OWNER TO of_old")
        execute(same_owner("TABLE of_later"))
        owner = "SELECT relowner FROM pg_class WHERE oid = %s::regclass::oid"
        assert sql(owner, "of_later") == sql(owner, "pulse_django_job_hot")

    def test_who_may_use_a_table_or_a_column_may_use_what_is_new(self) -> None:
        sql("GRANT SELECT ON pulse_django_pause TO of_old; GRANT UPDATE (args) ON pulse_django_job_hot TO of_old")
        execute(grant_like("SELECT", "pulse_django_pause", "SELECT ON of_later"))
        execute(grant_like("INSERT", "pulse_django_pause", "INSERT ON of_later"))
        execute(grant_like_column("UPDATE", "pulse_django_job_hot", "args", "UPDATE ON of_later"))
        execute(grant_like_column("UPDATE", "pulse_django_job_hot", "kwargs", "DELETE ON of_later"))
        may = "SELECT has_table_privilege('of_old', 'of_later', %s)"
        found = {what: sql(may, what) == [(True,)] for what in ("SELECT", "INSERT", "UPDATE", "DELETE")}
        assert found == {"SELECT": True, "INSERT": False, "UPDATE": True, "DELETE": False}

    def test_days_that_are_there_get_a_new_index(self) -> None:
        name = f"pulse_django_job_{today()}_errors"
        sql(f"DROP INDEX {name}")
        with connection.cursor() as cursor:
            _days.index_days(cursor, "errors")
        assert sql("SELECT indisvalid FROM pg_index WHERE indexrelid = %s::regclass::oid", name) == [(True,)]


def test_the_table_has_its_storage_parameters() -> None:
    [(options,)] = sql("SELECT reloptions FROM pg_class WHERE oid = 'pulse_django_job_hot'::regclass")
    assert "fillfactor=50" in options
    assert "autovacuum_vacuum_scale_factor=0" in options
    assert "autovacuum_vacuum_threshold=5000" in options


VERBS = [import_module(one.name) for one in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}.")]


def test_the_statements_name_the_tables_that_the_models_have() -> None:
    from pulse_django.models import IdempotencyKey, Pause, StoredAttempt
    from pulse_django.pauses import statements as pauses
    from pulse_django.queue.database import job_queries
    from pulse_django.unique import admission

    text = "".join(
        value
        for module in (*VERBS, admission, pauses, job_queries)
        for name, value in vars(module).items()
        if isinstance(value, str) and "pulse_django_" in value
    )
    for model in (Job, StoredAttempt, IdempotencyKey, Pause):
        assert model._meta.db_table in text


class TestDatabaseChecks:
    def test_this_server_passes_and_nothing_is_asked_of_databases_that_are_not_being_checked(self) -> None:
        assert [m for m in run_checks(databases=["default"]) if str(m.id).startswith("pulse_django")] == []
        assert database_checks.check_database(databases=None) == []
        assert database_checks.check_database(databases=["other"]) == []

    @each_of(("140009", True), ("149999", True), ("150000", False))
    def test_a_server_before_15_is_refused(self, *, version: Any, refused: Any) -> None:
        found = {
            "server_version_num": version,
            "server_version": "14.9",
            "fsync": "on",
            "full_page_writes": "on",
        }
        messages = database_checks._check_version(found)
        assert [message.id for message in messages] == (["pulse_django.E008"] if refused else [])

    @each_of("fsync", "full_page_writes")
    def test_a_server_that_may_forget_is_warned_about(self, *, off: Any) -> None:
        [message] = database_checks._check_durability({"fsync": "on", "full_page_writes": "on"} | {off: "off"})
        assert message.id == "pulse_django.W002"
        assert off in message.msg
        assert not message.is_serious()

    @each_of(("synchronous_commit", "off"), ("default_transaction_isolation", "serializable"))
    def test_a_careless_role_is_warned_about(self, *, name: Any, value: Any) -> None:
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
