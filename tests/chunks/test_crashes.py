"""Chunks in real workers: whole ones from a backlog, one slot each, and each job ends by itself."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from pulse_django import api, enqueue_many
from pulse_django.models import Attempt, Job, Limiter, Pause, Worker
from pulse_django.queue.words.states import Status
from tests.chunks import handlers as chunk_handlers
from tests.chunks.handlers import MODULES
from tests.crash.processes import database_url
from tests.crash.workers import LONG_LEASE, Workers, outcomes, status, wait_for, wait_until
from tests.limits.test_in_workers import most_at_once
from tests.proxy import CountingProxy
from tests.worker import handlers


def calls(workers: Workers) -> list[list[int]]:
    return [line["jobs"] for line in workers.trace.lines() if line["what"] == "called"]


def spent(ids: list[int]) -> set[tuple[int, int]]:
    """Return the attempts of these jobs, and how many of them did not count."""
    return set(Job.objects.filter(pk__in=ids).values_list("attempts", "refunds"))


def enqueue(task: Any, count: int, **kwargs: Any) -> list[int]:
    return enqueue_many(task, [kwargs | {"n": n} for n in range(count)])


def test_a_backlog_is_run_in_whole_chunks(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.hundreds, 1_000)
    workers.start("--concurrency", "4", settings=MODULES)
    wait_for(Status.COMPLETED, *ids)
    assert [len(jobs) for jobs in calls(workers)] == [100] * 10
    assert sorted(job for jobs in calls(workers) for job in jobs) == ids
    assert spent(ids) == {(1, 0)}


# What one message of a claimer or a reporter contains once.
STATEMENTS = {
    "settle": b"ending AS MATERIALIZED",
    "look for lanes": b"WITH RECURSIVE pair",
    "count leases": b"lane.key = ''",
}


def test_a_chunk_costs_a_few_statements(workers: Workers) -> None:
    jobs = 10_000
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # sockets have little room for paths
        proxy = CountingProxy(Path(folder), connection.settings_dict, *STATEMENTS.values())
        enqueue(chunk_handlers.hundreds, jobs)
        env = {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}
        workers.start("--processes", "1", "--concurrency", "4", settings=MODULES, env=env)
        wait_until(lambda: Job.objects.filter(status=Status.COMPLETED).count() == jobs, patience=60)
        proxy.close()
    counted = {name: proxy.counted[text] for name, text in STATEMENTS.items()}
    counted["claim"] = Job.objects.values("completed_by").distinct().count()  # each has a holder of its own
    assert counted["claim"] >= jobs / 200, "a claim brings two chunks at most"
    print(len(calls(workers)), counted)  # noqa: T201 - with -s, for docs/adr/0061-chunks.md
    assert len(calls(workers)) == jobs / 100
    assert sum(counted.values()) < jobs / 20, counted


def test_a_chunk_starts_when_it_is_full_and_not_before(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.fives, 4)
    workers.ready("--concurrency", "1", settings=MODULES | LONG_LEASE)
    wait_for(Status.RUNNING, *ids)
    other = handlers.registered("thread.succeeds").enqueue(1).id
    wait_for(Status.COMPLETED, other)  # what is gathered takes no slot
    assert calls(workers) == []
    ids += enqueue(chunk_handlers.fives, 1)
    wait_for(Status.COMPLETED, *ids)
    assert calls(workers) == [ids]


def test_a_chunk_takes_one_slot_and_others_run_beside_it(workers: Workers, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ids = enqueue(chunk_handlers.waits, 50, file=str(gate))
    workers.start("--processes", "1", "--concurrency", "2", settings=MODULES)
    wait_until(lambda: calls(workers))
    wait_until(lambda: Worker.objects.filter(in_flight=1, slots=2).exists(), lambda: Worker.objects.values())
    others = [handlers.registered("thread.succeeds").enqueue(n).id for n in range(10)]
    wait_for(Status.COMPLETED, *others)
    assert not workers.trace.count("left"), "the chunk has not ended meanwhile"
    more = enqueue(chunk_handlers.waits, 50, file=str(gate))
    wait_until(lambda: len(calls(workers)) == 2)
    late = handlers.registered("thread.succeeds").enqueue(1).id
    assert status(late) == Status.PENDING, "both slots are taken"
    gate.touch()
    wait_for(Status.COMPLETED, *ids, *more, late)


def test_a_worker_that_is_told_to_stop_hands_back_what_it_gathers(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.patient, 7)
    worker = workers.ready("--processes", "2", settings=MODULES | LONG_LEASE)
    wait_for(Status.RUNNING, *ids)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert set(Job.objects.filter(pk__in=ids).values_list("status", flat=True)) == {Status.PENDING}
    assert spent(ids) == {(1, 1)}
    assert calls(workers) == []


def test_what_is_gathered_is_kept_longer_than_a_job_waits_for_a_slot(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.patient, 3)
    workers.ready(settings=MODULES)  # leases of 1.5 s, which the keeper extends
    wait_for(Status.RUNNING, *ids)
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 3.5)
    assert set(Job.objects.filter(pk__in=ids).values_list("status", "attempts")) == {(Status.RUNNING, 1)}


def test_a_process_that_is_killed_loses_the_jobs_that_were_not_decided(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.half, 6)
    workers.ready("--processes", "1", settings=MODULES | LONG_LEASE)
    wait_until(lambda: workers.trace.of(ids[0], "decided"))
    wait_for(Status.COMPLETED, *ids[:3])  # reported while the handler goes on
    os.kill(workers.trace.of(ids[0], "decided")[0]["pid"], signal.SIGKILL)
    wait_until(lambda: Attempt.objects.filter(job_id__in=ids[3:], outcome="WORKER_LOST").count() == 3)
    ids += enqueue(chunk_handlers.half, 3)  # the chunk of the retries is full
    wait_for(Status.COMPLETED, *ids[:6], patience=40)
    assert [outcomes(pk) for pk in ids[:6]] == [["SUCCEEDED"]] * 3 + [["WORKER_LOST", "SUCCEEDED"]] * 3
    assert Attempt.objects.exclude(late_outcome="").count() == 0
    assert [Job.objects.get(pk=pk).result for pk in ids[:3]] == [0, 1, 2]


def test_jobs_that_kill_their_process_are_run_alone_and_the_others_complete(workers: Workers) -> None:
    ids = enqueue_many(chunk_handlers.kills, [{"kills": n == 2} for n in range(4)])
    workers.ready("--processes", "1", settings=MODULES | LONG_LEASE)
    wait_until(lambda: Job.objects.filter(pk__in=ids, status=Status.COMPLETED).count() == 3, patience=60)
    wait_for(Status.DEAD_LETTERED, ids[2])
    assert [len(jobs) for jobs in calls(workers)] == [4, 4, 1, 1, 1, 1]
    assert outcomes(ids[0]) == ["WORKER_LOST", "WORKER_LOST", "SUCCEEDED"]
    assert outcomes(ids[2]) == ["WORKER_LOST"] * 3


@pytest.mark.parametrize("which", [chunk_handlers.waits, chunk_handlers.waits_async], ids=["thread", "loop"])
def test_a_cancelled_and_a_lost_job_stop_alone(workers: Workers, tmp_path: Path, which: Any) -> None:
    gate = tmp_path / "gate"
    ids = enqueue(which, 3 if which is chunk_handlers.waits_async else 50, file=str(gate))
    workers.start("--no-watchdog", "--processes", "1", settings=MODULES, env={"PULSE_LISTEN": "1"})
    wait_until(lambda: calls(workers))
    api.cancel(ids[1])
    Pause.objects.pause(queue="default")  # or the job that is released would run again
    api.release(ids[2])
    assert outcomes(ids[2]) == ["WORKER_LOST"]
    begun = time.monotonic()
    wait_until(lambda: time.monotonic() - begun > 2)  # heartbeats bring the news
    gate.touch()
    wait_for(Status.COMPLETED, *[pk for pk in ids if pk not in ids[1:3]])
    wait_for(Status.CANCELLED, ids[1])
    stopped = {line["job"]: line["by"] for line in workers.trace.lines() if line["what"] == "stopped"}
    assert stopped == {ids[1]: "JobCancelled", ids[2]: "LeaseLost"}
    assert Job.objects.get(pk=ids[2]).attempts == 1
    assert len(calls(workers)) == 1


def test_a_thread_past_the_time_limit_ends_only_the_jobs_that_are_not_decided(workers: Workers, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    ids = enqueue(chunk_handlers.slow, 4, file=str(gate))
    # With a slot that is not stuck. Without any, the process would end, and no handler could report late.
    workers.start("--processes", "1", "--concurrency", "2", settings=MODULES | LONG_LEASE)
    wait_for(Status.DEAD_LETTERED, *ids[1:])
    assert status(ids[0]) == Status.COMPLETED
    assert [outcomes(pk) for pk in ids] == [["SUCCEEDED"]] + [["TIMED_OUT"]] * 3
    gate.touch()
    wait_until(lambda: Attempt.objects.filter(job_id__in=ids, late_outcome="SUCCEEDED").count() == 3)
    assert set(Job.objects.filter(pk__in=ids[1:]).values_list("status", flat=True)) == {Status.DEAD_LETTERED}


def test_a_handler_on_the_loop_is_stopped_at_the_first_time_limit(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.slow_async, 4)
    Job.objects.filter(pk=ids[1]).update(timeout="1 second")
    workers.start("--processes", "1", settings=MODULES | LONG_LEASE)
    wait_for(Status.DEAD_LETTERED, ids[1])
    assert outcomes(ids[1]) == ["TIMED_OUT"]
    wait_until(lambda: Attempt.objects.filter(job_id__in=ids[2:], outcome="RELEASED").count() == 2)
    assert status(ids[0]) == Status.COMPLETED


def test_never_more_jobs_of_chunks_than_the_limit_allows(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.limited, 60)
    for name in ("one", "two"):
        workers.start("--name", name, "--concurrency", "6", settings=MODULES)
    wait_for(Status.COMPLETED, *ids)
    assert most_at_once(ids) <= 5
    assert max(len(jobs) for jobs in calls(workers)) > 1
    assert Limiter.objects.get(name="chunk.five").numbers == {"max_running": 5}


def test_a_process_that_is_replaced_after_so_many_jobs_runs_what_it_has_gathered(workers: Workers) -> None:
    ids = enqueue(chunk_handlers.patient, 20)
    workers.start("--processes", "1", "--max-jobs", "10", settings=MODULES | LONG_LEASE)
    wait_for(Status.COMPLETED, *ids)
    assert [len(jobs) for jobs in calls(workers)] == [10, 10]
    assert spent(ids) == {(1, 0)}
