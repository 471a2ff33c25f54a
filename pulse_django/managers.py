"""Every write to job state, in the order of a job's life. No other module writes to the jobs table.

    verb            from                    to
    enqueue         -                       PENDING
    claim           PENDING, RETRYING       RUNNING
    heartbeat       RUNNING                 RUNNING
    settle          RUNNING                 COMPLETED, RETRYING, PENDING, DEAD_LETTERED, CANCELLED
    reap            RUNNING                 RETRYING, DEAD_LETTERED, CANCELLED
    release         RUNNING                 PENDING, CANCELLED
    request_cancel  PENDING, RETRYING       CANCELLED
                    RUNNING                 RUNNING, asked to stop
    retry           DEAD_LETTERED           PENDING
    prune           COMPLETED,              (gone)
                    DEAD_LETTERED,
                    CANCELLED

The claim is the lease. One UPDATE sets RUNNING, ``locked_by``, ``lease_until``, ``token`` and the next ``attempts``;
every later write of that run repeats ``id``, ``locked_by`` and ``attempts`` in its WHERE. That is the fence: once the
job has moved on, the statement finds no row, and "no row" is the answer that the caller gets. ``settle`` is the one
door out of RUNNING for workers; ``reap`` is the same door for watchdogs.

Four habits hold in every statement below:

- What touches several jobs locks them first, in the order of their ids, or skips locked ones. Sorted parameters alone
  deadlock.
- Locks are FOR NO KEY UPDATE: an open transaction of somebody who refers to a job by foreign key is no reason to skip
  its heartbeat.
- Instants are written with clock_timestamp() and compared with statement_timestamp(); Python's clock decides nothing.
- A fence does not mention ``status``: a CHECK ties ``locked_by`` to RUNNING, and with stale statistics a condition on
  the status lets the planner start from the wrong index.

Lists travel as one JSON document instead of one array per column: psycopg quotes it in one go, and a batch of a
hundred settles took 2.4 ms instead of 2.9.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, assert_never

from django.db import connections, models, router, transaction
from django.db.models.expressions import RawSQL

from . import conf
from .answers import Beat, CancelRequested, Reaped, Report, Retried, Settled
from .decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry
from .errors import MAX_SUMMARY
from .functions import StatementTimestamp
from .lanes import Lane, rotation
from .leases import Claim, Identity, Lease
from .newjob import NewJob
from .outcomes import Failed, OutcomeName, Released
from .payloads import clean_text
from .querysets import JobQuerySet
from .states import TERMINAL, Status
from .transactions import Row, joined, refuse_callers_transaction, run_alone, run_joined

if TYPE_CHECKING:
    from .models import Job

Compiled = tuple[str, tuple[Any, ...]]  # SQL and its parameters

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 2_000
# Longer statements would hold their locks for longer than a claim should have to wait; shorter ones waste round trips.
REAP_LIMIT = 1_000
PRUNE_LIMIT = 1_000

# ----------------------------------------------------------------------------------------------------------- enqueue

_ENQUEUE = """
INSERT INTO pulse_django_job
    (task, queue, priority, args, kwargs, next_run_at, max_attempts, lease_ttl, timeout, stall_after, parent_id)
SELECT
    task, queue, priority, args, kwargs,
    COALESCE(run_at, clock_timestamp() + delay * interval '1 second'),
    COALESCE(max_attempts, %s),
    lease_ttl * interval '1 second', timeout * interval '1 second', stall_after * interval '1 second',
    parent_id
FROM json_to_recordset(%s::json) AS new (
    task text, queue text, priority smallint, args jsonb, kwargs jsonb, run_at timestamptz, delay float8,
    max_attempts int, lease_ttl float8, timeout float8, stall_after float8, parent_id bigint
)
RETURNING id, created_at, next_run_at
"""

# ------------------------------------------------------------------------------------------------------------- claim

# The pick is the ORM's query, filtered on the lane's columns, so that every (queue, priority) is one range of the
# claim index. Measured with 1M claimable jobs in 100 queues of 10 priorities, 100 jobs a claim: ``queue IN (...) ORDER
# BY`` takes 1.1 s, one lateral pick per lane 2 ms.
#
# MATERIALIZED, and an array in front of the UPDATE: a planner may run ``id IN (SELECT ... LIMIT 3 FOR UPDATE)`` once
# per outer row, and then it claims 17 jobs. The array also keeps the UPDATE on the primary key at any batch size.
#
# Lanes are visited in the order given, and no sort may stand above the pick: it would lock every lane's share first.
_CLAIM = """
WITH picked (id) AS MATERIALIZED (
    SELECT pick.id
    FROM unnest(%s::text[], %s::smallint[]) AS lane (queue, priority)
    CROSS JOIN LATERAL ({pick}) AS pick
    WHERE lane.queue <> ALL (ARRAY(
        SELECT name FROM pulse_django_queue
        WHERE paused_at IS NOT NULL AND (paused_until IS NULL OR paused_until > statement_timestamp())
    ))
    LIMIT %s
),
claimed AS (
    UPDATE pulse_django_job AS job
    SET status = 'RUNNING',
        attempts = attempts + 1,
        locked_by = %s,
        lease_until = clock_timestamp() + COALESCE(lease_ttl, %s),
        token = nextval('pulse_django_token'),
        deadline = clock_timestamp() + timeout,
        started_at = clock_timestamp()
    WHERE id = ANY (ARRAY(SELECT id FROM picked)) AND locked_by IS NULL
    RETURNING
        id, attempts, token, task, queue, priority, args, kwargs, refunds, max_attempts, losses,
        EXTRACT(epoch FROM COALESCE(lease_ttl, %s))::float8, progress, parent_id, next_run_at
)
SELECT * FROM claimed ORDER BY priority DESC, next_run_at, id
"""

# --------------------------------------------------------------------------------------------------------- heartbeat

# One statement for all leases of a host. It skips rows that another statement has locked, because waiting behind one
# would delay all the others' beats.
_HEARTBEAT = """
WITH held AS MATERIALIZED (
    SELECT id, holder, attempt, progress::jsonb
    FROM json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int, progress text)
),
locked AS MATERIALIZED (
    SELECT job.id, held.progress
    FROM held
    JOIN pulse_django_job AS job
        ON job.id = held.id AND job.locked_by = held.holder AND job.attempts = held.attempt
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
FROM json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int)
JOIN pulse_django_job AS job
    ON job.id = held.id AND job.locked_by = held.holder AND job.attempts = held.attempt
"""

# ------------------------------------------------------------------------------------------------------------ settle

# The fenced UPDATE and the ledger's row in one statement: neither can exist without the other. Two facts are the
# database's to judge, because a report may have been written before they were: a cancellation that was requested
# meanwhile wins over any new run, and a budget that was lowered meanwhile leaves no retry.
_SETTLE = """
WITH report AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, error_class text, message text, traceback text
    )
),
locked AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at,
        CASE
            WHEN report.status NOT IN ('PENDING', 'RETRYING') THEN report.status
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN job.attempts - job.refunds - report.refund >= job.max_attempts THEN 'DEAD_LETTERED'
            ELSE report.status
        END AS verdict
    FROM report
    JOIN pulse_django_job AS job
        ON job.id = report.id AND job.locked_by = report.holder AND job.attempts = report.attempt
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
),
settled AS (
    UPDATE pulse_django_job AS job
    SET status = locked.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = job.refunds + locked.refund,
        losses = job.losses + locked.loss,
        next_run_at = CASE
            WHEN locked.verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + locked.delay * interval '1 second'
            ELSE job.next_run_at
        END,
        finished_at = CASE WHEN locked.verdict IN ('PENDING', 'RETRYING') THEN NULL ELSE clock_timestamp() END,
        last_error = COALESCE(locked.error, job.last_error),
        cancel_reason = COALESCE(locked.cancel_reason, job.cancel_reason),
        result = locked.result::jsonb
    FROM locked
    WHERE job.id = locked.id AND job.locked_by = locked.holder AND job.attempts = locked.attempt
    RETURNING locked.*
),
ledger AS (
    INSERT INTO pulse_django_attempt
        (job_id, number, token, worker, started_at, finished_at, outcome, error_class, message, traceback)
    SELECT id, attempt, token, holder, started_at, clock_timestamp(), outcome, error_class, message, traceback
    FROM settled
)
SELECT id, holder, attempt, verdict FROM settled
"""

# A statement of its own: the ledger row of a run that was ended while the settle above waited for its lock is newer
# than that settle's snapshot.
_KEEP_LATE_VERDICTS = """
WITH report AS MATERIALIZED (
    SELECT * FROM json_to_recordset(%s::json) AS report (id bigint, holder text, attempt int, outcome text)
),
entry AS MATERIALIZED (
    SELECT
        attempt.id, attempt.job_id, attempt.worker, attempt.number, report.outcome,
        attempt.outcome = report.outcome AS repeated
    FROM report
    JOIN pulse_django_attempt AS attempt
        ON attempt.job_id = report.id AND attempt.number = report.attempt AND attempt.worker = report.holder
    ORDER BY attempt.id
    FOR NO KEY UPDATE OF attempt
),
kept AS (
    UPDATE pulse_django_attempt AS attempt
    SET late_outcome = entry.outcome, late_at = clock_timestamp()
    FROM entry
    WHERE attempt.id = entry.id AND NOT entry.repeated AND attempt.late_outcome = ''
)
SELECT job_id, worker, number, repeated FROM entry
"""

# -------------------------------------------------------------------------------------------------------------- reap

# The same rules as decisions.decide() for a lost worker, as a CASE; a table-driven test holds the two together.
_REAP = """
WITH over (id, holder, attempt, token, started_at, counted, outcome) AS MATERIALIZED (
    SELECT
        pick.id, pick.locked_by, pick.attempts, pick.token, pick.started_at, pick.attempts - pick.refunds,
        CASE
            WHEN pick.lease_until < statement_timestamp() THEN 'WORKER_LOST'
            WHEN pick.deadline < statement_timestamp() THEN 'TIMED_OUT'
            ELSE 'STALLED'
        END
    FROM ({pick}) AS pick
),
reaped AS (
    UPDATE pulse_django_job AS job
    SET status = CASE
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN over.counted >= job.max_attempts THEN 'DEAD_LETTERED'
            ELSE 'RETRYING'
        END,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        losses = job.losses + (over.outcome = 'WORKER_LOST')::int,
        next_run_at = CASE
            WHEN job.cancel_requested_at IS NULL AND over.counted < job.max_attempts
            THEN clock_timestamp() + interval '1 second'
                * LEAST(%s, power(over.counted, 2) * %s) * (1 - %s + 2 * %s * random())
            ELSE job.next_run_at
        END,
        finished_at = CASE
            WHEN job.cancel_requested_at IS NULL AND over.counted < job.max_attempts THEN NULL
            ELSE clock_timestamp()
        END,
        last_error = CASE over.outcome
            WHEN 'WORKER_LOST' THEN 'worker lease expired'
            WHEN 'TIMED_OUT' THEN 'run exceeded its time limit'
            ELSE 'run made no progress'
        END
    FROM over
    WHERE job.id = over.id AND job.locked_by = over.holder AND job.attempts = over.attempt
        AND (
            job.lease_until < statement_timestamp()
            OR job.deadline < statement_timestamp()
            OR job.stall_after < statement_timestamp() - GREATEST(job.started_at, job.progress_at)
        )
    RETURNING over.*, job.status, job.last_error
),
ledger AS (
    INSERT INTO pulse_django_attempt
        (job_id, number, token, worker, started_at, finished_at, outcome, message)
    SELECT id, attempt, token, holder, started_at, clock_timestamp(), outcome, last_error
    FROM reaped
)
SELECT id, holder, attempt, token, outcome, status FROM reaped
"""

# ---------------------------------------------------------------------------------------------------- request_cancel

_REQUEST_CANCEL = """
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND finished_at IS NULL AND cancel_requested_at IS NULL
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

# ------------------------------------------------------------------------------------------------------------- retry

# ``attempts`` stays: a zombie of an old run must never meet its own number again. What a retry grants is refunds, and
# only as many as the runs asked for need.
_RETRY = """
WITH dead AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND status = 'DEAD_LETTERED'
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET status = 'PENDING',
    refunds = LEAST(job.attempts, job.refunds + GREATEST(0, %s - (job.max_attempts - job.attempts + job.refunds))),
    next_run_at = clock_timestamp() + %s,
    finished_at = NULL,
    cancel_requested_at = NULL,
    cancel_reason = ''
FROM dead
WHERE job.id = dead.id AND job.status = 'DEAD_LETTERED'
RETURNING job.id
"""

# ------------------------------------------------------------------------------------------------------------- prune

_PRUNE = """
WITH old (id) AS MATERIALIZED ({pick}),
ledger AS (
    DELETE FROM pulse_django_attempt WHERE job_id = ANY (ARRAY(SELECT id FROM old))
)
DELETE FROM pulse_django_job
WHERE id = ANY (ARRAY(SELECT id FROM old)) AND finished_at IS NOT NULL
RETURNING id
"""


class JobManager(models.Manager.from_queryset(JobQuerySet)):  # type: ignore[misc]  # its base is made at run time
    """``Job.objects``: the verbs."""

    def enqueue(self, new: NewJob) -> Job:
        """Add one job in the caller's transaction and return it: no commit, no job."""
        [(job_id, created_at, next_run_at)] = self._insert([new])
        settings = conf.current()
        job: Job = self.model(
            id=job_id,
            task=new.task,
            queue=new.queue,
            priority=new.priority,
            args=list(new.args),
            kwargs=dict(new.kwargs),
            next_run_at=next_run_at,
            max_attempts=settings.max_attempts if new.max_attempts is None else new.max_attempts,
            lease_ttl=new.lease_ttl,
            timeout=new.timeout,
            stall_after=new.stall_after,
            parent_id=new.parent_id,
            created_at=created_at,
        )
        job._state.adding = False
        job._state.db = self._alias
        return job

    def enqueue_many(self, new_jobs: Iterable[NewJob]) -> list[int]:
        """Add all of these jobs or none, and return their ids in the order given."""
        ids: list[int] = []
        remaining = iter(new_jobs)
        with joined(self._alias):
            while chunk := list(islice(remaining, ENQUEUE_CHUNK)):
                ids += sorted(row[0] for row in self._insert(chunk))  # identity values rise in the order of the rows
        return ids

    def claim(
        self, identity: Identity, *, limit: int = 1, lanes: Sequence[Lane] | None = None, turn: int = 0
    ) -> list[Claim]:
        """Grant leases on up to ``limit`` due jobs: of these lanes, or of all that there are.

        ``turn`` decides which of several queues of equal priority comes first; count it up from claim to claim.
        """
        refuse_callers_transaction(self._alias)
        visited = rotation(self.using(self._alias).lanes() if lanes is None else lanes, turn)
        if not visited or limit < 1:
            return []
        pick, pick_params = _claim_pick(self.model, self._alias, limit)
        ttl = conf.current().lease_ttl
        holder = identity.mint_holder()
        queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
        params = [queues, priorities, *pick_params, limit, holder, ttl, ttl]
        return [_claim_of(row, holder) for row in run_alone(self._alias, _CLAIM.format(pick=pick), params)]

    def heartbeat(self, leases: Collection[Lease], progress: Mapping[Lease, str] | None = None) -> Beat:
        """Extend these leases by one TTL each, save progress (as JSON) on the way, and say which are still held."""
        if not leases:
            return Beat(alive=frozenset(), lost=frozenset(), skipped=frozenset(), cancelled=frozenset())
        held = [_keys_of(lease) | {"progress": (progress or {}).get(lease)} for lease in leases]
        rows = run_alone(self._alias, _HEARTBEAT, [json.dumps(held), conf.current().lease_ttl])
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

    def settle(self, reports: Collection[Report]) -> Settled:
        """End these runs: accept each report whose lease still holds, keep the verdict of the others as evidence.

        Inside a transaction of the caller's the reports become part of it.
        """
        if not reports:
            return Settled(accepted={}, repeated=frozenset(), lost=frozenset())
        rows = run_joined(self._alias, _SETTLE, [json.dumps([_row_of(report) for report in reports])])
        accepted = {Lease(*row[:3]): Status(row[3]) for row in rows}
        refused = [report for report in reports if report.lease not in accepted]
        repeated = self._keep_late_verdicts(refused) if refused else frozenset()
        lost = frozenset(report.lease for report in refused) - repeated
        return Settled(accepted=accepted, repeated=repeated, lost=lost)

    def reap(self, *, limit: int = REAP_LIMIT) -> list[Reaped]:
        """End up to ``limit`` runs whose lease ran out, whose deadline passed or whose progress stopped.

        Any number of watchdogs may reap at once; fewer than ``limit`` answers mean that nothing is left for now.
        """
        backoff = conf.current().backoff
        pick, pick_params = _reap_pick(self.model, self._alias, limit)
        curve = [backoff.cap.total_seconds(), backoff.unit.total_seconds(), backoff.jitter, backoff.jitter]
        rows = run_alone(self._alias, _REAP.format(pick=pick), [*pick_params, *curve])
        return [
            Reaped(lease=Lease(*row[:3]), token=row[3], outcome=OutcomeName(row[4]), status=Status(row[5]))
            for row in rows
        ]

    def release(self, leases: Collection[Lease], *, delay: timedelta = timedelta()) -> Settled:
        """Hand jobs back that no handler is running (any more). The attempts are refunded."""
        return self.settle([Report(lease, Released(delay), Postpone(delay)) for lease in leases])

    def request_cancel(self, job_ids: Collection[int], *, reason: str = "") -> CancelRequested:
        """Cancel what is waiting, and ask what is running to stop."""
        asked_for = frozenset(job_ids)
        rows = run_joined(self._alias, _REQUEST_CANCEL, [sorted(asked_for), clean_text(reason, MAX_SUMMARY)])
        cancelled = frozenset(job_id for job_id, status in rows if status == Status.CANCELLED)
        asked = frozenset(job_id for job_id, status in rows if status == Status.RUNNING)
        return CancelRequested(cancelled=cancelled, asked=asked, refused=asked_for - cancelled - asked)

    def retry(self, job_ids: Collection[int], *, runs: int = 1, delay: timedelta = timedelta()) -> Retried:
        """Revive what is still dead, with at least ``runs`` more attempts and all of its history."""
        if runs < 1:
            raise ValueError(f"runs: {runs} is less than one run")
        asked_for = frozenset(job_ids)
        rows = run_joined(self._alias, _RETRY, [sorted(asked_for), runs, delay])
        revived = frozenset(job_id for (job_id,) in rows)
        return Retried(revived=revived, moved_on=asked_for - revived)

    def prune(self, status: Status, *, older_than: timedelta, limit: int = PRUNE_LIMIT) -> int:
        """Delete up to ``limit`` jobs that ended in ``status`` that long ago, with their attempts. Return how many."""
        if status not in TERMINAL:
            raise ValueError(f"{status} is not terminal: prune never deletes a live job")
        pick, pick_params = _prune_pick(self.model, self._alias, status, older_than, limit)
        return len(run_alone(self._alias, _PRUNE.format(pick=pick), pick_params))

    def _insert(self, new_jobs: Sequence[NewJob]) -> list[Row]:
        settings = conf.current()
        rows = ",".join(new.to_json(payload_limit=settings.max_payload_bytes) for new in new_jobs)
        return run_joined(self._alias, _ENQUEUE, [settings.max_attempts, f"[{rows}]"])

    def _still_held(self, leases: Collection[Lease]) -> frozenset[Lease]:
        rows = run_alone(self._alias, _STILL_HELD, [json.dumps([_keys_of(lease) for lease in leases])])
        return frozenset(Lease(*row) for row in rows)

    def _keep_late_verdicts(self, refused: Sequence[Report]) -> frozenset[Lease]:
        keys = [_keys_of(report.lease) | {"outcome": report.outcome.name} for report in refused]
        rows = run_joined(self._alias, _KEEP_LATE_VERDICTS, [json.dumps(keys)])
        return frozenset(Lease(*row[:3]) for row in rows if row[3])

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)


# The picks are constant for the values they are called with, and compiling one takes half a millisecond.


@lru_cache(maxsize=1_024)
def _claim_pick(model: type[Job], alias: str, limit: int) -> Compiled:
    lane = {"queue": RawSQL("lane.queue", ()), "priority": RawSQL("lane.priority", ())}
    due = model.objects.due().filter(**lane).order_by("next_run_at", "id").values("id")
    return _compile(_locked(due)[:limit], alias)


@lru_cache(maxsize=16)
def _reap_pick(model: type[Job], alias: str, limit: int) -> Compiled:
    columns = ("id", "locked_by", "attempts", "token", "started_at", "refunds", "lease_until", "deadline")
    return _compile(_locked(model.objects.over().order_by("id").values(*columns))[:limit], alias)


@lru_cache(maxsize=16)
def _prune_pick(model: type[Job], alias: str, status: Status, older_than: timedelta, limit: int) -> Compiled:
    old = model.objects.filter(status=status, finished_at__lt=StatementTimestamp() - older_than)
    # Deleting takes the strongest row lock, so this pick does: it skips what a foreign key is holding.
    return _compile(_locked(old.order_by("finished_at", "id").values("id"), no_key=False)[:limit], alias)


def _locked(rows: Any, *, no_key: bool = True) -> Any:
    return rows.select_for_update(skip_locked=True, of=("self",), no_key=no_key)


def _compile(rows: Any, alias: str) -> Compiled:
    # Django compiles select_for_update() only inside a transaction. This one costs nothing: psycopg sends BEGIN
    # together with the first statement, and there is none.
    with transaction.atomic(using=alias, savepoint=False):
        sql, params = rows.query.get_compiler(connection=connections[alias]).as_sql()
    return sql, tuple(params)


def _claim_of(row: Row, holder: str) -> Claim:
    (
        job_id,
        attempt,
        token,
        task,
        queue,
        priority,
        args,
        kwargs,
        refunds,
        max_attempts,
        losses,
        ttl,
        progress,
        parent,
        _,
    ) = row
    return Claim(
        lease=Lease(job_id, holder, attempt),
        token=token,
        task=task,
        queue=queue,
        priority=priority,
        args=json.loads(args),
        kwargs=json.loads(kwargs),
        refunds=refunds,
        max_attempts=max_attempts,
        losses=losses,
        ttl=timedelta(seconds=ttl),
        progress=None if progress is None else json.loads(progress),
        parent_id=parent,
    )


def _keys_of(lease: Lease) -> dict[str, Any]:
    return {"id": lease.job_id, "holder": lease.holder, "attempt": lease.attempt}


def _row_of(report: Report) -> dict[str, Any]:
    """Spell a report as the settle statement reads it. A key that is absent is NULL: that column stays as it is."""
    outcome = report.outcome
    row = _keys_of(report.lease) | {
        "outcome": outcome.name,
        "loss": int(outcome.name is OutcomeName.WORKER_LOST),
        "refund": 0,
        "delay": 0,
        "error_class": "",
        "message": clean_text(getattr(outcome, "reason", ""), MAX_SUMMARY),
        "traceback": "",
    }
    if isinstance(outcome, Failed):
        error = outcome.error
        row |= {"error_class": error.error_class, "message": error.message, "traceback": error.traceback}
    return row | _verdict_of(report.decision)


def _verdict_of(decision: Decision) -> dict[str, Any]:
    match decision:
        case Complete(result):
            return {"status": Status.COMPLETED, "result": result}
        case Retry(delay, reason):
            return {"status": Status.RETRYING, "delay": delay.total_seconds(), "error": _reason(reason)}
        case Postpone(delay):
            return {"status": Status.PENDING, "delay": delay.total_seconds(), "refund": 1}
        case DeadLetter(reason):
            return {"status": Status.DEAD_LETTERED, "error": _reason(reason)}
        case Cancel(reason):
            return {"status": Status.CANCELLED, "cancel_reason": _reason(reason) if reason else None}
    assert_never(decision)


def _reason(text: str) -> str:
    return clean_text(text, MAX_SUMMARY) or "no reason given"
