"""Every verb: how to get to where it can be called, what it calls, and the roles that are granted it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any
from unittest import mock

from django.db import connection, transaction
from django.test import override_settings

from pulse_django import Batch, Workflow, chain, chord, send_event
from pulse_django.health.conditions import ask_all
from pulse_django.health.unknown_tasks import give_up
from pulse_django.limits.rules import Breaker
from pulse_django.models import Duty, Job, Limiter, Minute, Pause, Schedule, Worker
from pulse_django.pauses.facts import paused_tasks
from pulse_django.pauses.pausing import pause_task, resume_task
from pulse_django.queue.database.deployments import adopt, owner_of, require_deployment
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.decisions import Complete, Retry
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import Masks
from pulse_django.queue.words.options import JOB_OPTIONS
from pulse_django.queue.words.outcomes import UNKNOWN_TASK, Failed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.fencing import fence
from pulse_django.run.job_progress import progress_of
from pulse_django.run.notify import wake_workers
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.tick import forget_ticks
from pulse_django.schedules.ticking import run_now, tick_due
from pulse_django.schedules.timings import Every
from pulse_django.schedules.verbs import clock
from pulse_django.workflows import rewind
from pulse_django.workflows.acts import retry_dead_letters
from pulse_django.workflows.needs import add_needs_of_run
from pulse_django.workflows.resolving import resolve
from pulse_django.workflows.rules import Need
from pulse_django.workflows.steps import begin_sleep, steps_of, store_step
from tests.console.test_every_page import presence
from tests.factories import AttemptFactory, PauseFactory, WorkerFactory, lease_of, make_job, now
from tests.queue.steps import sql
from tests.workflows.tasks import plain

from .roles import OPERATOR, PRODUCER, WATCHDOG, WORKER

ALIAS = "default"
AGE = timedelta(days=1)

Act = Callable[[], Any]


def of(
    arrange: Callable[[], Any], act: Callable[[Any], Any], granted_to: set[str]
) -> tuple[Callable[[], Act], set[str]]:
    """Return a verb that is called with the row that ``arrange`` makes."""
    return lambda: partial(act, arrange()), granted_to


def nothing() -> None: ...


def settling() -> Act:
    failed = Failed(ErrorReport.of(ValueError("no")))
    report = Report(lease_of(make_job(Status.RUNNING)), failed, Retry(timedelta(), "no"))
    return lambda: Job.objects.settle([report]).accepted


def settling_late() -> Act:
    lease = lease_of(make_job(Status.RUNNING))
    Job.objects.release([lease])
    return lambda: Job.objects.settle([Report(lease, Succeeded(), Complete())]).lost


def pausing() -> Act:
    return lambda: Pause.objects.pause(queue="default", reason="x") and Pause.objects.resume(queue="default")


def setting_aside() -> Act:
    make_job()
    Pause.objects.pause("tests.add")
    return lambda: Job.objects.set_aside() and Pause.objects.resume("tests.add") and Job.objects.bring_back()


def acknowledging() -> Act:
    WorkerFactory(last_beat_at=now(-2 * AGE), boot_id="b", name="host-1")
    Worker.objects.mark_lost(AGE)
    return lambda: Worker.objects.acknowledge("host-1", "b", by="anna")


def writing_a_minute() -> Act:
    def write() -> bool:
        [minute, *_] = Minute.objects.unwritten()
        return Minute.objects.write(minute) and [Minute.objects.note(minute, {"x": 1}), Minute.objects.forget()] != []

    return write


def saying(statement: str) -> Callable[[], Act]:
    """SQL by hand."""

    def arrange() -> Act:
        AttemptFactory(job=make_job(Status.COMPLETED))
        return lambda: [sql(statement), "done"]

    return arrange


# -------------------------------------------------------------------------------------------------------- producers


def enqueueing_many() -> Act:
    new = NewJob(task="t", args=[1])
    full = replace(
        new, run_after=AGE, queue="mail", priority=1, lease=AGE, timeout=AGE, progress_timeout=AGE, max_attempts=2,
        max_lost_workers=2, count_lost_workers=False, parent_id=make_job().pk, trace="x",
        sensitive=Masks(names=("a",)).text, expires=2 * AGE, give_up_after=AGE,
        tags=("t",), meta='{"m": 1}', names=["order_id"], searchable=("order_id",), lane_key="a:k", weight=2,
    )  # fmt: skip
    missing = [one.name for one in JOB_OPTIONS if getattr(full, one.name) == one.default]
    assert missing == ["idempotency_key"], f"give these another value than the default: {missing}"
    return lambda: [
        Job.objects.enqueue(full),
        Job.objects.enqueue_many([full, full]),
        Job.objects.enqueue_many([new, new]),
        Job.objects.enqueue_many([replace(new, idempotency_key="a")]),
        Job.objects.enqueue_alike(new, [((1,), {})]),
        Job.objects.get_or_enqueue(replace(new, idempotency_key="b")),
        wake_workers(ALIAS, ["default"]),
    ]


def building_a_workflow() -> Act:
    there = make_job()
    return lambda: [
        chain(plain.prepare("a"), plain.prepare("b")).enqueue(),
        chord([plain.prepare("a"), plain.prepare("b")], plain.prepare("c")).enqueue().progress(),
        after(there.pk),
    ]


def after(job_id: int) -> None:
    workflow = Workflow("after")
    workflow.add("next", plain.prepare("a"), needs=[job_id])
    workflow.enqueue()


def filling_a_batch() -> Act:
    outer = Batch.open("outer")

    def fill() -> bool:
        batch = Batch.open("batch", parent=outer, context={"a": 1})
        batch.add(plain.prepare("a"))
        batch.add_many(plain, [["b"], ["c"]])
        batch.seal(on_success=plain.prepare("d"), on_dead=plain.prepare("e"), on_end=plain.prepare("f"))
        return bool(batch.progress().total)

    return fill


def adding_to_a_cancelled_batch() -> Act:
    batch = Batch.open("batch")
    batch.cancel()
    return lambda: batch.add(plain.prepare("a"))


# --------------------------------------------------------------------------------------------------- workers


def claiming_limited() -> Act:
    Limiter.objects.declare_new("project", {"stripe": {"max_running": 1, "rate": 9, "rate_per": 60, "rate_burst": 1}})
    lane = Lane("default", 0, lane_key("stripe", "k"))
    make_job(lane_key=lane.key, next_run_at=now(-AGE))
    return lambda: Job.objects.claim_limited(Identity("me"), "stripe", [lane], {lane: 1}, limit=1).claims


def keeping_late_errors() -> Act:
    job = make_job(Status.RUNNING)
    Job.objects.settle([Report(lease_of(job), Succeeded(), Complete())])
    return lambda: Job.objects.keep_errors_after_completion({lease_of(job): ErrorReport.of(ValueError("late"))})


def waiting_for_others() -> Act:
    lease, needed = lease_of(make_job(Status.RUNNING)), make_job()
    return lambda: add_needs_of_run(Job.objects, lease, [Need(job_id=needed.pk), Need(event="e", timeout=1.0)])


def doing_steps() -> Act:
    lease = lease_of(make_job(Status.RUNNING))
    return lambda: [
        store_step(Job.objects, lease, "one", '{"a": 1}', 0.1),
        begin_sleep(Job.objects, lease, "two", 1.0),
        steps_of(ALIAS, lease.job_id),
    ]


def passing_a_fence() -> Act:
    token = lease_of(make_job(Status.RUNNING))

    def pass_it() -> bool:
        with transaction.atomic():
            fence("door", mock.Mock(token=token.attempt))
        return True

    return pass_it


def _declarer() -> Declarer:
    return Declarer("project", "w:1", clock(ALIAS))


def declaring_schedules() -> Act:
    declarer, silence = _declarer(), timedelta(hours=1)
    code = [Definition(name=name, task="shop.echo", args=[1], timing=Every(AGE)) for name in ("a", "b")]
    refused = Definition(name="refused", task="shop.echo", kwargs={"wrong": 1}, timing=Every(AGE))
    Schedule.objects.declare(declarer, [code[0]], silence=silence)
    return lambda: (
        Schedule.objects.declare(declarer, [code[1], refused], silence=silence)
        and sql("SELECT outcome FROM pulse_django_tick") == [("REFUSED",)]
    )


def declaring_limits() -> Act:
    declarer, silence, numbers = _declarer(), timedelta(hours=1), {"max_running": 1}
    Limiter.objects.declare(declarer, {"a": numbers}, silence=silence)
    return lambda: [
        Limiter.objects.declare(declarer, {"b": numbers}, silence=silence),
        Limiter.objects.declare_new("project", {"c": numbers}),
    ]


def breaking_a_limit() -> Act:
    Limiter.objects.declare_new("project", {"a": {"max_running": 1}})
    breaker = Breaker(on=(ValueError,), failures=1, window=AGE, pause_for=AGE)
    return lambda: [
        Limiter.objects.failed("a", breaker, reason="x"),
        Limiter.objects.resume("a"),
        Limiter.objects.pause("a", duration=AGE, reason="429"),
        Pause.objects.pause(lane_key=lane_key("a", "k"), duration=AGE, reason="429"),
    ]


def answering_a_stack() -> Act:
    Worker.objects.note(presence("host-1"))
    Worker.objects.ask_stack("host-1", "b", 1)
    return lambda: [Worker.objects.answer_stack("host-1", "b", 1, "here"), "done"]


def resolving() -> Act:
    """Close a batch, free what waited for it and for an event, and cancel the members of another."""
    done, cancelled = Batch.open("done"), Batch.open("cancelled")
    cancelled.add(plain.prepare("c"))
    with transaction.atomic():  # what follows from it comes after the commit, and is left to the role
        mock_commits()
        done.seal(on_success=plain.prepare("a"))
        cancelled.cancel(reason="no")
        sql("INSERT INTO pulse_django_event (name) VALUES ('e')")
        workflow = Workflow("w")
        workflow.add("n", plain.prepare("a"), needs=[done])
        workflow.enqueue()

    def resolve_all() -> bool:
        resolve(ALIAS, with_timeouts=True)
        assert Job.objects.filter(batch_id=cancelled.id, status=Status.CANCELLED).exists()
        return done.row.finished_at is not None

    return resolve_all


def mock_commits() -> None:
    """Forget what the transaction wants to do after its commit."""
    connection.run_on_commit = ForgetsAll()


class ForgetsAll(list[Any]):
    def append(self, _callback: Any) -> None: ...


# ------------------------------------------------------------------------------------------------- watchdogs


def mistrusting() -> Act:
    job = make_job(Status.RUNNING, expired=True)
    return lambda: [
        Job.objects.server_clock(),
        Job.objects.touch_expired(),
        Job.objects.overlooked(AGE),
        Job.objects.reap_these([job.pk]),
    ]


def holding_paused() -> Act:
    batch = Batch.open("b")
    batch.add(plain.prepare("a"))
    sql("UPDATE pulse_django_batch SET paused_at = '2020-01-01Z'")
    return lambda: len(Job.objects.hold()) == 1


def forgetting_batches() -> Act:
    Batch.open("b").seal()
    sql("UPDATE pulse_django_batch SET created_at = '2020-01-01Z', finished_at = '2020-01-02Z'")
    return lambda: [
        Job.objects.note_overlooked(),
        Job.objects.forget_orphans(),
        Job.objects.forget_batches(older_than=AGE),
    ]


def giving_up_unknown_tasks() -> Act:
    WorkerFactory(tasks=["known"], last_beat_at=now())
    job = make_job(attempts=1, refunds=1, created_at=now(-9 * AGE), next_run_at=now(-AGE))
    long_ago = now(-30 * AGE)
    message = f"{UNKNOWN_TASK} 'x'"
    AttemptFactory(job=job, outcome="RELEASED", message=message, started_at=long_ago, finished_at=long_ago)
    return lambda: give_up(ALIAS) == [job.pk]


def ticking(overlap: str) -> Callable[[], Act]:
    """Fire a schedule whose job from before still runs."""

    def arrange() -> Act:
        running = make_job(Status.RUNNING)
        Schedule.objects.create(name="a", task="shop.echo", args=[1], every=AGE, overlap=overlap)
        sql("UPDATE pulse_django_schedule SET next_at = now() - interval '1 s', last_job_id = %s", running.pk)
        return lambda: tick_due(ALIAS).ticks and [forget_ticks(ALIAS, AGE)]

    return arrange


# ------------------------------------------------------------------------------------------------- operators


def changing_schedules() -> Act:
    code = Definition(name="code", task="shop.echo", args=[1], timing=Every(AGE))
    Schedule.objects.declare(_declarer(), [code], silence=AGE)
    pk = Schedule.objects.get().pk
    return lambda: [
        Schedule.objects.create(name="own", task="shop.echo", args=[1], every=AGE),
        Schedule.objects.change(pk, {"queue": "mail"}),
        Schedule.objects.follow_code(pk),
        Schedule.objects.pause(pk, reason="x"),
        Schedule.objects.resume(pk),
        Schedule.objects.get(name="own").delete(),
    ]


def overriding_limits() -> Act:
    Limiter.objects.declare_new("project", {"a": {"max_running": 1}})
    return lambda: [
        Limiter.objects.override("a", {"max_running": 2}, by="me"),
        Limiter.objects.override("a", None),
        "done",
    ]


def steering_a_workflow() -> Act:
    one, other = chain(plain.prepare("a"), plain.prepare("b")).enqueue(), Batch.open("dead")
    make_job(Status.DEAD_LETTERED, batch_id=other.id)
    return lambda: [
        one.pause() and one.resume() and one.cancel(reason="no"),
        retry_dead_letters(ALIAS, other.id)[0]["revived"],
    ]


def rewinding() -> Act:
    dead = make_job(Status.DEAD_LETTERED, task="tests.workflows.tasks.stepwise", args=["x"])
    sql("INSERT INTO pulse_django_step (job_id, number, name, attempt, token) VALUES (%s, 1, 'a', 1, 1)", dead.pk)
    return lambda: [rewind.fork(dead.pk, "a"), rewind.retry_from(dead.pk, "a")]


@override_settings(PULSE={"DEPLOYMENT": "staging"})
def of_staging(*, is_worker: bool) -> bool:
    """Say that the database belongs to this deployment, or ask whose it is."""
    require_deployment(ALIAS, is_worker=is_worker)
    if is_worker:
        adopt(ALIAS)
    return owner_of(ALIAS) in (None, "staging")


ALL = {PRODUCER, WORKER, WATCHDOG, OPERATOR}
RUN = {WORKER, WATCHDOG, OPERATOR}  # who ends runs

VERBS: dict[str, tuple[Callable[[], Act], set[str]]] = {
    "enqueue": of(
        nothing,
        lambda _: Job.objects.enqueue(NewJob(task="security.echo", args=[1], run_after=AGE, timeout=AGE, trace="x")),
        ALL,
    ),
    "enqueue many": (enqueueing_many, ALL),
    "build a workflow": (building_a_workflow, ALL),
    "fill a batch": (filling_a_batch, ALL),
    "add to a cancelled batch": (adding_to_a_cancelled_batch, RUN),
    "send an event": of(nothing, lambda _: send_event("e", {"a": 1}, by="me"), ALL),
    "see progress": of(
        lambda: make_job(Status.RUNNING, progress={"done": 1, "total": 2}),
        lambda job: progress_of(job.pk).percent == 50,
        ALL,
    ),
    "promote": of(
        lambda: make_job(lane_key=lane_key("", "a"), ready=False, next_run_at=now(-AGE)),
        lambda _: [Job.objects.promote(), "done"],
        {WORKER, WATCHDOG, OPERATOR},
    ),
    "claim": of(make_job, lambda _: Job.objects.claim(Identity("me")), {WORKER, WATCHDOG}),
    "claim from a limit": (claiming_limited, {WORKER}),
    "heartbeat": of(
        lambda: lease_of(make_job(Status.RUNNING)),
        lambda lease: Job.objects.heartbeat([lease], {lease: '{"done": 1}'}).alive,
        RUN,
    ),
    "settle": (settling, RUN),
    "settle too late": (settling_late, RUN),
    "keep late errors": (keeping_late_errors, RUN),
    "wait for others": (waiting_for_others, RUN),
    "do steps": (doing_steps, RUN),
    "pass a fence": (passing_a_fence, {WORKER}),
    "declare schedules": (declaring_schedules, {WORKER}),
    "declare limits": (declaring_limits, {WORKER}),
    "break a limit": (breaking_a_limit, {WORKER, OPERATOR}),
    "answer where a handler is": (answering_a_stack, {WORKER, WATCHDOG}),
    "resolve": (resolving, RUN),
    "release": of(lambda: lease_of(make_job(Status.RUNNING)), lambda lease: Job.objects.release([lease]).accepted, RUN),
    "reap": of(lambda: make_job(Status.RUNNING, expired=True), lambda _: bool(Job.objects.reap()), RUN),
    "mistrust leases": (mistrusting, RUN),
    "shorten leases": of(
        lambda: make_job(Status.RUNNING, lease_until=now(timedelta(hours=5))),
        lambda _: Job.objects.shorten_leases(step=timedelta(hours=5)),
        RUN,
    ),
    "expire": of(lambda: make_job(expires_at=now(-AGE)), lambda _: bool(Job.objects.expire()), RUN),
    "keep days": of(
        lambda: make_job(Status.COMPLETED, era=20200101, idempotency_key="k"),
        lambda _: [Job.objects.make_days(), Job.objects.drop_days(older_than=AGE)],
        {WATCHDOG},
    ),
    "hold what is paused": (holding_paused, RUN),
    "forget batches": (forgetting_batches, RUN),
    "take turns": of(nothing, lambda _: [Duty.objects.take({"sweep": 10.0}), Duty.objects.done(["sweep"])], {WATCHDOG}),
    "forget limits": of(
        nothing,
        lambda _: [Limiter.objects.forget_full_buckets(), Pause.objects.forget_ended(), "done"],
        {WORKER, WATCHDOG},
    ),
    "give up unknown tasks": (giving_up_unknown_tasks, {WORKER, WATCHDOG}),
    **{
        f"fire a schedule, {overlap}": (ticking(overlap), {WATCHDOG, OPERATOR})
        for overlap in ("skip", "allow", "wait", "cancel")
    },
    "ask the conditions": of(
        lambda: make_job(Status.RUNNING, expired=True),
        lambda _: all(not finding.error for finding in ask_all(ALIAS).findings),
        {WATCHDOG, OPERATOR},
    ),
    "mend leases": of(
        lambda: make_job(Status.RUNNING, lease_until=now(timedelta(days=3))),
        lambda job: Job.objects.mend([job.pk]),
        set(),
    ),
    "cancel": of(make_job, lambda job: Job.objects.request_cancel([job.pk], reason="no").cancelled, RUN),
    "postpone": of(make_job, lambda job: Job.objects.reschedule([job.pk], delay=AGE).changed, RUN),
    "move": of(make_job, lambda job: Job.objects.move([job.pk], queue="other", priority=1).changed, {OPERATOR}),
    "amend": of(
        make_job,
        lambda job: bool(Job.objects.amend(job.pk, Payload("[1]", "{}"), unique_key=None, by="me")),
        {OPERATOR},
    ),
    "retry": of(lambda: make_job(Status.DEAD_LETTERED), lambda job: Job.objects.retry([job.pk], runs=3).revived, RUN),
    "prune": of(
        lambda: make_job(Status.COMPLETED, finished_at=now(-2 * AGE)),
        lambda _: Job.objects.prune(Status.COMPLETED, older_than=AGE),
        {WATCHDOG, OPERATOR},
    ),
    "delete dead letters": of(
        lambda: make_job(Status.DEAD_LETTERED), lambda job: Job.objects.prune_these([job.pk]), {WATCHDOG, OPERATOR}
    ),
    "pause and resume": (pausing, RUN),
    "pause and resume a task": of(
        make_job, lambda _: pause_task("tests.add") and paused_tasks("default") and resume_task("tests.add"), RUN
    ),
    "pause and resume a key": of(
        nothing, lambda _: Pause.objects.pause(lane_key="a:k") and Pause.objects.resume(lane_key="a:k"), RUN
    ),
    "set jobs aside": (setting_aside, RUN),
    "write the deployment": of(nothing, lambda _: of_staging(is_worker=True), {WORKER}),
    "read the deployment": of(nothing, lambda _: of_staging(is_worker=False), RUN),
    "end pauses": of(
        lambda: PauseFactory(paused_at=now(-2 * AGE), paused_until=now(-AGE)),
        lambda _: bool(Pause.objects.forget_ended()),
        RUN,
    ),
    "change schedules": (changing_schedules, {OPERATOR}),
    "run a schedule": of(
        lambda: Schedule.objects.create(name="a", task="shop.echo", args=[1], every=AGE),
        lambda schedule: run_now(ALIAS, schedule.pk, by="me"),
        RUN,
    ),
    "override limits": (overriding_limits, {WORKER, OPERATOR}),
    "steer a workflow": (steering_a_workflow, RUN),
    "rewind": (rewinding, RUN),
    "say that one is there": of(
        lambda: Worker.objects.note(presence("host-1")),
        lambda _: [Worker.objects.note(presence("host-1")), Worker.objects.farewell("host-1", "b"), "done"],
        {WORKER},
    ),
    "mark workers lost": of(
        lambda: WorkerFactory(last_beat_at=now(-2 * AGE)),
        lambda _: Worker.objects.mark_lost(AGE) and Worker.objects.forget(AGE, AGE),
        {WATCHDOG},
    ),
    "acknowledge lost workers": (acknowledging, {WORKER, WATCHDOG, OPERATOR}),
    "ask where a handler is": of(
        lambda: Worker.objects.note(presence("host-1")),
        lambda _: Worker.objects.ask_stack("host-1", "b", 1),
        {WORKER, WATCHDOG, OPERATOR},
    ),
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
    "take a rule away": (
        saying("ALTER DOMAIN pulse_django_job_rules DROP CONSTRAINT pulse_job_status_is_known"),
        set(),
    ),
    "take all rules away": (saying("ALTER TABLE pulse_django_job_hot DROP CONSTRAINT pulse_django_job_rules"), set()),
}
