"""Conditions of workers: silent or lost workers, and workers that lost a slot or a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse_django.models import Worker
from pulse_django.queue.database.workers import IS_LOST

from .catalogue import Condition, Repair, Severity, Threshold, time_since

WORKERS_VANISH = "how-to/symptoms/workers-vanish.md"
_LIVE = "pulse_django_worker WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s"
_KEY = "pg_catalog.concat('worker ', name, ':', boot_id)"


def _acknowledge(alias: str, keys: Sequence[Any]) -> int:
    workers = Worker.objects.db_manager(alias)
    starts = [key.removeprefix("worker ").rpartition(":") for key in keys]
    return sum(workers.acknowledge(name, boot_id, by="pulse_check --repair") for name, _, boot_id in starts)


CONDITIONS = (
    Condition(
        name="worker-lost",
        severity=Severity.FAILING,
        says="Every worker that disappeared without a clean stop has been acknowledged.",
        means="The worker was killed, or its host is frozen or cannot reach the database. Its jobs run elsewhere. "
        "Its capacity is missing, and the same cause may kill other workers.",
        to_do="Find the cause: the page of the worker in the admin shows its lost runs. Then acknowledge it there or "
        "with the repair. It is also acknowledged when a worker with its name starts.",
        page=WORKERS_VANISH,
        # Projects whose hosts are replaced without a clean stop can raise it.
        threshold=Threshold(default=0, unit="lost workers that are not acknowledged", most=10_000),
        repair=Repair(
            says="Acknowledge that these workers are lost. Nothing is done to jobs: they were recovered.",
            act=_acknowledge,
        ),
        sql=f"""
SELECT {_KEY}, 'lost %%(time)s ago, with %%(runs)s runs', {time_since("last_beat_at")} AS time, in_flight AS runs
FROM pulse_django_worker
WHERE {IS_LOST} AND (
    SELECT pg_catalog.count(*) FROM pulse_django_worker WHERE {IS_LOST}
)::float8 > %(worker_lost)s::float8
ORDER BY last_beat_at DESC, id
""",
    ),
    Condition(
        name="worker-silent",
        severity=Severity.RISK,  # its jobs are recovered, and within a minute a watchdog marks it as lost
        says="Every worker that has not stopped sends heartbeats.",
        means="The worker was killed, or its host is frozen or cannot reach the database. Its jobs run elsewhere. If "
        "this lasts, no watchdog is running to mark the worker as lost.",
        to_do="Check its host. Replace the worker if its capacity is needed.",
        page=WORKERS_VANISH,
        sql=f"""
SELECT
    {_KEY}, 'no heartbeat for %%(time)s, with %%(runs)s runs', {time_since("last_beat_at")} AS time,
    in_flight AS runs
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at < statement_timestamp() - %(silence)s
ORDER BY last_beat_at
""",
    ),
    Condition(
        name="slots-stuck",
        severity=Severity.RISK,
        says="No slot of a live worker is held by an abandoned handler.",
        means="A handler ignores its time limit. A thread cannot be killed, so its slot is lost until its process is "
        "replaced.",
        to_do="Call context.check() in long loops, or set isolation='process' for such tasks.",
        page="how-to/timeouts.md",
        sql=f"""
SELECT {_KEY}, '%%(stuck)s of %%(all)s slots', stuck_slots AS stuck, slots AS "all"
FROM pulse_django_worker
WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s AND stuck_slots > 0
ORDER BY stuck_slots DESC, id
""",
    ),
    Condition(
        name="thread-restarted",
        severity=Severity.RISK,
        says="No thread of a live worker was restarted.",
        means="The thread ended unexpectedly: a bug in Pulse, or code that ends threads.",
        to_do="Search the worker's log for 'ended' to find the reason. Restart the worker to reset the count.",
        sql="""
SELECT
    pg_catalog.concat('worker ', worker.name, ':', worker.boot_id),
    pg_catalog.string_agg(pg_catalog.concat(ended.name, ' ', ended.times), ', ')
FROM pulse_django_worker AS worker
CROSS JOIN LATERAL pg_catalog.jsonb_each_text(COALESCE(worker.vitals -> 'restarts'::text, '{}')) AS ended (name, times)
WHERE worker.stopped_at IS NULL AND worker.last_beat_at > statement_timestamp() - %(silence)s
GROUP BY worker.id, worker.name, worker.boot_id
ORDER BY worker.id
""",
    ),
    Condition(
        name="minutes-missing",
        severity=Severity.RISK,
        says="A worker or watchdog records the statistics of every minute.",
        means="No alerts are raised, and metrics and the history of the board are not updated. If no watchdog is "
        "running, lost runs are not recovered.",
        to_do="Start a worker or pulse_watchdog, and read its log.",
        page=WORKERS_VANISH,
        sql=f"""
SELECT 'latest minute', 'recorded for %%(minute)s, %%(time)s ago', minute::text, {time_since("minute")} AS time
FROM (SELECT pg_catalog.max(minute) FROM pulse_django_minute WHERE minute <= statement_timestamp()) AS recorded (minute)
WHERE minute < statement_timestamp() - %(unrecorded)s
""",
    ),
    Condition(
        name="workers",
        severity=Severity.WARNING,
        says="A worker is alive.",
        means="Jobs are stored, but none will run.",
        to_do="Start one: manage.py pulse_worker.",
        sql=f"""
SELECT
    CASE count(*) WHEN 0 THEN 'all queues' END,
    CASE count(*)
        WHEN 0 THEN 'no worker is alive'
        ELSE pg_catalog.concat(count(*), ' live on ', pg_catalog.count(DISTINCT host), ' hosts')
    END
FROM {_LIVE}
""",
    ),
    Condition(
        name="hosts",
        severity=Severity.HINT,
        says="The fleet survives the loss of one host.",
        means="If that host fails, its jobs are not recovered until another worker starts.",
        to_do="Run a worker or pulse_watchdog on a second host.",
        sql=f"""
SELECT pg_catalog.min(host), pg_catalog.concat(count(*), ' live, all on one host')
FROM {_LIVE}
HAVING pg_catalog.count(DISTINCT host) = 1
""",
    ),
    Condition(
        name="versions",
        severity=Severity.HINT,
        says="All workers have the same version.",
        means="Mixed versions are supported during a deploy, but not tested for longer.",
        to_do="Finish the deploy.",
        sql=f"""
SELECT 'pulse_django', pg_catalog.concat(
    'workers of ', count(*), ' versions are running: ', pg_catalog.string_agg(version, ', ' ORDER BY version)
)
FROM (SELECT DISTINCT COALESCE(versions ->> 'pulse_django'::text, 'unknown') FROM {_LIVE}) AS live (version)
HAVING count(*) > 1
""",
    ),
)
