"""A project that tests on SQLite keeps its suite: migrations do nothing there, and a check and enqueue() say so."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testproject.new_project import NewProject

SUITE = """
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, TestCase, TransactionTestCase

from pulse_django import chain, group
from pulse_django.run.registry import BaseTaskBackend, task_backends
from shop.tasks import send_invoice


class InTransaction(TestCase):
    def test_models_of_the_project_are_stored(self):
        User.objects.create_superuser("ada", password="x")
        self.assertEqual(User.objects.count(), 1)

    def test_the_index_of_the_admin_is_shown(self):
        client = Client()
        client.force_login(User.objects.create_superuser("ada", password="x"))
        self.assertEqual(client.get("/admin/").status_code, 200)

    def test_enqueue_says_what_is_needed(self):
        with self.assertRaisesMessage(ImproperlyConfigured, "which is sqlite, not PostgreSQL"):
            send_invoice.enqueue(1)


    def test_a_workflow_is_recorded_by_the_dummy_backend(self):
        dummy = BaseTaskBackend.__module__.removesuffix("base") + "dummy.DummyBackend"
        with self.settings(TASKS={"default": {"BACKEND": dummy}}):
            chain(group(send_invoice.prepare(1), send_invoice.prepare(2)), send_invoice.prepare(3)).enqueue()
            self.assertEqual([one.args[0] for one in task_backends["default"].results], [1, 2, 3])


class WithCommits(TransactionTestCase):
    serialized_rollback = True

    def test_models_are_stored(self):
        User.objects.create_user("ada").delete()
        self.assertEqual(User.objects.count(), 0)
"""


@pytest.fixture
def project(new_project: Callable[[], NewProject]) -> NewProject:
    """startproject's own database is SQLite."""
    project = new_project()
    project.follow_the_readme()
    project.settings('DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}')
    project.write("shop/tests.py", SUITE)
    return project


def tables(project: NewProject) -> set[str]:
    said = project.shell("from django.db import connection; print(*connection.introspection.table_names())")
    return set(said.stdout.split())


def test_its_suite_runs(project: NewProject) -> None:
    done = project.manage("test", "-v", "1")
    assert "Ran 5 tests" in done.stderr


def test_with_the_immediate_backend_its_tasks_run(project: NewProject) -> None:
    project.settings('TASKS = {"default": {"BACKEND": "pulse_django.immediate.ImmediateBackend"}}')
    said = project.shell("from shop.tasks import send_invoice; print(send_invoice.enqueue(1).status)")
    assert "SUCCESSFUL" in said.stdout, said


def test_migrations_do_nothing_there_forwards_and_backwards(project: NewProject) -> None:
    for way in ((), ("pulse_django", "zero"), ()):
        said = project.manage("migrate", *way)
        assert "pulse_django.W011" in said.stderr
        assert not any(name.startswith("pulse_") for name in tables(project))
    assert "auth_user" in tables(project)
    assert "[X] 0001_initial" in project.manage("showmigrations", "pulse_django").stdout
    project.manage("sqlmigrate", "pulse_django", "0001")
    assert (project.folder / "db.sqlite3").exists()
    assert "No changes detected" in project.manage("makemigrations", "--check", "--dry-run").stdout
