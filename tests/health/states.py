"""Brings about each condition of the catalogue, for tests of every outlet."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from pulse_django.models import Job, Limiter, Pause, Schedule, Tick
from pulse_django.queue.words.states import Status
from pulse_django.shards.transfer import depart
from tests import citus
from tests.database import TABLES, empty_tables
from tests.factories import AttemptFactory, PauseFactory, WorkerFactory, make_job, now
from tests.queue.steps import sql
from tests.rival import Rival

LONG_AGO = timedelta(hours=-2)
# Of the session in which the table is written: on Citus that of its node.
FLUSH = "SELECT pg_stat_force_next_flush() FROM (SELECT count(*) FROM pulse_django_pause) AS here"


def empty_and_vacuum() -> None:
    """Begin anew, without the dead rows of the case before: they are a finding of their own."""
    empty_tables()
    sql(FLUSH)  # or the deleted rows would be counted after the VACUUM
    sql(f"VACUUM {', '.join(TABLES)}")


def live_worker(**fields: Any) -> Any:
    return WorkerFactory(**{"slots": 8, "tasks": ["tests.add"], "started_at": now(LONG_AGO)} | fields)


def lost_worker(**fields: Any) -> Any:
    long_ago = now(LONG_AGO)
    return live_worker(**{"stopped_at": long_ago, "last_beat_at": long_ago, "lost_at": now(), "in_flight": 3} | fields)


def record(ago: int = 1, **signs: Any) -> None:
    """Write the minute of so many minutes ago."""
    sql(
        "INSERT INTO pulse_django_minute (minute, signs)"
        " SELECT date_trunc('minute', clock_timestamp()) - %s * interval '1 min', %s",
        ago,
        json.dumps(signs),
    )


def alter_rules(change: str) -> None:
    """Change the domain of the rules of jobs."""
    if citus.is_on_citus():  # it cannot spell such a change for its nodes
        change = f"ALTER DOMAIN {citus.schema_name()}.pulse_django_job_rules {change}"
        sql("SELECT run_command_on_all_nodes(%s)", f"SET citus.enable_ddl_propagation TO off; {change}")
    else:
        sql(f"ALTER DOMAIN pulse_django_job_rules {change}")


@contextmanager
def without(constraint: str) -> Iterator[None]:
    """Drop a rule of jobs for a while. They are gone when it comes back."""
    named = "contypid = 'pulse_django_job_rules'::regtype AND conname = %s"
    [(definition,)] = sql(f"SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE {named}", constraint)
    drop = f"DROP CONSTRAINT IF EXISTS {constraint}"
    alter_rules(drop)
    try:
        yield
    finally:
        sql("DELETE FROM pulse_django_job")
        alter_rules(drop)
        alter_rules(f"ADD CONSTRAINT {constraint} {definition}")


@contextmanager
def _running_without_lease(_: Rival) -> Iterator[None]:
    with without("pulse_job_running_iff_leased"):
        make_job(Status.RUNNING)
        sql("UPDATE pulse_django_job SET locked_by = NULL")
        yield


@contextmanager
def _schema_incomplete(_: Rival) -> Iterator[None]:
    sql("ALTER INDEX pulse_job_reap RENAME TO pulse_job_reap_")
    try:
        yield
    finally:
        sql("ALTER INDEX pulse_job_reap_ RENAME TO pulse_job_reap")


@contextmanager
def _long_transaction(rival: Rival) -> Iterator[None]:
    rival.begin()
    rival.run(sql, "SELECT 1")
    try:
        yield
    finally:
        rival.rollback()


@contextmanager
def _table_bloat(_: Rival) -> Iterator[None]:
    sql("ALTER TABLE pulse_django_pause SET (autovacuum_enabled = off)")
    try:
        for number in range(30):
            PauseFactory(queue=f"q{number}")
        sql("DELETE FROM pulse_django_pause")
        sql(FLUSH)
        yield
    finally:
        sql("ALTER TABLE pulse_django_pause RESET (autovacuum_enabled)")
        sql("VACUUM pulse_django_pause")


def _due(**fields: Any) -> Any:
    return make_job(**{"next_run_at": now(LONG_AGO)} | fields)


def _token_repeated() -> None:
    [(stands,)] = sql("SELECT last_value FROM pulse_django_token")
    make_job(Status.RUNNING, token=stands + 1_000)


def _attempt_missing() -> None:
    make_job(Status.COMPLETED, attempts=2)


def _child_of_cancelled() -> None:
    make_job(parent=make_job(Status.CANCELLED), next_run_at=now(timedelta(hours=1)))


def _overdue_while_idle() -> None:
    live_worker()
    _due()


def _queue_overdue() -> None:
    live_worker(in_flight=8)
    _due()


def _paused_backlog() -> None:
    _due()
    Pause.objects.pause(queue="default", reason="the bank is down")


def _task_unknown() -> None:
    live_worker(in_flight=8)
    make_job(task="gone.too", created_at=now(LONG_AGO))


def _key_missing() -> None:
    job = make_job(attempts=1, refunds=1)
    AttemptFactory(job=job, number=1, outcome="RELEASED", message="cannot decrypt: key '2026-11' is missing")


def _dead_letters() -> None:
    for _ in range(101):
        AttemptFactory(job=make_job(Status.DEAD_LETTERED, attempts=1), number=1)


def _day_missing() -> None:
    make_job(Status.COMPLETED, era=20200101)


def with_schedule(**values: Any) -> int:
    schedule = Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=timedelta(hours=1))
    Schedule.objects.filter(pk=schedule.pk).update(**values)
    return schedule.pk


def _schedule_refused() -> None:
    Tick.objects.create(schedule_id=with_schedule(), at=now(), outcome="REFUSED", note="no live worker has the task")


def need_overlooked() -> None:
    """As a worker of a release before workflows ends a job that another one needs."""
    first, then = make_job(Status.COMPLETED, finished_at=now(LONG_AGO)), make_job(Status.WAITING)
    sql("INSERT INTO pulse_django_dependency (job_id, needs, name) VALUES (%s, %s, 'first')", then.pk, first.pk)


def move_unfinished() -> None:
    """As a process leaves a job that is killed between two shards."""
    depart(Job.objects, Job.objects.filter(pk=make_job().pk), to_shard=0)
    sql("UPDATE pulse_django_departure SET at = statement_timestamp() + %s", LONG_AGO)


def _failures_rise() -> None:
    record(3, runs_total={"mail.send": {"FAILED": 10, "SUCCEEDED": 20}})
    record(30, runs_total={"mail.send": {"FAILED": 1, "SUCCEEDED": 29}})


def _limiter_starved() -> None:
    Limiter.objects.override("stripe", {"max_running": 1})
    make_job(lane_key="stripe", next_run_at=now(LONG_AGO))


SIMPLE: dict[str, Callable[[], object]] = {
    "lease-too-long": lambda: make_job(Status.RUNNING, lease_until=now(timedelta(hours=1))),
    "attempt-missing": _attempt_missing,
    "day-missing": _day_missing,
    "token-repeated": _token_repeated,
    "clock-stepped": lambda: live_worker(last_beat_at=now(timedelta(minutes=3))),
    "lease-not-reaped": lambda: make_job(Status.RUNNING, lease_until=now(LONG_AGO)),
    "queue-without-worker": _due,
    "overdue-while-idle": _overdue_while_idle,
    "queue-overdue": _queue_overdue,
    "paused-backlog": _paused_backlog,
    "task-unknown": _task_unknown,
    "key-missing": _key_missing,
    "dead-letters": _dead_letters,
    "failure-rate": lambda: record(3, runs_total={"mail.send": {"FAILED": 30, "SUCCEEDED": 1}}),
    "failures-rise": _failures_rise,
    "leases-expired": lambda: record(3, lease_expirations_total=101),
    "child-of-cancelled": _child_of_cancelled,
    "limiter-starved": _limiter_starved,
    "ready-overdue": lambda: make_job(lane_key="stripe", ready=False, next_run_at=now(LONG_AGO)),
    "need-overlooked": need_overlooked,
    "move-unfinished": move_unfinished,
    "schedule-overdue": lambda: with_schedule(next_at=now(LONG_AGO)),
    "schedule-refused": _schedule_refused,
    "worker-lost": lost_worker,
    "worker-silent": lambda: live_worker(last_beat_at=now(LONG_AGO)),
    "slots-stuck": lambda: live_worker(stuck_slots=1),
    "thread-restarted": lambda: live_worker(vitals={"restarts": {"watchdog": 2}}),
    "minutes-missing": lambda: record(60),
}
WITH_AN_END: dict[str, Callable[[Rival], Any]] = {
    "running-without-lease": _running_without_lease,
    "schema-incomplete": _schema_incomplete,
    "long-transaction": _long_transaction,
    "table-bloat": _table_bloat,
}


@contextmanager
def brought_about(name: str, rival: Rival) -> Iterator[None]:
    """Bring a condition about, and end what would outlive the test."""
    if name in SIMPLE:
        SIMPLE[name]()
        yield
    else:
        with WITH_AN_END[name](rival):
            yield
