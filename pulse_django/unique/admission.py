"""Admit jobs with keys, one for each key: new jobs, and dead letters that are retried."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError

from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.expiry.expire import expire_these
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import IS_EXPIRED, JobReader
from pulse_django.queue.database.transactions import joined, run_joined, undone_alone
from pulse_django.queue.enqueue import Admission, Clauses, Encoded, columns_of, enqueue_all, in_chunks, take_ids
from pulse_django.queue.retry import REVIVE, OwnRetry
from pulse_django.queue.words.durations import seconds_of
from pulse_django.queue.words.job_options import NewJob

from .clauses import (
    HOLDS_KEY,
    TAKE_WINDOW,
    NewRow,
    TaskKey,
    begin_windows_with_jobs,
    changed,
    conflict_of,
    folded,
    holder,
    insert,
    key_of,
    row_of,
    rule_of,
    spelt,
)
from .rule import Unique

if TYPE_CHECKING:
    from pulse_django.queue.job import JobRow

# It waits for another transaction that has the key and has not committed: if that rolls back, the job is inserted after
# all. The caller's transaction does not fail in either case.
_TAKE_KEY = """WITH taken AS (
    INSERT INTO pulse_django_key (task, key, job_id)
    VALUES (%s, %s, pg_catalog.nextval('pulse_django_job_id_seq'::regclass))
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job_id
)
"""

_WHO_HAS_KEY = "SELECT job_id FROM pulse_django_key WHERE task::text = %s AND key::text = %s"

# The job of such a key was deleted by hand. This is a separate statement, because its snapshot must contain the job of
# each key that it contains.
_FREE_ORPHANED_KEY = """
DELETE FROM pulse_django_key AS key
WHERE key.task::text = %s AND key.key::text = %s AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = key.job_id)
RETURNING key.job_id
"""


class TakingWindow(Statements):
    """The clauses that take the window of a unique key."""

    def clauses(self, task: str, key: str, seconds: float) -> Clauses:
        return Clauses(TAKE_WINDOW, (seconds, task, key, seconds))


def _insert_unique(jobs: JobReader, encoded: Sequence[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    """Insert jobs with different keys, and return the id of the job of each key."""
    ids = take_ids(jobs.write_alias, len(encoded))
    in_order = sorted(zip(ids, encoded, strict=True), key=lambda one: key_of(one[1][0]))
    found: dict[TaskKey, int] = {}
    for chunk in in_chunks(one for _, one in in_order):
        names, shared = columns_of(jobs, chunk, spelt)
        own = [job_id for job_id, _ in in_order[len(found) : len(found) + len(chunk)]]
        rules: dict[Unique, list[NewRow]] = {}
        for job_id, (new, payload) in zip(own, chunk, strict=True):
            row = row_of(job_id, new, payload, shared[id(new)])
            rules.setdefault(rule_of(new), []).append(row)
        for rule, rows in rules.items():
            found |= insert(jobs, rule, rows, names)
        if progress is not None:
            progress(len(found))
    return [found[key_of(new)] for new, _ in encoded]


class UniqueAdmission(Admission):
    fields = ("unique", "idempotency_key")

    def columns(self, new: NewJob) -> dict[str, Any]:
        """Return the unique key in the row of a job, with its rule."""
        if new.unique is None or new.unique.rule.per is not None:
            return {}
        return {"unique_key": new.unique.key, "unique_until_start": new.unique.rule.until_start}

    def clauses(self, alias: str, new: NewJob) -> Clauses:
        if new.unique is None:
            return Clauses(_TAKE_KEY, (new.task, new.idempotency_key))
        key, rule = new.unique.key, new.unique.rule
        if rule.per is None:
            return conflict_of(rule)
        seconds = seconds_of(rule.per)
        return statements_for(TakingWindow, alias).clauses(new.task, key, seconds)

    def inserted(self, jobs: JobReader, new: NewJob, job_id: int) -> None:
        if new.unique is not None:
            begin_windows_with_jobs(jobs, new.unique.rule, [job_id])

    def changed(self, jobs: JobReader, job_id: int) -> JobRow:
        return changed(jobs, job_id)

    def kept(self, jobs: JobReader, new: NewJob) -> JobRow | None:
        """Return the job that has the key. None: it has just ended or been pruned, and the key is free."""
        if new.unique is not None:
            found = holder(jobs, new.task, new.unique)
            if found is not None and new.unique.rule.on_conflict == "raise":
                raise AlreadyEnqueued(new.task, found.pk)
            return found
        key = [new.task, new.idempotency_key]
        holders = [job_id for (job_id,) in run_joined(jobs.write_alias, _WHO_HAS_KEY, key)]
        kept: JobRow | None = jobs.using(jobs.write_alias).filter(pk__in=holders).first()
        if kept is None:
            run_joined(jobs.write_alias, _FREE_ORPHANED_KEY, key)
        return kept

    def many(self, jobs: JobReader, encoded: Sequence[Encoded], progress: Callable[[int], object] | None) -> list[int]:
        """Add a list in which some jobs have keys: first those with unique keys, in the order of the keys."""
        if all(new.unique is None for new, _ in encoded):
            return enqueue_all(jobs, encoded, progress, one_by_one=("idempotency_key",))
        keyed = [place for place, (new, _) in enumerate(encoded) if new.unique is not None]
        plain = [place for place, (new, _) in enumerate(encoded) if new.unique is None]
        once, places = folded([encoded[place] for place in keyed])
        with joined(jobs.write_alias):
            found = _insert_unique(jobs, once, progress)
            ids = dict(zip(keyed, (found[place] for place in places), strict=True))
            done = len(ids)
            rest = [encoded[place] for place in plain]
            others = enqueue_all(
                jobs, rest, progress and (lambda written: progress(done + written)), one_by_one=("idempotency_key",)
            )
        ids |= zip(plain, others, strict=True)
        return [ids[place] for place in range(len(encoded))]


# Retry dead letters with a unique key, which another job may hold by now.


# The key of a dead letter is taken if an unfinished job has it, or an earlier dead letter of the same list. Without
# this check, one taken key would make the whole statement fail, and the dead letters would be retried one by one.
_RETRY_KEYED = f"""
WITH dead AS MATERIALIZED (
    SELECT
        job.id, job.attempts, job.max_attempts, job.refunds, job.lane_key, job.task, job.unique_key, asked.place
    FROM ROWS FROM (pg_catalog.unnest(%(ids)s::bigint[]), pg_catalog.unnest(%(places)s::bigint[])) AS asked (id, place)
    JOIN pulse_django_job_hot AS job ON job.id = asked.id
    WHERE job.status::text = 'DEAD_LETTERED' AND job.attempts = COALESCE(%(attempt)s::int, job.attempts)
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
),
in_line AS (
    SELECT
        id, attempts, max_attempts, refunds, lane_key, place,
        row_number() OVER (PARTITION BY task, unique_key ORDER BY id) > 1 OR EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE task::text = dead.task::text AND unique_key::text = dead.unique_key::text AND {HOLDS_KEY}
        ) AS is_taken
    FROM dead
),
{REVIVE.format(which="NOT is_taken")}
SELECT id, false FROM revived
UNION ALL
SELECT id, true FROM in_line WHERE is_taken
"""  # noqa: S608 - made of constants

_EXPIRED_HOLDERS = f"""
SELECT id
FROM pulse_django_job_hot
WHERE {IS_EXPIRED} AND unique_key IS NOT NULL AND EXISTS (
    SELECT 1 FROM pulse_django_job_hot AS dead
    WHERE dead.id = ANY (%s::bigint[]) AND dead.task::text = pulse_django_job_hot.task::text
        AND dead.unique_key::text = pulse_django_job_hot.unique_key::text
)
"""  # noqa: S608 - made of constants


def _retry_keyed(jobs: JobReader, keyed: Sequence[tuple[int, int]], how: dict[str, Any]) -> tuple[set[int], set[int]]:
    """Retry those whose key is free. Return these, and those whose key is taken.

    A job with the key may be enqueued after the check. Then the index refuses the list, and each is retried separately.
    """
    params = how | {"ids": [job_id for job_id, _ in keyed], "places": [place for _, place in keyed]}
    try:
        with undone_alone(jobs.write_alias):
            rows = run_joined(jobs.write_alias, _RETRY_KEYED, params)
        return {job for job, is_taken in rows if not is_taken}, {job for job, is_taken in rows if is_taken}
    except IntegrityError as error:
        if "pulse_job_one_per_unique_key" not in str(error):
            raise
        if len(keyed) == 1:
            return set(), {keyed[0][0]}
        parts = [_retry_keyed(jobs, [one], how) for one in keyed]
        return set().union(*(retried for retried, _ in parts)), set().union(*(taken for _, taken in parts))


class UniqueRetry(OwnRetry):
    are_own = "unique_key IS NOT NULL AND NOT unique_until_start"

    def retry(
        self, jobs: JobReader, keyed: Sequence[tuple[int, int]], how: dict[str, Any]
    ) -> tuple[set[int], set[int]]:
        """Retry dead letters with unique keys. Return those that were retried, and those whose key is taken."""
        retried, taken = _retry_keyed(jobs, keyed, how)
        if taken and (expired := run_joined(jobs.write_alias, _EXPIRED_HOLDERS, [sorted(taken)])):
            expire_these(jobs, [job_id for (job_id,) in expired])
            again, _ = _retry_keyed(jobs, [one for one in keyed if one[0] in taken], how)
            retried, taken = retried | again, taken - again
        return retried, taken
