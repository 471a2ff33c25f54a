"""Limits in real workers: never more runs than allowed, in whatever executor, and no slot is lost with its worker."""

from __future__ import annotations

import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from pulse_django import enqueue_many, pause_task
from pulse_django.models import Attempt, Job, Limiter, Pause
from pulse_django.pauses.pausing import names_of
from pulse_django.queue.words.states import Status
from pulse_django.worker.claimer import JITTER
from tests.crash.processes import database_url
from tests.crash.workers import Workers, wait_for, wait_until
from tests.limits import handlers as limited_handlers
from tests.limits.handlers import MODULES
from tests.proxy import CountingProxy
from tests.worker import handlers
from tests.worker.test_executors import SETTINGS as QUICK

SETTLED, LOOKS = 4, 6  # looks until the start is over, and looks after that


def enqueue(name: str, *args: Any, count: int = 1) -> list[int]:
    """Enqueue so many jobs for each executor."""
    tasks = [handlers.registered(f"{executor}.{name}") for executor in handlers.EXECUTORS]
    return [int(task.enqueue(*args).id) for _ in range(count) for task in tasks]


def most_at_once(jobs: list[int]) -> int:
    """Return how many runs of these jobs there were at once, by the server's clock."""
    edges = []
    for begin, end in Attempt.objects.filter(job_id__in=jobs).values_list("started_at", "finished_at"):
        edges += [(begin, 1), (end, -1)]
    running = most = 0
    for _, step in sorted(edges):  # where one ends as another begins, the end comes first
        running += step
        most = max(most, running)
    return most


def test_never_more_runs_than_allowed_in_two_workers(workers: Workers) -> None:
    by_customer = {customer: enqueue("naps_as_one_of_three", customer, count=5) for customer in range(4)}
    jobs = [job for some in by_customer.values() for job in some]
    for name in ("one", "two"):
        workers.start("--name", name, "--concurrency", "6", "--processes", "2", settings=MODULES)
    wait_for(Status.COMPLETED, *jobs)
    assert most_at_once(jobs) == 3
    assert max(most_at_once(some) for some in by_customer.values()) <= 2
    assert Limiter.objects.get(name="workers.three").numbers == {"max_running": 3, "max_running_per_key": 2}


def test_a_queue_has_a_limit_beside_those_of_its_tasks(workers: Workers, settings: Any) -> None:
    limits = {"QUEUE_LIMITS": {"default": {"max_running": 4}}}
    settings.PULSE = {**settings.PULSE, **limits}
    limited = [job for customer in range(4) for job in enqueue("naps_as_one_of_three", customer, count=2)]
    others = [job for customer in range(4) for job in enqueue("shares", customer, count=3)]
    for name in ("one", "two"):
        workers.start("--name", name, "--concurrency", "6", "--processes", "2", settings=MODULES | limits)
    wait_for(Status.COMPLETED, *limited, *others)
    assert most_at_once(limited + others) == 4
    assert most_at_once(limited) <= 3
    assert Limiter.objects.get(name="queue=default").numbers == {"max_running": 4}


def test_jobs_of_a_paused_key_wait_and_others_run(workers: Workers) -> None:
    shared, limited = enqueue("shares", 1), enqueue("naps_as_one_of_three", 1)
    keys = {job.lane_key for job in Job.objects.filter(pk__in=[*shared, *limited])}
    assert len(keys) == 2
    for key in keys:
        Pause.objects.pause(lane_key=key, duration=timedelta(minutes=5))
    others = enqueue("shares", 2, count=3) + enqueue("naps_as_one_of_three", 2, count=3)
    workers.start(settings=MODULES)
    wait_for(Status.COMPLETED, *others)
    assert set(Job.objects.filter(pk__in=[*shared, *limited]).values_list("status", flat=True)) == {Status.PENDING}
    for key in keys:
        Pause.objects.resume(lane_key=key)
    wait_for(Status.COMPLETED, *shared, *limited)


def test_jobs_of_a_paused_task_wait_and_others_run(workers: Workers) -> None:
    """Whether a watchdog has set them aside or not; those that are enqueued meanwhile wait, too."""
    tasks = {name: handlers.registered(f"{handlers.EXECUTORS[0]}.{name}") for name in ("shares", "succeeds")}
    waiting = [int(tasks["shares"].enqueue(1).id)]
    pause_task(tasks["shares"])
    workers.start(settings=MODULES | {"WATCHDOG_INTERVAL": 0.2})
    for number in range(3):
        waiting.append(int(tasks["shares"].enqueue(number).id))
        wait_for(Status.COMPLETED, int(tasks["succeeds"].enqueue(number).id))
    wait_until(lambda: Job.objects.filter(ready=None).count() == len(waiting))
    assert set(Job.objects.filter(pk__in=waiting).values_list("status", "attempts")) == {(Status.PENDING, 0)}
    Pause.objects.resume(*names_of(tasks["shares"]))  # no more than that: a watchdog does the rest
    wait_for(Status.COMPLETED, *waiting)


@pytest.mark.parametrize("is_set_aside", [False, True])
def test_an_idle_worker_beside_jobs_of_a_paused_task_asks_no_more_than_one_that_is_alone(
    workers: Workers, is_set_aside: bool
) -> None:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:
        texts = (b"WITH RECURSIVE pair", b"WITH picked", b"lane.key = ''", b"SET ready = true")
        proxy = CountingProxy(Path(folder), connection.settings_dict, *texts)
        env = {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}
        Pause.objects.pause(limited_handlers.does_nothing.registered_name)
        enqueue_many(limited_handlers.does_nothing, [()] * 50)
        if is_set_aside:
            assert len(Job.objects.set_aside()) == 50
        poll = 0.5
        workers.ready("--no-watchdog", settings=MODULES | {"NOTIFY": False, "POLL_INTERVAL": poll}, env=env)
        wait_until(lambda: proxy.counted[texts[0]] >= SETTLED, lambda: str(proxy.counted))
        begin, before = time.monotonic(), dict(proxy.counted)
        wait_until(lambda: proxy.counted[texts[0]] >= before[texts[0]] + LOOKS, lambda: str(proxy.counted))
        took = time.monotonic() - begin
        assert took >= (LOOKS - 1) * poll * (1 - JITTER), "a look in each poll"
        assert [proxy.counted[text] - before.get(text, 0) for text in texts[1:]] == [0, 0, 0], "and no claim"
        proxy.close()


def test_a_rate_limit_is_told_by_every_executor(workers: Workers) -> None:
    jobs = enqueue("is_told_to_wait")
    workers.start(settings=MODULES)
    wait_for(Status.COMPLETED, *jobs)
    assert set(Job.objects.filter(pk__in=jobs).values_list("attempts", "refunds")) == {(2, 1)}
    assert {workers.trace.count("asked")[job] for job in jobs} == {2}
    assert Limiter.objects.get(name="workers.api").pause_reason == "rate limited: enough"


@pytest.mark.parametrize("executor", handlers.EXECUTORS)
def test_the_slot_of_a_killed_worker_is_free_again(workers: Workers, executor: str) -> None:
    task = handlers.registered(f"{executor}.naps_alone")
    first, second = (int(task.enqueue(60.0 if place == 0 else 0.0).id) for place in range(2))
    worker = workers.ready(settings=QUICK | MODULES)
    wait_until(lambda: workers.trace.of(first, "works"))
    worker.kill()
    workers.ready(settings=QUICK | MODULES)
    wait_for(Status.COMPLETED, first, second)
    assert most_at_once([first, second]) == 1


def test_shares_are_run_and_leave_nothing_behind(workers: Workers) -> None:
    jobs = [job for customer in range(5) for job in enqueue("shares", customer, count=3)]
    workers.start(settings=MODULES)
    wait_for(Status.COMPLETED, *jobs)
    assert not Limiter.objects.filter(name="").exists()


def test_jobs_without_limits_cause_no_statement_for_them(workers: Workers) -> None:
    texts = (b"pg_try_advisory_xact_lock", b"SET ready = true", b"lane.key = ''")
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # sockets have little room for paths
        proxy = CountingProxy(Path(folder), connection.settings_dict, *texts)
        workers.ready(settings=MODULES, env={"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)})
        wait_for(Status.COMPLETED, *enqueue("succeeds", 1, count=5))
        assert {text: proxy.counted[text] for text in texts} == dict.fromkeys(texts, 0)
        wait_for(Status.COMPLETED, *enqueue("shares", 1))
        assert proxy.counted[texts[2]], "or the test could not fail"
        proxy.close()


def test_a_worker_without_a_free_slot_does_not_ask_again_and_again(workers: Workers) -> None:
    """It has room to claim ahead, but not for jobs with a limit."""
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:
        texts = (b"WITH RECURSIVE pair", b"lane.key = ''", b"pg_try_advisory_xact_lock")
        proxy = CountingProxy(Path(folder), connection.settings_dict, *texts)
        enqueue_many(limited_handlers.does_nothing, [()] * 3_000)  # so that it claims ahead
        env = {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}
        worker = workers.ready("--concurrency", "2", settings=MODULES, env=env)
        wait_until(lambda: Job.objects.filter(status="COMPLETED").count() == 3_000, lambda: worker.log)
        jobs = [int(limited_handlers.sleeps.enqueue(2.0).id) for _ in range(4)]
        wait_until(lambda: Job.objects.running().count() == 2, lambda: worker.log)
        before = sum(proxy.counted[text] for text in texts)
        time.sleep(1.5)  # both sleep
        assert sum(proxy.counted[text] for text in texts) - before < 20
        wait_for(Status.COMPLETED, *jobs)
        proxy.close()
