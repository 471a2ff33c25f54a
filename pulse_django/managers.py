"""Every write to job state, in the order of a job's life. No other module writes to the jobs table.

    verb            from                    to
    enqueue         -                       PENDING
    claim           PENDING, RETRYING       RUNNING
    heartbeat       RUNNING                 RUNNING
    settle          RUNNING                 COMPLETED, RETRYING, PENDING, DEAD_LETTERED, CANCELLED
    reap            RUNNING                 RETRYING, DEAD_LETTERED, CANCELLED
    touch_expired   RUNNING                 RUNNING, unchanged
    mend            RUNNING                 RUNNING, with a lease that can be
    shorten_leases  RUNNING                 RUNNING, with a lease that can be
    release         RUNNING                 PENDING, CANCELLED
    request_cancel  PENDING, RETRYING       CANCELLED
                    RUNNING                 RUNNING, asked to stop
    reschedule      PENDING                 PENDING, at another time
                    RETRYING                RETRYING, at another time
    move            PENDING                 PENDING, elsewhere
                    RETRYING                RETRYING, elsewhere
    retry           DEAD_LETTERED           PENDING
    prune           COMPLETED,              (gone)
                    DEAD_LETTERED,
                    CANCELLED

The claim is the lease. One UPDATE sets RUNNING, ``locked_by``, ``lease_until``, ``token`` and the next ``attempts``;
every later write of that run looks its row up by ``id``, ``locked_by`` and ``attempts``. That is the fence: once the
job has moved on, the statement finds no row, and "no row" is the answer that the caller gets. ``settle`` is the one
door out of RUNNING for workers; ``reap`` is the same door for watchdogs.

Seven habits hold in every statement below:

- What touches several rows locks them first, jobs in the order of their ids and attempts of their (job, number), or
  skips locked ones. Sorted parameters alone deadlock.
- Locks are FOR NO KEY UPDATE, but for what is to be deleted: an open transaction of somebody who refers to a job by
  foreign key is no reason to skip its heartbeat.
- One bad row or value fails itself and not its batch: values are cleaned and bounded on their way in, and where a
  batch is refused all the same, its rows are tried one by one.
- Instants are written with clock_timestamp() and compared with statement_timestamp(); Python's clock decides nothing.
- People decide by what a page showed them, so their verbs take an ``attempt``: once a job is beyond it they leave it
  alone, even if its status is the same again. The row is locked by then, and its number cannot change any more.
- A fence does not mention ``status``: a CHECK ties ``locked_by`` to RUNNING, and with stale statistics a condition on
  the status lets the planner start from the wrong index.
- Functions that take arguments are called as pg_catalog's, and operators stand between types for which it has one:
  short text is compared as ``text``. A planted function or operator that fits better would be called (docs/adr/0039).

Lists travel as one JSON document instead of one array per column: psycopg quotes it in one go, and a batch of a
hundred settles took 2.4 ms instead of 2.9.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, assert_never

from django.db import DataError, IntegrityError, ProgrammingError, connections, transaction
from django.db.models import BooleanField, TextField, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Concat

from . import conf
from .exceptions import InvalidJob
from .safe_logging import SafeLogger
from .store.job_queries import IS_PAUSED, JobReader
from .store.querysets import JobQuerySet, lease_ran_out_lately
from .store.sql_functions import Fingerprint, StatementTimestamp, TextSize
from .store.transactions import Row, joined, refuse_callers_transaction, run_alone, run_joined
from .words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry
from .words.error_details import MAX_CLASS, MAX_MESSAGE, MAX_SUMMARY, MAX_TRACEBACK, ErrorReport
from .words.identity import Identity
from .words.job_ids import check_attempt, check_whole_number, job_ids_of
from .words.job_options import MAX_DELAY, MOST_ATTEMPTS, Head, NewJob, Payload, check_priority, check_queue_name
from .words.lanes import Lane, rotation
from .words.leases import Claim, Lease
from .words.outcomes import Failed, OutcomeName, Released, Stalled, Succeeded, TimedOut, WorkerLost
from .words.payloads import clean_text, error_in_one_line
from .words.states import TERMINAL, Status
from .words.verb_results import Beat, CancelRequested, Changed, Reaped, Report, Retried, Settled

if TYPE_CHECKING:
    from .models import Job

logger = SafeLogger(__name__)

UNSTORABLE = (DataError, IntegrityError)  # what one bad value does to its whole statement

Compiled = tuple[str, tuple[Any, ...]]  # SQL and its parameters
Encoded = tuple[NewJob, Payload]

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 5_000
ENQUEUE_BYTES = 16_000_000
# What a claim brings at once, unless a single job is larger. Larger answers are copied several times on their way; with
# smaller ones, large jobs cost a statement each.
CLAIM_BYTES = 32_000_000
# Longer statements would hold their locks for longer than a claim should have to wait; shorter ones waste round trips.
REAP_LIMIT = 1_000
PRUNE_LIMIT = 1_000
# Seconds. While the table is locked no lease can be extended: a reap that waited for the lock would be the first to
# have it, and would end runs whose heartbeats waited beside it.
REAP_LOCK_TIMEOUT = 0.05

# ----------------------------------------------------------------------------------------------------------- enqueue

_ENQUEUE_INTO = """
INSERT INTO pulse_django_job
    (
        task, queue, priority, args, kwargs, payload_bytes, next_run_at, max_attempts, lease_ttl, timeout, stall_after,
        max_losses, free_losses, parent_id, idempotency_key, trace, masked
    )
"""

_ENQUEUE = f"""{_ENQUEUE_INTO}
VALUES (
    %s, %s, %s, %s, %s, %s, COALESCE(%s::timestamptz, clock_timestamp() + %s::interval),
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)
{{on_conflict}}
RETURNING id, created_at, next_run_at
"""

# It waits for a rival who has the key and has not committed: if it rolls back, the job is inserted after all. In
# neither case does the caller's transaction abort.
_UNLESS_THE_KEY_IS_TAKEN = "ON CONFLICT (task, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"

# Jobs that are enqueued together differ in their arguments and seldom in anything else: what they share travels once.
# With fifteen keys for each, a server that could copy ten thousand rows in 80 ms took 500.
_ENQUEUE_MANY = f"""{_ENQUEUE_INTO}
SELECT
    head.task, head.queue, head.priority, payload.args::jsonb, payload.kwargs::jsonb,
    pg_catalog.octet_length(payload.args) + pg_catalog.octet_length(payload.kwargs),
    COALESCE(head.run_at, clock_timestamp() + head.delay * interval '1 second'),
    COALESCE(head.max_attempts, %s),
    head.lease_ttl * interval '1 second', head.timeout * interval '1 second', head.stall_after * interval '1 second',
    head.max_losses, head.free_losses, head.parent_id, head.idempotency_key, head.trace,
    head.masked
FROM ROWS FROM (
    pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])
) WITH ORDINALITY AS payload (head, args, kwargs, place)
JOIN pg_catalog.json_to_recordset(%s::json) AS head (
    number int, task text, queue text, priority smallint, run_at timestamptz, delay float8, max_attempts int,
    lease_ttl float8, timeout float8, stall_after float8, max_losses smallint, free_losses boolean,
    parent_id bigint, idempotency_key text, trace text, masked text
) ON head.number = payload.head
ORDER BY payload.place
RETURNING id
"""  # noqa: S608 - made of constants

# ------------------------------------------------------------------------------------------------------------- claim

# The pick is the ORM's query, filtered on the lane's columns, so that every (queue, priority) is one range of the
# claim index. Measured with 1M claimable jobs in 100 queues of 10 priorities, 100 jobs a claim: ``queue IN (...) ORDER
# BY`` takes 1.1 s, one lateral pick per lane 2 ms.
#
# MATERIALIZED, and an array in front of the UPDATE: a planner may run ``id IN (SELECT ... LIMIT 3 FOR UPDATE)`` once
# per outer row, and then it claims 17 jobs. The array also keeps the UPDATE on the primary key at any batch size.
#
# Lanes are visited in the order given, and no sort may stand above the pick: it would lock every lane's share first.
#
# Of what was picked only so many bytes are taken, in that order, and the first job in any case: then the sum so far is
# its own size. The others stay for the next claim.
_CLAIM = """
WITH picked (id, bytes) AS MATERIALIZED ({picked}),
in_line AS (
    SELECT id, bytes, pg_catalog.sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS so_far FROM picked
),
claimed AS (
    UPDATE pulse_django_job AS job
    SET status = 'RUNNING',
        attempts = attempts + 1,
        locked_by = %s,
        lease_until = clock_timestamp() + COALESCE(lease_ttl, %s),
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + timeout,
        started_at = clock_timestamp()
    WHERE id = ANY (ARRAY(SELECT id FROM in_line WHERE so_far <= %s OR so_far = bytes)) AND locked_by IS NULL
    RETURNING
        id, attempts, token, task, queue, priority, args, kwargs, progress, refunds, max_attempts, losses,
        pg_catalog.date_part('epoch', COALESCE(lease_ttl, %s)) AS ttl, parent_id, next_run_at,
        pg_catalog.date_part('epoch', created_at) AS created, pg_catalog.date_part('epoch', started_at) AS started,
        timeout, stall_after, max_losses, free_losses, trace, masked
)
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    ttl, parent_id, created, started, timeout, stall_after, max_losses, free_losses, trace, masked
FROM claimed
ORDER BY priority DESC, next_run_at, id
"""

_PICK_FROM_LANES = f"""
    SELECT pick.id, pick.bytes
    FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[])) AS lane (queue, priority)
    CROSS JOIN LATERAL ({{pick}}) AS pick
    WHERE lane.queue <> ALL (ARRAY(
        SELECT name::text FROM pulse_django_queue WHERE {IS_PAUSED}
    ))
    LIMIT %s
"""  # noqa: S608 - made of constants

# --------------------------------------------------------------------------------------------------------- heartbeat

# One statement for all leases of a host. It skips rows that another statement has locked, because waiting behind one
# would delay all the others' beats.
_HEARTBEAT = """
WITH held AS MATERIALIZED (
    SELECT id, holder, attempt, progress::jsonb
    FROM pg_catalog.json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int, progress text)
),
locked AS MATERIALIZED (
    SELECT job.id, held.progress
    FROM held
    JOIN pulse_django_job AS job
        ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED
)
UPDATE pulse_django_job AS job
SET lease_until = GREATEST(job.lease_until, clock_timestamp() + COALESCE(job.lease_ttl, %s)),
    progress = COALESCE(locked.progress, job.progress),
    progress_at = CASE WHEN locked.progress IS NULL THEN job.progress_at ELSE clock_timestamp() END
FROM locked
WHERE job.id = locked.id AND job.locked_by IS NOT NULL
RETURNING job.id, job.locked_by, job.attempts, job.cancel_requested_at IS NOT NULL
"""

# Asked only of leases that the beat left out: whose fence still holds was skipped, and is not lost.
_STILL_HELD = """
SELECT job.id, job.locked_by, job.attempts
FROM pg_catalog.json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int)
JOIN pulse_django_job AS job
    ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt
"""

# ------------------------------------------------------------------------------------------------------------ settle

# The fenced UPDATE and the ledger's row in one statement: neither can exist without the other. Two facts are the
# database's to judge, because a report may have been written before they were: a cancellation that was requested
# meanwhile wins over everything but success, and a budget that was lowered meanwhile leaves no retry.
#
# ON CONFLICT: a ledger that was restored or edited may hold the row already. It must not keep a run from ending.
_SETTLE = """
WITH report AS MATERIALIZED ({reports}),
locked AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at,
        CASE
            WHEN report.status IN ('COMPLETED', 'CANCELLED') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN report.status = 'RETRYING'
                AND job.attempts - job.refunds - COALESCE(report.refund, 0) >= job.max_attempts THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    JOIN pulse_django_job AS job
        ON job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
    ORDER BY job.id
    FOR NO KEY UPDATE OF job {skip_locked}
),
settled AS (
    UPDATE pulse_django_job AS job
    SET status = locked.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = job.refunds + COALESCE(locked.refund, 0),
        losses = job.losses + COALESCE(locked.loss, 0),
        next_run_at = CASE
            WHEN locked.verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + locked.delay * interval '1 second'
            ELSE job.next_run_at
        END,
        finished_at = CASE WHEN locked.verdict IN ('PENDING', 'RETRYING') THEN NULL ELSE clock_timestamp() END,
        last_error = COALESCE(locked.error, job.last_error),
        cancel_reason = COALESCE(locked.cancel_reason, job.cancel_reason),
        result = locked.result::jsonb,
        progress = COALESCE(locked.progress::jsonb, job.progress)
    FROM locked
    WHERE job.id = locked.id AND job.locked_by::text = locked.holder AND job.attempts = locked.attempt
    RETURNING locked.*
),
ledger AS (
    INSERT INTO pulse_django_attempt
        (job_id, number, token, worker, due_at, started_at, finished_at, outcome, error_class, message, traceback)
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM settled
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, holder, attempt, verdict FROM settled
"""

_REPORTS = """
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
"""

# Most batches hold nothing else, and reading fifteen keys of which eleven are absent takes the server 7 us for each.
# The sub-selects hide the arrays' lengths from the planner: told of 400 rows, it merges them with the whole table.
_COMPLETIONS = """
    SELECT
        id, holder, attempt, result, 'SUCCEEDED' AS outcome, 'COMPLETED' AS status, NULL::float8 AS delay,
        NULL::int AS refund, NULL::int AS loss, NULL AS error, NULL AS cancel_reason, NULL AS progress,
        NULL AS error_class, NULL AS message, NULL AS traceback
    FROM ROWS FROM (
        pg_catalog.unnest((SELECT %s::bigint[])), pg_catalog.unnest((SELECT %s::text[])),
        pg_catalog.unnest((SELECT %s::int[])), pg_catalog.unnest((SELECT %s::text[]))
    ) AS report (id, holder, attempt, result)
"""

# A statement of its own: the ledger row of a run that was ended while the settle above waited for its lock is newer
# than that settle's snapshot.
_KEEP_LATE_VERDICTS = """
WITH report AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (id bigint, holder text, attempt int, outcome text)
),
entry AS MATERIALIZED (
    SELECT
        attempt.id, attempt.job_id, attempt.worker, attempt.number, report.outcome,
        attempt.outcome::text = report.outcome AS repeated
    FROM report
    JOIN pulse_django_attempt AS attempt
        ON attempt.job_id = report.id AND attempt.number = report.attempt AND attempt.worker::text = report.holder
    ORDER BY attempt.job_id, attempt.number
    FOR NO KEY UPDATE OF attempt
),
kept AS (
    UPDATE pulse_django_attempt AS attempt
    SET late_outcome = entry.outcome, late_at = clock_timestamp()
    FROM entry
    WHERE attempt.id = entry.id AND NOT entry.repeated AND attempt.late_outcome::text = ''
)
SELECT job_id, worker, number, repeated FROM entry
"""

# What a handler raised after it had completed its job itself. The ledger has its run already.
_KEEP_ERRORS_AFTER_COMPLETION = """
WITH raised AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS raised (
        id bigint, holder text, attempt int, error_class text, message text, traceback text
    )
),
entry AS MATERIALIZED (
    SELECT attempt.id, raised.error_class, raised.message, raised.traceback
    FROM raised
    JOIN pulse_django_attempt AS attempt
        ON attempt.job_id = raised.id AND attempt.number = raised.attempt AND attempt.worker::text = raised.holder
    WHERE attempt.outcome::text = 'SUCCEEDED' AND attempt.late_outcome::text = ''
    ORDER BY attempt.job_id, attempt.number
    FOR NO KEY UPDATE OF attempt
)
UPDATE pulse_django_attempt AS attempt
SET late_outcome = 'FAILED', late_at = clock_timestamp(), error_class = entry.error_class, message = entry.message,
    traceback = entry.traceback
FROM entry
WHERE attempt.id = entry.id
RETURNING attempt.job_id
"""

# -------------------------------------------------------------------------------------------------------------- reap

# The same rules as decisions.decide() for a lost worker, as a CASE; a table-driven test holds the two together.
_REAP = """
WITH over (
    id, holder, attempt, token, due_at, started_at, counted, spent, killer, free, last_seen_at, outcome
) AS MATERIALIZED (
    SELECT
        pick.id, pick.locked_by::text, pick.attempts, pick.token, pick.next_run_at, pick.started_at,
        CASE WHEN lost.free THEN pick.losses + 1 ELSE pick.attempts - pick.refunds END,
        pick.attempts - pick.refunds >= pick.max_attempts AND NOT lost.free,
        lost.lost AND pick.losses + 1 >= COALESCE(pick.max_losses, %s),
        lost.free,
        CASE WHEN lost.lost THEN pick.lease_until - COALESCE(pick.lease_ttl, %s) END,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END
    FROM ({pick}) AS pick
    CROSS JOIN LATERAL (
        SELECT pick.lease_until < statement_timestamp(), pick.lease_until < statement_timestamp() AND pick.free_losses
    ) AS lost (lost, free)
),
reaped AS (
    UPDATE pulse_django_job AS job
    SET status = CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN over.spent OR over.killer THEN 'DEAD_LETTERED'
            ELSE 'RETRYING'
        END,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        losses = job.losses + (over.outcome = 'WORKER_LOST')::int,
        refunds = job.refunds + (over.free AND NOT over.killer AND job.cancel_requested_at IS NULL)::int,
        next_run_at = CASE
            WHEN job.cancel_requested_at IS NULL AND NOT (over.spent OR over.killer)
            THEN clock_timestamp() + interval '1 second'
                * LEAST(%s::float8, pg_catalog.power(over.counted, 2) * %s::float8)
                * (%s::float8 + %s::float8 * random())
            ELSE job.next_run_at
        END,
        finished_at = CASE
            WHEN job.cancel_requested_at IS NULL AND NOT (over.spent OR over.killer) THEN NULL
            ELSE clock_timestamp()
        END,
        last_error = CASE over.outcome
            WHEN 'WORKER_LOST' THEN CASE
                WHEN over.killer AND NOT over.spent AND job.cancel_requested_at IS NULL
                THEN pg_catalog.format(
                    'lost %%s worker%%s: worker lease expired', job.losses + 1, CASE WHEN job.losses > 0 THEN 's' END
                )
                ELSE 'worker lease expired'
            END
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END
    FROM over
    WHERE job.id = over.id AND job.locked_by::text = over.holder AND job.attempts = over.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.stall_after < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING over.*, job.status, job.last_error
),
ledger AS (
    INSERT INTO pulse_django_attempt
        (job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, message)
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        CASE outcome WHEN 'WORKER_LOST' THEN 'worker lease expired' ELSE last_error END
    FROM reaped
    ON CONFLICT (job_id, number) DO NOTHING
)
SELECT id, holder, attempt, token, outcome, status FROM reaped
"""

# -------------------------------------------------------------------------------------------------------------- mend

# For leases that the protocol cannot have granted: none at all, or one that a clock which was set back left too long.
# Nothing is taken from a live holder, whose next beat extends what it has; its host may have another LEASE_TTL than we.
_MEND = """
WITH wrong AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND status::text = 'RUNNING' AND (
        locked_by IS NULL OR token IS NULL OR started_at IS NULL OR lease_until IS NULL
        OR lease_until > statement_timestamp() + COALESCE(lease_ttl, %s) + interval '1 second'
        OR attempts <= refunds OR attempts - refunds > max_attempts
    )
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET locked_by = COALESCE(job.locked_by, 'nobody'),
    token = COALESCE(job.token, pg_catalog.nextval('pulse_django_token')),
    started_at = COALESCE(job.started_at, clock_timestamp()),
    attempts = GREATEST(job.attempts, job.refunds + 1),
    max_attempts = GREATEST(job.max_attempts, job.attempts - job.refunds, 1),
    lease_until = LEAST(job.lease_until, clock_timestamp() + COALESCE(job.lease_ttl, %s))
FROM wrong
WHERE job.id = wrong.id AND job.status::text = 'RUNNING'
RETURNING job.id
"""

# After the server's clock was set back: what was granted before it reaches further than any lease now.
_SHORTEN = """
WITH long AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE status::text = 'RUNNING'
        AND lease_until > statement_timestamp() + COALESCE(lease_ttl, %(longest)s) + interval '1 second'
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET lease_until = GREATEST(job.lease_until - %(step)s, clock_timestamp() + COALESCE(job.lease_ttl, %(ttl)s))
FROM long
WHERE job.id = long.id AND job.status::text = 'RUNNING'
RETURNING job.id
"""

# A write that changes nothing: to see whether heartbeats could be written, before their absence is held against them.
_TOUCH = """
WITH expired AS MATERIALIZED ({pick})
UPDATE pulse_django_job AS job
SET progress_at = job.progress_at
FROM expired
WHERE job.id = expired.id
RETURNING job.id
"""

# ---------------------------------------------------------------------------------------------------- request_cancel

_REQUEST_CANCEL = """
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND finished_at IS NULL AND cancel_requested_at IS NULL
        AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET status = CASE WHEN job.locked_by IS NULL THEN 'CANCELLED' ELSE job.status END,
    finished_at = CASE WHEN job.locked_by IS NULL THEN clock_timestamp() END,
    cancel_requested_at = clock_timestamp(),
    cancel_reason = %s
FROM wanted
WHERE job.id = wanted.id AND job.finished_at IS NULL AND job.cancel_requested_at IS NULL
RETURNING job.id, job.status
"""

# ------------------------------------------------------------------------------------------------ reschedule and move

# Of what waits only: a run that goes on has its own deadline, and its job's next time is its outcome's to say.
_WAITING = """
WITH waiting AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND status::text IN ('PENDING', 'RETRYING') AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET {change}
FROM waiting
WHERE job.id = waiting.id AND job.status::text IN ('PENDING', 'RETRYING')
RETURNING job.id
"""
_RESCHEDULE = _WAITING.format(change="next_run_at = clock_timestamp() + %s")
_MOVE = _WAITING.format(change="queue = COALESCE(%s, job.queue), priority = COALESCE(%s, job.priority)")

# ------------------------------------------------------------------------------------------------------------- retry

# ``attempts`` stays: a zombie of an old run must never meet its own number again. What a retry grants is refunds, and
# only as many as the runs asked for need.
_RETRY = """
WITH dead AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND status::text = 'DEAD_LETTERED' AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
),
in_line AS (
    SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM dead
)
UPDATE pulse_django_job AS job
SET status = 'PENDING',
    refunds = LEAST(job.attempts, job.refunds + GREATEST(0, %s - (job.max_attempts - job.attempts + job.refunds))),
    next_run_at = clock_timestamp() + %s + in_line.place::float8 * %s,
    finished_at = NULL,
    cancel_requested_at = NULL,
    cancel_reason = ''
FROM in_line
WHERE job.id = in_line.id AND job.status::text = 'DEAD_LETTERED'
RETURNING job.id
"""

# ------------------------------------------------------------------------------------------------------------- prune

_PRUNE = """
WITH old (id) AS MATERIALIZED ({pick}),
entry AS MATERIALIZED (
    SELECT id
    FROM pulse_django_attempt
    WHERE job_id = ANY (ARRAY(SELECT id FROM old))
    ORDER BY job_id, number
    FOR UPDATE
),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE id = ANY (ARRAY(SELECT id FROM entry))
)
DELETE FROM pulse_django_job
WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
RETURNING id
"""


# A project's own foreign keys that keep a job, or an attempt of it, from being deleted.
_REFERRING = """
SELECT con.conrelid::regclass::text, pg_catalog.quote_ident(att.attname), con.confrelid::regclass::text
FROM pg_constraint AS con
JOIN pg_attribute AS att ON att.attrelid = con.conrelid AND att.attnum = con.conkey[1]
WHERE con.contype = 'f' AND con.confdeltype IN ('a', 'r') AND pg_catalog.cardinality(con.conkey) = 1
    AND con.confrelid IN ('pulse_django_job'::regclass::oid, 'pulse_django_attempt'::regclass::oid)
ORDER BY 1, 2
"""
_NOT_REFERRED_TO = {
    "pulse_django_job": "NOT EXISTS (SELECT FROM {table} AS other WHERE other.{column} = pulse_django_job.id)",
    "pulse_django_attempt": """NOT EXISTS (
        SELECT FROM {table} AS other JOIN pulse_django_attempt AS entry ON entry.id = other.{column}
        WHERE entry.job_id = pulse_django_job.id
    )""",
}
Reference = tuple[str, str, str]  # table, column, the table of ours that it refers to
_referring: dict[str, tuple[Reference, ...]] = {}  # by alias; known once a prune has failed


class JobManager(JobReader):
    """``Job.objects``: the verbs."""

    def enqueue(self, new: NewJob) -> Job:
        """Add one job in the caller's transaction and return it: no commit, no job.

        With an idempotency key that is taken, return the job that has it.
        """
        return self.get_or_enqueue(new)[0]

    def get_or_enqueue(self, new: NewJob) -> tuple[Job, bool]:
        """Do as ``enqueue()``, and say whether the job is new."""
        settings = conf.current()
        payload = new.encoded(settings.max_payload_bytes)
        while not (rows := self._insert(new.head, payload)):
            kept: Job | None = (
                self.using(self._alias).filter(task=new.task, idempotency_key=new.idempotency_key).first()
            )
            if kept is not None:  # pruned in this very moment: then the key is free again
                return kept, False
        [(job_id, created_at, next_run_at)] = rows
        job: Job = self.model(
            id=job_id,
            task=new.task,
            queue=new.queue,
            priority=new.priority,
            args=json.loads(payload.args),
            kwargs=json.loads(payload.kwargs),
            payload_bytes=payload.size,
            next_run_at=next_run_at,
            max_attempts=settings.max_attempts if new.max_attempts is None else new.max_attempts,
            lease_ttl=new.lease_ttl,
            timeout=new.timeout,
            stall_after=new.stall_after,
            parent_id=new.parent_id,
            idempotency_key=new.idempotency_key,
            masked=new.masked,
            created_at=created_at,
        )
        job._state.adding = False
        job._state.db = self._alias
        return job, True

    def enqueue_many(self, new_jobs: Iterable[NewJob], *, progress: Callable[[int], object] | None = None) -> list[int]:
        """Add all of these jobs or none, and return their ids in the order given.

        They are read and encoded before the transaction begins. ``progress`` is called inside of it, with the number
        of jobs written so far.
        """
        limit = conf.current().max_payload_bytes
        return self._enqueue_all(((new, new.encoded(limit)) for new in new_jobs), progress)

    def enqueue_alike(
        self,
        new: NewJob,
        arguments: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
        *,
        progress: Callable[[int], object] | None = None,
    ) -> list[int]:
        """Add this job once for each of these arguments instead of its own, as ``enqueue_many`` would."""
        if new.idempotency_key is not None:
            raise InvalidJob(
                "idempotency_key: one key cannot stand for many jobs; enqueue them one by one, each with its own"
            )
        limit = conf.current().max_payload_bytes
        return self._enqueue_all(
            ((new, Payload.of(args, kwargs, limit, new.names, new.masked)) for args, kwargs in arguments), progress
        )

    def _enqueue_all(self, encoded: Iterable[Encoded], progress: Callable[[int], object] | None) -> list[int]:
        chunks = list(_chunks(encoded))
        ids: list[int] = []
        with joined(self._alias):
            for chunk in chunks:
                if any(new.idempotency_key is not None for new, _ in chunk):
                    ids += [self.enqueue(new).pk for new, _ in chunk]
                else:
                    ids += sorted(row[0] for row in self._insert_many(chunk))  # identity values rise row by row
                if progress is not None:
                    progress(len(ids))
        return ids

    def claim(
        self, identity: Identity, *, limit: int = 1, lanes: Sequence[Lane] | None = None, turn: int = 0
    ) -> list[Claim]:
        """Grant leases on up to ``limit`` due jobs: of these lanes, or of all that there are.

        ``turn`` decides which of several queues of equal priority comes first; count it up from claim to claim.
        """
        refuse_callers_transaction(self._alias)
        visited = rotation(self.lanes() if lanes is None else lanes, turn)
        if not visited or limit < 1:
            return []
        pick, pick_params = _claim_pick(self.model, self._alias, limit)
        queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
        return self._claim(identity, _PICK_FROM_LANES.format(pick=pick), [queues, priorities, *pick_params, limit])

    def claim_these(self, identity: Identity, job_ids: Collection[int]) -> list[Claim]:
        """Grant leases on those of these jobs that are due, wherever they stand in their queues."""
        these = _skip_locked(
            self.due().filter(pk__in=sorted(job_ids_of(job_ids))).order_by("id").values("id", bytes=_BYTES)
        )
        return self._claim(identity, *_compile(these, self._alias))

    def heartbeat(self, leases: Collection[Lease], progress: Mapping[Lease, str] | None = None) -> Beat:
        """Extend these leases by one TTL each, save progress (as JSON) on the way, and say which are still held."""
        if not leases:
            return Beat(alive=frozenset(), lost=frozenset(), skipped=frozenset(), cancelled=frozenset())
        rows = self._beat(leases, progress or {})
        asked_to_stop = {Lease(*row[:3]): row[3] for row in rows}
        alive = frozenset(asked_to_stop)
        missing = frozenset(leases) - alive
        skipped = self._still_held(missing) if missing else frozenset()
        return Beat(
            alive=alive,
            lost=missing - skipped,
            skipped=skipped,
            cancelled=frozenset(lease for lease, asked in asked_to_stop.items() if asked),
        )

    def settle(self, reports: Collection[Report], *, wait: bool = True) -> Settled:
        """End these runs: accept each report whose lease still holds, keep the verdict of the others as evidence.

        Inside a transaction of the caller's the reports become part of it; if that is rolled back, so is the evidence.
        Without ``wait``, a job whose row somebody else has locked is answered as skipped instead of waited for: report
        it again soon.
        """
        first: dict[Lease, Report] = {}
        for report in reports:
            first.setdefault(report.lease, report)
        if not first:
            return Settled(accepted={}, repeated=frozenset(), lost=frozenset(), skipped=frozenset())
        rows = self._settle(list(first.values()), wait)
        accepted = {Lease(*row[:3]): Status(row[3]) for row in rows}
        refused = first.keys() - accepted.keys()
        skipped = self._still_held(refused) if refused and not wait else frozenset()
        late = [report for report in reports if first[report.lease] is not report or report.lease in refused - skipped]
        repeated = self._keep_late_verdicts(late) & (refused - skipped) if late else frozenset()
        lost = frozenset(refused - skipped - repeated)
        return Settled(accepted=accepted, repeated=repeated, lost=lost, skipped=skipped)

    def keep_errors_after_completion(self, errors: Mapping[Lease, ErrorReport]) -> list[int]:
        """Add to the ledger what handlers raised after they had completed their jobs. Return of which jobs."""
        raised = [_keys_of(lease) | _error_columns(error) for lease, error in errors.items()]
        try:
            rows = run_joined(self._alias, _KEEP_ERRORS_AFTER_COMPLETION, [json.dumps(raised)])
        except (*UNSTORABLE, ProgrammingError):  # grants of an older release, say: the reports behind it go on
            if connections[self._alias].in_atomic_block:
                raise
            logger.exception("What the handlers of %d completed jobs raised could not be stored", len(errors))
            return []
        return sorted(job_id for (job_id,) in rows)

    def reap(self, *, limit: int = REAP_LIMIT, within: timedelta | None = None) -> list[Reaped]:
        """End up to ``limit`` runs whose lease ran out, whose deadline passed or whose progress stopped.

        Any number of watchdogs may reap at once; what another one has locked is left to it. With ``within``, leases
        that ran out longer ago are left alone.
        """
        _check_limit(limit)
        refuse_callers_transaction(self._alias)
        try:
            return self._reap(_reap_pick(self.model, self._alias, limit, within=within))
        except UNSTORABLE:
            logger.exception("A batch of %d could not be reaped; its runs are tried one by one", limit)
        return self._reap_one_by_one(self._reapable_ids(limit, within))

    def overlooked(self, beyond: timedelta, *, limit: int = REAP_LIMIT) -> list[int]:
        """Return running jobs whose lease ran out longer ago than that, and whose rows nobody has locked now."""
        over = self.using(self._alias).reapable().exclude(lease_ran_out_lately(beyond))
        sql, params = _compile(_skip_locked(over.order_by("id").values("id"))[:limit], self._alias)
        return [job_id for (job_id,) in run_alone(self._alias, sql, params, lock_timeout=REAP_LOCK_TIMEOUT)]

    def reap_these(self, job_ids: Sequence[int]) -> list[Reaped]:
        """End those of these runs that ``reap`` would end."""
        over = self.using(self._alias).reapable().filter(pk__in=job_ids)
        try:
            return self._reap(_compiled_reap_pick(over, self._alias, len(job_ids)))
        except UNSTORABLE:
            logger.exception("%d runs could not be reaped; they are tried one by one", len(job_ids))
        return self._reap_one_by_one(job_ids)

    def mend(self, job_ids: Collection[int]) -> list[int]:
        """Bring leases that cannot be, missing or too long, to what one may be. Return of which jobs."""
        settings = conf.current()
        longest = settings.longest_lease
        try:
            rows = run_joined(self._alias, _MEND, [sorted(job_ids), longest, settings.lease_ttl])
        except UNSTORABLE:
            if len(job_ids) <= 1 or connections[self._alias].in_atomic_block:
                raise
            return [mended for job_id in sorted(job_ids) for mended in self._mend_one(job_id)]
        return sorted(job_id for (job_id,) in rows)

    def shorten_leases(self, *, step: timedelta | None = None, limit: int = REAP_LIMIT) -> int:
        """After the server's clock was set back by ``step``, shorten up to ``limit`` leases by as much, to one TTL at
        least. Return how many. If nobody knows by how much, shorten those to one TTL that no worker can have meant.

        No lease is taken from its holder, whose next heartbeat extends it.
        """
        _check_limit(limit)
        settings = conf.current()
        longest = settings.longest_lease if step is None else settings.lease_ttl
        params = {"ttl": settings.lease_ttl, "longest": longest, "step": step or MAX_DELAY, "limit": limit}
        return len(run_alone(self._alias, _SHORTEN, params))

    def touch_expired(self) -> bool:
        """Write one row that ``reap`` would end, without changing it. Return whether there is one."""
        sql, params = _reap_pick(self.model, self._alias, 1)
        return bool(run_alone(self._alias, _TOUCH.format(pick=sql), params, lock_timeout=REAP_LOCK_TIMEOUT))

    def _mend_one(self, job_id: int) -> list[int]:
        try:
            return self.mend([job_id])
        except UNSTORABLE:
            logger.exception("Job %d could not be mended", job_id)
            return []

    def release(self, leases: Collection[Lease], *, delay: timedelta = timedelta()) -> Settled:
        """Hand jobs back that no handler is running (any more). The attempts are refunded."""
        _check_delay(delay)
        return self.settle([Report(lease, Released(delay), Postpone(delay)) for lease in leases])

    def request_cancel(
        self, job_ids: Collection[int], *, reason: str = "", attempt: int | None = None
    ) -> CancelRequested:
        """Cancel what is waiting, and ask what is running to stop; only in that ``attempt``, if one is named."""
        check_attempt(attempt)
        asked_for = job_ids_of(job_ids)
        rows = run_joined(self._alias, _REQUEST_CANCEL, [sorted(asked_for), attempt, clean_text(reason, MAX_SUMMARY)])
        cancelled = frozenset(job_id for job_id, status in rows if status == Status.CANCELLED)
        asked = frozenset(job_id for job_id, status in rows if status == Status.RUNNING)
        return CancelRequested(cancelled=cancelled, asked=asked, refused=asked_for - cancelled - asked)

    def reschedule(
        self, job_ids: Collection[int], *, delay: timedelta = timedelta(), attempt: int | None = None
    ) -> Changed:
        """Let what waits run now, or after ``delay``; only what has had as many attempts as ``attempt`` says."""
        _check_delay(delay)
        check_attempt(attempt)
        return self._change(_RESCHEDULE, job_ids, [attempt, delay])

    def move(
        self,
        job_ids: Collection[int],
        *,
        queue: str | None = None,
        priority: int | None = None,
        attempt: int | None = None,
    ) -> Changed:
        """Let what waits do so in another queue, or with another priority; ``attempt`` as for ``reschedule``."""
        if queue is None and priority is None:
            raise ValueError("move: name a queue or a priority")
        if queue is not None:
            check_queue_name(queue)
        if priority is not None:
            check_priority(priority)
        check_attempt(attempt)
        return self._change(_MOVE, job_ids, [attempt, queue, priority])

    def _change(self, statement: str, job_ids: Collection[int], params: Sequence[Any]) -> Changed:
        asked_for = job_ids_of(job_ids)
        rows = run_joined(self._alias, statement, [sorted(asked_for), *params])
        changed = frozenset(job_id for (job_id,) in rows)
        return Changed(changed=changed, moved_on=asked_for - changed)

    def retry(
        self,
        job_ids: Collection[int],
        *,
        runs: int = 1,
        delay: timedelta = timedelta(),
        gap: timedelta = timedelta(),
        attempt: int | None = None,
    ) -> Retried:
        """Revive what is still dead, with at least ``runs`` more attempts and all of its history.

        The first is due after ``delay``, and each of the others ``gap`` after the one before it. With ``attempt``, only
        what died in that one.
        """
        check_whole_number("runs", runs, 1, MOST_ATTEMPTS)
        check_attempt(attempt)
        _check_delay(delay)
        _check_delay(gap)
        asked_for = job_ids_of(job_ids)
        rows = run_joined(self._alias, _RETRY, [sorted(asked_for), attempt, runs, delay, gap])
        revived = frozenset(job_id for (job_id,) in rows)
        return Retried(revived=revived, moved_on=asked_for - revived)

    def prune(self, status: Status, *, older_than: timedelta, limit: int = PRUNE_LIMIT) -> int:
        """Delete up to ``limit`` jobs that ended in ``status`` that long ago, with their attempts. Return how many.

        Jobs that a row of the project's refers to by foreign key are kept.
        """
        if status not in TERMINAL:
            raise ValueError(f"{status} is not terminal: prune never deletes a live job")
        _check_limit(limit)
        _check_delay(older_than)
        return len(self._prune(lambda kept: _prune_pick(self.model, self._alias, status, older_than, limit, kept)))

    def prune_these(
        self, job_ids: Collection[int], *, statuses: Collection[Status] = TERMINAL, error: str | None = None
    ) -> list[int]:
        """Delete those of these jobs that have ended, or that ended so, with their attempts. Return which.

        With ``error``, only those whose last error has this fingerprint.
        """
        if not set(statuses) <= set(TERMINAL):
            raise ValueError("prune never deletes a live job")
        ended = (
            self.using(self._alias).terminal().filter(pk__in=sorted(job_ids_of(job_ids)), status__in=sorted(statuses))
        )
        if error is not None:
            # Written so that no index holds it: by their ids the few are found, and not through all of their group.
            unindexed = Concat(Fingerprint("last_error"), Value(""), output_field=TextField())
            ended = ended.alias(error=unindexed).filter(error=error)

        def pick(kept: tuple[Reference, ...]) -> Compiled:
            deletable = _without_referred(ended, kept).order_by("id").values("id")
            return _compile(_skip_locked(deletable, no_key=False), self._alias)

        return sorted(job_id for (job_id,) in self._prune(pick))

    def _prune(self, pick: Callable[[tuple[Reference, ...]], Compiled]) -> list[Row]:
        """Delete what is picked. If foreign keys are in the way, pick again without what they refer to."""
        refuse_callers_transaction(self._alias)
        try:
            return self._delete(pick(_referring.get(self._alias, ())))
        except IntegrityError:
            known = tuple((str(table), str(column), str(target)) for table, column, target in self._ask(_REFERRING))
            if not known or known == _referring.get(self._alias):
                raise  # by a row that was written meanwhile: the next prune sees it
            _referring[self._alias] = known
        names = ", ".join(f"{table}.{column}" for table, column, _ in known)
        logger.warning("Foreign keys refer to jobs: %s. The jobs that they refer to are not pruned", names)
        return self._delete(pick(known))

    def _delete(self, pick: Compiled) -> list[Row]:
        sql, params = pick
        return run_alone(self._alias, _PRUNE.format(pick=sql), params)

    def _ask(self, sql: str) -> list[Row]:
        return run_joined(self._alias, sql, [])

    def _claim(self, identity: Identity, picked: str, params: Sequence[Any]) -> list[Claim]:
        ttl = conf.current().lease_ttl
        holder = identity.mint_holder()
        rows = run_alone(self._alias, _CLAIM.format(picked=picked), [*params, holder, ttl, CLAIM_BYTES, ttl])
        return [_claim_of(row, holder) for row in rows]

    def _insert(self, head: Head, payload: Payload) -> list[Row]:
        run_at, delay = head.run_at_or_delay
        own = (
            head.max_attempts or conf.current().max_attempts,
            *(head.lease_ttl, head.timeout, head.stall_after, head.max_losses, head.free_losses, head.parent_id),
            *(head.idempotency_key, head.trace, head.masked),
        )
        on_conflict = "" if head.idempotency_key is None else _UNLESS_THE_KEY_IS_TAKEN
        params = (head.task, head.queue, head.priority, *payload, payload.size, run_at, delay, *own)
        return run_joined(self._alias, _ENQUEUE.format(on_conflict=on_conflict), params)

    def _insert_many(self, chunk: Sequence[Encoded]) -> list[Row]:
        numbers: dict[Head, int] = {}
        distinct = {id(new): new for new, _ in chunk}
        number_of = {one: str(numbers.setdefault(new.head, len(numbers))) for one, new in distinct.items()}
        columns = (
            [number_of[id(new)] for new, _ in chunk],
            [_quoted(payload.args) for _, payload in chunk],
            [_quoted(payload.kwargs) for _, payload in chunk],
        )
        heads = json.dumps([head.to_json(number) for head, number in numbers.items()])
        return run_joined(self._alias, _ENQUEUE_MANY, [conf.current().max_attempts, *map(_array, columns), heads])

    def _beat(self, leases: Collection[Lease], progress: Mapping[Lease, str]) -> list[Row]:
        held = [_keys_of(lease) | {"progress": progress.get(lease)} for lease in leases]
        try:
            return run_alone(self._alias, _HEARTBEAT, [json.dumps(held), conf.current().lease_ttl])
        except UNSTORABLE:
            if not progress:
                raise
            logger.exception(
                "Progress of %d jobs could not be stored; their leases are extended without it", len(progress)
            )
            return self._beat(leases, {})

    def _settle(self, reports: list[Report], wait: bool) -> list[Row]:
        source, params = _reported(reports)
        statement = _SETTLE.format(reports=source, skip_locked="" if wait else "SKIP LOCKED")
        try:
            return run_joined(self._alias, statement, params)
        except UNSTORABLE as error:
            if connections[self._alias].in_atomic_block:
                raise  # the caller's transaction is broken; what becomes of it is the caller's to say
            if len(reports) > 1:
                return [row for report in reports for row in self._settle([report], wait)]
            logger.exception("A report on job %d could not be stored", reports[0].lease.job_id)
            if reports[0].progress is not None:
                return self._settle([reports[0]._replace(progress=None)], wait)
            if isinstance(reports[0].outcome, Failed) and isinstance(reports[0].decision, DeadLetter):
                raise
            failed = Failed(ErrorReport.of(error))
            reason = f"its report could not be stored: {failed.error.summary}"
            return self._settle([Report(reports[0].lease, failed, DeadLetter(reason))], wait)

    def _reap(self, pick: Compiled) -> list[Reaped]:
        settings, (sql, params) = conf.current(), pick
        backoff = settings.backoff
        curve: list[Any] = [backoff.highest, backoff.unit.total_seconds(), 1 - backoff.jitter, 2 * backoff.jitter]
        return [
            Reaped(lease=Lease(*row[:3]), token=row[3], outcome=OutcomeName(row[4]), status=Status(row[5]))
            for row in run_alone(
                self._alias,
                _REAP.format(pick=sql),
                [settings.max_losses, settings.lease_ttl, *params, *curve],
                lock_timeout=REAP_LOCK_TIMEOUT,
            )
        ]

    def _reapable_ids(self, limit: int, within: timedelta | None) -> list[int]:
        over = self.using(self._alias).reapable()
        if within is not None:
            over = over.filter(lease_ran_out_lately(within))
        return list(over.order_by("id").values_list("id", flat=True)[:limit])

    def _reap_one_by_one(self, job_ids: Iterable[int]) -> list[Reaped]:
        return [reaped for job_id in job_ids for reaped in self._reap_one(job_id)]

    def _reap_one(self, job_id: int) -> list[Reaped]:
        over = self.using(self._alias).reapable().filter(pk=job_id)
        try:
            return self._reap(_compiled_reap_pick(over, self._alias, 1))
        except UNSTORABLE as error:
            logger.exception("Job %d could not be reaped; it becomes a dead letter", job_id)
            return self._dead_letter_what_cannot_wait(job_id, error)

    def _dead_letter_what_cannot_wait(self, job_id: int, error: Exception) -> list[Reaped]:
        """End a run whose job the table refuses to take back among those that wait."""
        reason = f"it could not be stored for another run: {error_in_one_line(error)}"
        held = self.using(self._alias).reapable().filter(pk=job_id).only("locked_by", "attempts", "token")
        ended = []
        for job in held:
            lease = Lease(job.pk, str(job.locked_by), job.attempts)
            try:
                settled = self.settle([Report(lease, outcome := WorkerLost(), DeadLetter(reason))])
            except UNSTORABLE:
                logger.exception("Job %d could not be ended", job_id)
                continue
            ended += [
                Reaped(lease=lease, token=job.token or 0, outcome=outcome.name, status=status)
                for status in settled.accepted.values()
            ]
        return ended

    def _still_held(self, leases: Collection[Lease]) -> frozenset[Lease]:
        rows = run_joined(self._alias, _STILL_HELD, [json.dumps([_keys_of(lease) for lease in leases])])
        return frozenset(Lease(*row) for row in rows)

    def _keep_late_verdicts(self, refused: Sequence[Report]) -> frozenset[Lease]:
        keys = [_keys_of(report.lease) | {"outcome": report.outcome.name} for report in refused]
        rows = run_joined(self._alias, _KEEP_LATE_VERDICTS, [json.dumps(keys)])
        return frozenset(Lease(*row[:3]) for row in rows if row[3])


# Of what a claim brings of a job.
_BYTES = Coalesce("payload_bytes", TextSize("args") + TextSize("kwargs")) + Coalesce(TextSize("progress"), 0)

# The picks are constant for the values they are called with, and compiling one takes half a millisecond.


@lru_cache(maxsize=1_024)
def _claim_pick(model: type[Job], alias: str, limit: int) -> Compiled:
    lane = {"queue": RawSQL("lane.queue", ()), "priority": RawSQL("lane.priority", ())}
    due = model.objects.due().filter(**lane).order_by("next_run_at", "id").values("id", bytes=_BYTES)
    return _compile(_skip_locked(due)[:limit], alias)


@lru_cache(maxsize=16)
def _reap_pick(model: type[Job], alias: str, limit: int, within: timedelta | None = None) -> Compiled:
    over = model.objects.reapable()
    return _compiled_reap_pick(over if within is None else over.filter(lease_ran_out_lately(within)), alias, limit)


def _compiled_reap_pick(over: JobQuerySet, alias: str, limit: int) -> Compiled:
    columns = (
        "id", "locked_by", "attempts", "token", "next_run_at", "started_at", "refunds", "max_attempts", "losses",
        "lease_until", "lease_ttl", "deadline", "max_losses", "free_losses",
    )  # fmt: skip
    return _compile(_skip_locked(over.order_by("id").values(*columns))[:limit], alias)


@lru_cache(maxsize=16)
def _prune_pick(
    model: type[Job], alias: str, status: Status, older_than: timedelta, limit: int, kept: tuple[Reference, ...]
) -> Compiled:
    old = model.objects.filter(status=status, finished_at__lt=StatementTimestamp() - older_than)
    # Deleting takes the strongest row lock, so this pick does: it skips what a foreign key is holding.
    old = _without_referred(old, kept)
    return _compile(_skip_locked(old.order_by("finished_at", "id").values("id"), no_key=False)[:limit], alias)


def _without_referred(rows: Any, kept: tuple[Reference, ...]) -> Any:
    for table, column, target in kept:
        sql = _NOT_REFERRED_TO[target.rpartition(".")[2]].format(table=table, column=column).replace("%", "%%")
        rows = rows.filter(RawSQL(sql, (), output_field=BooleanField()))  # noqa: S611 - names that the catalogue quotes
    return rows


def _skip_locked(rows: Any, *, no_key: bool = True) -> Any:
    return rows.select_for_update(skip_locked=True, of=("self",), no_key=no_key)


def _compile(rows: Any, alias: str) -> Compiled:
    # Django compiles select_for_update() only inside a transaction. This one costs nothing: psycopg sends BEGIN
    # together with the first statement, and there is none.
    with transaction.atomic(using=alias, savepoint=False):
        sql, params = rows.query.get_compiler(connection=connections[alias]).as_sql()
    return sql, tuple(params)


def _claim_of(row: Row, holder: str) -> Claim:
    """Name the columns of the claim's answer; the first two make the lease."""
    return Claim(Lease(row[0], holder, row[1]), *row[2:])


def _chunks(encoded: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Cut into statements that are short in rows and in bytes."""
    chunk: list[Encoded] = []
    size = 0
    for one in encoded:
        length = one[1].size
        if chunk and (len(chunk) == ENQUEUE_CHUNK or size + length > ENQUEUE_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += length
    if chunk:
        yield chunk


def _keys_of(lease: Lease) -> dict[str, Any]:
    return {"id": lease.job_id, "holder": lease.holder, "attempt": lease.attempt}


def _reported(reports: Sequence[Report]) -> Compiled:
    """Spell reports as the settle statement reads them."""
    if not all(_is_plain_completion(report) for report in reports):
        return _REPORTS, (json.dumps([_row_of(report) for report in reports]),)
    leases = [report.lease for report in reports]
    results = [report.decision.result for report in reports]  # type: ignore[union-attr]  # they are completions
    columns = (
        [str(int(lease.job_id)) for lease in leases],
        [_quoted(lease.holder) for lease in leases],
        [str(int(lease.attempt)) for lease in leases],
        ["NULL" if result is None else _quoted(result) for result in results],
    )
    return _COMPLETIONS, tuple(map(_array, columns))


def _is_plain_completion(report: Report) -> bool:
    return type(report.outcome) is Succeeded and type(report.decision) is Complete and report.progress is None


def _array(elements: Iterable[str]) -> str:
    return f"{{{','.join(elements)}}}"


def _quoted(text: str) -> str:
    """Spell an element of an array as PostgreSQL reads it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _row_of(report: Report) -> dict[str, Any]:
    """Spell any report. A key that is absent is NULL: nothing to say.

    Everything is cleaned here once more: a report that crossed a process boundary was made who knows where."""
    outcome = report.outcome
    reason = outcome.error.summary if isinstance(outcome, Failed) else getattr(outcome, "reason", "")
    row = _keys_of(report.lease) | {"outcome": outcome.name, "message": clean_text(reason, MAX_SUMMARY)}
    if outcome.name is OutcomeName.WORKER_LOST:
        row["loss"] = 1
    if report.progress is not None:
        row["progress"] = report.progress
    if isinstance(outcome, Failed):
        row |= _error_columns(outcome.error)
    if isinstance(outcome, Failed | TimedOut | Stalled | WorkerLost):
        row["error"] = _reason(reason)
    return row | _verdict_of(report.decision)


def _error_columns(error: ErrorReport) -> dict[str, str]:
    return {
        "error_class": clean_text(error.error_class, MAX_CLASS),
        "message": clean_text(error.message, MAX_MESSAGE),
        "traceback": clean_text(error.traceback, MAX_TRACEBACK),
    }


def _verdict_of(decision: Decision) -> dict[str, Any]:
    match decision:
        case Complete(result):
            return {"status": Status.COMPLETED, "result": result}
        case Retry(delay, reason, refund):
            row = {"status": Status.RETRYING, "delay": _seconds(delay), "error": _reason(reason)}
            return row | ({"refund": 1} if refund else {})
        case Postpone(delay, reason):
            row = {"status": Status.PENDING, "delay": _seconds(delay), "refund": 1}
            return row | ({"error": _reason(reason)} if reason else {})
        case DeadLetter(reason):
            return {"status": Status.DEAD_LETTERED, "error": _reason(reason)}
        case Cancel(reason):
            return {"status": Status.CANCELLED, "cancel_reason": _reason(reason) if reason else None}
    assert_never(decision)


def _reason(text: str) -> str:
    return clean_text(text, MAX_SUMMARY) or "no reason given"


def _seconds(delay: timedelta) -> float:
    """A handler may ask for any delay; the run must end all the same."""
    return min(max(delay, timedelta()), MAX_DELAY).total_seconds()


def _check_delay(delay: timedelta) -> None:
    if not isinstance(delay, timedelta):
        raise TypeError(f"delay: {delay!r} is not a timedelta")
    if not timedelta() <= delay <= MAX_DELAY:
        raise ValueError(f"{delay} is negative, or beyond all reason")


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit: {limit} is less than one")
