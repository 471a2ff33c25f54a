"""A drive through all that sends SQL: verbs, questions, repairs, commands, pages, and what runs beside workers."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import psycopg
from django.contrib.admin import site
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import IntegrityError, ProgrammingError
from django.db import connections as django_connections
from django.db.backends.signals import connection_created
from django.db.backends.utils import CursorWrapper
from django.test import Client
from psycopg.adapt import Dumper

from pulse_django import Batch, api, chain
from pulse_django.amendments.amend import read_for_amending
from pulse_django.citus import conditions as citus
from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.expiry import expire
from pulse_django.health import conditions
from pulse_django.health.conditions import connections as advice_on_connections
from pulse_django.health.conditions import schema
from pulse_django.health.explanation import explain
from pulse_django.health.known_names import unknown_task
from pulse_django.limits.rules import Limit
from pulse_django.metrics import traffic
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.models import DeclaredTask, Job, Limiter, Minute, Schedule, Worker
from pulse_django.operations.preview import look as preview
from pulse_django.queue import reap
from pulse_django.queue.database.tables import changes_in
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.counters import TrafficCounts, TrafficKind
from pulse_django.queue.words.decisions import Complete, Retry
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.lane_keys import lane_key, limiter_of_queue
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Failed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.schedules import facts
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.forms import ScheduleForm
from pulse_django.schedules.tick import forget_ticks
from pulse_django.schedules.tick import look as look_at_schedules
from pulse_django.schedules.ticking import Ticker, tick_due
from pulse_django.schedules.timings import Every
from pulse_django.schedules.verbs import clock
from pulse_django.shards import transfer
from pulse_django.shards.fleet import shard_facts
from pulse_django.shards.ids import IDS_OF_JOBS, number_ids, position_of, raise_sequence
from pulse_django.shards.moving import finish, movable
from pulse_django.testing.drain import expire_lease, jump_to_next_run
from pulse_django.unique.rule import Unique, UniqueKey
from pulse_django.worker.executors import connection_cleanup
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.listener import Listener
from pulse_django.workflows import reading
from pulse_django.workflows.batch_verbs import open_batch
from pulse_django.workflows.rules import Place
from pulse_django.workflows.steps import copy_steps, forget_steps, store_step
from pulse_django.workflows.waits import NeededResults
from tests.citus.drive import CITUS
from tests.console import test_every_page as pages
from tests.database import empty_tables, leave_no_line_behind
from tests.factories import AttemptFactory, PauseFactory, WorkerFactory, lease_of, make_job, now
from tests.queue.steps import sql
from tests.security.verbs import VERBS
from tests.workflows.tasks import plain

AGO, SOON = timedelta(hours=2), timedelta(seconds=1)
ALIAS = "default"
BELOW_ALL = ("pulse_django.queue.database.transactions", "pulse_django.worker.guarded_connection")  # whoever sends
ME = Identity("driver")


class _TypedInt(Dumper):
    """Spell a number with the type that it has as a parameter of its own, where PostgreSQL binds parameters."""

    def dump(self, number: int) -> bytes:  # within a list
        return str(number).encode()

    def quote(self, number: int) -> bytes:
        sizes = ((15, "int2"), (31, "int4"), (63, "int8"))
        kind = next((kind for bits, kind in sizes if abs(number) < 2**bits), "numeric")
        return f"({number}::{kind})".encode()


class _TypedFloat(Dumper):
    def dump(self, number: float) -> bytes:
        return repr(number).encode()

    def quote(self, number: float) -> bytes:
        return f"('{number!r}'::float8)".encode()


@contextmanager
def recording(sent_from: dict[str, str] | None = None) -> Iterator[dict[str, str]]:
    """Keep each statement that is sent, with its parameters and as it is written, whichever thread sends it.

    Once for each combination of types: None and a number may find different operators. ``sent_from`` gets the module of
    ours that sent it, of those that no test sent itself."""
    sent: dict[str, str] = {}
    known = set()
    execute = CursorWrapper._execute  # type: ignore[attr-defined]  # not among the stubs

    def keep(self: Any, statement: Any, params: Any, *ignored: Any) -> Any:
        text = statement if isinstance(statement, str) else statement.as_string(self.cursor)
        values = params.values() if isinstance(params, dict) else params or ()
        module = "" if sent_from is None else _module_that_sends()
        if (kind := (text, module, *map(type, values))) not in known:
            known.add(kind)
            sent[spelt := _spelt(self, statement, params)] = text
            if sent_from is not None and module.startswith("pulse_django."):
                sent_from[spelt] = module
        return execute(self, statement, params, *ignored)

    with mock.patch.object(CursorWrapper, "_execute", keep):
        yield sent


def _module_that_sends() -> str:
    """Return the nearest module on the stack that is ours or a test's."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(("pulse_django.", "tests.")) and name not in BELOW_ALL:
            return str(name)
        frame = frame.f_back  # type: ignore[assignment]  # the last has none
    return ""


def _spelt(wrapper: Any, statement: Any, params: Any) -> str:
    cursor = psycopg.ClientCursor(wrapper.db.connection)
    if wrapper.db.settings_dict["OPTIONS"].get("server_side_binding"):
        cursor.adapters.register_dumper(int, _TypedInt)
        cursor.adapters.register_dumper(float, _TypedFloat)
    return cursor.mogrify(statement, params)


def drive(*parts: Callable[[], object]) -> None:
    """Do these parts, each on tables that are empty before it and after."""
    for part in parts:
        empty_tables()
        part()
        leave_no_line_behind()  # what comes next goes through a connection with the project's own settings
    empty_tables()


# ------------------------------------------------------------------------------------------------------------ storage


def _by_roles(arrange: Callable[[], Callable[[], Any]]) -> Callable[[], object]:
    return lambda: arrange()()


BY_ROLES = [_by_roles(arrange) for arrange, _ in VERBS.values() if arrange.__name__ != "arrange"]


# What VERBS and the pages send is not repeated here.


def enqueueing() -> None:
    keyed = NewJob(task="t", idempotency_key="k", queue="mail", lease=SOON)
    assert Job.objects.enqueue(keyed).pk == Job.objects.enqueue(keyed).pk
    for _ in range(2):
        Job.objects.enqueue(replace(keyed, idempotency_key="orphan"))
        sql("DELETE FROM pulse_django_job WHERE idempotency_key::text = 'orphan'")


def unique_jobs() -> None:
    """By each rule, alone and in lists, with keys that are free, held, and held by what has started."""
    found = NewJob(task="t", args=[17], names=["order_id"], searchable=("order_id",))
    for on_conflict in ("keep", "replace"):
        key = UniqueKey.of("searched", Unique(on_conflict=on_conflict))  # type: ignore[arg-type]
        Job.objects.enqueue(replace(found, unique=key))
        Job.objects.enqueue_many([replace(found, unique=key)])
    rules = [Unique(), *(Unique(on_conflict=one) for one in ("follow", "replace", "debounce"))]  # type: ignore[arg-type]
    rules += [Unique(on_conflict="debounce", max_delay=AGO), Unique(per=AGO), Unique(on_conflict="raise")]
    for place, rule in enumerate(rules):
        news = [NewJob(task="t", run_after=SOON, unique=UniqueKey.of(f"{place}{key}", rule)) for key in "ab"]
        for _ in range(2):
            with suppress(AlreadyEnqueued):
                Job.objects.enqueue(news[0])
            with suppress(AlreadyEnqueued):
                Job.objects.enqueue_many(news)
    sql("DELETE FROM pulse_django_job")
    Job.objects.enqueue(NewJob(task="t", run_after=SOON, unique=UniqueKey.of("5a", rules[5])))
    Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("k", Unique())))
    [claim] = Job.objects.claim(ME)
    Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("k", Unique(on_conflict="follow"))))
    Job.objects.settle([Report(claim.lease, Succeeded(), Complete())])
    dead = make_job(Status.DEAD_LETTERED, task="t", unique_key="e")
    make_job(task="t", unique_key="e", expires_at=now(-SOON))
    assert expire._expire_one(Job.objects, make_job(expires_at=now(-SOON)).pk)
    assert Job.objects.retry([dead.pk]).revived
    Job.objects.prune(Status.CANCELLED, older_than=SOON)


def amending_jobs() -> None:
    """With and without what was read, and with a key that another job holds."""
    first, second = (Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of(key, Unique()))) for key in "ab")
    found = read_for_amending(Job.objects, first.pk)
    assert Job.objects.amend(first.pk, Payload("[1]", "{}"), attempt=0, instead_of=found, by="x", reason="y")
    answer = Job.objects.amend(first.pk, Payload("[2]", "{}"), unique_key=UniqueKey.of("b", Unique()).key)
    assert answer.key_holder == second.pk
    searched = Job.objects.enqueue(NewJob(task="t", args=[17], names=["order_id"], searchable=("order_id",)))
    assert Job.objects.amend(searched.pk, Payload("[18]", "{}", ("order_id:18",)))


def claiming() -> None:
    jobs = [make_job() for _ in range(2)]
    claims = Job.objects.claim_these(ME, [job.pk for job in jobs])
    assert Job.objects.heartbeat([lease_of(jobs[0])]).lost
    holder = claims[0].lease.holder
    Job.objects.held_by(holder[:8])
    Job.objects.leases_of(holder)
    Job.objects.family([jobs[0].pk])
    Job.objects.put_back_for(jobs[0].pk)
    Job.objects.id_at(jobs[1].created_at)
    for found in (Job.objects.tagged("t"), Job.objects.found_by(["order_id:17"])):
        assert not found.count()
    list(api.jobs(status=Status.PENDING, queue="mail", task="t"))


def ending() -> None:
    """Without waiting for locks, of what may not wait, and one by one after an error."""
    failed = Report(lease_of(make_job(Status.RUNNING)), Failed(ErrorReport.of(ValueError("no"))), Retry(SOON, "no"))
    for _ in range(2):  # the second time it is too late
        Job.objects.settle([failed], wait=False)
    Job.objects.settle([Report(lease_of(make_job(Status.RUNNING)), Succeeded(), Complete())], wait=False)
    Job.objects.reap(within=AGO)
    assert reap._reap_these(Job.objects, [make_job(Status.RUNNING, expired=True).pk], True)  # without a hook
    long = make_job(Status.RUNNING, lease_until=now(AGO))
    Job.objects.shorten_leases()
    expire_lease(long)
    for within in (None, AGO):
        make_job(Status.RUNNING, expired=True)
        refused = [IntegrityError("refused"), *[mock.DEFAULT] * 9]
        with mock.patch.object(reap, "_reap", wraps=reap._reap, side_effect=refused):
            assert Job.objects.reap(within=within)
    assert reap._dead_letter_what_cannot_wait(Job.objects, long.pk, ValueError("x")) == []
    jump_to_next_run(make_job(next_run_at=now(AGO)))
    dead = make_job(Status.DEAD_LETTERED, last_error="KeyError: 1")
    assert Job.objects.prune(Status.COMPLETED, older_than=SOON, in_days=False) == 0
    assert Job.objects.prune_these([dead.pk], ended_by=datetime.now(UTC))


def limiting() -> None:
    limit = Limit("mail", max_running=5).numbers()
    for _ in range(2):  # the second time it is there
        assert Limiter.objects.declare(declarer(), {"mail": limit}, silence=SOON)
    lane = Lane("default", 0, lane_key("mail", "a"))
    Job.objects.enqueue(NewJob(task="t", lane_key=lane.key))
    assert Job.objects.use([one.lane for one in Job.objects.waiting(cursors=[lane])])


def explaining() -> None:
    """Jobs of each status, one with a limit of every kind, and one of a limited queue."""
    for job in some_of_each():
        explain(job.pk)
    assert unknown_task("no.such", lambda ask: [ask(ALIAS)]) is not None
    numbers = {"max_running": 1, "max_running_per_key": 1, "rate": 9, "rate_per": 60, "rate_burst": 1}
    keyed = {"key_rate": 9, "key_rate_per": 60, "key_rate_burst": 1}
    Limiter.objects.declare_new("project", {"stripe": numbers | keyed})
    lane = Lane("default", 0, lane_key("stripe", "k"))
    for _ in range(2):
        limited = make_job(lane_key=lane.key, next_run_at=now(-SOON))
    assert Job.objects.claim_limited(ME, "stripe", [lane], {lane: 1}, limit=1).claims
    assert explain(limited.pk).is_blocked
    alone = make_job(lane_key=limiter_of_queue("default"), next_run_at=now(-SOON))
    assert explain(alone.pk).reasons
    sql("UPDATE pulse_django_limiter SET numbers = '{}'")
    call_command("pulse_explain", str(limited.pk), stdout=io.StringIO())


def declaring_tasks() -> None:
    for _ in range(2):  # the second time it is there
        assert DeclaredTask.objects.declare(declarer(), {"shop.echo": {"refused": "x"}}, silence=SOON)


def schedules() -> None:
    hour = timedelta(hours=1)
    schedule = Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=hour)
    schedule.every = 2 * hour
    schedule.save()
    Schedule.objects.pause(schedule.pk, reason="x", duration=hour)
    Schedule.objects.resume(schedule.pk)
    code = Definition(name="code", task="shop.echo", args=[1], timing=Every(hour, overlap="cancel"))
    for _ in range(2):  # the second time it is there
        Schedule.objects.declare(declarer(), [code], silence=hour)
    sql("UPDATE pulse_django_schedule SET next_at = %s", datetime.now(UTC) - SOON)
    assert look_at_schedules(ALIAS).due_in is not None
    for oldest_first in (True, False):
        ticker = Ticker(ALIAS)
        ticker._in_time._oldest_first = oldest_first
        assert ticker.step().ticks
        sql("UPDATE pulse_django_schedule SET next_at = %s", datetime.now(UTC) - SOON)
    assert tick_due(ALIAS, only=schedule).ticks
    [(fired,)] = sql("SELECT pg_catalog.min(at) FROM pulse_django_tick WHERE outcome::text = 'FIRED'")
    sql("UPDATE pulse_django_schedule SET next_at = %s", fired)
    tick_due(ALIAS)  # with the keys of jobs that are there
    assert facts.recent(ALIAS, [schedule.pk])
    long_ago = timedelta(days=40)
    for at in {at for (at,) in sql("SELECT at FROM pulse_django_tick")}:
        sql("UPDATE pulse_django_tick SET at = %s WHERE at = %s", at - long_ago, at)
    assert forget_ticks(ALIAS, timedelta(days=30))
    form = {"name": "f", "task": "shop.echo", "args": "[1]", "kwargs": "{}", "missed": "once", "overlap": "skip"}
    owned = ScheduleForm(form | {"every": "1:00:00"}, owner="customer:1", quota=3)
    assert owned.is_valid(), owned.errors
    owned.save()
    Schedule.objects.declare(declarer(), [], silence=hour)
    site.get_model_admin(Schedule).delete_model(mock.Mock(), schedule)


def declarer() -> Declarer:
    return Declarer("project", "w:1", clock(ALIAS))


def workflows() -> None:
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    chain(plain.prepare("a"), plain.using(idempotency_key="of a node").prepare("b")).enqueue()
    inner = Batch.open("inner", parent=placed, context={"a": 1})
    place = Place(inner.id)
    Job.objects.enqueue_many([NewJob(task="t", idempotency_key="of a batch", place=place), NewJob(task="t")])
    seen = reading.batches(ALIAS, before=placed.id + 1, open_only=True)
    assert reading.graph_of(ALIAS, seen[0]).is_drawn
    first, second = placed.job_ids.values()
    assert reading.needed_by(ALIAS, first, placed.id)
    assert reading.needs_of(ALIAS, second, unmet_only=True)
    assert explain(second).reasons
    for act in ("list", "show"):
        call_command("pulse_workflows", act, *([placed.id] if act == "show" else []), stdout=io.StringIO())
    placed.cancel(reason="no")
    open_batch(Job.objects, "in a cancelled one", parent_id=inner.id)
    assert list(NeededResults(second, ALIAS).not_done)
    run, copy = make_job(Status.RUNNING), make_job()
    assert store_step(Job.objects, lease_of(run), "one", '{"a": 1}', 0.1)
    assert copy_steps(Job.objects, run.pk, to=copy.pk, first=2)
    assert forget_steps(Job.objects, run.pk, first=1)


STORAGE = [
    enqueueing, unique_jobs, amending_jobs, claiming, ending, explaining, declaring_tasks,
    limiting, schedules, workflows,
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ runtime


def minutes() -> None:
    Worker.objects.note(pages.presence("host-1"))
    with line("minutes") as ours:
        MinuteRecorder(ours).write()
    begin = Minute.objects.latest("minute").minute
    counts = {(kind, "x"): TrafficCounts(succeeded=1) for kind in TrafficKind}
    traffic.write(ALIAS, begin + timedelta(minutes=1), counts)
    traffic.write(ALIAS, begin + timedelta(minutes=11), counts)  # which completes ten


def listening() -> None:
    listener = Listener(ALIAS, (), lambda name: None)
    listener.database = mock.Mock(call=lambda do, *given: do(*given))
    listener._say("x")


def kept_connections() -> None:
    """A handler's connection, on which a receiver of the project's has set something."""
    with ThreadPoolExecutor(max_workers=1) as handlers:
        handlers.submit(_keep_a_connection).result()


def _keep_a_connection() -> None:
    def receiver(**_: object) -> None: ...

    connection_created.connect(receiver)
    try:
        for _ in range(2):  # the first time the receiver comes after ours
            connection_cleanup.close_connections()
            with django_connections[ALIAS].cursor() as cursor:
                kept = connection_cleanup._here.opened[ALIAS]
        assert kept is not None
        with django_connections[ALIAS].cursor() as cursor:
            cursor.execute(kept.reset.decode())
            cursor.execute(connection_cleanup._UNLOCK_AND_COUNT)  # prepared where handlers are called
        connection_cleanup.tidy_connections()
        connection_cleanup.ready_connections()
        assert connection_cleanup.has_connections()
    finally:
        connection_created.disconnect(receiver)
        connection_cleanup.close_connections()


@contextmanager
def line(name: str, *, keeps_plans: bool = False) -> Iterator[GuardedConnection]:
    """A line of its own, whose settings are gone afterwards."""
    ours = GuardedConnection(ALIAS, name, keeps_plans=keeps_plans)
    try:
        yield ours
    finally:
        ours.hang_up()
        leave_no_line_behind()


def prepared_statements() -> None:
    with line("prepared", keeps_plans=True) as ours:
        for _ in range(2):
            assert ours.call(ours.jobs.waiting) == []


RUNTIME = [minutes, listening, kept_connections, prepared_statements]


# ---------------------------------------------------------------------------------------------------------- operating


def some_of_each() -> list[Job]:
    jobs = [make_job(status, queue="mail") for status in Status]
    for job in jobs:
        if job.attempts:
            AttemptFactory(
                job=job, number=job.attempts, outcome="FAILED", message="x", late_outcome="FAILED", late_at=now()
            )
    make_job(Status.RUNNING, expired=True)
    make_job(Status.DEAD_LETTERED, last_error="KeyError: 2")
    PauseFactory(queue="mail", paused_at=now())
    WorkerFactory(queues=["mail"], tasks=["t"], vitals={"prefetched": 1, "restarts": {"beat": 1}})
    WorkerFactory(stopped_at=now())
    WorkerFactory(stopped_at=now(), lost_at=now())
    return jobs


def conditions_and_repairs() -> None:
    some_of_each()
    make_job(Status.RUNNING, lease_until=now(12 * AGO))
    for one in conditions.known():
        if one.repair is not None and one.name != "schema-incomplete":
            with suppress(conditions.RepairRefused):
                list(conditions.repair(one, ALIAS))
    conditions.named("token-repeated").repair.act(ALIAS, ["x"])  # type: ignore[union-attr]  # it has one
    assert changes_in(ALIAS)
    assert schema._is_there(ALIAS, Job, "pulse_job_payload_is_bounded")
    assert schema._rebuild(ALIAS, ["pulse_job_priority_in_range"]) == 1
    assert number_ids(ALIAS, 0) == []
    raise_sequence(ALIAS, IDS_OF_JOBS, position_of(ALIAS, IDS_OF_JOBS) + 1)
    move_jobs_to_and_fro()


def move_jobs_to_and_fro() -> None:
    """From the shard to itself: each statement is sent."""
    job = make_job(task="moved", queue="moved")
    wanted = Job.objects.filter(pk=job.pk)
    transfer.depart(Job.objects, movable(wanted), 0)
    assert [one.job_id for one in transfer.departures(ALIAS, job_ids=[job.pk])] == [job.pk]
    assert len(finish(ALIAS).moved) == 1
    transfer.depart(Job.objects, wanted, 0)
    [sent] = transfer.departures(ALIAS)
    transfer.refuse(ALIAS, sent.departure_id)
    assert len(finish(ALIAS).went_back) == 1
    assert shard_facts(ALIAS).problem == ""


def commands() -> None:
    jobs = some_of_each()
    for command in COMMANDS:
        with suppress(SystemExit, CommandError):
            call_command(*command, stdout=io.StringIO(), stderr=io.StringIO())
    advice_on_connections._hears_itself(ALIAS)
    for look in (citus._nodes, citus._shards, citus._answers):
        with suppress(ProgrammingError):  # this server has none of the tables of Citus
            look(ALIAS)
    preview(Job.objects.all(), limit=3)
    api.cancel(jobs[0].pk, children=True)


_SELECTIONS = (
    [], ["--queue=mail"], ["--task=t"], ["--error=ValueError"], ["--older-than=1d"], ["--newer-than=1d"], ["--limit=2"]
)  # fmt: skip
COMMANDS = [
    ["pulse_status"], ["pulse_status", "--json"], ["pulse_status", "--error=no"], ["pulse_status", "--task=t"],
    ["pulse_check", "--advice"], ["pulse_check"], ["pulse_check", "--json"], ["pulse_watchdog", "--once"],
    ["pulse_check", "--all"], ["pulse_status", "--all"],
    ["pulse_prune", "--status=COMPLETED"], ["pulse_prune", "--yes"],
    *(["pulse_retry", *selection] for selection in _SELECTIONS),
    *(["pulse_cancel", *selection] for selection in _SELECTIONS),
    ["pulse_cancel", "--queue=mail", "--children"], ["pulse_cancel", "--queue=mail", "--children", "--yes"],
    ["pulse_retry", "--queue=mail", "--yes"], ["pulse_retry", "--all", "--yes"],
]  # fmt: skip

OPERATING = [conditions_and_repairs, commands]


# ---------------------------------------------------------------------------------------------------------------- web


def web() -> None:
    user, client = User.objects.create_superuser("driver"), Client()
    client.force_login(user)
    try:
        for url in ("/metrics", "/health"):
            client.get(url)
        look_at_pages(client)
        act_on_pages(client)
    finally:
        Session.objects.all().delete()
        User.objects.all().delete()


FILTERS = (
    {}, {"q": "12"}, {"q": "some words"}, {"q": "order_id:7 parent:1 tag:a"}, {"q": "error:no task:x"},
    {"status__exact": "PENDING"}, {"status__exact": "RUNNING"}, {"status__exact": "DEAD_LETTERED"},
    {"status__exact": "CANCELLED"}, {"status__exact": "COMPLETED"}, {"queue": "mail"},
    {"queue": "mail", "status__exact": "PENDING"}, {"task": "t"}, {"worker": "host-1:boot"}, {"error": pages.ERROR},
    {"age": "1h"}, {"name": "mail"}, {"format": "json"}, {"older": "1_1"},
)  # fmt: skip


def look_at_pages(client: Client) -> None:
    jobs = some_of_each()
    for job in jobs:
        client.get(f"/admin/pulse_django/job/{job.pk}/change/")
    for address in addresses():
        for query in FILTERS:
            assert client.get(address.url, query).status_code < 500, address


def act_on_pages(client: Client) -> None:
    for address in addresses():
        assert client.post(address.url, address.data).status_code < 500, address


def addresses() -> list[pages.Address]:
    empty_tables()
    return pages.with_rows()


# Statements of Django's own, on its own tables, come with the pages only.
OWN: list[Callable[[], object]] = [*BY_ROLES, *STORAGE, *RUNTIME, *OPERATING, *CITUS]
EVERYTHING = [*OWN, web]
