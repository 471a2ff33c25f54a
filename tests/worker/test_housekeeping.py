"""What a watchdog does beside ending lost runs, and the command that runs it alone."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pulse_django.expiry import expire as expire_verb
from pulse_django.expiry.expire import expire
from pulse_django.models import Attempt, Job, Pause, Worker
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.set_aside import SET_ASIDE_LIMIT
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.states import HOT, Status
from pulse_django.signals import job_finished
from pulse_django.worker import watchdog as worker_paused_tasks
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.crash.processes import ROOT, environment
from tests.crash.workers import wait_until
from tests.factories import AttemptFactory, make_job, now, presence
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

OLD = timedelta(days=-8)


@pytest.fixture
def dog(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watchdog]:
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, 1e6))
    database = GuardedConnection("default", "watchdog")
    yield Watchdog(database)
    database.hang_up()


def test_jobs_that_did_not_start_in_time_are_cancelled_and_announced(
    dog: Watchdog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings: list[Any] = []

    def receiver(ending: Any, **_: Any) -> None:
        endings.append(ending)

    monkeypatch.setattr(expire_verb, "EXPIRE_LIMIT", 1)
    monkeypatch.setattr(expire_verb, "expire", partial(expire, limit=1))
    jobs = [make_job(expires_at=now(timedelta(seconds=-1))) for _ in range(3)]
    later = make_job(expires_at=now(timedelta(hours=1)))
    job_finished.connect(receiver)
    try:
        with caplog.at_level(logging.WARNING, logger="pulse_django.watchdog"):
            swept = dog.sweep()
    finally:
        job_finished.disconnect(receiver)
    assert json.loads(swept.to_json())["expired"] == 3
    assert {one.job_id for one in endings if one.expired} == {job.pk for job in jobs}
    assert "3 jobs had not started in time" in caplog.text
    assert Job.objects.get(pk=later.pk).status == Status.PENDING
    monkeypatch.setattr(expire_verb, "MOST_BATCHES", 2)
    for _ in range(2):
        make_job(expires_at=now(timedelta(seconds=-1)))
    swept = dog.sweep(housekeeping=False)
    assert (swept.has_more, dog.pause_after(swept)) == (True, 0.0)


@pytest.mark.parametrize("are_expired", [False, True])
def test_a_watchdog_sends_no_statement_for_expired_jobs_where_there_are_none(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch, are_expired: bool
) -> None:
    asked = []
    monkeypatch.setattr("pulse_django.expiry.expire.expire", lambda jobs: asked.append(1) or [])
    make_job(expires_at=now(timedelta(seconds=-1 if are_expired else 60)))
    dog.take_turn()
    assert bool(asked) == are_expired


@pytest.mark.parametrize("there_is", ["nothing", "a pause", "a pause that has ended", "a job set aside"])
def test_a_watchdog_sends_no_statement_for_paused_tasks_where_there_are_none(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch, there_is: str
) -> None:
    asked = []
    monkeypatch.setattr("pulse_django.worker.watchdog.see_to_shut_tasks", lambda database: bool(asked.append(1)))
    Pause.objects.pause(lane_key=lane_key("", "acme"))
    make_job(ready=None if there_is == "a job set aside" else True)
    if "pause" in there_is:
        Pause.objects.pause("shop.send", duration=timedelta(hours=1))
    if "ended" in there_is:
        Pause.objects.update(paused_until=now())
    dog.take_turn()
    assert bool(asked) == (there_is != "nothing")


def test_a_sweep_sets_jobs_of_paused_tasks_aside_and_the_next_brings_them_back(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[Any] = []
    monkeypatch.setattr(worker_paused_tasks, "wake_workers", lambda alias, queues: woken.append(queues))
    job = make_job(task="shop.send", queue="mail")
    Pause.objects.pause("shop.send", duration=timedelta(hours=1))
    assert not dog.sweep(housekeeping=False).has_more
    job.refresh_from_db()
    assert (job.ready, woken) == (None, [])
    Pause.objects.update(paused_until=now())
    dog.sweep(housekeeping=False)
    job.refresh_from_db()
    assert (job.ready, woken) == (True, [{"mail"}])


def test_a_sweep_that_leaves_jobs_of_a_paused_task_is_followed_by_another_at_once(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_paused_tasks, "MOST_BATCHES", 1)
    Job.objects.enqueue_many([NewJob(task="shop.send")] * (SET_ASIDE_LIMIT + 1))
    Pause.objects.pause("shop.send")
    assert [dog.sweep(housekeeping=False).has_more for _ in range(2)] == [True, False]
    Pause.objects.resume("shop.send")
    assert [dog.sweep(housekeeping=False).has_more for _ in range(2)] == [True, False]
    assert not Job.objects.filter(ready=None).exists()


def test_pauses_that_ended_are_cleared_and_others_are_not(dog: Watchdog) -> None:
    Pause.objects.pause(queue="ended", duration=timedelta(hours=1))
    Pause.objects.filter(queue="ended").update(paused_until=now(timedelta(seconds=-1)))
    Pause.objects.pause(queue="lasting", duration=timedelta(hours=1))
    Pause.objects.pause(queue="endless")
    assert dog.sweep().said["resumed"] == ["queue 'ended'"]
    assert set(Pause.objects.values_list("queue", flat=True)) == {"lasting", "endless"}


def lose(name: str, ago: timedelta = timedelta(hours=1)) -> Worker:
    """A worker that was heard so long ago, and had started before."""
    Worker.objects.note(presence(name, in_flight=3))
    before = now(-ago - timedelta(hours=1))
    Worker.objects.filter(name=name, boot_id="b").update(last_beat_at=now(-ago), started_at=before)
    return Worker.objects.get(name=name, boot_id="b")


def test_a_worker_that_fell_silent_is_lost_until_it_speaks_again(dog: Watchdog) -> None:
    Worker.objects.note(presence("well"))
    lose("silent")
    assert dog.sweep(housekeeping=True).lost == ["silent:b"]
    row = Worker.objects.get(name="silent")
    assert row.lost_at is not None
    assert (row.stopped_at, row.in_flight, row.acknowledged_at) == (row.last_beat_at, 3, None)
    assert dog.sweep(housekeeping=True).lost == [], "it is told once"
    Worker.objects.note(presence("silent"))
    row.refresh_from_db()
    assert (row.stopped_at, row.lost_at) == (None, None)


def test_a_worker_that_stopped_cleanly_is_not_lost(dog: Watchdog) -> None:
    lose("stopped")
    Worker.objects.farewell("stopped", "b")
    lose("frozen")
    dog.sweep(housekeeping=True)
    Worker.objects.farewell("frozen", "b")
    assert dog.sweep(housekeeping=True).lost == []
    assert not Worker.objects.filter(lost_at__isnull=False).exists()


def test_a_lost_worker_is_acknowledged_once_by_a_person(dog: Watchdog) -> None:
    lose("silent")
    assert not Worker.objects.acknowledge("silent", "b", by="anna"), "it is not lost yet"
    dog.sweep(housekeeping=True)
    assert Worker.objects.acknowledge("silent", "b", by="anna")
    assert not Worker.objects.acknowledge("silent", "b", by="bert")
    row = Worker.objects.get()
    assert (row.acknowledged_by, row.acknowledged_at is None) == ("anna", False)
    dog.sweep(housekeeping=True)
    row.refresh_from_db()
    assert row.acknowledged_by == "anna"


@pytest.mark.parametrize("is_first", [True, False], ids=["before the loss is noted", "after the loss is noted"])
@pytest.mark.parametrize(("host", "pid", "name"), [("h", 1, "named"), ("h", 7, "h-7")])
def test_a_lost_worker_whose_name_is_back_needs_no_acknowledgement(
    dog: Watchdog, is_first: bool, host: str, pid: int, name: str
) -> None:
    """A worker that was given no name is named after its host and process: the next process is of the same name."""
    lost = lose(name)
    Worker.objects.filter(pk=lost.pk).update(host=host, pid=pid)
    if not is_first:
        dog.sweep(housekeeping=True)
        lost.refresh_from_db()
        assert lost.acknowledged_at is None
    back = replace(presence("h-8" if name == "h-7" else name), boot_id="c", host=host, pid=8)
    Worker.objects.note(back)
    assert dog.sweep(housekeeping=True).lost == ([f"{name}:b"] if is_first else [])
    lost.refresh_from_db()
    assert lost.lost_at is not None
    assert lost.acknowledged_at is not None


def test_other_workers_do_not_stand_for_a_lost_one(dog: Watchdog) -> None:
    lost = lose("silent")
    Worker.objects.note(presence("other"))
    Worker.objects.note(replace(presence("silent"), boot_id="older"))
    Worker.objects.filter(boot_id="older").update(started_at=now(timedelta(hours=-2)))
    dog.sweep(housekeeping=True)
    lost.refresh_from_db()
    assert (lost.lost_at is None, lost.acknowledged_at) == (False, None)


def test_workers_that_went_long_ago_are_forgotten_and_lost_ones_later(dog: Watchdog) -> None:
    for name in ("stopped", "known", "lost", "lost long ago"):
        lose(name, timedelta(days=31 if name == "lost long ago" else 8))
    Worker.objects.filter(name="stopped").update(stopped_at=now(OLD))
    Worker.objects.mark_lost(timedelta(minutes=1))
    assert Worker.objects.acknowledge("known", "b", by="anna")
    dog.sweep(housekeeping=True)
    assert [row.name for row in Worker.objects.all()] == ["lost"]


def test_what_ended_is_kept_for_a_week_and_dead_letters_for_ever(dog: Watchdog) -> None:
    """What ended before jobs had eras is among those that wait."""
    ended = ("completed", "cancelled", "dead")
    old = {status: make_job(**{status: True}, era=HOT, finished_at=now(OLD)) for status in ended}
    AttemptFactory(job=old["completed"])
    young, running = make_job(completed=True), make_job(running=True, started_at=now(OLD))
    swept = dog.sweep()
    assert swept.pruned == {Status.COMPLETED: 1, Status.CANCELLED: 1}
    assert set(Job.objects.values_list("pk", flat=True)) == {old["dead"].pk, young.pk, running.pk}
    assert not Attempt.objects.exists()


def test_days_are_made_and_dropped(dog: Watchdog, caplog: pytest.LogCaptureFixture) -> None:
    sql("SELECT pulse_django_make_day(20200101, 0)")
    make_job(completed=True, era=20200101)
    sql("SELECT pulse_django_drop_day(to_char(now() AT TIME ZONE 'UTC' + interval '3 days', 'YYYYMMDD')::int)")
    young = make_job(completed=True, finished_at=now(OLD))  # its day decides
    with caplog.at_level(logging.INFO):
        dog.sweep()
    assert [job.pk for job in Job.objects.all()] == [young.pk]
    assert "on 2020-01-01" in caplog.text
    assert Job.objects.make_days() == []


def test_where_a_status_is_kept_for_longer_the_others_are_deleted_one_by_one(dog: Watchdog, settings: Any) -> None:
    settings.PULSE = {"KEEP_CANCELLED": timedelta(days=40)}
    make_job(completed=True, finished_at=now(OLD))
    cancelled = make_job(cancelled=True, finished_at=now(OLD))
    assert dog.sweep().pruned == {Status.COMPLETED: 1, Status.CANCELLED: 0}
    assert [job.pk for job in Job.objects.all()] == [cancelled.pk]


def test_how_long_is_a_setting(dog: Watchdog, settings: Any) -> None:
    settings.PULSE = {"KEEP_COMPLETED": 0, "KEEP_DEAD_LETTERS": 24 * 3600}
    kept, gone = make_job(completed=True, finished_at=now(OLD)), make_job(dead=True, finished_at=now(OLD))
    assert dog.sweep().pruned == {Status.CANCELLED: 0, Status.DEAD_LETTERED: 1}
    assert Job.objects.filter(pk=kept.pk).exists()
    assert not Job.objects.filter(pk=gone.pk).exists()


def test_more_than_one_statement_prunes_is_left_to_a_sweep_that_does_not_wait(
    dog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulse_django.worker.watchdog.PRUNE_LIMIT", 1)
    make_job(completed=True, era=HOT, finished_at=now(OLD))
    assert dog.pause_after(dog.sweep()) == 0.0
    assert dog.pause_after(dog.sweep()) > 0


def test_one_sweep_tells_what_it_did_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, 1e6))
    job, out = make_job(running=True, expired=True), StringIO()
    call_command("pulse_watchdog", "--once", "--json", stdout=out)
    [line] = out.getvalue().splitlines()
    said = json.loads(line)
    assert (said["reaped"], said["outcomes"]) == (1, {"WORKER_LOST": 1})
    assert said["pruned"] == {"COMPLETED": 0, "CANCELLED": 0}
    job.refresh_from_db()
    assert job.status == Status.RETRYING


@pytest.mark.parametrize("flags", [["--interval", "0"], ["--shard", "nowhere"]])
def test_flags_that_make_no_sense_are_refused(flags: list[str]) -> None:
    with pytest.raises(CommandError):
        call_command("pulse_watchdog", "--once", *flags)


def test_alone_it_sweeps_until_it_is_told_to_stop() -> None:
    command = [sys.executable, "manage.py", "pulse_watchdog", "--interval", "0.1", "--json"]
    quick = environment(PULSE='{"LEASE_TTL": 0.5, "HEARTBEAT_INTERVAL": 0.1, "WATCHDOG_INTERVAL": 0.1}')
    job = make_job(running=True, expired=True)
    process = subprocess.Popen(command, cwd=ROOT, env=quick, stdout=subprocess.PIPE, text=True)
    try:
        wait_until(lambda: Job.objects.get(pk=job.pk).status == Status.RETRYING)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 0
    assert sum(json.loads(line)["reaped"] for line in said.splitlines()) == 1


def test_a_task_that_nobody_knows_any_more_is_given_up(dog: Watchdog, settings: Any) -> None:
    settings.PULSE = {"UNKNOWN_TASK_AGE": 60}
    Worker.objects.note(presence("new code"))
    Worker.objects.update(tasks=["tests.add"], started_at=now(OLD))
    job, known = make_job(task="gone", attempts=1, refunds=1), make_job(attempts=1, refunds=1)
    for waiting in (job, known):
        message = f"unknown task {waiting.task!r}: this worker has no task of that name"
        AttemptFactory(job=waiting, outcome="RELEASED", message=message, started_at=now(OLD))
    assert dog.sweep().said["given_up"] == [job.pk]
    job.refresh_from_db()
    assert job.status == Status.DEAD_LETTERED
    assert Job.objects.get(pk=known.pk).status == Status.PENDING
    assert dog.sweep().said["given_up"] == []
