"""Change the arguments of a waiting job, and keep the old ones."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from django.db import IntegrityError

from pulse_django.expiry.expire import expire_these
from pulse_django.queue.database.job_queries import IS_EXPIRED, JobReader
from pulse_django.queue.database.transactions import joined, run_joined, undone_alone
from pulse_django.queue.words.display import without
from pulse_django.queue.words.job_ids import check_attempt, job_ids_of
from pulse_django.queue.words.job_options import Payload
from pulse_django.queue.words.payloads import clean_text
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.unique.clauses import HOLDS_KEY

MAX_AMENDED_BY, MAX_AMEND_REASON = 200, 2_000  # characters


class AmendRefusal(StrEnum):
    """Why a job was not amended."""

    RUNNING = "running"  # a worker has its arguments already
    ENDED = "ended"  # completed, cancelled, or a dead letter, which must be retried first
    GONE = "gone"  # there is no such job
    CHANGED = "changed"  # it has had another attempt, or other arguments, since they were read
    KEY_TAKEN = "key taken"  # another job holds the unique key of the new arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Amended:
    """The result of an amendment. It is true if the job has the new arguments."""

    job_id: int  # the job to amend
    refused: AmendRefusal | None = None  # why it was not amended; None: it was
    key_holder: int | None = None  # the other job that holds the unique key

    def __bool__(self) -> bool:
        return self.refused is None


MOST_TRIES = 5
KEPT_AMENDMENTS = 20  # kept for each job: the latest

_READ = f"""
SELECT task, status, attempts, args::text, kwargs::text, sensitive, unique_key, {IS_EXPIRED}
FROM pulse_django_job
WHERE id = %s
ORDER BY era
LIMIT 1
"""  # noqa: S608 - made of constants

# The old arguments are compared as text, because another caller may have amended them since. The row is locked at that
# time, so a claim waits or skips it, and finds the new arguments.
_AMEND = f"""
WITH waiting AS MATERIALIZED (
    SELECT
        id, attempts, args, kwargs, sensitive,
        CASE
            WHEN COALESCE(%(lane_key)s::text, lane_key::text) = lane_key::text THEN ready
            ELSE %(lane_key)s::text = ''
        END AS ready
    FROM pulse_django_job_hot
    WHERE id = %(job)s AND status::text IN ('WAITING', 'PENDING', 'RETRYING')
        AND attempts = COALESCE(%(attempt)s::int, attempts) AND NOT ({IS_EXPIRED})
        AND args::text = COALESCE(%(old_args)s, args::text) AND kwargs::text = COALESCE(%(old_kwargs)s, kwargs::text)
    FOR NO KEY UPDATE
),
amended AS (
    UPDATE pulse_django_job_hot AS job
    SET args = %(args)s::jsonb,
        kwargs = %(kwargs)s::jsonb,
        payload_bytes = %(bytes)s,
        search_terms = %(terms)s::text[],
        unique_key = COALESCE(%(key)s, job.unique_key),
        lane_key = COALESCE(%(lane_key)s, job.lane_key),
        ready = waiting.ready
    FROM waiting
    WHERE job.id = waiting.id AND job.status::text IN ('WAITING', 'PENDING', 'RETRYING')
    RETURNING job.id
),
kept AS (
    INSERT INTO pulse_django_amendment (job_id, at, attempts, args, kwargs, sensitive, by, reason)
    SELECT id, clock_timestamp(), attempts, args, kwargs, sensitive, %(by)s, %(reason)s
    FROM waiting
    WHERE EXISTS (SELECT 1 FROM amended)
)
SELECT id FROM amended
"""  # noqa: S608 - made of constants

# A separate statement, which sees the newest amendment on every server.
_FORGET = f"""
DELETE FROM pulse_django_amendment
WHERE id = ANY (ARRAY(
    SELECT id FROM pulse_django_amendment WHERE job_id = %s ORDER BY id DESC OFFSET {KEPT_AMENDMENTS}
))
RETURNING id
"""  # noqa: S608 - made of constants

_KEY_HOLDER = f"""
SELECT id, {IS_EXPIRED}
FROM pulse_django_job_hot
WHERE task::text = (SELECT task::text FROM pulse_django_job_hot WHERE id = %s) AND unique_key::text = %s AND {HOLDS_KEY}
LIMIT 1
"""  # noqa: S608 - made of constants


class Found(NamedTuple):
    """A job as it was read, with its arguments as text."""

    task: str
    status: str
    attempts: int
    args: str
    kwargs: str
    sensitive: str | None
    unique_key: str | None
    is_expired: bool

    def __repr__(self) -> str:
        return without(self, "args", "kwargs")


def read_for_amending(jobs: JobReader, job_id: int) -> Found | None:
    """Read a job to amend."""
    rows = run_joined(jobs.write_alias, _READ, [job_id])
    return Found(*rows[0]) if rows else None


def amend(
    jobs: JobReader,
    job_id: int,
    payload: Payload,
    *,
    attempt: int | None = None,
    instead_of: Found | None = None,
    unique_key: str | None = None,
    lane_key: str | None = None,
    by: str = "",
    reason: str = "",
) -> Amended:
    """Give a waiting job these arguments, and keep the old ones.

    With ``attempt``, only if it has so many attempts; with ``instead_of``, only if these are its arguments. A job that
    has a unique key gets ``unique_key``, unless another job holds it. Without ``lane_key`` its own stays.
    """
    [job_id] = job_ids_of([job_id])
    check_attempt(attempt)
    params = {
        "job": job_id,
        "attempt": attempt,
        "old_args": None if instead_of is None else instead_of.args,
        "old_kwargs": None if instead_of is None else instead_of.kwargs,
        "args": payload.args,
        "kwargs": payload.kwargs,
        "bytes": payload.size,
        "terms": list(payload.terms) or None,
        "key": unique_key,
        "lane_key": lane_key,
        "by": clean_text(by, MAX_AMENDED_BY),
        "reason": clean_text(reason, MAX_AMEND_REASON),
    }
    for tries in range(MOST_TRIES):
        try:
            with joined(jobs.write_alias), undone_alone(jobs.write_alias):
                if run_joined(jobs.write_alias, _AMEND, params):
                    run_joined(jobs.write_alias, _FORGET, [job_id])
                    return Amended(job_id=job_id)
        except IntegrityError as error:
            if "pulse_job_one_per_unique_key" not in str(error):
                raise
            for holder, is_expired in run_joined(jobs.write_alias, _KEY_HOLDER, [job_id, unique_key]):
                if not is_expired:
                    return Amended(job_id=job_id, refused=AmendRefusal.KEY_TAKEN, key_holder=holder)
                expire_these(jobs, [holder])
            # It has ended, and the key is free. Or the caller's snapshot is older than the job: do not try again.
            if tries + 1 == MOST_TRIES:
                raise
            continue
        break
    return Amended(job_id=job_id, refused=why_not(read_for_amending(jobs, job_id)))


def why_not(found: Found | None) -> AmendRefusal:
    """Return why a job was not amended, according to its present state."""
    if found is None:
        return AmendRefusal.GONE
    if found.status == Status.RUNNING:
        return AmendRefusal.RUNNING
    return AmendRefusal.ENDED if found.status in TERMINAL or found.is_expired else AmendRefusal.CHANGED
