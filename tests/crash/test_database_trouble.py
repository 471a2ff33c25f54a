"""The database goes away, half or altogether, and comes back: nobody's job is lost, run twice or reaped in vain."""

from __future__ import annotations

import threading
import time
from datetime import datetime

import pytest

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from tests.crash.processes import database_url, through
from tests.crash.scratch import scratch_server
from tests.crash.workers import LONG_LEASE, Workers, outcomes, status, wait_for, wait_until
from tests.pgbouncer import LISTENS
from tests.proxy import BlackHole
from tests.queue.steps import sql
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

TTL = 2.0
SELDOM = 20  # seconds between two polls: who is served earlier was woken


def test_a_connection_that_swallows_everything_is_noticed_and_left(workers: Workers, proxy: BlackHole) -> None:
    settings = {"LEASE_TTL": TTL, "HEARTBEAT_INTERVAL": TTL / 3}
    worker = workers.ready(settings=settings, env=through(proxy))
    running = [
        handlers.naps_while_allowed.enqueue(60).id,
        handlers.registered("loop.is_cancelled").enqueue().id,
        handlers.registered("process.is_cancelled").enqueue().id,
    ]
    wait_until(lambda: len(workers.trace.lines()) == len(running))
    proxy.swallow()
    swallowed_at = time.monotonic()
    wait_until(lambda: worker.says("no response for"), lambda: worker.log, patience=TTL)
    job = handlers.naps.enqueue(0).id
    wait_until(lambda: len([line for line in workers.trace.lines() if line["what"] == "told"]) >= 2)
    for line in workers.trace.lines():
        if line["what"] == "told":
            assert line["at"] - swallowed_at < TTL + 1, "nothing runs for long whose lease is gone"
            assert line["by"] in ("LeaseLost", "CancelledError")
    [works] = workers.trace.of(running[2], "works")
    wait_until(lambda: works["pid"] not in worker.family() or not worker.left_behind() & {works["pid"]})
    assert [status(one) for one in running] == [Status.RUNNING] * 3, "nobody has said anything of them"
    Job.objects.filter(pk=running[0]).update(args=[0])
    proxy.heal()
    healed_at = time.monotonic()
    wait_for(Status.COMPLETED, job)
    assert time.monotonic() - healed_at < 5
    wait_for(Status.COMPLETED, running[0])
    assert outcomes(running[0]) == ["RELEASED", "SUCCEEDED"], "nobody had taken it: its stop cost it nothing"


def test_connections_that_are_closed_again_and_again_cost_nothing_but_time(workers: Workers) -> None:
    jobs = [handlers.naps.enqueue(0.05).id for _ in range(120)] + [handlers.naps.enqueue(2.5).id for _ in range(2)]
    worker = workers.ready("--concurrency", "4", settings={"LEASE_TTL": 4})
    closed: set[int] = set()
    begin = time.monotonic()
    while time.monotonic() < begin + 3 or (len(closed) < 10 and time.monotonic() < begin + 60):
        rows = sql(
            "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'pulse %%' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        closed |= {pid for pid, _ in rows}
        time.sleep(0.3)
    wait_for(Status.COMPLETED, *jobs)
    assert len(closed) >= 10
    assert worker.exit_code is None
    assert set(workers.trace.count("begin").values()) == {1}
    for job in jobs:
        assert outcomes(job)[-1] == "SUCCEEDED"
        assert len(outcomes(job)) == 1 or outcomes(job)[0] == "RELEASED", "a claim whose answer was lost"


def test_a_claim_whose_answer_is_lost_is_handed_back_and_costs_no_attempt(workers: Workers, proxy: BlackHole) -> None:
    worker = workers.ready(settings=LONG_LEASE, env=through(proxy))
    proxy.lose_the_answer_to(b"SET status = 'RUNNING'")
    job = handlers.writes_a_line.enqueue().id
    wait_until(lambda: proxy.lost == 1)
    wait_for(Status.COMPLETED, job)
    assert outcomes(job) == ["RELEASED", "SUCCEEDED"]
    assert Job.objects.values_list("attempts", "refunds").get(pk=job) == (2, 1)
    assert len(workers.trace.of(job, "ran")) == 1
    assert worker.exit_code is None


def test_a_report_whose_answer_is_lost_counts_once(workers: Workers, proxy: BlackHole) -> None:
    worker = workers.ready(settings=LONG_LEASE, env=through(proxy))
    proxy.lose_the_answer_to(b"WITH report AS MATERIALIZED")
    job = handlers.writes_a_line.enqueue().id
    wait_until(lambda: proxy.lost == 1)
    wait_until(lambda: worker.says(f"job {job} "), lambda: worker.log)
    after = tasks.add.enqueue(1, 2).id
    wait_for(Status.COMPLETED, job, after)
    assert outcomes(job) == ["SUCCEEDED"]
    assert len(workers.trace.of(job, "ran")) == 1
    assert not worker.says("lease lost")


def test_a_server_that_hangs_up_on_everybody_is_asked_again(workers: Workers, proxy: BlackHole) -> None:
    workers.ready(settings=LONG_LEASE, env=through(proxy))
    job = handlers.naps.enqueue(1).id
    wait_until(lambda: bool(workers.trace.of(job, "begin")))
    proxy.hang_up()
    wait_for(Status.COMPLETED, job, tasks.add.enqueue(1, 2).id)
    assert outcomes(job) == ["SUCCEEDED"]


def test_a_server_that_crashes_under_load_loses_no_job_and_reaps_no_healthy_one(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch_server(monkeypatch) as server:
        name = "tests.worker.handlers"
        long = server.enqueue(f"{name}.naps", 2, 4.0)
        jobs = long + server.enqueue(f"{name}.naps", 400, 0.02) + server.enqueue(f"{name}.naps_on_the_loop", 100, 0.1)
        settings = {"LEASE_TTL": 6, "HEARTBEAT_INTERVAL": 1}
        worker = workers.ready("--concurrency", "4", settings=settings, env={"DATABASE_URL": server.url})
        wait_until(lambda: workers.trace.count("end").total() > 20)
        server.crash()
        assert set(workers.trace.count("end")).isdisjoint(long), "the long ones should live through the crash"
        server.start()
        back_at = time.monotonic()
        [fresh] = server.enqueue(f"{name}.writes_a_line", 1, priority=9)
        done = "SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED' AND id = ANY (%s)"
        wait_until(lambda: workers.trace.count("ran")[fresh] == 1, lambda: worker.log)
        assert time.monotonic() - back_at < 5
        wait_until(lambda: server.ask(done, jobs) == [(len(jobs),)], lambda: worker.log)
        assert set(workers.trace.count("begin").values()) == {1}, "none was run twice"
        lost = server.ask("SELECT job_id, number FROM pulse_django_attempt WHERE outcome <> 'SUCCEEDED'")
        ran = {(line["job"], line["attempt"]) for line in workers.trace.lines() if line["what"] == "begin"}
        assert ran.isdisjoint(lost), "none was taken from a handler that was healthy"
        worker.kill()


def test_a_database_that_was_away_for_ten_leases_costs_no_run_its_attempt(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that stop when told to are put back, those that do not go on: none is taken for lost."""
    ttl = 0.8
    with scratch_server(monkeypatch) as server:
        name = "tests.worker.handlers"
        sleeping = server.enqueue(f"{name}.naps", 2, 10 * ttl + 3.0)
        ending = server.enqueue(f"{name}.naps", 2, 4 * ttl)
        obedient = server.enqueue(f"{name}.naps_while_allowed", 2, 5 * ttl)
        elsewhere = [
            *server.enqueue(f"{name}.naps_on_the_loop", 1, 5 * ttl),
            *server.enqueue(f"{name}.naps_in_a_process", 1, 5 * ttl),
        ]
        jobs = [*sleeping, *ending, *obedient, *elsewhere]
        settings = {"LEASE_TTL": ttl, "HEARTBEAT_INTERVAL": ttl / 3, "WATCHDOG_INTERVAL": 0.2, "MAX_LOST_WORKERS": 1}
        worker = workers.ready("--concurrency", "8", settings=settings, env={"DATABASE_URL": server.url})
        wait_until(lambda: len(workers.trace.count("begin")) == len(jobs), lambda: worker.log)
        server.crash()
        threading.Event().wait(10 * ttl)
        server.start()
        done = "SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED' AND id = ANY (%s)"
        wait_until(lambda: server.ask(done, jobs) == [(len(jobs),)], lambda: worker.log)
        entries = server.ask("SELECT job_id, outcome FROM pulse_django_ledger ORDER BY job_id, number")
        assert {outcome for _, outcome in entries} == {"RELEASED", "SUCCEEDED"}, entries
        began = workers.trace.count("begin")
        assert {began[job] for job in (*sleeping, *ending)} == {1}, "they went on, and their reports were accepted"
        assert {began[job] for job in (*obedient, *elsewhere)} == {2}, "they stopped, and were put back"
        refunds = server.ask("SELECT attempts - refunds FROM pulse_django_job")
        assert set(refunds) == {(1,)}, "nobody's attempt was burnt"
        worker.kill()


@pytest.mark.session(LISTENS)
def test_a_wake_up_finds_the_job_long_before_the_next_poll(workers: Workers) -> None:
    workers.ready(settings={"POLL_INTERVAL": SELDOM})
    wait_until_idle_and_listening(workers)
    job = handlers.writes_a_line.enqueue().id
    wait_for(Status.COMPLETED, job, patience=5)


@pytest.mark.session(LISTENS)
def test_wake_ups_come_again_after_the_connection_that_hears_them_was_closed(workers: Workers) -> None:
    workers.ready(settings={"POLL_INTERVAL": SELDOM})
    [deaf] = wait_until_idle_and_listening(workers)
    sql("SELECT pg_terminate_backend(%s)", deaf)
    wait_until(lambda: listening() not in ([], [deaf]))
    wait_until(lambda: workers.last().log.count("Listening for wake-ups") == 2)
    job = handlers.writes_a_line.enqueue().id
    wait_for(Status.COMPLETED, job, patience=5)


def test_without_wake_ups_polling_finds_the_job(workers: Workers) -> None:
    [(begin,)] = sql("SELECT clock_timestamp()")
    workers.ready(settings={"NOTIFY": False, "POLL_INTERVAL": 0.3})
    wait_for(Status.COMPLETED, handlers.writes_a_line.enqueue().id, patience=5)
    assert listening(since=begin) == []


def test_a_retry_that_falls_due_wakes_its_worker_by_itself(workers: Workers) -> None:
    """Nobody notifies of it, and the next poll is far away."""
    job = handlers.registered("thread.resumes").enqueue().id
    workers.ready(settings={"POLL_INTERVAL": SELDOM, "RETRY_BACKOFF_CAP": 0.5})
    wait_for(Status.COMPLETED, job, patience=8)
    assert outcomes(job) == ["FAILED", "SUCCEEDED"]


def test_a_long_handler_holds_no_transaction_open(workers: Workers) -> None:
    workers.ready(env={"DATABASE_URL": database_url(conn_max_age=60)})
    jobs = [handlers.asks_and_naps.enqueue(1.5).id, handlers.asks_and_naps_on_the_loop.enqueue(1.5).id]
    wait_until(lambda: all(workers.trace.of(job, "begin") for job in jobs))
    seen = 0
    while not all(workers.trace.of(job, "end") for job in jobs):
        idle = sql(
            "SELECT application_name, query FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%%'"
            " AND clock_timestamp() - state_change > interval '100 ms'"
        )
        assert idle == []
        seen += 1
        time.sleep(0.1)
    assert seen > 3
    wait_for(Status.COMPLETED, *jobs)


def wait_until_idle_and_listening(workers: Workers) -> list[int]:
    """A worker that has just started looks of its own accord: let it find nothing first."""
    wait_until(lambda: workers.last().says("Listening for wake-ups"), lambda: workers.last().log)
    looked = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND application_name LIKE 'pulse claims%%' AND state = 'idle'"
    )
    wait_until(lambda: sql(looked)[0][0] >= 1)
    threading.Event().wait(0.3)  # it looks a second time right after a wake-up, which its own test may be
    return listening()


def listening(since: datetime | str = "-infinity") -> list[int]:
    """The sessions whose latest words were LISTEN. A pooler keeps those of workers that are gone."""
    rows = sql(
        "SELECT pid FROM pg_stat_activity"
        " WHERE query LIKE 'LISTEN%%' AND query_start >= %s AND datname = current_database()",
        since,
    )
    return [pid for (pid,) in rows]
