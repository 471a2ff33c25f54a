"""Who forgets ``migrate``, or takes another database, is told so in one line, by each command and by a check."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testproject.new_project import NewProject

MISSING = "The tables of Pulse are missing in database 'default'. Run: python manage.py migrate"
COMMANDS = [
    ("pulse_worker",),
    ("pulse_worker", "--burst"),
    ("pulse_watchdog", "--once"),
    ("pulse_check", "--all"),
    ("pulse_status",),
    ("pulse_retry", "--all"),
]


@pytest.fixture
def empty(new_project: Callable[[], NewProject]) -> NewProject:
    project = new_project()
    project.follow_the_readme()
    return project


def test_every_command_says_migrate_in_one_line_and_fails(empty: NewProject) -> None:
    for command in COMMANDS:
        done = empty.manage(*command, ok=False)
        said = done.stderr.strip().replace("Nothing was changed: ", "")
        code = 2 if command[0] == "pulse_check" else 1  # it could not be checked
        assert (done.returncode, said) == (code, f"CommandError: {MISSING}"), command
        assert "Traceback" not in done.stdout + done.stderr
    health = empty.manage("pulse_check", ok=False)
    assert (health.returncode, health.stdout.strip()) == (2, MISSING)
    advice = empty.manage("pulse_check", "--advice", ok=False)
    assert (advice.returncode, advice.stdout) == (2, "")
    assert advice.stderr.strip().endswith("Run: python manage.py migrate")


def test_enqueue_says_migrate_also_in_a_transaction(empty: NewProject) -> None:
    one, many = "send_invoice.enqueue(1)", "pulse_django.enqueue_many(send_invoice, [[1]])"
    unclear = MISSING.replace("are missing ", "").replace(".", " are missing or older than this code.", 1)
    graph = "pulse_django.chain(send_invoice.prepare(1)).enqueue()"
    batch = "pulse_django.Batch.open('x')"
    calls = [(one, MISSING), (many, MISSING), (graph, unclear), (batch, MISSING), (f"with atomic(): {one}", unclear)]
    for call, sentence in calls:
        imports = "import pulse_django\nfrom django.db.transaction import atomic\nfrom shop.tasks import send_invoice"
        said = empty.shell(f"{imports}\n{call}", ok=False).stderr.strip().splitlines()[-1]
        assert said == f"django.core.exceptions.ImproperlyConfigured: {sentence}", call


def test_what_the_settings_lack_is_named(empty: NewProject) -> None:
    line = 'TASKS = {"default": {"BACKEND": "pulse_django.backend.PulseBackend"}}'
    declared = "import shop.tasks; from pulse_django import task; task(**{options})(print)"
    empty.settings("INSTALLED_APPS.remove('pulse_django')")
    assert empty.shell(declared, ok=False).stderr.strip().endswith('INSTALLED_APPS += ["pulse_django"].')
    empty.settings("INSTALLED_APPS += ['pulse_django']", "del TASKS")
    for options in ({"queue_name": "mail"}, {"priority": 5}):
        code = declared.replace("{options}", f"{options}")
        assert empty.shell(code, ok=False).stderr.strip().endswith(f"There is no setting TASKS: {line}."), options


def test_a_check_says_so_and_migrate_itself_does_not(empty: NewProject) -> None:
    checked = empty.manage("check", "--database", "default", "--fail-level", "WARNING", ok=False)
    assert checked.returncode == 1
    assert "pulse_django.W006" in checked.stderr
    assert MISSING in checked.stderr
    migrated = empty.manage("migrate")
    assert "W006" not in migrated.stderr + migrated.stdout
    empty.manage("check", "--database", "default", "--fail-level", "WARNING")


def test_older_tables_are_told_from_missing_ones(empty: NewProject) -> None:
    empty.manage("migrate", "-v", "0")
    drop = "ALTER TABLE pulse_django_job DROP COLUMN payload_bytes CASCADE"
    empty.shell(f"from django.db import connection; connection.cursor().execute('{drop}')")
    done = empty.manage("pulse_worker", "--burst", ok=False)
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "CommandError: The tables of Pulse in database 'default' are older than this code: pulse_django_job has no "
        "column payload_bytes. Run: python manage.py migrate"
    )


def test_sqlite_is_refused_with_a_sentence(new_project: Callable[[], NewProject]) -> None:
    project = new_project()  # startproject's own database is SQLite
    project.follow_the_readme()
    project.settings('DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}}')
    sentence = "Pulse stores its jobs in database 'default', which is sqlite, not PostgreSQL."
    status = project.manage("pulse_status", ok=False)
    assert status.stderr.strip().startswith(f"CommandError: {sentence}")
    enqueued = project.shell("from shop.tasks import send_invoice; send_invoice.enqueue(1)", ok=False)
    assert (
        enqueued.stderr.strip().splitlines()[-1].startswith(f"django.core.exceptions.ImproperlyConfigured: {sentence}")
    )
    assert "'closed'" not in enqueued.stderr


def test_without_tasks_a_check_and_the_worker_say_so(empty: NewProject) -> None:
    empty.settings("del TASKS")
    empty.manage("migrate", "-v", "0")
    checked = empty.manage("check")
    assert "pulse_django.W007" in checked.stderr
    assert "ImmediateBackend" in checked.stderr
    worker = empty.manage("pulse_worker", "--burst")
    assert worker.stderr.count("TASKS has no PulseBackend") == 1
