"""Conditions of single jobs: states that the protocol rules out, and jobs that would go unnoticed."""

from __future__ import annotations

from collections.abc import Sequence

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT
from pulse_django.shards.ids import TOKENS, raise_sequence
from pulse_django.shards.moving import finish

from .catalogue import Condition, Limits, Repair, RepairRefused, Severity, time_since
from .shared_queries import with_shared_queries


def _bring_leases_back(alias: str, job_ids: Sequence[int]) -> int:
    return len(Job.objects.db_manager(alias).mend(job_ids))


def _reap(alias: str, _: Sequence[int]) -> int:
    jobs = Job.objects.db_manager(alias)
    ttl, up_for = conf.current().lease_ttl.total_seconds(), jobs.server_clock().up_for
    if 0 <= up_for < ttl:
        raise RepairRefused(f"the server started {up_for:.0f} s ago, and workers may still extend these leases: wait")
    return len(jobs.reap())


def _cancel(alias: str, job_ids: Sequence[int]) -> int:
    answer = Job.objects.db_manager(alias).request_cancel(job_ids, reason="its parent was cancelled")
    return len(answer.cancelled) + len(answer.asked)


def _raise_the_token(alias: str, _: Sequence[str]) -> int:
    raise_sequence(alias, TOKENS, seen(alias))
    return 1


def seen(alias: str) -> int:
    return int(run_joined(alias, with_shared_queries(_SEEN), Limits().params())[0][0] or 0)


_SEEN = """
    SELECT GREATEST(
        (SELECT pg_catalog.max(token) FROM pulse_django_job_hot WHERE status::text = 'RUNNING'),
        (SELECT pg_catalog.max(token) FROM latest_attempts),
        (SELECT pg_catalog.max(completed_token) FROM latest_completed),
        (SELECT pg_catalog.max(token) FROM pulse_django_fence)
    )
"""


# The condition of partitions: one for each day on which jobs end.


NO_LIMIT = 2_000_000_000

STRAY = """
    SELECT era, 'jobs that ended on this day are in pulse_django_job_other'
    FROM (SELECT era FROM pulse_django_job_other ORDER BY era LIMIT %(sample)s) AS stray
    GROUP BY era
"""
WITHOUT_PARTITION = """
    SELECT era, 'the day has no partition'
    FROM (
        SELECT pg_catalog.to_char((statement_timestamp() AT TIME ZONE 'UTC')::date + ahead, 'YYYYMMDD')::int
        FROM pg_catalog.generate_series(0, 1) AS ahead
    ) AS next (era)
    WHERE pg_catalog.pg_partition_root(pg_catalog.to_regclass('pulse_django_job_' || era::text))::oid
        IS DISTINCT FROM 'pulse_django_job'::regclass::oid
"""


# The repair of jobs that are moved between shards.


def _finish(alias: str, _: Sequence[str]) -> int:
    done = finish(alias)
    return len(done.moved + done.went_back)


CONDITIONS = (
    Condition(
        name="running-without-lease",
        severity=Severity.BROKEN,
        says="Every RUNNING job has a holder, a lease, a token and an attempt.",
        means="The CHECK constraint was dropped and the table was modified. Watchdogs do not see such a job.",
        to_do="Find out what writes to pulse_django_job. --repair schema-incomplete restores the constraint.",
        sql="""
SELECT
    id, '%%(task)s attempt %%(number)s: locked_by %%(holder)s, lease_until %%(until)s', task, attempts AS number,
    COALESCE(locked_by, 'nobody') AS holder, COALESCE(lease_until::text, 'never') AS until
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING'
    AND (locked_by IS NULL OR lease_until IS NULL OR token IS NULL OR started_at IS NULL OR attempts <= refunds)
ORDER BY id
""",
        repair=Repair(
            says="Give each job a lease that expires one TTL from now; a watchdog then ends the run.",
            act=_bring_leases_back,
        ),
    ),
    Condition(
        name="lease-too-long",
        severity=Severity.BROKEN,
        says="No lease is longer than five minutes or three times LEASE_TTL.",
        means="The server's clock was set back, or the lease was modified by hand. If the worker dies, its job is "
        "recovered late.",
        to_do="Check the server's clock (NTP, failover to another host), then repair.",
        sql="""
SELECT
    id, '%%(task)s attempt %%(number)s: leased for %%(time)s', task, attempts AS number,
    pg_catalog.date_trunc('second', lease_until - statement_timestamp()) AS time
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING'
    AND lease_until > statement_timestamp() + COALESCE(lease_ttl, %(longest_lease)s) + %(slack)s
ORDER BY id
""",
        repair=Repair(
            says="Shorten each lease to one TTL from now. Live workers continue to extend them.", act=_bring_leases_back
        ),
    ),
    Condition(
        name="lease-not-reaped",
        severity=Severity.STUCK,
        says="A watchdog recovers an expired lease at its next tick.",
        means="No watchdog is running or working: jobs of dead workers stay RUNNING.",
        to_do="Start a worker without --no-watchdog, or pulse_watchdog, and read its log.",
        page="how-to/symptoms/workers-vanish.md",
        sql=f"""
SELECT
    id, '%%(task)s attempt %%(number)s by %%(holder)s: over for %%(time)s', task, attempts AS number,
    locked_by AS holder, {time_since("lease_until")} AS time
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING' AND lease_until < statement_timestamp() - %(unreaped)s
ORDER BY id
""",
        repair=Repair(says="Reap: retry or dead-letter the jobs of these leases.", act=_reap, at_a_time=1_000),
    ),
    Condition(
        name="attempt-missing",
        severity=Severity.BROKEN,
        says="The last run of every job that is not RUNNING is in the ledger.",
        means="The statement that ends a run also writes its attempt, so rows were deleted from pulse_django_attempt, "
        "or a backup was partly restored.",
        to_do="Find out what deletes these rows. They cannot be reconstructed; the jobs are not affected.",
        sql="""
SELECT
    job.id, '%%(task)s attempt %%(number)s ended as %%(status)s and left no entry',
    job.task, job.attempts AS number, job.status
FROM (
    (
        SELECT id, task, attempts, status, completed_by FROM latest_completed
        WHERE finished_at > statement_timestamp() - %(kept)s
    )
    UNION ALL
    (
        SELECT id, task, attempts, status, NULL FROM pulse_django_job_hot WHERE status::text = 'DEAD_LETTERED'
        ORDER BY finished_at DESC, id DESC LIMIT %(sample)s
    )
    UNION ALL
    (
        SELECT id, task, attempts, status, NULL FROM latest_cancelled
        WHERE finished_at > statement_timestamp() - %(kept)s
    )
    UNION ALL
    (
        SELECT id, task, attempts, status, NULL FROM pulse_django_job_hot
        WHERE status::text IN ('PENDING', 'RETRYING')
        ORDER BY queue, priority DESC, ready DESC, lane_key, next_run_at, id LIMIT %(sample)s
    )
    UNION ALL
    (
        SELECT id, task, attempts, status, NULL FROM pulse_django_job_hot WHERE status::text = 'WAITING'
        ORDER BY id DESC LIMIT %(sample)s
    )
) AS job
WHERE job.attempts > 0 AND job.completed_by IS NULL AND NOT EXISTS (
    SELECT 1 FROM pulse_django_attempt AS attempt WHERE attempt.job_id = job.id AND attempt.number = job.attempts
)
ORDER BY job.id
""",
    ),
    Condition(
        name="token-repeated",
        severity=Severity.BROKEN,
        says="The sequence of fencing tokens is at or beyond every granted token.",
        means="A restore or failover reset the sequence: systems that check tokens will reject new runs as stale.",
        to_do="Repair before workers continue. Check what else the restore lost.",
        sql=f"""
SELECT 'pulse_django_token', 'stands at %%(position)s, and %%(seen)s was granted', last_value AS position, seen
FROM pulse_django_token, ({_SEEN}) AS granted (seen)
WHERE seen > last_value
""",
        repair=Repair(says="Set the sequence to the largest granted token.", act=_raise_the_token),
    ),
    Condition(
        name="child-of-cancelled",
        severity=Severity.RISK,
        says="No job enqueued by a cancelled job is still waiting or running.",
        means="The job was cancelled without its children, whose results may no longer be needed.",
        to_do="Decide whether they are still needed. Next time, use pulse_cancel --children.",
        sql="""
SELECT
    child.id, '%%(task)s is %%(status)s, enqueued by job %%(parent)s, which was cancelled', child.task, child.status,
    parent.id AS parent
FROM latest_cancelled AS parent
CROSS JOIN LATERAL (
    SELECT id, task, status
    FROM pulse_django_job_hot
    WHERE parent_id = parent.id AND finished_at IS NULL AND cancel_requested_at IS NULL
    LIMIT %(limit)s
) AS child
ORDER BY child.id
""",
        repair=Repair(says="Cancel waiting jobs, and ask running jobs to stop.", act=_cancel),
    ),
    Condition(
        name="day-missing",
        severity=Severity.RISK,
        says="Today, tomorrow and every day on which jobs ended have a partition of the table of jobs.",
        means="No watchdog creates partitions. Jobs that end go to pulse_django_job_other, and are not deleted there.",
        to_do="Start a worker without --no-watchdog, or pulse_watchdog. It moves up to 10,000 jobs of a day by itself; "
        "the repair moves any number, but blocks settles for about a second for each 100,000.",
        page="how-to/symptoms/table-grows.md",
        sql=f"""
SELECT era::text, what
FROM ({STRAY}    UNION ALL{WITHOUT_PARTITION}) AS missing (era, what)
ORDER BY era
""",
        repair=Repair(
            says="Create the partitions, and move the jobs of these days into them.",
            act=lambda alias, _: len(Job.objects.db_manager(alias).make_days(most_moved=NO_LIMIT)),
        ),
    ),
    Condition(
        name="move-unfinished",
        severity=Severity.STUCK,
        says="A job that leaves for another shard arrives there soon.",
        means="A move was interrupted. These jobs are kept, but do not run, and calls with their ids fail.",
        to_do="Run pulse_shards move from this shard again: it first finishes the interrupted move. The repair does "
        "the same. Both need the owner of the tables. A job is delivered only to a shard that is still in SHARDS.",
        page="how-to/shards.md",
        sql=f"""
SELECT
    pg_catalog.concat('job ', job_id), 'it left for shard %%(shard)s %%(time)s ago', to_shard AS shard,
    {time_since("at")} AS time
FROM pulse_django_departure
WHERE at < statement_timestamp() - %(silence)s
ORDER BY id
""",
        repair=Repair(says="Deliver the jobs to their shards.", act=_finish),
    ),
    Condition(
        name="key-missing",
        severity=Severity.STUCK,
        says="Workers can decrypt the jobs that they claim (checked for jobs that were put back recently).",
        means="A worker has no key for these jobs, so they are put back. No attempt is counted.",
        to_do="Add the key to PULSE['ENCRYPTION_KEYS'] of all workers and restart them. Then run the jobs now.",
        page="how-to/encryption.md",
        sql=f"""
SELECT job.task, '%%(jobs)s or more jobs; %%(message)s', count(*) AS jobs, pg_catalog.max(latest.message) AS message
FROM latest_attempts AS latest
CROSS JOIN LATERAL (  -- one by one: a planner that joins the two reads the whole backlog
    SELECT task
    FROM pulse_django_job_hot
    WHERE id = latest.job_id AND attempts = latest.number AND status::text IN ('PENDING', 'RETRYING')
    LIMIT 1
) AS job
WHERE latest.outcome::text = 'RELEASED' AND pg_catalog.starts_with(latest.message, '{CANNOT_DECRYPT}')
GROUP BY job.task
ORDER BY job.task
""",
    ),
)
