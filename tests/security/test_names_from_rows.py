"""A name that stands in a row is looked up in a table of tasks. It is never imported, whoever wrote it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, override_settings

from pulse_django.models import Attempt, Job
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from tests.crash.processes import ROOT
from tests.crash.workers import Workers, wait_for
from tests.database import on_empty_tables
from tests.factories import AttemptFactory, make_job
from tests.faults import each_of
from tests.queue.steps import sql
from tests.security import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

# Modules that nobody has loaded, by every spelling that some queue imports.
NEVER_LOADED = ("tests.security.trap", "antigravity", "this")
NAMES = (
    "os.system",
    "subprocess.Popen",
    "builtins.eval",
    "antigravity",
    "this",
    "tests.security.trap",
    "tests.security.trap.spring",
    "tests.security.trap:spring",
    "a.__class__.__mro__",
    "pulse_django.run.registry.registry.__init__.__globals__",
    "../../etc/passwd",
    "__import__('tests.security.trap')",
    "security.echo.__globals__",
)
AT_ONCE = {"UNKNOWN_TASK_DELAY": 0.001, "UNKNOWN_TASK_AGE": 0}
OURS = {"TASK_MODULES": ["tests.security.handlers"]}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that is written as soon as somebody imports the module of that name."""
    path = tmp_path / "trap"
    monkeypatch.setenv("PULSE_TRAP", str(path))
    for name in NEVER_LOADED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield path
    assert not path.exists(), "a row caused an import"


def test_the_trap_springs(tmp_path: Path) -> None:
    """Or that nothing was written would prove nothing."""
    path = tmp_path / "trap"
    env = os.environ | {"PULSE_TRAP": str(path), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", "import tests.security.trap"], env=env, check=True)
    assert path.read_text() == "imported\n"


@override_settings(PULSE=OURS | AT_ONCE)
def test_no_name_of_a_row_is_imported_and_each_job_is_dead_with_the_reason(trap: Path) -> None:
    jobs = [make_job(task=name) for name in NAMES]
    make_job(task="security.echo")
    drain()  # whatever the process imports for its own sake it imports now
    before = set(sys.modules)
    jobs += [make_job(task=name) for name in NAMES]
    drain()
    assert set(sys.modules) - before == set()
    for job in jobs:
        job.refresh_from_db()
        assert job.status == Status.DEAD_LETTERED, job.task
        assert repr(job.task)[1:-1] in job.last_error


def test_a_worker_imports_nothing_either(workers: Workers, trap: Path) -> None:
    jobs = [make_job(task=name) for name in NAMES]
    worker = workers.ready(settings=OURS | AT_ONCE, env={"PULSE_TRAP": str(trap)})
    wait_for(Status.DEAD_LETTERED, *[job.pk for job in jobs])
    loaded = handlers.names_loaded.enqueue(list(NEVER_LOADED)).id
    wait_for(Status.COMPLETED, loaded)
    assert Job.objects.get(pk=loaded).result == []
    assert worker.exit_code is None


@override_settings(PULSE=OURS)
def test_no_other_column_is_a_name_either(trap: Path, admin_client: Client) -> None:
    """A class of an error, a worker, a queue, a trace: written by hand, then read by every page of the admin."""
    evil = "tests.security.trap.spring"
    job = make_job(Status.DEAD_LETTERED, task=evil, queue=evil, last_error=evil, idempotency_key=evil, trace=evil)
    AttemptFactory(job=job, number=1, outcome="FAILED", error_class=evil, message=evil, worker=evil, traceback=evil)
    runs = make_job(task="security.echo", queue=evil, trace=evil, idempotency_key=evil)
    drain()
    runs.refresh_from_db()
    assert runs.status == Status.COMPLETED
    for page in ("", f"{job.pk}/change/", f"{runs.pk}/change/"):
        assert admin_client.get(f"/admin/pulse_django/job/{page}").status_code == 200
    assert Attempt.objects.get(job=job).error_class == evil


CLASSES_AS_JSON = [
    {"__type__": "subprocess.Popen", "args": ["touch", "x"]},
    {"__class__": "tests.security.trap", "__init__": []},
    {"py/object": "tests.security.trap.spring"},
    {"py/reduce": [{"py/function": "os.system"}, {"py/tuple": ["true"]}]},
    {"$type": "System.Diagnostics.Process"},
    {"__reduce__": ["os.system", ["true"]]},
    {"model": "auth.user", "pk": 1},
    {"__django_model__": "auth.User", "__pk__": 1},
    "!!python/object/apply:os.system ['true']",
]


@override_settings(PULSE=OURS)
@each_of(*CLASSES_AS_JSON, around=on_empty_tables)
def test_json_that_names_a_class_arrives_as_that_json(trap: Path, *, value: Any) -> None:
    sql(
        "INSERT INTO pulse_django_job (task, args, kwargs) VALUES ('security.echo', %s, %s)",
        json.dumps([value]),
        json.dumps({"value": value}),
    )
    drain()
    job = Job.objects.get()
    assert job.result == {"args": [value], "kwargs": {"value": value}}
    assert not trap.exists(), "it caused an import"
