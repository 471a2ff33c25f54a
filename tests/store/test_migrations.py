from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest
from django.core.checks import run_checks
from django.core.management import call_command
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from pulse_django import checks, protocol
from pulse_django.models import Job
from tests.protocol.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


def objects_of_the_app() -> set[str]:
    return {name for (name,) in sql("SELECT relname FROM pg_class WHERE relname LIKE 'pulse_%%'")}


def test_every_migration_can_be_undone_and_done_again() -> None:
    before = objects_of_the_app()
    try:
        call_command("migrate", "pulse_django", "zero", verbosity=0)
        assert objects_of_the_app() == set()
    finally:
        call_command("migrate", "pulse_django", verbosity=0)
    assert objects_of_the_app() == before


def test_the_models_need_no_further_migration() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_every_migration_is_reversible() -> None:
    loader = MigrationExecutor(connection).loader
    for (app, _), migration in loader.disk_migrations.items():
        if app == "pulse_django":
            assert all(operation.reversible for operation in migration.operations), migration


def test_the_table_has_its_storage_parameters() -> None:
    [(options,)] = sql("SELECT reloptions FROM pg_class WHERE relname = 'pulse_django_job'")
    assert "fillfactor=50" in options
    assert "autovacuum_vacuum_scale_factor=0" in options
    assert "autovacuum_vacuum_threshold=5000" in options


VERBS = [import_module(one.name) for one in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}.")]


def test_the_statements_name_the_tables_that_the_models_have() -> None:
    from pulse_django.models import Attempt, Queue
    from pulse_django.store import job_queries, queues

    text = "".join(
        value
        for module in (*VERBS, queues, job_queries)
        for name, value in vars(module).items()
        if isinstance(value, str) and "pulse_django_" in value
    )
    for model in (Job, Attempt, Queue):
        assert model._meta.db_table in text


class TestDatabaseChecks:
    def test_this_server_passes(self) -> None:
        assert [m for m in run_checks(databases=["default"]) if str(m.id).startswith("pulse_django")] == []

    @pytest.mark.parametrize(("version", "refused"), [("140009", True), ("149999", True), ("150000", False)])
    def test_a_server_before_15_is_refused(self, version: str, refused: bool) -> None:
        found = {"server_version_num": version, "server_version": "14.9", "fsync": "on", "full_page_writes": "on"}
        messages = checks._check_version(found)
        assert [message.id for message in messages] == (["pulse_django.E008"] if refused else [])

    @pytest.mark.parametrize("off", ["fsync", "full_page_writes"])
    def test_a_server_that_may_forget_is_warned_about(self, off: str) -> None:
        [message] = checks._check_durability({"fsync": "on", "full_page_writes": "on"} | {off: "off"})
        assert message.id == "pulse_django.W002"
        assert off in message.msg
        assert not message.is_serious()

    @pytest.mark.parametrize(
        ("name", "value"), [("synchronous_commit", "off"), ("default_transaction_isolation", "serializable")]
    )
    def test_a_careless_role_is_warned_about(self, name: str, value: str) -> None:
        good = {"synchronous_commit": "on", "default_transaction_isolation": "read committed"}
        assert checks._check_session(good) == []
        [message] = checks._check_session(good | {name: value})
        assert message.id == "pulse_django.W003"
        assert f"{name} is {value}" in message.msg

    def test_another_vendor_is_refused_without_connecting(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections["default"], "vendor", "sqlite")
        [message] = checks.check_vendor()
        assert message.id == "pulse_django.E007"
        assert message.is_serious()
        assert "PostgreSQL 15" in str(message.hint)
        assert checks.check_database(databases=["default"]) == []

    def test_nothing_is_asked_of_databases_that_are_not_being_checked(self) -> None:
        assert checks.check_database(databases=None) == []
        assert checks.check_database(databases=["other"]) == []
