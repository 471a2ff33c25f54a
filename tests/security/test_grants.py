"""Least privilege: each role of the page can do its work, and PostgreSQL refuses it everything else.

The GRANTs are read from docs/explanation/security.md and executed as they stand there.
"""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, ProgrammingError, connection
from django.test import Client

from pulse_django.execution.paused_tasks import pause_task, resume_task
from pulse_django.fleet.conditions import ask, named
from pulse_django.fleet.explanation import explain
from pulse_django.fleet.paused_tasks import paused_tasks
from pulse_django.models import Duty, Job, Limiter, Minute, PausedKey, Queue, Worker
from pulse_django.words.decisions import Complete, Retry
from pulse_django.words.error_details import ErrorReport
from pulse_django.words.identity import Identity
from pulse_django.words.job_options import NewJob, Payload
from pulse_django.words.outcomes import Failed, Succeeded
from pulse_django.words.states import Status
from pulse_django.words.uniqueness import Unique, UniqueKey
from pulse_django.words.verb_results import Report
from tests.console.test_every_page import presence
from tests.crash.processes import ROOT, database_url, environment
from tests.crash.workers import Workers, outcomes, wait_for, wait_until
from tests.database import empty_tables
from tests.factories import AttemptFactory, QueueFactory, WorkerFactory, lease_of, make_job, now
from tests.faults import all_faults
from tests.protocol.steps import sql
from tests.security import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

PAGE = ROOT / "docs/explanation/security.md"
READING = ROOT / "docs/how-to/why-does-a-job-not-run.md"
OURS = {"TASK_MODULES": ["tests.security.handlers"]}
CREATE, GRANT = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
PRODUCER, WORKER, WATCHDOG, OPERATOR = ROLES = tuple(re.findall(r"^CREATE ROLE (\w+)", CREATE, re.MULTILINE))
AGE = timedelta(days=1)


@pytest.fixture(scope="module", autouse=True)
def roles(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The roles of the page, with their rights in this database; they belong to the whole server."""
    with django_db_blocker.unblock():
        drop_roles()
        for statement in CREATE.split(";")[:-1]:
            if statement.split()[2] not in existing():
                sql(statement)
        sql(GRANT)
    yield
    with django_db_blocker.unblock():
        drop_roles()
        connection.close()


def existing() -> set[str]:
    return {name for (name,) in sql("SELECT rolname FROM pg_roles WHERE rolname LIKE 'pulse%%'")}


def drop_roles() -> None:
    for role in set(ROLES) & existing():
        sql(f"DROP OWNED BY {role}")
        with suppress(DatabaseError):  # it has rights in another database
            sql(f"DROP ROLE {role}")


@contextmanager
def acting_as(role: str) -> Iterator[None]:
    sql(f"SET ROLE {role}")
    try:
        yield
    finally:
        sql("RESET ROLE")


# --------------------------------------------------------------------------------------------------- verb by verb

Act = Callable[[], Any]


def enqueueing() -> Act:
    return lambda: Job.objects.enqueue(NewJob(task="security.echo", args=[1], run_after=AGE, timeout=AGE, trace="x"))


def claiming() -> Act:
    make_job()
    return lambda: Job.objects.claim(Identity("me"))


def beating() -> Act:
    lease = lease_of(make_job(Status.RUNNING))
    return lambda: Job.objects.heartbeat([lease], {lease: '{"done": 1}'}).alive


def settling() -> Act:
    failed = Failed(ErrorReport.of(ValueError("no")))
    report = Report(lease_of(make_job(Status.RUNNING)), failed, Retry(timedelta(), "no"))
    return lambda: Job.objects.settle([report]).accepted


def settling_late() -> Act:
    lease = lease_of(make_job(Status.RUNNING))
    Job.objects.release([lease])
    return lambda: Job.objects.settle([Report(lease, Succeeded(), Complete())]).lost


def reaping() -> Act:
    make_job(Status.RUNNING, expired=True)
    return Job.objects.reap


def expiring() -> Act:
    make_job(expires_at=now(-AGE))
    return Job.objects.expire


def mending() -> Act:
    job = make_job(Status.RUNNING, lease_until=now(timedelta(days=3)))
    return lambda: Job.objects.mend([job.pk])


def cancelling() -> Act:
    job = make_job()
    return lambda: Job.objects.request_cancel([job.pk], reason="no").cancelled


def postponing() -> Act:
    job = make_job()
    return lambda: Job.objects.reschedule([job.pk], delay=AGE).changed


def moving() -> Act:
    job = make_job()
    return lambda: Job.objects.move([job.pk], queue="other", priority=1).changed


def amending() -> Act:
    job = make_job()
    return lambda: bool(Job.objects.amend(job.pk, Payload("[1]", "{}"), unique_key=None, by="me"))


def retrying() -> Act:
    job = make_job(Status.DEAD_LETTERED)
    return lambda: Job.objects.retry([job.pk], runs=3).revived


def pruning() -> Act:
    make_job(Status.COMPLETED, finished_at=now(-2 * AGE))
    return lambda: Job.objects.prune(Status.COMPLETED, older_than=AGE)


def deleting() -> Act:
    job = make_job(Status.DEAD_LETTERED)
    return lambda: Job.objects.prune_these([job.pk], statuses=[Status.DEAD_LETTERED])


def pausing() -> Act:
    return lambda: Queue.objects.pause("default", reason="x") and Queue.objects.resume("default")


def pausing_a_task() -> Act:
    make_job()
    return lambda: pause_task("tests.add") and paused_tasks("default") and resume_task("tests.add")


def setting_aside() -> Act:
    make_job()
    PausedKey.objects.pause_task("tests.add")
    return lambda: Job.objects.set_aside() and PausedKey.objects.resume_task("tests.add") and Job.objects.bring_back()


def ending_pauses() -> Act:
    QueueFactory(paused_at=now(-2 * AGE), paused_until=now(-AGE))
    return Queue.objects.resume_ended


def being_present() -> Act:
    Worker.objects.note(presence("host-1"))
    return lambda: [Worker.objects.note(presence("host-1")), Worker.objects.farewell("host-1", "b"), "done"]


def marking_lost() -> Act:
    WorkerFactory(last_beat_at=now(-2 * AGE))
    return lambda: Worker.objects.mark_lost(AGE) and Worker.objects.forget(AGE, AGE)


def acknowledging() -> Act:
    WorkerFactory(last_beat_at=now(-2 * AGE), boot_id="b", name="host-1")
    Worker.objects.mark_lost(AGE)
    return lambda: Worker.objects.acknowledge("host-1", "b", by="anna")


def asking_where_a_handler_is() -> Act:
    Worker.objects.note(presence("host-1"))
    return lambda: Worker.objects.ask_stack("host-1", "b", 1)


def writing_a_minute() -> Act:
    [minute, *_] = Minute.objects.unwritten()
    return lambda: Minute.objects.write(minute) and [Minute.objects.note(minute, {"x": 1}), Minute.objects.forget()]


def saying(statement: str) -> Callable[[], Act]:
    """SQL by hand."""

    def arrange() -> Act:
        AttemptFactory(job=make_job(Status.COMPLETED))
        return lambda: [sql(statement), "done"]

    return arrange


VERBS: dict[str, tuple[Callable[[], Act], set[str]]] = {
    "enqueue": (enqueueing, {PRODUCER}),
    "claim": (claiming, {WORKER, WATCHDOG}),
    "heartbeat": (beating, {WORKER, WATCHDOG, OPERATOR}),
    "settle": (settling, {WORKER, WATCHDOG, OPERATOR}),
    "settle too late": (settling_late, {WORKER, WATCHDOG, OPERATOR}),
    "reap": (reaping, {WORKER, WATCHDOG, OPERATOR}),
    "expire": (expiring, {WORKER, WATCHDOG, OPERATOR}),
    "mend leases": (mending, set()),
    "cancel": (cancelling, {OPERATOR}),
    "postpone": (postponing, {WORKER, WATCHDOG, OPERATOR}),
    "move": (moving, {OPERATOR}),
    "amend": (amending, {OPERATOR}),
    "retry": (retrying, {OPERATOR}),
    "prune": (pruning, {WATCHDOG, OPERATOR}),
    "delete dead letters": (deleting, {WATCHDOG, OPERATOR}),
    "pause and resume": (pausing, {OPERATOR}),
    "pause and resume a task": (pausing_a_task, {WORKER, WATCHDOG, OPERATOR}),
    "set jobs aside": (setting_aside, {WORKER, WATCHDOG, OPERATOR}),
    "end pauses": (ending_pauses, {WATCHDOG, OPERATOR}),
    "say that one is there": (being_present, {WORKER}),
    "mark workers lost": (marking_lost, {WATCHDOG}),
    "acknowledge lost workers": (acknowledging, {WORKER, WATCHDOG, OPERATOR}),
    "ask where a handler is": (asking_where_a_handler_is, {WORKER, WATCHDOG, OPERATOR}),
    "write minutes": (writing_a_minute, {WATCHDOG}),
    "read arguments": (saying("SELECT args, kwargs, result FROM pulse_django_job"), {WORKER, WATCHDOG, OPERATOR}),
    "read errors": (saying("SELECT last_error FROM pulse_django_job"), {WORKER, WATCHDOG, OPERATOR}),
    "change arguments": (saying("UPDATE pulse_django_job SET args = '[1]'"), set()),
    "change a task": (saying("UPDATE pulse_django_job SET task = 'x'"), set()),
    "raise a budget": (saying("UPDATE pulse_django_job SET max_attempts = 100"), set()),
    "change who ran what": (saying("UPDATE pulse_django_attempt SET worker = 'x'"), set()),
    "change what happened": (saying("UPDATE pulse_django_attempt SET outcome = 'FAILED'"), set()),
    "turn back the tokens": (saying("SELECT setval('pulse_django_token', 1)"), set()),
    "empty a table": (saying("TRUNCATE pulse_django_job"), set()),
    "take a rule away": (saying("ALTER TABLE pulse_django_job DROP CONSTRAINT pulse_job_status_is_known"), set()),
}


def test_who_is_granted_a_verb_can_and_nobody_else() -> None:
    with all_faults() as about:
        for (verb, (arrange, granted_to)), role in product(VERBS.items(), ROLES):
            with about(f"{verb} as {role}"):
                empty_tables()
                act = arrange()
                with acting_as(role):
                    if role in granted_to:
                        assert act()
                    else:
                        with pytest.raises(ProgrammingError, match=r"permission denied|must be owner"):
                            act()


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
    sql(f"GRANT SELECT ON pulse_django_job TO {PRODUCER}")
    try:
        with acting_as(PRODUCER):
            assert Job.objects.enqueue(new).pk == first.pk
    finally:
        sql(f"REVOKE SELECT ON pulse_django_job FROM {PRODUCER}")
        sql(GRANT)  # what went with it


UNIQUE = [
    Unique(), Unique(on_conflict="follow"), Unique(on_conflict="replace"), Unique(per=AGE),
    Unique(on_conflict="debounce", longest=AGE),
]  # fmt: skip


def test_a_producer_of_unique_jobs_needs_what_the_page_says() -> None:
    [bullet] = re.findall(r"^- A producer of \[unique jobs\].*?(?=^- )", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    grants = [" ".join(one.split()) for one in re.findall(r"`(GRANT .*?)`", bullet, re.DOTALL)]
    news = [NewJob(task="t", run_after=AGE, unique=UniqueKey.of(str(n), rule)) for n, rule in enumerate(UNIQUE)]
    with acting_as(PRODUCER), pytest.raises(ProgrammingError, match="permission denied"):
        Job.objects.enqueue(news[0])
    try:
        for grant in grants:
            sql(grant)
        with acting_as(PRODUCER):
            ids = [Job.objects.enqueue(one).pk for one in news]
            assert [Job.objects.enqueue(one).pk for one in news] == Job.objects.enqueue_many(news) == ids
            Job.objects.enqueue_many([NewJob(task="u", run_after=AGE, unique=one.unique) for one in news])
    finally:
        for grant in grants:
            sql(grant.replace("GRANT", "REVOKE", 1).replace(" TO ", " FROM "))
        sql(GRANT)


def test_an_upgrade_gives_the_roles_of_before_what_they_need_to_go_on() -> None:
    call_command("migrate", "pulse_django", "0006", verbosity=0)
    call_command("migrate", "pulse_django", verbosity=0)
    for verb, role in (("claim", WORKER), ("prune", WATCHDOG)):
        arrange, _ = VERBS[verb]
        act = arrange()
        with acting_as(role):
            assert act()
    with acting_as(WATCHDOG):
        assert not Duty.objects.take({}).has_schedules
        assert not ask(named("schedule-refused"), "default").error
    for role in (WATCHDOG, OPERATOR):
        with acting_as(role):
            assert not ask(named("ready-overdue"), "default").error


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


def test_commands_work_for_who_may_operate_and_for_nobody_else(capsys: pytest.CaptureFixture[str]) -> None:
    dead = make_job(Status.DEAD_LETTERED, attempts=0)  # with a ledger that says as much
    with acting_as(PRODUCER), pytest.raises((CommandError, DatabaseError), match="permission denied"):
        call_command("pulse_status", stdout=io.StringIO())
    with acting_as(OPERATOR):
        call_command("pulse_status", stdout=io.StringIO())
        call_command("pulse_retry", str(dead.pk), "--yes", stdout=io.StringIO(), stderr=io.StringIO())
        call_command("pulse_cancel", str(dead.pk), "--yes", stdout=io.StringIO(), stderr=io.StringIO())
    dead.refresh_from_db()
    assert dead.status == Status.CANCELLED


def test_who_may_read_jobs_may_be_told_why_they_do_not_run() -> None:
    Limiter.objects.declare_new("project", {"stripe": {"running": 1}})
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


def test_every_page_opens_and_acts_under_the_operators_role(root: Client) -> None:
    """With the rights on Django's own tables that any admin needs."""
    others = sql(
        "SELECT string_agg(quote_ident(tablename), ', ') FROM pg_tables"
        " WHERE schemaname = current_schema() AND tablename NOT LIKE 'pulse%%'"
    )
    sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {others[0][0]} TO {OPERATOR}")
    dead, runs = make_job(Status.DEAD_LETTERED), make_job(Status.RUNNING)
    WorkerFactory()
    with acting_as(OPERATOR):
        for page in ("board/", "job/", f"job/{dead.pk}/change/", "deadletter/", "queue/", "worker/"):
            assert root.get(f"/admin/pulse_django/{page}").status_code == 200, page
        assert root.get("/metrics").status_code == 200
        act(root, dead, "retry", runs=1)
        act(root, dead, "move", queue="other", priority=1)
        act(root, dead, "cancel", why="x")
        act(root, runs, "release", why="x")
        paused = {"name": "mail", "reason": "x", "lasting": 0, "seen": "none"}
        assert root.post("/admin/pulse_django/queue/pause/", paused).status_code == 302
    dead.refresh_from_db()
    runs.refresh_from_db()
    assert (dead.status, dead.queue) == (Status.CANCELLED, "other")
    assert runs.status == Status.RETRYING
    assert Queue.objects.get().pause_reason == "x"


def act(client: Client, job: Job, name: str, **fields: object) -> None:
    data = {f"{name}-{field}": value for field, value in {"attempts": job.attempts, **fields}.items()}
    assert client.post(f"/admin/pulse_django/job/{job.pk}/act/{name}/", data).status_code == 302
