"""Every condition: it is brought about and found, and repaired if it has a repair."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.db.models import CheckConstraint

from pulse_django import conf
from pulse_django.health.conditions import Finding, Limits, RepairRefused, Step, ask, ask_all, known, named, repair
from pulse_django.health.unknown_tasks import give_up
from pulse_django.models import (
    Attempt,
    Bucket,
    Departure,
    Job,
    Limiter,
    Minute,
    Pause,
    Schedule,
    StoredAttempt,
    Tick,
    Worker,
)
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.database.rules import KEPT
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT, UNKNOWN_TASK
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.shards.ids import TOKENS, position_of, raise_sequence
from pulse_django.workflows.resolving import resolve
from tests.factories import AttemptFactory, PauseFactory, make_job, now, today
from tests.faults import each_of
from tests.health.states import (
    FLUSH,
    LONG_AGO,
    alter_rules,
    brought_about,
    empty_and_vacuum,
    live_worker,
    lost_worker,
    move_unfinished,
    need_overlooked,
    with_schedule,
    without,
)
from tests.limits.test_facts import MINUTE, declare, enqueue, start
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("vacuumed")

OURS = {one.name for one in known()}
TESTED: set[str] = set()


def found(name: str, **limits: Any) -> Finding:
    """Ask one condition, and see it found."""
    TESTED.add(name)
    finding = ask(named(name), "default", Limits.of(conf.current(), **limits))
    assert finding.error == ""
    assert not finding.is_clear, f"{name} should be found"
    return finding


def keys(finding: Finding) -> list[Any]:
    return [subject.key for subject in finding.subjects]


def is_clear(name: str, **limits: Any) -> bool:
    finding = ask(named(name), "default", Limits.of(conf.current(), **limits))
    assert finding.error == ""
    return finding.is_clear


def repaired(name: str, **limits: Any) -> list[Step]:
    return list(repair(named(name), "default", Limits.of(conf.current(), **limits)))


def test_all_are_clear_in_an_empty_database() -> None:
    assert ask_all("default").says == ""


def test_all_are_clear_while_work_goes_on() -> None:
    live_worker()
    make_job(Status.RUNNING)
    make_job()
    make_job(Status.PENDING, next_run_at=now(timedelta(hours=1)))
    for status in Status:
        if status in TERMINAL:
            job = make_job(status)
            AttemptFactory(job=job, number=max(job.attempts, 1))
    AttemptFactory(job=make_job(Status.RETRYING))
    Pause.objects.pause(queue="another", reason="why not")
    raise_sequence("default", TOKENS, 1_000_000)  # no claim was made
    assert ask_all("default").says == ""


# Jobs


def test_the_table_refuses_a_running_job_without_a_lease() -> None:
    job = make_job(Status.RUNNING)
    for column in ("locked_by", "lease_until", "token"):
        with pytest.raises(IntegrityError, match="running_iff_leased"):
            sql(f"UPDATE pulse_django_job SET {column} = NULL WHERE id = %s", job.pk)


def test_a_running_job_without_a_lease_gets_one_that_runs_out() -> None:
    with without("pulse_job_running_iff_leased"):
        job = make_job(Status.RUNNING)
        make_job(Status.RUNNING)
        sql("UPDATE pulse_django_job SET locked_by = NULL, lease_until = NULL, token = NULL WHERE id = %s", job.pk)
        assert Job.objects.reap() == []
        assert keys(found("running-without-lease")) == [job.pk]
        assert [step.repaired for step in repaired("running-without-lease")] == [1]
        job.refresh_from_db()
        assert job.locked_by == "nobody"
        sql("UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 s' WHERE id = %s", job.pk)
        assert [one.lease.job_id for one in Job.objects.reap()] == [job.pk]


def test_a_lease_that_a_clock_left_too_long_is_shortened_and_its_holder_goes_on() -> None:
    job, other = make_job(Status.RUNNING, lease_until=now(timedelta(hours=1))), make_job(Status.RUNNING)
    long_lease = make_job(Status.RUNNING, lease_ttl=timedelta(hours=3), lease_until=now(timedelta(hours=2)))
    assert keys(found("lease-too-long")) == [job.pk]
    repaired("lease-too-long")
    assert is_clear("lease-too-long")
    [(left,)] = sql("SELECT lease_until - clock_timestamp() FROM pulse_django_job WHERE id = %s", job.pk)
    assert timedelta(seconds=20) < left <= timedelta(seconds=30), "its job is recovered within a lease and a tick"
    for untouched in (other, long_lease):
        before = untouched.lease_until
        untouched.refresh_from_db()
        assert untouched.lease_until == before


def test_a_lease_of_a_worker_with_longer_leases_than_ours_is_left_alone(settings: Any) -> None:
    settings.PULSE = {"LEASE_TTL": 10, "HEARTBEAT_INTERVAL": 3, "WATCHDOG_INTERVAL": 3}
    job = make_job(Status.RUNNING, lease_until=now(timedelta(seconds=60)))
    assert is_clear("lease-too-long")
    assert Job.objects.mend([job.pk]) == []


def test_a_job_that_somebody_made_running_by_hand_can_be_reaped_afterwards() -> None:
    """It was never claimed: its attempt would be the zeroth."""
    with without("pulse_job_running_iff_leased"):
        never, spent = make_job(), make_job(attempts=3, refunds=2)
        sql("UPDATE pulse_django_job SET status = 'RUNNING'")
        assert sorted(keys(found("running-without-lease"))) == sorted([never.pk, spent.pk])
        repaired("running-without-lease")
        assert is_clear("running-without-lease")
        sql("UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 s'")
        assert sorted(one.lease.job_id for one in Job.objects.reap()) == sorted([never.pk, spent.pk])
        assert sorted(Attempt.objects.values_list("number", flat=True)) == [1, 3]


def test_one_row_that_cannot_be_repaired_keeps_no_other_from_it(caplog: pytest.LogCaptureFixture) -> None:
    with without("pulse_job_running_iff_leased"), without("pulse_job_priority_in_range"):
        hopeless, other = make_job(Status.RUNNING), make_job(Status.RUNNING)
        sql("UPDATE pulse_django_job SET lease_until = NULL")
        sql("UPDATE pulse_django_job SET priority = 999 WHERE id = %s", hopeless.pk)
        rule = "CONSTRAINT pulse_job_priority_in_range CHECK ((VALUE).priority <= 100)"
        alter_rules(f"ADD {rule} NOT VALID")
        assert Job.objects.mend([hopeless.pk, other.pk]) == [other.pk]
    assert f"Repairing job {hopeless.pk} failed" in caplog.text


def test_leases_that_no_watchdog_reaps_are_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, 1e6))
    job = make_job(Status.RUNNING, lease_until=now(LONG_AGO))
    make_job(Status.RUNNING, expired=True)  # the next tick will see it
    assert keys(found("lease-not-reaped")) == [job.pk]
    repaired("lease-not-reaped")
    assert is_clear("lease-not-reaped")
    job.refresh_from_db()
    assert (job.status, job.last_error) == (Status.RETRYING, "worker lease expired")


def test_nothing_is_reaped_right_after_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, 3.0))
    make_job(Status.RUNNING, lease_until=now(LONG_AGO))
    with pytest.raises(RepairRefused, match="started 3 s ago"):
        repaired("lease-not-reaped")
    assert Job.objects.running().count() == 1


@each_of(*[status for status in Status if status is not Status.RUNNING])
def test_an_ended_run_without_its_row_in_the_ledger_is_seen(*, status: Any) -> None:
    empty_and_vacuum()
    make_job()  # has never run
    kept, robbed = make_job(status, attempts=2), make_job(status, attempts=2)
    AttemptFactory(job=kept, number=2)
    AttemptFactory(job=robbed, number=1)
    assert keys(found("attempt-missing")) == [robbed.pk]
    assert named("attempt-missing").repair is None, "nobody can invent what a run did"


def test_a_token_that_was_granted_beyond_the_sequence_raises_it() -> None:
    stands = position_of("default", TOKENS)
    make_job(Status.RUNNING, token=stands + 1_000)
    assert found("token-repeated").subjects[0].words == f"stands at {stands}, and {stands + 1_000} was granted"
    repaired("token-repeated")
    assert is_clear("token-repeated")
    make_job()
    [claim] = Job.objects.claim(Identity("me"))
    assert claim.token == stands + 1_001


def test_children_of_a_cancelled_job_are_cancelled_with_it() -> None:
    parent, other = make_job(Status.CANCELLED), make_job(Status.COMPLETED, finished_at=now())
    waiting, running = make_job(parent=parent), make_job(Status.RUNNING, parent=parent)
    make_job(Status.RUNNING, parent=parent, cancel_requested_at=now())
    make_job(Status.COMPLETED, parent=parent)
    make_job(parent=other)
    assert sorted(keys(found("child-of-cancelled"))) == sorted([waiting.pk, running.pk])
    [step] = repaired("child-of-cancelled")
    assert step.repaired == 2
    assert is_clear("child-of-cancelled")
    waiting.refresh_from_db()
    running.refresh_from_db()
    assert (waiting.status, running.cancel_reason) == (Status.CANCELLED, "its parent was cancelled")


# Queues and workers


def test_a_queue_that_no_worker_serves_is_named() -> None:
    live_worker(queues=["mail"])
    live_worker(stopped_at=now())
    live_worker(last_beat_at=now(LONG_AGO))
    for queue in ("mail", "reports", "paused"):
        make_job(queue=queue, next_run_at=now(LONG_AGO))
    make_job(queue="later", next_run_at=now(timedelta(hours=1)))
    Pause.objects.pause(queue="paused")
    finding = found("queue-without-worker")
    assert keys(finding) == ["reports"]
    assert "due for 02:00:0" in finding.subjects[0].words
    live_worker()  # serves all
    assert is_clear("queue-without-worker")


def test_jobs_overdue_beside_idle_workers_are_seen_and_a_busy_queue_is_not() -> None:
    idle = live_worker(in_flight=3, stuck_slots=1)
    make_job(queue="stuck", next_run_at=now(LONG_AGO))
    make_job(queue="busy", next_run_at=now(LONG_AGO))
    make_job(Status.RUNNING, queue="busy")
    make_job(queue="quick", next_run_at=now(LONG_AGO))
    make_job(Status.COMPLETED, queue="quick", started_at=now())
    make_job(queue="failing", next_run_at=now(LONG_AGO))
    AttemptFactory(job=make_job(Status.DEAD_LETTERED, queue="failing"))
    make_job(queue="cancelling", next_run_at=now(LONG_AGO))
    make_job(Status.CANCELLED, queue="cancelling", started_at=now())
    make_job(queue="fresh")
    finding = found("overdue-while-idle")
    assert keys(finding) == ["stuck"]
    assert finding.subjects[0].words.endswith("while 4 slots are free")
    sql("UPDATE pulse_django_worker SET in_flight = 8 WHERE id = %s", idle.pk)
    assert is_clear("overdue-while-idle")
    live_worker(started_at=now())  # has not said yet how busy it is
    assert is_clear("overdue-while-idle")


def test_a_paused_queue_with_a_backlog_is_resumed() -> None:
    for name in ("full", "empty", "ended"):
        Pause.objects.pause(queue=name, reason="the bank is down")
    sql("UPDATE pulse_django_pause SET paused_until = statement_timestamp() - interval '1 s' WHERE queue = 'ended'")
    for queue in ("full", "ended", "running"):
        make_job(queue=queue, next_run_at=now(LONG_AGO))
    finding = found("paused-backlog")
    assert keys(finding) == ["full"]
    assert "without an end (the bank is down)" in finding.subjects[0].words
    repaired("paused-backlog")
    assert is_clear("paused-backlog")
    assert Pause.objects.filter(queue="empty").exists()


def test_a_task_that_no_live_worker_knows_is_named_and_given_up_after_its_age(settings: Any) -> None:
    settings.PULSE = {"UNKNOWN_TASK_AGE": 3600}
    live_worker()
    live_worker(tasks=["gone.too"], stopped_at=now(LONG_AGO), last_beat_at=now(LONG_AGO))
    old, young, never_met = (
        make_job(task="gone.too", attempts=1, refunds=1, created_at=now(LONG_AGO)) for _ in range(3)
    )
    make_job(task="of.tomorrow", created_at=now(LONG_AGO), next_run_at=now(timedelta(days=1)))
    make_job(task="deployed.this.minute")
    make_job()
    for job, age in ((old, LONG_AGO), (young, timedelta(minutes=-5))):
        AttemptFactory(job=job, outcome="RELEASED", message=f"{UNKNOWN_TASK} 'gone.too'", started_at=now(age))
    finding = found("task-unknown")
    assert finding.subjects == [("gone.too", "3 or more jobs, in default")]
    repaired("task-unknown")
    statuses = {job.pk: job.status for job in Job.objects.filter(task="gone.too")}
    assert statuses == {old.pk: Status.DEAD_LETTERED, young.pk: Status.PENDING, never_met.pk: Status.PENDING}
    old.refresh_from_db()
    assert old.last_error.startswith("given up: unknown task 'gone.too': no live worker has it, for 2:00:0")


def test_how_long_is_overdue_are_settings(settings: Any) -> None:
    live_worker(queues=["mail"], in_flight=8)
    for queue in ("mail", "unserved"):
        make_job(queue=queue, next_run_at=now(timedelta(minutes=-14)))
    assert is_clear("queue-overdue")
    settings.PULSE = {"ALERTS": {"queue-overdue": 600}}
    assert keys(found("queue-overdue")) == ["mail"]
    Worker.objects.update(in_flight=0)
    Job.objects.update(next_run_at=now(timedelta(seconds=-90)))
    assert is_clear("overdue-while-idle")
    settings.PULSE = {"OVERDUE_AFTER": 60}
    found("overdue-while-idle")


def test_a_schedule_that_is_not_decided_is_overdue(settings: Any) -> None:
    with_schedule(next_at=now(timedelta(seconds=-50)))
    assert is_clear("schedule-overdue")
    settings.PULSE = {"ALERTS": {"schedule-overdue": 40}}
    finding = found("schedule-overdue")
    assert keys(finding) == ["nightly"]
    assert "task shop.echo" in finding.subjects[0].words
    said = [finding.subjects[0].words]
    sql("INSERT INTO pulse_django_duty VALUES ('sweep', clock_timestamp(), clock_timestamp())")
    said.append(found("schedule-overdue").subjects[0].words)
    live_worker(tasks=["shop.echo"])
    said.append(found("schedule-overdue").subjects[0].words)
    Tick.objects.create(schedule=Schedule.objects.get(), at=now(timedelta(minutes=-5)), outcome="FIRED")
    said.append(found("schedule-overdue").subjects[0].words)
    assert [one.partition(": ")[2] for one in said] == [
        "no watchdog is running",
        "no live worker has the task",
        "watchdogs fail to decide it, or a transaction has locked its row",
        "it is catching up with missed ticks",
    ]
    sql("UPDATE pulse_django_schedule SET paused_at = statement_timestamp()")
    assert is_clear("schedule-overdue")


def test_a_schedule_whose_last_tick_was_refused_is_found_until_it_is_changed() -> None:
    schedule_id = with_schedule()
    Tick.objects.create(schedule_id=schedule_id, at=now(LONG_AGO), outcome="REFUSED", note="no such task")
    finding = found("schedule-refused")
    assert keys(finding) == ["nightly"]
    assert "no such task" in finding.subjects[0].words
    Schedule.objects.change(schedule_id, {"queue": "mail"})
    assert is_clear("schedule-refused")
    Tick.objects.create(schedule_id=schedule_id, at=now(), outcome="FIRED")
    assert is_clear("schedule-refused")


def test_dead_letters_are_counted_for_each_queue_and_task_over_the_last_hour() -> None:
    for task, queue, number in (("a", "mail", 4), ("b", "mail", 3), ("c", "other", 3)):
        for _ in range(number):
            make_job(Status.DEAD_LETTERED, task=task, queue=queue, finished_at=now(timedelta(minutes=-50)))
    make_job(Status.DEAD_LETTERED, task="c", queue="other", finished_at=now(timedelta(minutes=-61)))
    assert is_clear("dead-letters")
    finding = found("dead-letters", thresholds={"dead-letters": 3})
    assert finding.subjects == [
        ("queue mail", "7 dead letters in the last hour"),
        ("task a", "4 dead letters in the last hour"),
    ]


def record(minutes_ago: float, **signs: Any) -> None:
    Minute.objects.create(minute=now(timedelta(minutes=-minutes_ago)), signs=signs)


def test_a_task_that_fails_more_often_than_it_succeeds_is_named() -> None:
    for ago in (2, 3):
        record(
            ago,
            runs_total={
                "mail.send": {"SUCCEEDED": 2, "FAILED": 3, "TIMED_OUT": 1, "SNOOZED": 100},
                "half": {"SUCCEEDED": 6, "FAILED": 6},
                "rare": {"FAILED": 4},
            },
            jobs_ended_total={"mail": {"COMPLETED": 4, "DEAD_LETTERED": 5}, "other": {"CANCELLED": 50}},
        )
    record(20, runs_total={"long.ago": {"FAILED": 1000}})
    assert found("failure-rate").subjects == [
        ("queue mail", "10 of 18 ended jobs died in the last 15 minutes"),
        ("task mail.send", "8 of 12 runs failed in the last 15 minutes"),
    ]
    assert is_clear("failure-rate", thresholds={"failure-rate": 0.7})


def test_a_task_that_fails_much_more_often_than_before_is_named() -> None:
    """It may still be far from failing mostly."""
    for ago, failed, succeeded in ((3, 6, 14), (20, 1, 49), (70, 0, 50), (80, 1000, 0)):
        record(
            ago,
            runs_total={
                "mail.send": {"SUCCEEDED": succeeded, "FAILED": failed},
                "always.so": {"SUCCEEDED": 14, "FAILED": 6},
                "new": {"FAILED": 20 * (ago < 15)},
            },
            jobs_ended_total={"mail": {"COMPLETED": succeeded, "DEAD_LETTERED": failed}},
        )
    assert found("failures-rise").subjects == [
        ("queue mail", "6 of 20 ended jobs died in the last 15 minutes, and 1 of 100 in the hour before"),
        ("task mail.send", "6 of 20 runs failed in the last 15 minutes, and 1 of 100 in the hour before"),
    ]
    assert [subject.key for subject in found("failure-rate").subjects] == ["task new"]
    assert is_clear("failures-rise", thresholds={"failures-rise": 0.3})


@each_of(5, [], None, {"a": 5}, {"a": {"FAILED": "x"}}, {"a": {"FAILED": None}})
def test_a_minute_of_another_shape_breaks_no_question(*, odd: Any) -> None:
    empty_and_vacuum()
    record(2, runs_total=odd, jobs_ended_total=odd, lease_expirations_total=odd)
    assert is_clear("failure-rate")
    assert is_clear("failures-rise")
    assert is_clear("leases-expired")


def test_many_expired_leases_are_found() -> None:
    for ago in (1, 30, 59):
        record(ago, lease_expirations_total=34)
    record(61, lease_expirations_total=1000)
    assert found("leases-expired").subjects == [("all queues", "102 leases expired in the last hour")]
    assert is_clear("leases-expired", thresholds={"leases-expired": 102})


def test_a_worker_that_sends_no_heartbeat_is_silent() -> None:
    live_worker()
    live_worker(stopped_at=now(LONG_AGO), last_beat_at=now(LONG_AGO))
    worker = live_worker(last_beat_at=now(timedelta(minutes=-2)), in_flight=3)
    [(key, words)] = found("worker-silent").subjects
    assert key == f"worker {worker.name}:{worker.boot_id}"
    assert re.fullmatch(r"no heartbeat for 00:02:0\d, with 3 runs", words)


def test_a_worker_that_went_without_a_word_is_lost_until_it_is_acknowledged() -> None:
    live_worker()
    live_worker(stopped_at=now(LONG_AGO), last_beat_at=now(LONG_AGO))
    lost_worker(acknowledged_at=now(), acknowledged_by="anna")
    assert is_clear("worker-lost")
    worker = lost_worker()
    [(key, words)] = found("worker-lost").subjects
    assert key == f"worker {worker.name}:{worker.boot_id}"
    assert re.fullmatch(r"lost 02:00:0\d ago, with 3 runs", words)
    assert is_clear("worker-silent"), "one loss is one condition"
    assert is_clear("worker-lost", thresholds={"worker-lost": 1}), "hosts of the fleet come and go"
    lost_worker()
    assert len(found("worker-lost", thresholds={"worker-lost": 1}).subjects) == 2
    repaired("worker-lost")
    worker.refresh_from_db()
    assert worker.acknowledged_by == "pulse_check --repair"


def test_a_slot_that_an_abandoned_handler_holds_is_found() -> None:
    live_worker()
    live_worker(stuck_slots=3, stopped_at=now(LONG_AGO), last_beat_at=now(LONG_AGO))
    worker = live_worker(stuck_slots=2, slots=8)
    assert found("slots-stuck").subjects == [(f"worker {worker.name}:{worker.boot_id}", "2 of 8 slots")]


def test_minutes_that_are_not_recorded_any_more_are_missing() -> None:
    assert is_clear("minutes-missing"), "nothing was recorded yet"
    record(-60 * 24)  # the clock was set back
    record(6)
    assert "ago" in found("minutes-missing").subjects[0].words
    record(1)
    assert is_clear("minutes-missing")


def test_a_thread_that_was_started_again_is_told() -> None:
    live_worker(vitals={"restarts": {}})
    live_worker(vitals={"beats": 3})
    worker = live_worker(vitals={"restarts": {"watchdog": 2}})
    live_worker(vitals={"restarts": {"watchdog": 1}}, stopped_at=now(LONG_AGO), last_beat_at=now(LONG_AGO))
    assert found("thread-restarted").subjects == [(f"worker {worker.name}:{worker.boot_id}", "watchdog 2")]


def put_back(job: Job, number: int, age: timedelta = LONG_AGO) -> None:
    AttemptFactory(
        job=job, number=number, outcome="RELEASED", message=f"{UNKNOWN_TASK} {job.task!r}", started_at=now(age)
    )


@pytest.fixture
def forgotten(settings: Any) -> Job:
    """Put back two hours ago, and its task is known to nobody."""
    settings.PULSE = {"UNKNOWN_TASK_AGE": 3600}
    live_worker()
    job = make_job(task="gone.too", attempts=3, refunds=3)
    put_back(job, 1)
    return job


def test_what_was_put_back_once_and_has_run_since_is_not_given_up(forgotten: Job) -> None:
    AttemptFactory(job=forgotten, number=2, outcome="SNOOZED")
    put_back(forgotten, 3, timedelta(minutes=-1))  # as in the deploy that goes on just now
    assert give_up("default") == []
    assert Job.objects.put_back_for(forgotten.pk) < timedelta(minutes=2)


def test_what_was_given_up_and_retried_has_its_time_again(forgotten: Job) -> None:
    assert give_up("default") == [forgotten.pk]
    Job.objects.retry([forgotten.pk])
    assert give_up("default") == []
    assert Job.objects.put_back_for(forgotten.pk) is None


def test_a_task_whose_workers_have_only_just_stopped_or_tell_no_tasks_is_not_given_up(forgotten: Job) -> None:
    stopped = now(timedelta(minutes=-10))
    worker = live_worker(tasks=["gone.too"], stopped_at=stopped, last_beat_at=stopped)
    assert give_up("default") == []
    worker.delete()
    live_worker(tasks=None)  # it may know any
    sql("UPDATE pulse_django_job SET created_at = statement_timestamp() - interval '1 day'")
    assert is_clear("task-unknown")
    assert give_up("default") == []
    Worker.objects.all().delete()
    assert give_up("default") == [], "without any worker nobody gives up anything"


def test_a_job_that_was_put_back_is_seen_at_once_however_young_and_whenever_it_is_due() -> None:
    live_worker(tasks=["tests.add"])
    job = make_job(task="just.enqueued", attempts=1, refunds=1, next_run_at=now(timedelta(hours=1)))
    assert is_clear("task-unknown")
    put_back(job, 1, timedelta(seconds=-1))
    assert found("task-unknown").subjects == [("just.enqueued", "1 or more jobs, in default")]


def test_a_put_back_job_is_seen_behind_many_that_are_older_and_beside_a_worker_of_another_queue() -> None:
    live_worker(tasks=["tests.add"], queues=["default"])
    live_worker(tasks=["report.make"], queues=["reports"])
    for _ in range(25):
        make_job(task="tests.add", created_at=now(LONG_AGO), next_run_at=now(LONG_AGO))
    put_back(make_job(task="report.make", attempts=1, refunds=1), 1, timedelta(seconds=-1))
    assert keys(found("task-unknown")) == ["report.make"]


def test_a_job_that_ran_after_it_was_put_back_is_none() -> None:
    live_worker(tasks=["tests.add"])
    job = make_job(task="known.again", attempts=2, refunds=2)
    put_back(job, 1, timedelta(seconds=-9))
    AttemptFactory(job=job, number=2, outcome="SNOOZED")
    assert is_clear("task-unknown")


# The server


@each_of(
    *{
        "worker": lambda: live_worker(last_beat_at=now(timedelta(minutes=3))),
        "creation": lambda: make_job(created_at=now(timedelta(minutes=3))),
        "start": lambda: make_job(Status.RUNNING, started_at=now(timedelta(minutes=3))),
        "attempt": lambda: AttemptFactory(job=make_job(Status.COMPLETED), finished_at=now(timedelta(minutes=3))),
        "pause": lambda: PauseFactory(paused_at=now(timedelta(minutes=3))),
        "rate": lambda: Bucket.objects.create(scope="stripe:acme", tokens=1, at=now(timedelta(minutes=3))),
    }.items(),
)
def test_an_instant_of_the_future_tells_of_a_clock_that_was_set_back(*, case: Any, write: Any) -> None:
    empty_and_vacuum()
    write()
    [subject] = found("clock-stepped").subjects
    assert subject.words.startswith("is 00:02:59.")


def test_a_transaction_that_holds_back_vacuum_is_seen(rival: Rival) -> None:
    rival.begin()
    rival.run(sql, "SELECT 1")
    assert is_clear("long-transaction")
    finding = found("long-transaction", long_transaction=timedelta())
    assert any("idle in transaction" in subject.words for subject in finding.subjects)
    [pid] = rival.run(sql, "SELECT pg_backend_pid()")[0]
    assert f"pid {pid}" in keys(finding)
    rival.rollback()
    assert f"pid {pid}" not in keys(ask(named("long-transaction"), "default", Limits(long_transaction=timedelta())))


def test_dead_rows_that_autovacuum_left_are_vacuumed(rival: Rival) -> None:
    with brought_about("table-bloat", rival):
        finding = found("table-bloat", dead_rows=20)
        assert "pulse_django_pause" in keys(finding)
        repaired("table-bloat", dead_rows=20)
        sql(FLUSH)
        assert "pulse_django_pause" not in keys(ask(named("table-bloat"), "default", Limits(dead_rows=20)))


def test_an_index_that_is_missing_or_whose_build_broke_off_is_built_again_as_it_was() -> None:
    definitions = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1"
    before = sql(definitions)
    sql("DROP INDEX pulse_job_lane; DROP INDEX pulse_job_one_per_unique_key")
    sql("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'pulse_job_reap'::regclass")
    assert sorted(found("schema-incomplete").subjects) == [
        ("pulse_job_lane", "the index of pulse_django_job is missing"),
        ("pulse_job_one_per_unique_key", "the constraint of pulse_django_job is missing"),
        ("pulse_job_reap", "the index of pulse_django_job is not valid"),
    ]
    repaired("schema-incomplete")
    assert is_clear("schema-incomplete")
    assert sql(definitions) == before


@each_of("pulse_job_running_iff_leased", "pulse_attempt_one_per_run")
def test_a_missing_constraint_is_added_again(*, constraint: Any) -> None:
    empty_and_vacuum()
    if constraint == "pulse_attempt_one_per_run":
        sql(f"ALTER TABLE pulse_django_attempt DROP CONSTRAINT {constraint}")
    else:
        alter_rules(f"DROP CONSTRAINT {constraint}")
    assert keys(found("schema-incomplete")) == [constraint]
    repaired("schema-incomplete")
    assert is_clear("schema-incomplete")
    if constraint == "pulse_attempt_one_per_run":
        entry = AttemptFactory(job=make_job(Status.COMPLETED))
        with pytest.raises(IntegrityError, match=constraint):
            AttemptFactory(job=entry.job, number=entry.number)


def test_rules_that_the_table_does_not_ask_for_are_missing() -> None:
    rules = {one.name for one in Job._meta.constraints if isinstance(one, CheckConstraint)} - {KEPT}
    assert len(rules) > 15
    sql("ALTER TABLE pulse_django_job_hot DROP CONSTRAINT pulse_django_job_rules")
    assert set(keys(found("schema-incomplete", limit=100))) == rules
    repaired("schema-incomplete")
    assert is_clear("schema-incomplete")
    with pytest.raises(IntegrityError, match="pulse_job_priority_in_range"):
        make_job(priority=1_000)


@pytest.mark.one_server("its schema is not named public")
def test_the_rules_are_those_in_the_schema_of_the_table() -> None:
    sql("CREATE SCHEMA elsewhere; CREATE DOMAIN elsewhere.pulse_django_job_rules AS int")
    try:
        sql("SET search_path = elsewhere, public")
        assert is_clear("schema-incomplete")
        alter = "ALTER DOMAIN public.pulse_django_job_rules DROP CONSTRAINT pulse_job_priority_in_range"
        sql(alter)
        assert keys(found("schema-incomplete")) == ["pulse_job_priority_in_range"]
        repaired("schema-incomplete")
        assert is_clear("schema-incomplete")
        sql("SET search_path = public")
        assert is_clear("schema-incomplete")
    finally:
        sql("RESET search_path; DROP SCHEMA elsewhere CASCADE")


def test_a_constraint_of_that_name_elsewhere_does_not_count() -> None:
    alter_rules("DROP CONSTRAINT pulse_job_running_iff_leased")
    sql(
        "CREATE SCHEMA elsewhere;CREATE TABLE elsewhere.t (i int CONSTRAINT pulse_job_running_iff_leased CHECK (i > 0))"
    )
    try:
        repaired("schema-incomplete")
        assert is_clear("schema-incomplete")
    finally:
        sql("DROP SCHEMA elsewhere CASCADE")


def test_what_cannot_be_built_is_told_and_keeps_no_other_from_it() -> None:
    sql("ALTER TABLE pulse_django_attempt DROP CONSTRAINT pulse_attempt_one_per_run")
    sql("DROP INDEX pulse_job_reap")
    entry = AttemptFactory(job=make_job(Status.COMPLETED))
    AttemptFactory(job=entry.job, number=entry.number)
    try:
        with pytest.raises(RepairRefused, match=r"one_per_run.*is duplicated"):
            repaired("schema-incomplete")
        assert keys(found("schema-incomplete")) == ["pulse_attempt_one_per_run"]
    finally:
        StoredAttempt.objects.all().delete()
        repaired("schema-incomplete")
    assert is_clear("schema-incomplete")


def test_a_table_that_somebody_holds_is_not_waited_for_at_length(rival: Rival, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever comes after would wait behind us."""
    monkeypatch.setattr("pulse_django.health.conditions.schema.LOCK_TIMEOUT", "100ms")
    sql("ALTER TABLE pulse_django_attempt DROP CONSTRAINT pulse_attempt_number_is_positive")
    rival.begin()
    rival.run(sql, "SELECT count(*) FROM pulse_django_attempt")
    with pytest.raises(RepairRefused, match="lock timeout"):
        repaired("schema-incomplete")
    assert sql("SHOW lock_timeout") != [("100ms",)]
    rival.rollback()
    repaired("schema-incomplete")
    assert is_clear("schema-incomplete")


def test_a_field_that_nothing_keeps_unique_is_named() -> None:
    [(name,)] = sql(
        "SELECT conname FROM pg_constraint WHERE conrelid = 'pulse_django_fence'::regclass AND contype = 'u'"
    )
    sql(f"ALTER TABLE pulse_django_fence DROP CONSTRAINT {name}")
    try:
        assert keys(found("schema-incomplete")) == ["pulse_django_fence.resource"]
    finally:
        sql(f"ALTER TABLE pulse_django_fence ADD CONSTRAINT {name} UNIQUE (resource)")


def test_a_column_that_a_migration_should_have_added_is_named_and_left_to_migrate() -> None:
    sql("ALTER TABLE pulse_django_worker RENAME COLUMN vitals TO vitals_")
    try:
        [subject] = found("schema-incomplete").subjects
        assert subject == ("pulse_django_worker.vitals", "the column is missing: run migrate")
        assert [step.repaired for step in repaired("schema-incomplete")] == [0]
    finally:
        sql("ALTER TABLE pulse_django_worker RENAME COLUMN vitals_ TO vitals")


# All of them


def test_attempts_of_jobs_that_are_about_to_be_deleted_may_be_missing(settings: Any) -> None:
    """Of a day that is dropped, the stored attempts go first."""
    make_job(Status.CANCELLED, attempts=1, finished_at=now(timedelta(days=-8)))
    assert is_clear("attempt-missing")
    settings.PULSE = {"KEEP_CANCELLED": timedelta(days=9)}
    assert not is_clear("attempt-missing")


@pytest.mark.usefixtures("days")
def test_a_day_without_a_partition_gets_one_with_its_jobs() -> None:
    job = make_job(Status.COMPLETED, era=20200101)
    assert keys(found("day-missing")) == ["20200101"]  # a number would be the id of a job
    assert [step.repaired for step in repaired("day-missing")] == [1]
    assert is_clear("day-missing")
    assert sql("SELECT id FROM pulse_django_job_20200101") == [(job.pk,)]
    sql("SELECT pulse_django_drop_day(20200101)")


def test_a_day_to_come_has_a_partition() -> None:
    sql("SELECT pulse_django_drop_day(to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD')::int)")
    [key] = keys(found("day-missing"))
    repaired("day-missing")
    assert is_clear("day-missing")
    assert int(str(key)) > today()


def test_jobs_whose_key_a_worker_does_not_have() -> None:
    said = f"{CANNOT_DECRYPT}: key '2026-11' is missing"
    waiting, *others = (make_job(task="secret", attempts=1, refunds=1) for _ in range(3))
    tried_again, plain = others
    for job in (waiting, tried_again):
        AttemptFactory(job=job, number=1, outcome="RELEASED", message=said)
    AttemptFactory(job=plain, number=1, outcome="RELEASED", message="the worker stopped")
    Job.objects.filter(pk=tried_again.pk).update(attempts=2, refunds=2)
    assert found("key-missing").subjects == [("secret", f"1 or more jobs; {said}")]


class TestLimits:
    def test_jobs_that_wait_for_their_limit_for_long(self, settings: Any) -> None:
        declare(max_running=1)
        start(enqueue(2), limit=1)
        assert is_clear("limiter-starved")
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() - interval '20 min'")
        finding = found("limiter-starved")
        assert keys(finding) == ["stripe"]
        assert "1 of 1 running" in finding.subjects[0].words
        Limiter.objects.pause("stripe", duration=MINUTE, reason="429")
        assert "(429)" in found("limiter-starved").subjects[0].words
        settings.PULSE = {"ALERTS": {"limiter-starved": 3_600}}
        assert is_clear("limiter-starved")

    def test_they_are_no_fault_of_the_workers_and_shares_are_not_limits(self) -> None:
        declare(max_running=1)
        start(enqueue(2), limit=1)
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() - interval '2 h'")
        for condition in ("overdue-while-idle", "queue-overdue"):
            assert is_clear(condition)
        Job.objects.all().delete()
        enqueue(2, limiter="", key="a")
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() - interval '2 h'")
        assert is_clear("limiter-starved")

    def test_jobs_that_nobody_makes_ready(self) -> None:
        enqueue(2, run_after=MINUTE)
        assert is_clear("ready-overdue")
        sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() - interval '2 h'")
        assert keys(found("ready-overdue")) == ["default"]
        assert Job.objects.promote() == ["default"] * 2
        assert is_clear("ready-overdue")


def test_jobs_that_nobody_frees() -> None:
    need_overlooked()
    [waiter] = Job.objects.filter(status=Status.WAITING)
    assert keys(found("need-overlooked")) == [f"job {waiter.pk}"]
    assert Job.objects.note_overlooked() == 1
    resolve("default")
    assert is_clear("need-overlooked")


def test_jobs_that_a_move_has_left_between_two_shards() -> None:
    move_unfinished()
    [departure] = Departure.objects.all()
    assert keys(found("move-unfinished")) == [f"job {departure.job_id}"]
    assert [step.repaired for step in repair(named("move-unfinished"), "default")] == [1]
    assert is_clear("move-unfinished")
    assert Job.objects.get().pk == departure.job_id


def test_every_condition_was_found() -> None:
    """Runs last in this file."""
    assert set() == OURS - TESTED


def test_a_repair_goes_in_bounded_steps_and_ends() -> None:
    parent = make_job(Status.CANCELLED)
    for _ in range(7):
        make_job(parent=parent)
    whole = named("child-of-cancelled").repair
    assert whole is not None
    small = replace(named("child-of-cancelled"), repair=replace(whole, at_a_time=3))
    assert [(len(step.subjects), step.repaired) for step in repair(small, "default")] == [(3, 3), (3, 3), (1, 1)]
    idle = replace(small, repair=replace(whole, act=lambda alias, keys: 0))
    make_job(parent=parent)
    assert [step.repaired for step in repair(idle, "default")] == [0]
    assert Attempt.objects.count() == 0
