"""What a worker logs, and what else is told of jobs: one line each, and nothing of their arguments."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import DatabaseError
from django.test import Client, override_settings

from pulse_django import task
from pulse_django.models import Attempt, Job, Worker
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import Masks
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.worker import worker_registration
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.logs import Plain
from pulse_django.worker.watchdog import Watchdog
from pulse_django.worker.worker_options import WorkerOptions
from tests.console.staff import staff
from tests.crash.processes import database_url
from tests.crash.workers import Workers, outcomes, wait_for, wait_until
from tests.factories import WorkerFactory, make_job, now
from tests.queue.steps import claim_one, sql
from tests.security import handlers
from tests.security.handlers import CANARY

pytestmark = pytest.mark.usefixtures("pulse_db")

OURS = {"TASK_MODULES": ["tests.security.handlers", "tests.security.test_logs"]}
FORGED = "x\n2026-01-01 00:00:00,000 CRITICAL pulse_django.worker: forged\r\x1b[2K\x1b]0;title\x07"
A_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w.]+: ")


@task(name="security.masked", sensitive=("card",), max_attempts=1)
def sensitive(card: str) -> None:
    raise RuntimeError("refused")


# ------------------------------------------------------------------------------------------------------------- secrets


class TestASecretInArguments:
    """A word that stands in arguments only, looked for wherever something is told."""

    def test_is_in_no_log_list_metric_or_message(self, workers: Workers, root: Client) -> None:
        with listening() as heard:
            jobs = [handlers.fails_with_a_secret_beside_it.enqueue(CANARY).id, handlers.echo.enqueue(card=CANARY).id]
            jobs.append(handlers.crashes.using(queue_name="crashing").enqueue().id)
            unknown = make_job(task="no.such.task", args=[CANARY])
            worker = workers.ready(settings=OURS)
            wait_for(Status.DEAD_LETTERED, jobs[0], jobs[2])
            wait_for(Status.COMPLETED, jobs[1])
            wait_until(lambda: bool(outcomes(unknown.pk)))
            assert heard(), "a wake-up was sent, and heard here"
            assert CANARY not in "".join(heard())
        assert CANARY not in worker.log
        assert "RuntimeError" in worker.log, "the failure itself is told"
        assert CANARY not in everything_told(root)
        traceback = Attempt.objects.get(job_id=jobs[0]).traceback
        assert "fails_with_a_secret_beside_it" in traceback
        assert CANARY not in traceback

    def test_is_logged_only_if_that_is_wanted_and_not_where_it_is_masked(self, workers: Workers) -> None:
        failing = handlers.fails_with_a_secret_beside_it
        open_, hidden = failing.enqueue(CANARY).id, sensitive.enqueue(CANARY[::-1]).id
        then = make_job(
            task=failing.registered_name, args=[CANARY.upper()], max_attempts=1, sensitive=Masks(positions=(0,)).text
        )
        worker = workers.ready(settings=OURS | {"LOG_ARGUMENTS": True})
        wait_for(Status.DEAD_LETTERED, open_, hidden, then.pk)
        wait_until(lambda: worker.log.count("DEAD_LETTERED in") == 3)  # with its traceback each says more than once why
        assert CANARY in worker.log
        assert CANARY[::-1] not in worker.log
        assert CANARY.upper() not in worker.log, "masked when it was enqueued"

    def test_is_not_in_the_error_of_a_statement_that_the_database_refused(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PostgreSQL repeats the row: DETAIL: Failing row contains (...). It would stand in the log and on the job."""
        job = make_job(task="security.echo", args=[CANARY])
        claim = claim_one(Identity("me"))
        with a_rule_against("status <> 'COMPLETED'"):
            settled = Job.objects.settle([Report(claim.lease, Succeeded(), Complete())])
        assert settled.accepted[claim.lease] is Status.DEAD_LETTERED
        job.refresh_from_db()
        assert "unforeseen" in job.last_error, "the rule is named"
        assert CANARY not in job.last_error
        assert CANARY not in "".join(Attempt.objects.values_list("message", "traceback")[0])
        assert "Storing the report on job" in caplog.text
        assert CANARY not in caplog.text

    def test_is_not_in_the_error_that_ends_a_loops_turn_either(self, caplog: pytest.LogCaptureFixture) -> None:
        make_job(Status.RUNNING, args=[CANARY], expired=True)
        database = GuardedConnection("default", "test")
        with a_rule_against("status <> 'RETRYING'"):
            [reaped] = Job.objects.reap()
            assert reaped.status == Status.DEAD_LETTERED, "what may not wait again is not reaped for ever"
            assert "Reaping job" in caplog.text
            assert CANARY not in Job.objects.get().last_error
            make_job(args=[CANARY])
            with a_rule_against("status <> 'RUNNING' OR locked_by <> 'x:x:1'", "another"):
                with pytest.raises(DatabaseError) as caught:
                    database.call(database.jobs.claim, Identity("x", "x"))
                database.failed(caught.value)
        database.hang_up()
        assert "another" in caplog.text
        assert CANARY not in caplog.text
        assert CANARY not in str(caught.value)

    def test_is_not_in_the_error_of_an_enqueue_that_was_refused(self) -> None:
        with a_rule_against("queue <> 'closed'"), pytest.raises(DatabaseError, match="unforeseen") as caught:
            handlers.echo.using(queue_name="closed").enqueue(CANARY)
        assert CANARY not in f"{caught.value} {caught.value.__cause__}"


def everything_told(client: Client) -> str:
    """What commands, pages and probes say, other than the jobs to those who may see arguments."""
    out = io.StringIO()
    for command in (
        ["pulse_status"],
        ["pulse_status", "--json"],
        ["pulse_retry", "--all"],
        ["pulse_check", "--advice"],
    ):
        with suppress(SystemExit):  # of pulse_status, if something is wrong
            call_command(*command, stdout=out, stderr=out)
    for page in ("deadletter/", "board/", "queue/", "worker/", "taskoverview/"):
        out.write(client.get(f"/admin/pulse_django/{page}").content.decode())
    reader = staff("pulse_view_jobs")
    out.write(reader.get("/admin/pulse_django/job/").content.decode())
    User.objects.filter(username="operator").delete()
    for page in ("/metrics", "/health"):
        out.write(client.get(page).content.decode())
    return out.getvalue()


@contextmanager
def listening() -> Iterator[Any]:
    """Hear every NOTIFY of the database."""
    connection = psycopg.connect(database_url(), autocommit=True)
    connection.execute("LISTEN pulse_django")
    said: list[str] = []

    def heard() -> list[str]:
        said.extend(notice.payload for notice in connection.notifies(timeout=0.1))
        return said

    try:
        yield heard
    finally:
        connection.close()


DJANGOS = "Task id="  # how Django 6.1, in debug mode, logs tasks on its own


@contextmanager
def a_rule_against(condition: str, name: str = "unforeseen") -> Iterator[None]:
    """A constraint that a project, or a later release, might have added."""
    sql(f"ALTER TABLE pulse_django_job ADD CONSTRAINT {name} CHECK ({condition}) NOT VALID")
    try:
        yield
    finally:
        sql(f"ALTER TABLE pulse_django_job DROP CONSTRAINT {name}")


# ------------------------------------------------------------------------------------------------------------- forging


def test_names_that_hold_line_breaks_give_one_line_each(workers: Workers) -> None:
    """Every line of a real worker begins as its formatter begins it, whatever names it was given."""
    jobs = [make_job(task=FORGED, queue=f"q{FORGED}"[:100], max_attempts=1) for _ in range(2)]
    dead = handlers.echo_apart.using(queue_name="default").enqueue().id
    make_job(Status.RUNNING, task=FORGED, expired=True, locked_by=f"{FORGED}:b:1", max_attempts=1)
    silent = WorkerFactory(name=FORGED[:80], last_beat_at=now(timedelta(hours=-1)))
    worker = workers.ready("--name", FORGED, settings=OURS | {"UNKNOWN_TASK_DELAY": 0.01, "UNKNOWN_TASK_AGE": 0})
    wait_for(Status.DEAD_LETTERED, *[job.pk for job in jobs])
    wait_for(Status.COMPLETED, dead)
    wait_until(lambda: Worker.objects.get(pk=silent.pk).stopped_at is not None)
    wait_until(lambda: worker.says("marked as lost"), lambda: worker.log)
    assert worker.says("held by"), "the watchdog told whose lease ran out"
    lines = [line for line in worker.log.split("\n")[:-1] if not line.startswith(DJANGOS)]
    assert [line for line in lines if not A_LINE.match(line)] == []
    assert not any(" CRITICAL " in line[:40] for line in lines)
    assert [char for char in worker.log if not char.isprintable() and char != "\n"] == []


def test_a_watchdogs_lines_cannot_be_forged_under_the_formatter_of_a_project(caplog: pytest.LogCaptureFixture) -> None:
    """Projects have formatters of their own: what is handed to them must be one line already."""
    make_job(Status.RUNNING, expired=True, locked_by=f"{FORGED}:b:1")
    WorkerFactory(name=FORGED[:80], last_beat_at=now(timedelta(hours=-1)))
    watchdog = Watchdog(GuardedConnection("default", "watchdog"))
    with override_settings(PULSE={"LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.05, "WATCHDOG_INTERVAL": 0.1}):
        watchdog.sweep()
        wait_until(lambda: (watchdog.sweep(), Worker.objects.get().stopped_at is not None)[1])
    watchdog.database.hang_up()
    told = [record.getMessage() for record in caplog.records]
    assert any("marked as lost" in one for one in told)
    assert any("held by" in one for one in told)
    assert [one for one in told if "\n" in one or "\x1b" in one or "\r" in one] == []


def test_an_error_of_another_kind_is_indented_so_that_no_line_of_it_begins_as_ours_do() -> None:
    try:
        raise RuntimeError(FORGED)
    except RuntimeError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "%s", (FORGED,), (RuntimeError, error, error.__traceback__)
        )
    first, *rest = Plain().format(record).split("\n")
    assert A_LINE.match(first)
    assert len(rest) >= 3
    assert not any(A_LINE.match(line) for line in rest)
    assert [char for char in "".join((first, *rest)) if not char.isprintable()] == []


# ------------------------------------------------------------------------------------------------- names of processes


def test_a_name_of_ten_kilobytes_with_nul_and_escapes_is_cut_and_cleaned(workers: Workers) -> None:
    """By its flag for a real worker, which can hold no NUL; and for any, as a host might be called."""
    evil = ("\x1b[31mhost\n'; DROP TABLE pulse_django_worker; --<script>\x07" * 300)[:10_000]
    worker = workers.ready("--name", evil, settings=OURS)
    wait_until(Worker.objects.exists)
    said = Worker.objects.get()
    assert len(said.name) <= 80
    assert re.fullmatch(r"[\x21-\x7e]+", said.name)
    wait_for(Status.COMPLETED, handlers.innocent.enqueue().id)
    assert worker.exit_code is None
    identity = Identity(f"\0{evil}\0\ud800", f"\0{evil}")
    assert re.fullmatch(r"[\x21-\x7e]{1,160}", identity.mint_holder())


def test_a_host_whose_name_no_column_takes_is_a_worker_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel takes any bytes for a name, and Python spells what is no UTF-8 as lone surrogates."""
    monkeypatch.setattr(worker_registration.socket, "gethostname", lambda: "evil\0\x1b[31m\n\udcff" + "x" * 10_000)
    options = WorkerOptions(
        name="n",
        aliases=("default",),
        processes=1,
        concurrency=1,
        queues=(),
        shutdown_grace=1.0,
        max_jobs=0,
        max_rss_mib=0,
    )
    said = worker_registration.presence_of(Identity("n"), options, [], {})
    assert json.dumps(said.host)
    Worker.objects.note(said)
    assert re.fullmatch(r"[\x21-\x7e]{1,255}", Worker.objects.get().host)
