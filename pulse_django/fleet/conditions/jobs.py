"""Conditions of single jobs: what the protocol rules out, and what would go unnoticed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.store.shards import TOKENS, position_of, raise_sequence
from pulse_django.store.transactions import run_joined

from .catalogue import Condition, Limits, Repair, RepairRefused, Severity, Subject, register
from .shared_queries import with_shared_queries


def _bring_leases_back(alias: str, job_ids: Sequence[int]) -> int:
    return len(Job.objects.db_manager(alias).mend(job_ids))


def _reap(alias: str, _: Sequence[int]) -> int:
    jobs = Job.objects.db_manager(alias)
    ttl, up_for = conf.current().lease_ttl.total_seconds(), jobs.server_clock().up_for
    if 0 <= up_for < ttl:
        raise RepairRefused(f"the server started {up_for:.0f} s ago, and workers may still extend these leases")
    return len(jobs.reap())


def _cancel(alias: str, job_ids: Sequence[int]) -> int:
    answer = Job.objects.db_manager(alias).request_cancel(job_ids, reason="its parent was cancelled")
    return len(answer.cancelled) + len(answer.asked)


def _raise_the_token(alias: str, _: Sequence[str]) -> int:
    raise_sequence(alias, TOKENS, _seen(alias))
    return 1


def _seen(alias: str) -> int:
    return int(run_joined(alias, with_shared_queries(_SEEN), Limits().params())[0][0] or 0)


def _repeated_on_citus(alias: str, _: Limits) -> Iterator[Subject]:
    """The sequence that claims draw from is on the node, and Citus does not know it."""
    seen, position = _seen(alias), position_of(alias, TOKENS)
    if seen > position:
        yield Subject(TOKENS, f"stands at {position}, and {seen} was granted")


register(
    Condition(
        name="running-without-lease",
        severity=Severity.BROKEN,
        says="Every RUNNING job has a holder, a lease, a token and an attempt.",
        means="The CHECK constraint was dropped and the table was modified. Watchdogs do not see such a job.",
        to_do="Find out what writes to pulse_django_job. --repair schema-incomplete restores the constraint.",
        sql="""
SELECT id, pg_catalog.concat(
    task, ' attempt ', attempts, ': locked_by ', COALESCE(locked_by, 'nobody'),
    ', lease_until ', COALESCE(lease_until::text, 'never')
)
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING'
    AND (locked_by IS NULL OR lease_until IS NULL OR token IS NULL OR started_at IS NULL OR attempts <= refunds)
ORDER BY id
LIMIT %(limit)s
""",
        repair=Repair(
            says="Give each job a lease that expires one TTL from now; a watchdog then ends the run.",
            act=_bring_leases_back,
        ),
    )
)

register(
    Condition(
        name="lease-too-long",
        severity=Severity.BROKEN,
        says="No lease is longer than five minutes or three times LEASE_TTL.",
        means="The server's clock was set back, or the lease was modified by hand. If the worker dies, its job is "
        "recovered late.",
        to_do="Check the server's clock (NTP, failover to another host), then repair.",
        sql="""
SELECT id, pg_catalog.concat(
    task, ' attempt ', attempts, ': leased for ', pg_catalog.date_trunc('second', lease_until - statement_timestamp())
)
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING'
    AND lease_until > statement_timestamp() + COALESCE(lease_ttl, %(longest_lease)s) + %(slack)s
ORDER BY id
LIMIT %(limit)s
""",
        repair=Repair(
            says="Shorten each lease to one TTL from now. Live workers continue to extend them.", act=_bring_leases_back
        ),
    )
)

register(
    Condition(
        name="lease-not-reaped",
        severity=Severity.STUCK,
        says="A watchdog recovers an expired lease at its next tick.",
        means="No watchdog is running or working: jobs of dead workers stay RUNNING.",
        to_do="Start a worker without --no-watchdog, or pulse_watchdog, and read its log.",
        page="how-to/symptoms/workers-vanish.md",
        sql="""
SELECT id, pg_catalog.concat(
    task, ' attempt ', attempts, ' by ', locked_by,
    ': over for ', pg_catalog.date_trunc('second', statement_timestamp() - lease_until)
)
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING' AND lease_until < statement_timestamp() - %(unreaped)s
ORDER BY id
LIMIT %(limit)s
""",
        repair=Repair(says="Reap: retry or dead-letter the jobs of these leases.", act=_reap, at_a_time=1_000),
    )
)

register(
    Condition(
        name="attempt-missing",
        severity=Severity.BROKEN,
        says="The last run of every job that is not RUNNING is in the ledger.",
        means="The statement that ends a run writes it down, so rows were deleted from pulse_django_attempt, or a "
        "backup was partly restored.",
        to_do="Find out what deletes these rows. They cannot be reconstructed; the jobs are not affected.",
        sql="""
SELECT job.id, pg_catalog.concat(job.task, ' attempt ', job.attempts, ' ended as ', job.status, ' and left no entry')
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
LIMIT %(limit)s
""",
    )
)

_SEEN = """
    SELECT GREATEST(
        (SELECT pg_catalog.max(token) FROM pulse_django_job_hot WHERE status::text = 'RUNNING'),
        (SELECT pg_catalog.max(token) FROM latest_attempts),
        (SELECT pg_catalog.max(completed_token) FROM latest_completed),
        (SELECT pg_catalog.max(token) FROM pulse_django_fence)
    )
"""

register(
    Condition(
        name="token-repeated",
        severity=Severity.BROKEN,
        says="The sequence of fencing tokens is at or beyond every granted token.",
        means="A restore or failover reset the sequence: systems that check tokens will reject new runs as stale.",
        to_do="Repair before workers continue. Check what else the restore lost.",
        sql=f"""
SELECT 'pulse_django_token', pg_catalog.concat('stands at ', last_value, ', and ', seen, ' was granted')
FROM pulse_django_token, ({_SEEN}) AS granted (seen)
WHERE seen > last_value
LIMIT %(limit)s
""",
        look_on_citus=_repeated_on_citus,
        repair=Repair(says="Set the sequence to the largest granted token.", act=_raise_the_token),
    )
)

register(
    Condition(
        name="child-of-cancelled",
        severity=Severity.RISK,
        says="No job enqueued by a cancelled job is still waiting or running.",
        means="The job was cancelled without its children, whose results may no longer be needed.",
        to_do="Decide whether they are still needed. Next time, use pulse_cancel --children.",
        sql="""
SELECT child.id, pg_catalog.concat(
    child.task, ' is ', child.status, ', enqueued by job ', parent.id, ', which was cancelled'
)
FROM latest_cancelled AS parent
CROSS JOIN LATERAL (
    SELECT id, task, status
    FROM pulse_django_job_hot
    WHERE parent_id = parent.id AND finished_at IS NULL AND cancel_requested_at IS NULL
    LIMIT %(limit)s
) AS child
ORDER BY child.id
LIMIT %(limit)s
""",
        repair=Repair(says="Cancel waiting jobs, and ask running jobs to stop.", act=_cancel),
    )
)
