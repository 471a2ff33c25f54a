"""The fixtures of pytest in a project whose jobs are in a database of their own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from testproject.new_project import NewProject

TWO_DATABASES = """
DATABASES["jobs"] = DATABASES["default"] | {"NAME": DATABASES["default"]["NAME"] + "_jobs"}
DATABASE_ROUTERS = ["mysite.routers.JobsApart"]
"""
ROUTER = """
class JobsApart:
    def db_for_write(self, model, **hints):
        return "jobs" if model._meta.app_label == "pulse_django" else None

    db_for_read = db_for_write

    def allow_migrate(self, db, app_label, **hints):
        return (db == "jobs") if app_label == "pulse_django" else db == "default"
"""
TESTS = """
import pytest
from django.contrib.auth.models import User
from pulse_django import task


@task
def welcome(name):
    User.objects.create_user(name)


def runs_it(pulse_drain, assert_enqueued):
    welcome.enqueue("ada")
    assert_enqueued(welcome, "ada")
    [ran] = pulse_drain()
    assert (ran.database, User.objects.count()) == ("jobs", 1)


def test_without_a_mark(pulse_drain, assert_enqueued):
    runs_it(pulse_drain, assert_enqueued)


@pytest.mark.django_db
def test_with_a_mark(pulse_drain, assert_enqueued):
    runs_it(pulse_drain, assert_enqueued)


@pytest.mark.django_db(transaction=True)
class TestTransactions:
    def test_really_commits(self, pulse_drain, assert_enqueued):
        from django.db import connections

        assert not any(connections[alias].in_atomic_block for alias in ("default", "jobs"))
        runs_it(pulse_drain, assert_enqueued)


@pytest.mark.django_db(databases=["default"])
@pytest.mark.xfail(raises=Exception, strict=True)
def test_what_a_mark_says_counts(pulse_drain):
    pulse_drain()


@pytest.mark.django_db
@pytest.mark.xfail(raises=Exception, strict=True)
def test_others_are_left_alone():
    welcome.enqueue("ada")
"""


def test_fixtures_bring_the_databases_of_the_jobs(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.settings(*TWO_DATABASES.splitlines())
    project.write("mysite/routers.py", ROUTER)
    project.write("shop/test_jobs.py", TESTS)
    command = [project.python, "-m", "pytest", "--ds=mysite.settings", "-q", "-p", "no:cacheprovider", "shop"]
    done = subprocess.run(
        command, cwd=project.folder, env=project.environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert "3 passed, 2 xfailed" in done.stdout, done.stdout + done.stderr
