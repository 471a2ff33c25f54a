"""The page on django-tenants, followed by a project with the real package: handlers run in their tenants alone."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from testproject.new_project import ROOT, NewProject
from tests.fresh.databases import own_database
from tests.installed import built, python_with

PAGE = (ROOT / "docs/how-to/tenants.md").read_text()
# Of other packages than the tests have, so that tests/test_docs.py leaves them alone.
FILES = re.findall(r"```py\n# (\S+\.py)\n(.*?)```", PAGE, re.DOTALL)

TENANTS = """
from django_tenants.models import DomainMixin, TenantMixin


class Tenant(TenantMixin):
    auto_drop_schema = True


class Domain(DomainMixin):
    pass
"""
MODELS = """
from django.db import models


class Invoice(models.Model):
    number = models.IntegerField()


class Problem(models.Model):
    text = models.TextField()
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from shop.tasks import make_invoice
from tenants.jobs import for_tenant


def make(request, number):
    return HttpResponse(for_tenant(make_invoice).enqueue(number).id)


urlpatterns = [path("make/<int:number>/", make)]
"""
MORE_TASKS = """
from django.db import connection, transaction

from pulse_django import enqueue_many


@task(max_attempts=1, on_dead=tell_support)
def fail(number):
    Invoice.objects.create(number=number)
    raise ValueError(f"no {number} in {connection.schema_name}")


@task(max_attempts=1)
def break_its_transaction():
    with transaction.atomic():
        Invoice.objects.create(number=100)
        connection.cursor().execute("SELECT 1 / 0")


@task
def where():
    with connection.cursor() as cursor:
        cursor.execute("SHOW search_path")
        return [connection.schema_name, cursor.fetchone()[0]]


@task(takes_context=True)
def complete(context, number):
    with context.atomic() as completion:
        Invoice.objects.create(number=number)
        completion.result = number


@task(atomic=True)
def write_together(number):
    Invoice.objects.create(number=number)


@task(max_attempts=1)
async def wait():
    return "ran"
"""
SETUP = """
from tenants.models import Domain, Tenant
for name in ("blue", "red", "gone"):
    tenant = Tenant.objects.create(schema_name=name)
    Domain.objects.create(tenant=tenant, domain=f"{name}.test")
"""
SCHEMAS = ("blue", "red")
LIMIT_SET_CALLS = "TENANT_LIMIT_SET_CALLS = True"


@pytest.fixture(scope="module", params=["", LIMIT_SET_CALLS], ids=["each cursor", "once"])
def made(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    django_db_setup: None,
    django_db_blocker: Any,
) -> Iterator[NewProject]:
    """django-tenants sets the search_path for each cursor, or only when it has changed."""
    folder = tmp_path_factory.mktemp("tenants")
    python = python_with(built(folder / "dist")[0], "binary,tasks52", folder)
    subprocess.run([python, "-m", "pip", "install", "-q", "django-tenants>=4,<5"], check=True, timeout=300)
    with own_database() as database:
        project = NewProject(folder, database, str(python))
        project.follow_the_readme()
        (project.folder / "tenants/migrations").mkdir(parents=True)
        for path in ("tenants/__init__.py", "tenants/migrations/__init__.py"):
            project.write(path, "")
        project.write("tenants/models.py", TENANTS)
        project.write("shop/models.py", MODELS)
        project.write("mysite/urls.py", URLS)
        files: dict[str, str] = {}
        for path, text in FILES:
            files[path] = files.get(path, "") + text
        for path, text in files.items():
            project.write(path, text + (MORE_TASKS if path == "shop/tasks.py" else ""))
        project.settings('ALLOWED_HOSTS = [".test"]', request.param)
        project.manage("makemigrations", "tenants", "shop", "-v", "0")
        project.manage("migrate_schemas", "--shared", "-v", "0")
        project.shell(SETUP)
        yield project


@pytest.fixture
def project(made: NewProject) -> NewProject:
    made.ask("DELETE FROM pulse_django_attempt; DELETE FROM pulse_django_job")
    for schema in (*SCHEMAS, "gone"):
        made.ask(f"DELETE FROM {schema}.shop_invoice; DELETE FROM {schema}.shop_problem")
    return made


def enqueue(project: NewProject, code: str) -> None:
    project.shell(f"from django_tenants.utils import schema_context\nfrom shop.tasks import *\n{code}")


def enqueue_in_both(project: NewProject, code: str) -> None:
    enqueue(project, f"for n, schema in enumerate({SCHEMAS!r}):\n    with schema_context(schema):\n        {code}")


def run(project: NewProject, concurrency: int = 1) -> str:
    """With one slot the jobs run one after another, on one connection."""
    return project.manage("pulse_worker", "--burst", "--concurrency", str(concurrency)).stderr


def numbers(project: NewProject, schema: str) -> list[object]:
    return [number for (number,) in project.ask(f"SELECT number FROM {schema}.shop_invoice ORDER BY number")]


def problems(project: NewProject, schema: str) -> list[object]:
    return [text for (text,) in project.ask(f"SELECT text FROM {schema}.shop_problem ORDER BY text")]


def results(project: NewProject, task: str) -> list[object]:
    return [
        result
        for (result,) in project.ask(
            f"SELECT result FROM pulse_django_job WHERE task = 'shop.tasks.{task}' ORDER BY id"
        )
    ]


def test_the_tables_of_pulse_are_in_public_alone(project: NewProject) -> None:
    found = project.ask("SELECT DISTINCT schemaname FROM pg_tables WHERE tablename LIKE 'pulse_django%'")
    assert found == [("public",)]
    project.manage("check", "--database", "default", "--fail-level", "WARNING")


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_job_runs_in_the_tenant_that_enqueued_it(project: NewProject, concurrency: int) -> None:
    enqueue(project, "from django.test import Client; Client(headers={'host': 'blue.test'}).get('/make/7/')")
    enqueue_in_both(project, "for_tenant(make_invoice).enqueue(10 * n)")
    enqueue_in_both(project, "enqueue_many(for_tenant(make_invoice), [[10 * n + m] for m in range(1, 6)])")
    shares = project.ask("SELECT lane_key, count(*) FROM pulse_django_job GROUP BY 1 ORDER BY 1")
    assert [(schema, count) for schema in SCHEMAS for key, count in shares if str(key).endswith(schema)] == [
        ("blue", 7),
        ("red", 6),
    ]
    run(project, concurrency)
    assert numbers(project, "blue") == [0, 1, 2, 3, 4, 5, 7]
    assert numbers(project, "red") == [10, 11, 12, 13, 14, 15]


def test_the_connection_leaves_the_tenant_also_when_a_handler_raises(project: NewProject) -> None:
    for code in (
        *("for_tenant(fail).enqueue(n)", "where.enqueue()", "for_tenant(break_its_transaction).enqueue()"),
        *("where.enqueue()", "for_tenant(where).enqueue()"),
    ):
        enqueue_in_both(project, code)
    run(project)
    public = ["public", "public"]
    assert results(project, "where") == [*[public] * 4, *([schema, f"{schema}, public"] for schema in SCHEMAS)]
    assert (numbers(project, "blue"), numbers(project, "red")) == ([0], [1])


def test_the_hook_of_a_dead_job_runs_in_its_tenant(project: NewProject) -> None:
    enqueue_in_both(project, "for_tenant(fail).enqueue(n)")
    run(project)
    assert problems(project, "blue") == ["ValueError: no 0 in blue"]
    assert problems(project, "red") == ["ValueError: no 1 in red"]


def test_completions_are_part_of_the_tenants_transaction(project: NewProject) -> None:
    enqueue_in_both(project, "for_tenant(complete).enqueue(n + 1); for_tenant(write_together).enqueue(-1)")
    run(project)
    assert (numbers(project, "blue"), numbers(project, "red")) == ([-1, 1], [-1, 2])
    assert results(project, "complete") == [1, 2]


def test_a_schedule_enqueues_for_each_tenant(project: NewProject) -> None:
    project.ask("INSERT INTO blue.shop_invoice (number) VALUES (1), (2)")
    own = "name='own', task=make_report_of, timing=Cron('@daily'), kwargs={'schema': 'red'}"
    enqueue(project, f"from pulse_django import Schedule; Schedule.objects.create({own})")
    run(project)  # a worker writes down what the code declares
    for name in ("shop.tasks.make_reports", "own"):
        project.manage("pulse_schedules", "run", name)
    run(project)
    assert problems(project, "blue") == ["2 invoices"]
    assert problems(project, "red") == ["0 invoices"] * 2
    project.ask("DELETE FROM pulse_django_schedule WHERE name = 'own'")


def test_an_async_handler_fails_and_does_not_run_in_public(project: NewProject) -> None:
    enqueue(project, "with schema_context('blue'): for_tenant(wait).enqueue()")
    assert "SynchronousOnlyOperation" in run(project)
    assert project.ask("SELECT status, result FROM pulse_django_job") == [("DEAD_LETTERED", None)]


def test_a_job_of_a_tenant_that_is_gone_does_nothing(project: NewProject) -> None:
    enqueue(project, "with schema_context('gone'): for_tenant(make_invoice).enqueue(1)")
    project.ask("UPDATE tenants_tenant SET schema_name = 'renamed' WHERE schema_name = 'gone'")
    run(project)
    project.ask("UPDATE tenants_tenant SET schema_name = 'gone' WHERE schema_name = 'renamed'")
    assert project.ask("SELECT status FROM pulse_django_job") == [("CANCELLED",)]
    assert numbers(project, "gone") == []
