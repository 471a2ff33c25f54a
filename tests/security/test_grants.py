"""Least privilege: each role of the page can do its work, and PostgreSQL refuses it everything else.

The GRANTs are read from docs/explanation/security.md and executed as they stand there.
"""

from __future__ import annotations

import inspect
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any
from unittest import mock

import pytest
from django.db import ProgrammingError

from pulse_django import conf
from pulse_django.health.explanation import explain
from pulse_django.models import Duty, Job, Limiter, Minute, Pause, Schedule, Worker
from pulse_django.queue.database import database_errors
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.unique.rule import Unique, UniqueKey
from tests.crash.processes import ROOT, database_url, environment
from tests.crash.workers import Workers, outcomes, wait_for, wait_until
from tests.database import empty_tables
from tests.factories import make_job, now
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.security import handlers
from tests.worker.test_http_port import ask, free_port

from .roles import GRANT, OPERATOR, PRODUCER, ROLES, WATCHDOG, WORKER, acting_as, also, bullet_with, existing, grants_in
from .verbs import AGE, VERBS, Act

pytestmark = [pytest.mark.usefixtures("pulse_db", "roles")]

READING = ROOT / "docs/how-to/why-does-a-job-not-run.md"
OURS = {"TASK_MODULES": ["tests.security.handlers"]}


MANAGERS = [type(model.objects) for model in (Job, Schedule, Worker, Minute, Duty, Limiter, Pause)]
WRITE_NOTHING = {"columns_of"}
FOR_THE_OWNER = {"mend"}


def test_who_is_granted_a_verb_can_and_nobody_else() -> None:
    called: set[str] = set()
    with all_faults() as about:
        for (verb, (arrange, granted_to)), role in product(VERBS.items(), ROLES):
            with about(f"{verb} as {role}"):
                empty_tables()
                act = arrange()
                with acting_as(role):
                    if role in granted_to:
                        with noting(called):
                            assert act()
                    else:
                        assert is_refused(act)
    assert called >= verbs_of_managers() - FOR_THE_OWNER, "no role was tried with these"


def verbs_of_managers() -> set[str]:
    return {name for _, name in _verbs()} - WRITE_NOTHING


def _verbs() -> Iterator[tuple[type, str]]:
    for manager in MANAGERS:
        for name, verb in vars(manager).items():
            if not name.startswith("_") and inspect.isfunction(verb):
                yield manager, name


@contextmanager
def noting(called: set[str]) -> Iterator[None]:
    """Note the names of the verbs that are called."""

    def noted(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: called.add(name) or verb(*args, **kwargs)

    with ExitStack() as stack:
        for manager, name in _verbs():
            stack.enter_context(mock.patch.object(manager, name, noted(name, vars(manager)[name])))
        yield


def is_refused(act: Act) -> bool:
    """Those that must not fail answer that nothing was done."""
    try:
        return not act()
    except ProgrammingError as error:
        return database_errors.is_refused(error)


def test_every_role_and_every_verb_of_the_table_is_there() -> None:
    assert len(ROLES) == 4
    assert existing() >= set(ROLES)
    assert {role for _, granted in VERBS.values() for role in granted} == set(ROLES)


def test_a_producer_whose_key_is_taken_must_be_let_read_as_the_page_says() -> None:
    new = NewJob(task="security.echo", idempotency_key="k")
    with acting_as(PRODUCER):
        first = Job.objects.enqueue(new)
        with pytest.raises(ProgrammingError, match="permission denied"):
            Job.objects.enqueue(new)
    with also(f"GRANT SELECT ON pulse_django_job TO {PRODUCER}"), acting_as(PRODUCER):
        assert Job.objects.enqueue(new).pk == first.pk


UNIQUE = [
    Unique(), Unique(on_conflict="follow"), Unique(on_conflict="replace"), Unique(per=AGE),
    Unique(on_conflict="debounce", max_delay=AGE),
]  # fmt: skip


def test_a_producer_of_unique_jobs_needs_what_the_page_says() -> None:
    news = [NewJob(task="t", run_after=AGE, unique=UniqueKey.of(str(n), rule)) for n, rule in enumerate(UNIQUE)]
    with acting_as(PRODUCER), pytest.raises(ProgrammingError, match="permission denied"):
        Job.objects.enqueue(news[0])
    with (
        also(*grants_in(bullet_with("A producer of [unique jobs](../how-to/unique-jobs.md) gets"))),
        acting_as(PRODUCER),
    ):
        ids = [Job.objects.enqueue(one).pk for one in news]
        assert [Job.objects.enqueue(one).pk for one in news] == Job.objects.enqueue_many(news) == ids
        Job.objects.enqueue_many([NewJob(task="u", run_after=AGE, unique=one.unique) for one in news])


# ------------------------------------------------------------------------------------------------- as real processes


def login(role: str) -> dict[str, str]:
    """The environment of a process that is nobody else in the database."""
    return {"DATABASE_URL": database_url(options=f"-c role={role}")}


def test_a_worker_and_a_watchdog_work_under_their_roles(workers: Workers) -> None:
    job, dead = handlers.echo.enqueue(1).id, handlers.crashes.enqueue().id
    over = make_job(Status.RUNNING, expired=True, task="security.innocent")
    worker = workers.ready("--no-watchdog", settings=OURS, env=login(WORKER))
    wait_for(Status.COMPLETED, job)
    wait_for(Status.DEAD_LETTERED, dead)
    wait_until(Worker.objects.exists)
    assert Job.objects.get(pk=over.pk).status == Status.RUNNING
    connected = sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pulse %%'")
    assert connected[0][0] >= 3, "it holds its connections under the role"
    ttl = conf.current().lease_ttl.total_seconds()  # of a server that was started later, no sweep trusts the leases
    wait_until(lambda: Job.objects.server_clock().up_for > ttl, patience=2 * ttl)
    watchdog = subprocess.run(
        [sys.executable, "manage.py", "pulse_watchdog", "--once"],
        cwd=ROOT, env=environment(**login(WATCHDOG)), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert watchdog.returncode == 0, watchdog.stderr
    assert outcomes(over.pk)[0] == "WORKER_LOST"
    assert Minute.objects.latest("minute").signs["unasked"] == []
    wait_for(Status.COMPLETED, over.pk)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "permission denied" not in worker.log + watchdog.stderr
    assert Worker.objects.get().stopped_at is not None


@each_of(
    (PRODUCER, "pulse_worker", ["--burst"], "SELECT on pulse_django_attempt"),
    (OPERATOR, "pulse_worker", [], "USAGE on pulse_django_token"),
    (WORKER, "pulse_worker", [], "DELETE on pulse_django_attempt"),  # of its watchdog
    (PRODUCER, "pulse_watchdog", ["--once"], "SELECT on pulse_django_attempt"),
)
def test_a_process_without_a_right_names_it_and_does_not_start(
    workers: Workers, *, role: Any, command: Any, arguments: Any, right: Any
) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", command, *arguments], cwd=ROOT, env=environment(**login(role)),
        capture_output=True, text=True, timeout=60, check=False
    )  # fmt: skip
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"role {role!r} lacks the right {right} in database 'default'" in line
    assert "“Security”" in line


def test_a_worker_that_loses_a_right_says_so_once_and_is_not_ready(workers: Workers) -> None:
    port, right = free_port(), "UPDATE (status), SELECT ON pulse_django_job_hot"
    worker = workers.ready("--no-watchdog", "--metrics-port", str(port), settings=OURS, env=login(WORKER))
    wait_until(lambda: ask(port, "/ready").status == 200)
    job = handlers.echo.enqueue(1).id
    wait_for(Status.COMPLETED, job)
    sql(f"REVOKE {right} FROM {WORKER}")
    try:
        handlers.echo.enqueue(2)
        wait_until(lambda: ask(port, "/ready").status == 503)
        assert "the database refuses a statement: permission denied" in ask(port, "/ready").json["reason"]
        wait_until(lambda: Worker.objects.get().vitals["database_errors"] > 8, lambda: worker.log)
    finally:
        sql(GRANT)
    wait_until(lambda: ask(port, "/ready").status == 200, lambda: worker.log)
    lines = [line for line in worker.log.splitlines() if "permission denied" in line]
    assert len({line.split(": ")[1] for line in lines}) == len(lines), worker.log
    assert worker.log.count("responding again") == len(lines)


def test_who_may_read_jobs_may_be_told_why_they_do_not_run() -> None:
    Limiter.objects.declare_new("project", {"stripe": {"max_running": 1}})
    job = make_job(lane_key="stripe:0000k", next_run_at=now(-AGE))
    for role in (WORKER, WATCHDOG, OPERATOR):
        with acting_as(role):
            assert explain(job.pk).position == 0, role
    with acting_as(PRODUCER), pytest.raises(ProgrammingError, match="permission denied"):
        explain(job.pk)
    reader = "pulse_reader"
    grants = re.search(r"`SELECT` on (.*?)\.", READING.read_text(), re.DOTALL)
    assert grants is not None
    sql(f"CREATE ROLE {reader} NOLOGIN")
    try:
        sql(f"GRANT SELECT ON {', '.join(re.findall(r'`(.+?)`', grants[1]))} TO {reader}")
        with acting_as(reader):
            assert explain(job.pk).position == 0
    finally:
        sql(f"DROP OWNED BY {reader}")
        sql(f"DROP ROLE {reader}")
