"""Facts about the fleet for commands and the admin. Ages use the clock of the database."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pulse_django.models import Job
from pulse_django.pauses.statements import IS_IN_FORCE, IS_OF_QUEUE
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import read
from pulse_django.queue.database.transactions import Row, read_message
from pulse_django.queue.database.workers import IS_LOST
from pulse_django.queue.words.states import Status

from .known_queues import KNOWN_QUEUES, PerMinute, known_queues


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    name: str
    due: int = 0  # waiting and due
    later: int = 0  # waiting but not due, or set aside because their task is paused
    running: int = 0
    oldest_due: timedelta | None = None  # how long the oldest job has been due
    is_more: bool = False  # there are more than were counted
    is_paused: bool = False
    pause_reason: str = ""
    paused_until: datetime | None = None  # None: until it is resumed
    dead: int = 0  # dead letters, counted up to a bound
    is_more_dead: bool = False  # there are more than were counted
    per_minute: PerMinute | None = None  # None: no recent minute

    @property
    def dead_in_words(self) -> str:
        return f"{self.dead}{'+' if self.is_more_dead else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCount:
    status: str
    jobs: int
    is_estimate: bool = False


class WorkerFacts(NamedTuple):
    id: int
    name: str
    boot_id: str
    host: str
    pid: int
    queues: tuple[str, ...]  # empty: all
    slots: int
    in_flight: int
    stuck_slots: int
    prefetched: int  # claimed but not started
    last_beat: timedelta  # ago
    has_stopped: bool  # or is lost
    is_lost: bool  # and not acknowledged
    versions: dict[str, str]

    def is_alive(self, silence: timedelta) -> bool:
        return not self.has_stopped and self.last_beat <= silence


class DeadLetterFacts(NamedTuple):
    id: int
    task: str
    queue: str
    error: str  # its first line
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCounts:
    """Numbers of workflows and jobs, each up to a bound."""

    open: int = 0  # batches that have not ended
    held: int = 0  # open batches that are held by dead letters
    waiting: int = 0  # jobs that wait for others


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    queues: tuple[QueueFacts, ...] = ()
    statuses: tuple[StatusCount, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    dead_letters: tuple[DeadLetterFacts, ...] = ()  # the latest
    workflows: WorkflowCounts = WorkflowCounts()


# The queries of a snapshot: a few bounded statements, whose cost does not depend on the number of finished jobs.
#
# Live jobs and dead letters are counted with their partial indexes. Other ended jobs are counted up to a bound. Beyond
# it, the statistics of the server give an estimate.


# WAITING, completed and cancelled jobs are counted exactly up to this number, in a few milliseconds.
COUNTED = 10_000
MOST_WORKERS = 500
GLANCED = 50_000  # waiting jobs that are counted for pages that refresh every few seconds

NOTHING = Health()

Found = defaultdict[str, dict[str, Any]]  # facts by queue

# The statuses are constants: with server-side binding, the planner cannot match a parameter to a partial index.
_WAITING = """
SELECT
    queue, status,
    count(*) FILTER (WHERE next_run_at <= statement_timestamp() AND ready IS NOT NULL),
    count(*) FILTER (WHERE next_run_at > statement_timestamp() OR ready IS NULL),
    statement_timestamp() - pg_catalog.min(next_run_at) FILTER (
        WHERE next_run_at <= statement_timestamp() AND ready IS NOT NULL
    )
FROM pulse_django_job_hot
WHERE status::text IN ('PENDING', 'RETRYING')
GROUP BY queue, status
"""

_RUNNING = """
SELECT queue, count(*)
FROM pulse_django_job_hot
WHERE status::text = 'RUNNING'
GROUP BY queue
"""

# One statement with the pauses, so that workflows need none of their own. It always returns a row.
_PAUSED = f"""
SELECT counted.open, counted.held, counted.waiting, paused.queue, paused.reason, paused.paused_until
FROM (
    SELECT
        (SELECT count(*) FROM (
            SELECT 1 FROM pulse_django_batch WHERE finished_at IS NULL ORDER BY id LIMIT {COUNTED}
        ) AS first) AS open,
        (SELECT count(*) FROM (
            SELECT 1 FROM pulse_django_batch AS batch
            WHERE finished_at IS NULL AND EXISTS (
                SELECT 1 FROM pulse_django_job_hot
                WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
            )
            ORDER BY id
            LIMIT {COUNTED}
        ) AS first) AS held,
        (SELECT count(*) FROM (
            SELECT 1 FROM pulse_django_job_hot WHERE status::text = 'WAITING' ORDER BY id LIMIT {GLANCED}
        ) AS first) AS waiting
) AS counted
LEFT JOIN (
    SELECT queue, reason, paused_until FROM pulse_django_pause WHERE {IS_OF_QUEUE} AND {IS_IN_FORCE}
) AS paused ON true
"""  # noqa: S608 - made of constants

# ORDER BY keeps the counts on the retention index: if the statistics call a status common, a LIMIT alone would scan the
# table until it has found enough rows, which may be the whole table.
_ENDED = """
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM pulse_django_job_hot WHERE status::text = 'WAITING' ORDER BY id LIMIT %s
    ) AS first),
    (SELECT count(*) FROM pulse_django_job_hot WHERE status::text = 'DEAD_LETTERED'),
    (SELECT count(*) FROM (
        SELECT 1 FROM pulse_django_job WHERE status::text = 'COMPLETED' ORDER BY finished_at DESC LIMIT %s
    ) AS latest),
    (SELECT count(*) FROM (
        SELECT 1 FROM pulse_django_job WHERE status::text = 'CANCELLED' ORDER BY finished_at DESC LIMIT %s
    ) AS latest)
"""

# A separate statement: a cluster does not combine the system catalog and distributed tables in one statement.
_ESTIMATED = """
SELECT common.value, pg_catalog.sum(common.share * GREATEST(class.reltuples, live.tuples, 0))
FROM pg_catalog.pg_partition_tree('pulse_django_job'::regclass) AS tree
JOIN pg_class AS class ON class.oid = tree.relid::oid
-- Counted as rows are written. What the planner believes stands still until the next ANALYZE.
CROSS JOIN LATERAL pg_catalog.pg_stat_get_live_tuples(class.oid) AS live (tuples)
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
LEFT JOIN pg_stats AS column_stats
    ON column_stats.schemaname = namespace.nspname AND column_stats.tablename = class.relname
    AND column_stats.attname = 'status' AND NOT column_stats.inherited
CROSS JOIN LATERAL ROWS FROM (
    pg_catalog.unnest(column_stats.most_common_vals::text::text[]),
    pg_catalog.unnest(column_stats.most_common_freqs)
) AS common (value, share)
WHERE tree.isleaf
GROUP BY common.value
"""

_WORKERS = f"""
SELECT
    id, name, boot_id, host, pid, queues::text, slots, in_flight, stuck_slots,
    CASE
        WHEN pg_catalog.jsonb_typeof(vitals -> 'prefetched'::text) = 'number'
        THEN (vitals ->> 'prefetched'::text)::int ELSE 0
    END,
    statement_timestamp() - last_beat_at, stopped_at IS NOT NULL, {IS_LOST}, versions::text
FROM pulse_django_worker
WHERE %s OR stopped_at IS NULL OR ({IS_LOST})
ORDER BY NOT ({IS_LOST}), stopped_at IS NOT NULL, name, boot_id
LIMIT %s
"""  # noqa: S608 - made of constants

_STANDING: list[tuple[str, list[Any]]] = [(_RUNNING, []), (_PAUSED, [])]

_DEAD_LETTERS = """
SELECT
    id, task, queue, pg_catalog.left(pg_catalog.split_part(last_error, E'\\n', 1), 100),
    statement_timestamp() - finished_at
FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED'
ORDER BY finished_at DESC, id DESC
LIMIT 5
"""


def take(alias: str, *, stopped_workers: bool = False) -> Health:
    """Read all facts, once."""
    waiting = rows(alias, _WAITING)
    health = _health(alias, _waiting_by_queue(waiting), stopped_workers=stopped_workers)
    [ended], estimated = read_message(alias, [(_ENDED, [COUNTED + 1] * 3), (_ESTIMATED, [])])
    running = sum(queue.running for queue in health.queues)
    return replace(
        health,
        statuses=_statuses(waiting, running, ended, dict(estimated)),
        dead_letters=tuple(map(DeadLetterFacts._make, rows(alias, _DEAD_LETTERS))),
    )


def glance(alias: str) -> Health:
    """Read facts that change often, for frequent readers: depths up to a bound, and no ended jobs."""
    return _health(alias, _depths(alias), stopped_workers=False)


def _health(alias: str, found: Found, *, stopped_workers: bool) -> Health:
    statements = [*_STANDING, KNOWN_QUEUES, (_WORKERS, [stopped_workers, MOST_WORKERS])]
    running, paused, known, workers = read_message(alias, statements)
    open_batches, held, waiting, *_ = paused[0]
    return Health(
        queues=_queues(found, running, paused, known),
        workers=tuple(map(_worker, workers)),
        workflows=WorkflowCounts(open=open_batches, held=held, waiting=waiting),
    )


def queues(alias: str) -> tuple[QueueFacts, ...]:
    """Return the facts of all queues, sorted by name."""
    facts = _queues(_depths(alias), *read_message(alias, [*_STANDING, KNOWN_QUEUES]))
    return tuple(sorted(facts, key=lambda queue: queue.name))


def _depths(alias: str) -> Found:
    found: Found = defaultdict(dict)
    for depth in Job.objects.db_manager(alias).depths(GLANCED):
        overdue = None if depth.overdue is None else timedelta(seconds=depth.overdue)
        found[depth.queue] = {"due": depth.due, "later": depth.later, "oldest_due": overdue, "is_more": depth.is_more}
    return found


def _waiting_by_queue(waiting: list[Row]) -> Found:
    found: Found = defaultdict(dict)
    for name, _, due, later, oldest in waiting:
        facts = found[name]
        facts["due"], facts["later"] = facts.get("due", 0) + due, facts.get("later", 0) + later
        known = facts.get("oldest_due")
        facts["oldest_due"] = oldest if known is None else known if oldest is None else max(known, oldest)
    return found


def _queues(found: Found, running: list[Row], paused: list[Row], known: list[Row]) -> tuple[QueueFacts, ...]:
    for name, one in known_queues(known).items():
        found[name] |= one
    for name, jobs in running:
        found[name]["running"] = jobs
    for *_, name, reason, until in paused:
        if name is None:
            continue
        found[name] |= {"is_paused": True, "pause_reason": reason, "paused_until": until}
    queues = [QueueFacts(name=name, **facts) for name, facts in found.items()]
    return tuple(sorted(queues, key=lambda queue: (-queue.due, -queue.running, -queue.dead, queue.name)))


def _statuses(waiting: list[Row], running: int, ended: Row, guesses: dict[str, float]) -> tuple[StatusCount, ...]:
    held, dead, completed, cancelled = ended
    exact = {
        Status.WAITING: held,
        Status.PENDING: sum(due + later for _, status, due, later, _ in waiting if status == Status.PENDING),
        Status.RUNNING: running,
        Status.RETRYING: sum(due + later for _, status, due, later, _ in waiting if status == Status.RETRYING),
        Status.COMPLETED: completed,
        Status.DEAD_LETTERED: dead,
        Status.CANCELLED: cancelled,
    }
    return tuple(_counted(status, jobs, guesses.get(status, 0)) for status, jobs in exact.items())


def _counted(status: Status, jobs: int, guess: float) -> StatusCount:
    if status not in (Status.WAITING, Status.COMPLETED, Status.CANCELLED) or jobs <= COUNTED:
        return StatusCount(status=status, jobs=jobs)
    return StatusCount(status=status, jobs=max(jobs, round(guess)), is_estimate=True)


def _worker(row: Row) -> WorkerFacts:
    one: Any = WorkerFacts._make(row)
    return WorkerFacts(*one._replace(queues=tuple(_loaded(one.queues, list)), versions=_loaded(one.versions, dict)))


def _loaded(text: str | None, kind: type) -> Any:
    """Parse JSON of a worker. Return an empty value if another release or a person wrote another type."""
    found = read(text or "null")
    return found if isinstance(found, kind) else kind()


# Convert facts to JSON: dataclasses and named tuples to objects, durations to seconds, instants to ISO 8601.


def to_json(value: Any) -> Any:
    """Return ``value`` converted to types that ``json.dumps`` accepts."""
    value = value._asdict() if hasattr(value, "_asdict") else value
    match value:
        case timedelta():
            return value.total_seconds()
        case datetime():
            return value.isoformat()
        case dict():
            return {str(key): to_json(inner) for key, inner in value.items()}
        case list() | tuple():
            return [to_json(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    return value
