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
from django.db import IntegrityError, ProgrammingError, transaction
from django.db import connections as django_connections
from django.db.backends.signals import connection_created
from django.db.backends.utils import CursorWrapper
from django.test import Client, override_settings
from psycopg.adapt import Dumper

from pulse_django import api
from pulse_django.amendments.amend import read_for_amending
from pulse_django.citus import conditions as citus
from pulse_django.console.jobs import page_window
from pulse_django.database_checks import check_database
from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.expiry import expire
from pulse_django.health import conditions
from pulse_django.health.conditions import connections as advice_on_connections
from pulse_django.health.conditions import schema
from pulse_django.health.explanation import explain
from pulse_django.health.known_names import unknown_queue, unknown_task
from pulse_django.health.unknown_tasks import give_up
from pulse_django.limits.facts import limits
from pulse_django.limits.rules import Breaker, Limit, Rate
from pulse_django.metrics import traffic
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.models import DeclaredTask, Duty, Job, Limiter, Minute, Pause, Schedule, Worker
from pulse_django.operations.preview import look as preview
from pulse_django.pauses.facts import paused_tasks, waiting_jobs
from pulse_django.pauses.pausing import pause_task, resume_task
from pulse_django.queue import reap
from pulse_django.queue.database import deployments
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.database.rights import require_rights
from pulse_django.queue.database.tables import changes_in, problem_with_tables
from pulse_django.queue.database.transactions import run_alone
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.counters import TrafficCounts, TrafficKind
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Postpone, Retry
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.lane_keys import lane_key, limiter_of_queue
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import (
    UNKNOWN_TASK,
    Cancelled,
    Discarded,
    Failed,
    Released,
    Snoozed,
    Stalled,
    Succeeded,
    TimedOut,
    WorkerLost,
)
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.run import notify
from pulse_django.run.fencing import fence
from pulse_django.schedules import facts
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.forms import ScheduleForm
from pulse_django.schedules.tick import forget_ticks
from pulse_django.schedules.tick import look as look_at_schedules
from pulse_django.schedules.ticking import Ticker, run_now, tick_due
from pulse_django.schedules.timings import Every
from pulse_django.schedules.verbs import clock
from pulse_django.shards import transfer
from pulse_django.shards.fleet import shard_facts
from pulse_django.shards.ids import IDS_OF_JOBS, number_ids, position_of, problem_with_numbers, raise_sequence
from pulse_django.shards.moving import finish, movable
from pulse_django.testing.drain import expire_lease, jump_to_next_run
from pulse_django.unique.rule import Unique, UniqueKey
from pulse_django.worker.executors import connection_cleanup
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.listener import Listener
from pulse_django.worker.watchdog import Watchdog
from tests.citus.drive import CITUS
from tests.console import test_every_page as pages
from tests.database import empty_tables, leave_no_line_behind
from tests.factories import AttemptFactory, PauseFactory, WorkerFactory, lease_of, make_job, now
from tests.queue.steps import sql
from tests.security.drive_workflows import steps_and_events, workflows
from tests.security.verbs import VERBS

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


def enqueueing() -> None:
    keyed = NewJob(
        task="t",
        idempotency_key="k",
        queue="mail",
        lease=SOON,
        timeout=SOON,
        progress_timeout=SOON,
        count_lost_workers=False,
    )
    assert Job.objects.enqueue(keyed).pk == Job.objects.enqueue(keyed).pk
    Job.objects.enqueue_many([NewJob(task="t", args=[n], priority=n) for n in range(3)])
    Job.objects.enqueue_alike(NewJob(task="t", run_after=AGO), [((1,), {}), ((2,), {})])
    notify._notify(ALIAS, frozenset({"mail"}))


def expiring() -> None:
    """Swept, swept one by one, and met by a call with the same key."""
    labelled = {"tags": ("t",), "meta": '{"m": 1}', "give_up_after": SOON}
    for expires in (SOON, now_in_python() + SOON):
        Job.objects.enqueue(NewJob(task="t", expires=expires, **labelled))
        Job.objects.enqueue_many([NewJob(task="t", expires=expires, **labelled), NewJob(task="t")])
    assert Job.objects.tagged("t").count() == 4
    assert "expiry" not in Duty.objects.take({}).with_work
    make_job(expires_at=now(-SOON))
    assert Job.objects.expire()
    job = make_job(expires_at=now(-SOON))
    assert expire._expire_one(Job.objects, job.pk)
    with mock.patch.object(expire, "run_alone", wraps=run_alone, side_effect=[IntegrityError("refused"), mock.DEFAULT]):
        make_job(expires_at=now(-SOON))
        assert Job.objects.expire()
    key = UniqueKey.of("expired", Unique())
    make_job(task="t", unique_key=key.key, expires_at=now(-SOON))
    assert Job.objects.get_or_enqueue(NewJob(task="t", unique=key))[1]
    claimed = make_job(Status.RUNNING, give_up_after=SOON, created_at=now(-timedelta(days=9)))
    error = Failed(ErrorReport.of(ValueError("x")))
    Job.objects.settle([Report(lease_of(claimed), error, Retry(SOON, "x"))])


def searched_jobs() -> None:
    """Jobs that are found by an argument: alone, in lists, with keys, and over."""
    new = NewJob(task="t", args=[17], names=["order_id"], searchable=("order_id",))
    Job.objects.enqueue(new)
    Job.objects.enqueue_many([new, NewJob(task="t")])
    for on_conflict in ("keep", "replace"):
        key = UniqueKey.of("searched", Unique(on_conflict=on_conflict))  # type: ignore[arg-type]
        Job.objects.enqueue(replace(new, unique=key))
        Job.objects.enqueue_many([replace(new, unique=key)])
    assert Job.objects.found_by(["order_id:17"]).count() == 3


def now_in_python() -> datetime:
    return datetime.now(UTC)


def unique_jobs() -> None:
    """By each rule, alone and in lists, with keys that are free, held, and held by what has started."""
    unbounded = Unique(on_conflict="debounce")
    rules = [Unique(), Unique(on_conflict="follow"), Unique(on_conflict="replace"), unbounded]
    rules += [Unique(on_conflict="debounce", max_delay=AGO), Unique(per=AGO), Unique(on_conflict="raise")]
    for place, rule in enumerate(rules):
        news = [NewJob(task="t", run_after=SOON, unique=UniqueKey.of(f"{place}{key}", rule)) for key in "ab"]
        for _ in range(2):
            with suppress(AlreadyEnqueued):
                Job.objects.enqueue(news[0])
            with suppress(AlreadyEnqueued):
                Job.objects.enqueue_many(news)
    sql("DELETE FROM pulse_django_job")
    Job.objects.enqueue(NewJob(task="t", run_after=SOON, unique=UniqueKey.of("5a", Unique(per=AGO))))
    Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("k", Unique())))
    [claim] = Job.objects.claim(ME)
    Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("k", Unique(on_conflict="follow"))))
    Job.objects.settle([Report(claim.lease, Succeeded(), Complete())])
    key = UniqueKey.of("dead", Unique()).key
    assert Job.objects.retry([make_job(Status.DEAD_LETTERED, unique_key=key).pk]).revived
    dead = make_job(Status.DEAD_LETTERED, task="t", unique_key="e")
    make_job(task="t", unique_key="e", expires_at=now(-SOON))
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
    assert Job.objects.found_by(["order_id:18"]).get().pk == searched.pk


def claiming() -> None:
    jobs = [make_job(queue=f"q{n % 2}", priority=n % 3) for n in range(6)]
    PauseFactory(queue="q0", paused_at=now())
    lanes = Job.objects.lanes()
    assert Job.objects.waiting()
    assert Job.objects.depths(100)
    assert Job.objects.claim(ME, limit=1, lanes=lanes, takes=dict.fromkeys(lanes, 1))
    claims = [*Job.objects.claim(ME, limit=2), *Job.objects.claim_these(ME, [job.pk for job in jobs])]
    assert claims
    holder = claims[0].lease.holder
    Job.objects.held_by(holder[:8])
    Job.objects.leases_of(holder)
    Job.objects.heartbeat([claims[0].lease, lease_of(jobs[0])], {claims[0].lease: '{"done": 1}'})
    Job.objects.server_clock()
    Duty.objects.take({"sweep": 10.0})
    Duty.objects.done(["sweep"])
    Job.objects.family([jobs[0].pk])
    Job.objects.put_back_for(jobs[0].pk)
    Job.objects.id_at(jobs[1].created_at)


def settling() -> None:
    failed = Failed(ErrorReport.of(ValueError("no")))
    ends = [
        (Succeeded(), Complete('{"a": 1}')), (failed, Retry(SOON, "no")), (failed, DeadLetter("no")),
        (TimedOut(), Retry(SOON, "x", refund=True)), (Stalled(), DeadLetter("x")), (WorkerLost(), Retry(SOON, "x")),
        (Snoozed(SOON), Postpone(SOON)), (Released(), Postpone(SOON, "x")), (Cancelled(""), Cancel("x")),
        (Discarded("x"), Cancel()),
    ]  # fmt: skip
    reports = [Report(lease_of(make_job(Status.RUNNING, max_attempts=2)), *end, None) for end in ends]
    done = make_job(Status.RUNNING)
    asked = make_job(Status.RUNNING, cancel_requested_at=now())
    reports += [
        Report(lease_of(done), Succeeded(), Complete("1"), '{"x": 1}'),
        Report(lease_of(asked), failed, Retry(SOON, "no")),
    ]
    assert len(Job.objects.settle(reports).accepted) == len(reports)
    Job.objects.settle(reports, wait=False)
    Job.objects.settle([Report(lease_of(make_job(Status.RUNNING)), Succeeded(), Complete())], wait=False)
    assert Job.objects.keep_errors_after_completion({reports[0].lease: ErrorReport.of(ValueError("late"))})


def ending() -> None:
    job = make_job(Status.RUNNING, expired=True)
    Job.objects.touch_expired()
    Job.objects.overlooked(SOON)
    Job.objects.reap_these([job.pk])
    Job.objects.reap(within=AGO)
    assert reap._reap_these(Job.objects, [make_job(Status.RUNNING, expired=True).pk], True)  # without a hook
    for faults in ({"overdue": True}, {"stalled": True}, {"expired": True, "max_lost_workers": 1}):
        make_job(Status.RUNNING, **faults)
    assert len(Job.objects.reap()) == 3
    long = make_job(Status.RUNNING, lease_until=now(AGO))
    Job.objects.shorten_leases(step=AGO)
    Job.objects.shorten_leases()
    expire_lease(long)
    for within in (None, AGO):
        make_job(Status.RUNNING, expired=True)
        refused = [IntegrityError("refused"), *[mock.DEFAULT] * 9]
        with mock.patch.object(reap, "_reap", wraps=reap._reap, side_effect=refused):
            assert Job.objects.reap(within=within)
    assert reap._dead_letter_what_cannot_wait(Job.objects, long.pk, ValueError("x")) == []
    jump_to_next_run(make_job(next_run_at=now(AGO)))


def pruning() -> None:
    make_job(Status.COMPLETED, finished_at=now(-AGO))
    dead = make_job(Status.DEAD_LETTERED, last_error="KeyError: 1")
    assert Job.objects.prune(Status.COMPLETED, older_than=SOON) == 1
    assert Job.objects.prune(Status.COMPLETED, older_than=SOON, in_days=False) == 0
    assert Job.objects.prune_these([dead.pk], ended_by=datetime.now(UTC))
    make_job(Status.COMPLETED, era=20200101, idempotency_key="k")
    Job.objects.enqueue(NewJob(task="t", idempotency_key="orphan"))
    sql("DELETE FROM pulse_django_job WHERE idempotency_key::text = 'orphan'")
    Job.objects.enqueue(NewJob(task="t", idempotency_key="orphan"))
    assert Job.objects.make_days()
    assert Job.objects.drop_days(older_than=AGO)


def fencing() -> None:
    with transaction.atomic():
        fence("a shop", mock.Mock(token=7))
    sql("DELETE FROM pulse_django_fence")


def limiting() -> None:
    """By each kind of limit, declared, overridden, closed, failing and full."""
    rate, declarer = Rate(100, per=SOON), Declarer("project", "w:1", clock(ALIAS))
    limit = Limit("mail", max_running=5, max_running_per_key=2, rate=rate, rate_per_key=rate).numbers()
    assert Limiter.objects.declare_new("project", {"mail": limit, "gone": limit})
    assert Limiter.objects.declare(declarer, {"mail": limit}, silence=SOON)
    assert Limiter.objects.declare(declarer, {"mail": limit}, silence=SOON)  # which is there
    Limiter.objects.override("mail", {"max_running_per_key": 3}, duration=SOON, by="a", reason="b")
    lanes = [Lane("default", 0, lane_key("mail", key)) for key in "ab"]
    for lane in lanes:
        Job.objects.enqueue(NewJob(task="t", lane_key=lane.key, run_after=SOON))
        Job.objects.enqueue_many([NewJob(task="t", lane_key=lane.key)] * 3)
    Job.objects.promote()
    waiting = Job.objects.waiting(cursors=lanes)
    assert Pause.objects.pause(lane_key=lanes[0].key, duration=SOON, reason="a", by="b")
    assert Job.objects.use([one.lane for one in waiting])
    assert Pause.objects.resume(lane_key=lanes[0].key)
    Pause.objects.forget_ended()
    for _ in range(2):
        Job.objects.claim_limited(ME, "mail", lanes, dict.fromkeys(lanes, 2), limit=3)
        Job.objects.claim_limited(ME, "mail", lanes, dict.fromkeys(lanes, 2), limit=3, queue="default")
    assert limits(ALIAS)
    breaker = Breaker(failures=2)
    assert [Limiter.objects.failed("mail", breaker, reason="x") for _ in range(2)] == [False, True]
    assert Limiter.objects.pause("mail", duration=timedelta(days=1), reason="x")
    assert Limiter.objects.resume("mail")
    Limiter.objects.forget_full_buckets()


def pausing_tasks() -> None:
    """Jobs with a lane key and without one, set aside and brought back, by hand and by a watchdog."""
    for key in ("", lane_key("", "a")):
        Job.objects.enqueue_many([NewJob(task="t", lane_key=key)] * 3)
    assert pause_task("t", duration=AGO, reason="a", by="b", using=ALIAS)
    assert paused_tasks(ALIAS)[0].set_aside == 6
    assert waiting_jobs(ALIAS, ["no.such"], None) == 0
    assert unknown_task("no.such", lambda ask: [ask(ALIAS)]) is not None
    assert unknown_queue("no.such", lambda ask: [ask(ALIAS)]) is not None
    assert Job.objects.waiting() == Job.objects.claim(ME, limit=9) == []
    assert Job.objects.depths(10)[0].later == 6
    job = Job.objects.order_by("pk")[0]  # without a key: with one, a claim would make it ready
    assert explain(job.pk).is_blocked
    Job.objects.reschedule([job.pk])
    assert Job.objects.set_aside()
    assert resume_task("t", using=ALIAS)
    assert len(Job.objects.claim(ME, limit=3)) == 3
    Pause.objects.pause("t", "u")
    Job.objects.set_aside()
    Pause.objects.resume("t")
    assert Job.objects.bring_back()


def pausing() -> None:
    Pause.objects.pause(queue="mail", reason="x", duration=AGO)
    Pause.objects.pause(queue="mail", reason="y", anew=True)
    Pause.objects.resume(queue="mail", seen=Pause.objects.get().paused_at)


def explaining() -> None:
    """Jobs of each status, and one with a limit of every kind."""
    for job in some_of_each():
        explain(job.pk)
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
    explain(limited.pk)
    call_command("pulse_explain", str(limited.pk), stdout=io.StringIO())


def unknown_tasks() -> None:
    WorkerFactory(tasks=["known"], last_beat_at=now())
    job = make_job(attempts=1, refunds=1, created_at=now(-9 * AGO), next_run_at=now(-SOON))
    message = f"{UNKNOWN_TASK} 'x'"
    days = timedelta(days=30)
    AttemptFactory(job=job, outcome="RELEASED", message=message, started_at=now(-days), finished_at=now(-days))
    assert give_up(ALIAS) == [job.pk]


def naming_deployments() -> None:
    with override_settings(PULSE={"DEPLOYMENT": "production"}):
        deployments.require_deployment(ALIAS, is_worker=True)
        deployments.adopt(ALIAS)


def declaring_tasks() -> None:
    declarer, tasks = Declarer("project", "w:1", clock(ALIAS)), {"shop.echo": {"refused": "x"}}
    assert DeclaredTask.objects.declare(declarer, tasks, silence=SOON)
    assert DeclaredTask.objects.declare(declarer, tasks, silence=SOON)  # which is there


def schedules() -> None:
    hour = timedelta(hours=1)
    schedule = Schedule.objects.create(name="nightly", task="shop.echo", args=[1], every=hour)
    schedule.every = 2 * hour
    schedule.save()
    Schedule.objects.pause(schedule.pk, reason="x", duration=hour)
    Schedule.objects.resume(schedule.pk)
    declarer = Declarer("project", "w:1", clock(ALIAS))
    code = Definition(name="code", task="shop.echo", args=[1], timing=Every(hour, overlap="cancel"))
    Schedule.objects.declare(declarer, [code], silence=hour)
    Schedule.objects.declare(declarer, [code], silence=hour)  # which is there
    Schedule.objects.change(Schedule.objects.get(name="code").pk, {"queue": "mail"})
    Schedule.objects.follow_code(Schedule.objects.get(name="code").pk)
    sql("UPDATE pulse_django_schedule SET next_at = %s", now_in_python() - SOON)
    assert look_at_schedules(ALIAS).due_in is not None
    for oldest_first in (True, False):
        ticker = Ticker(ALIAS)
        ticker._in_time._oldest_first = oldest_first
        assert ticker.step().ticks
        sql("UPDATE pulse_django_schedule SET next_at = %s", now_in_python() - SOON)
    assert tick_due(ALIAS, only=schedule).ticks
    [(fired,)] = sql("SELECT pg_catalog.min(at) FROM pulse_django_tick WHERE outcome::text = 'FIRED'")
    sql("UPDATE pulse_django_schedule SET next_at = %s", fired)
    tick_due(ALIAS)  # with the keys of jobs that are there
    assert run_now(ALIAS, schedule.pk)
    assert facts.recent(ALIAS, [schedule.pk])
    long_ago = timedelta(days=40)
    for at in {at for (at,) in sql("SELECT at FROM pulse_django_tick")}:
        sql("UPDATE pulse_django_tick SET at = %s WHERE at = %s", at - long_ago, at)
    assert forget_ticks(ALIAS, timedelta(days=30))
    form = {"name": "f", "task": "shop.echo", "args": "[1]", "kwargs": "{}", "missed": "once", "overlap": "skip"}
    owned = ScheduleForm(form | {"every": "1:00:00"}, owner="customer:1", quota=3)
    assert owned.is_valid(), owned.errors
    owned.save()
    Schedule.objects.declare(declarer, [], silence=hour)
    site.get_model_admin(Schedule).delete_model(mock.Mock(), schedule)


STORAGE = [
    *(
        enqueueing,
        expiring,
        searched_jobs,
        unique_jobs,
        amending_jobs,
        claiming,
        settling,
        ending,
        pruning,
        fencing,
        pausing,
    ),
    explaining,
    unknown_tasks,
    schedules,
    declaring_tasks,
    naming_deployments,
    limiting,
    pausing_tasks,
    workflows,
    steps_and_events,
]


# ------------------------------------------------------------------------------------------------------------ runtime


def watchdog() -> None:
    make_job(Status.RUNNING, expired=True)
    with line("watchdog") as ours:
        dog = Watchdog(ours)
        with mock.patch("pulse_django.managers.JobManager.server_clock", return_value=ServerClock(1.0, 1e6)):
            dog.sweep()
            dog.sweep()


def minutes() -> None:
    for job in (make_job(Status.RUNNING) for _ in range(3)):
        Job.objects.settle([Report(lease_of(job), Succeeded(), Complete())])
    Worker.objects.note(pages.presence("host-1"))
    Worker.objects.answer_stack("host-1", "b", 1, "somewhere")
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


RUNTIME = [watchdog, minutes, listening, kept_connections, prepared_statements]


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
    for finding in conditions.ask_all(ALIAS).findings:
        assert finding.error == ""
    make_job(Status.RUNNING, lease_until=now(12 * AGO))
    for one in conditions.known():
        if one.repair is not None and one.name != "schema-incomplete":
            with suppress(conditions.RepairRefused):
                list(conditions.repair(one, ALIAS))
    conditions.named("token-repeated").repair.act(ALIAS, ["x"])  # type: ignore[union-attr]  # it has one
    conditions.named("child-of-cancelled").repair.act(ALIAS, [1])  # type: ignore[union-attr]
    assert schema._is_there(ALIAS, Job, "pulse_job_payload_is_bounded")
    assert schema._rebuild(ALIAS, ["pulse_job_priority_in_range"]) == 1
    assert problem_with_tables(ALIAS) == ""
    require_rights(ALIAS, works=True, watches=True)
    assert changes_in(ALIAS)
    assert problem_with_numbers(ALIAS, 0) == ""
    assert number_ids(ALIAS, 0) == []
    raise_sequence(ALIAS, IDS_OF_JOBS, position_of(ALIAS, IDS_OF_JOBS) + 1)
    move_jobs_to_and_fro()
    check_database(databases=[ALIAS])


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
    list(api.jobs(status=Status.PENDING, queue="mail", task="t"))


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
    for chosen in ({"worker": "x"}, {"error": "x"}, {"status__exact": "PENDING", "queue": "mail"}):
        page_window.are_few(ALIAS, chosen)


def act_on_pages(client: Client) -> None:
    for address in addresses():
        assert client.post(address.url, address.data).status_code < 500, address
    for name, row in (("retry", Status.DEAD_LETTERED), ("cancel", Status.RUNNING), ("release", Status.RUNNING)):
        job = make_job(row)
        data = {f"{name}-{field}": value for field, value in (("attempts", job.attempts), ("runs", 1), ("reason", "x"))}
        client.post(f"/admin/pulse_django/job/{job.pk}/act/{name}/", data)


def addresses() -> list[pages.Address]:
    empty_tables()
    return pages.with_rows()


# Statements of Django's own, on its own tables, come with the pages only.
OWN: list[Callable[[], object]] = [*BY_ROLES, *STORAGE, *RUNTIME, *OPERATING, *CITUS]
EVERYTHING = [*OWN, web]
