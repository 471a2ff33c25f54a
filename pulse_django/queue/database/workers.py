"""The registry of workers, for operators. The recovery of jobs never reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from django.db.models import BooleanField, ExpressionWrapper, Q, Value
from django.db.models.expressions import Combinable

from pulse_django.queue.words.bounds import MAX_REGISTRY_TEXT, MAX_USER
from pulse_django.queue.words.payloads import MAX_TRACEBACK, clean_text

from .sql_functions import StatementTimestamp
from .transactions import Table, TableManager, run_joined

# A worker that disappears without a clean stop is lost until an operator acknowledges it, or a worker with its name
# starts.
#
# ``stopped_at`` of a lost worker is its last sign of life, so queries for live workers do not find it.


# A release that does not know lost workers may have cleared only ``stopped_at`` of a worker that is back.
IS_LOST = "stopped_at IS NOT NULL AND lost_at IS NOT NULL AND acknowledged_at IS NULL"

# The default name of a worker is its host and its process id, and the next process has another id.
_NAME = """(CASE
                WHEN {0}.name::text = pg_catalog.concat({0}.host, '-', {0}.pid) THEN {0}.host ELSE {0}.name
            END)::text"""

MARK_LOST = f"""
WITH candidate AS MATERIALIZED (
    SELECT id, name, host, pid, last_beat_at, stopped_at IS NULL AS is_new
    FROM pulse_django_worker
    WHERE (stopped_at IS NULL AND last_beat_at < statement_timestamp() - %s::interval) OR ({IS_LOST})
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
),
found AS MATERIALIZED (
    SELECT
        id,
        is_new,
        CASE WHEN is_new THEN statement_timestamp() END AS lost_at,
        CASE WHEN EXISTS (
            SELECT 1 FROM pulse_django_worker AS other
            WHERE other.id <> candidate.id AND other.started_at > candidate.last_beat_at
                AND {_NAME.format("other")} = {_NAME.format("candidate")}
        ) THEN statement_timestamp() END AS back_at
    FROM candidate
)
UPDATE pulse_django_worker AS worker
SET stopped_at = worker.last_beat_at,
    lost_at = COALESCE(found.lost_at, worker.lost_at),
    acknowledged_at = found.back_at,
    acknowledged_by = ''
FROM found
WHERE worker.id = found.id AND (found.is_new OR found.back_at IS NOT NULL)
RETURNING worker.name, worker.boot_id, found.is_new
"""  # noqa: S608 - made of constants

ACKNOWLEDGE = f"""
WITH lost AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = %s AND boot_id::text = %s AND {IS_LOST}
    FOR NO KEY UPDATE
),
known AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM lost
)
UPDATE pulse_django_worker AS worker
SET acknowledged_at = known.now, acknowledged_by = %s
FROM known
WHERE worker.id = known.id
RETURNING worker.id
"""  # noqa: S608 - made of constants

FORGET = f"""
DELETE FROM pulse_django_worker
WHERE (stopped_at < statement_timestamp() - %s::interval AND NOT ({IS_LOST}))
    OR stopped_at < statement_timestamp() - %s::interval
RETURNING id
"""  # noqa: S608 - made of constants


# The current stack of a handler: an operator writes the request into the worker's row, and the worker answers there.
#
# The worker reads the request with its next heartbeat, so no connection to its host is needed.


# A request is dropped after ASKED_FOR: the operator has left the page, or the worker has stopped. An answer is kept for
# SHOWN_FOR.
ASKED_FOR, SHOWN_FOR = timedelta(minutes=2), timedelta(minutes=10)
_IS_ASKED = f"noted.stack_asked_at > statement_timestamp() - interval '{ASKED_FOR.seconds} s'"
WANTED = f"CASE WHEN {_IS_ASKED} THEN noted.stack_wanted END"

ASK = """
WITH live AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = %s AND boot_id::text = %s AND stopped_at IS NULL
    FOR NO KEY UPDATE
),
asked AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM live
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = %s, stack_asked_at = asked.now
FROM asked
WHERE worker.id = asked.id
RETURNING worker.id
"""

ANSWER = """
WITH mine AS MATERIALIZED (
    SELECT id FROM pulse_django_worker WHERE name::text = %s AND boot_id::text = %s FOR NO KEY UPDATE
),
taken AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM mine
)
UPDATE pulse_django_worker AS worker
SET stack_wanted = NULL, stack_of = %s, stack = %s, stack_at = taken.now
FROM taken
WHERE worker.id = taken.id
RETURNING worker.id
"""

FORGET_STACKS = f"""
UPDATE pulse_django_worker
SET stack = '', stack_of = NULL, stack_at = NULL
WHERE stack_at < statement_timestamp() - interval '{SHOWN_FOR.seconds} s'
RETURNING id
"""  # noqa: S608 - made of constants


def is_asked() -> ExpressionWrapper[Any]:
    """Return the condition that the request of a row is still open."""
    return _since("stack_asked_at", ASKED_FOR)


def is_shown() -> ExpressionWrapper[Any]:
    """Return the condition that the answer of a row is new enough to be shown."""
    return _since("stack_at", SHOWN_FOR)


def _since(column: str, age: timedelta) -> ExpressionWrapper[Any]:
    earliest: Combinable = StatementTimestamp() - Value(age)
    return ExpressionWrapper(Q(**{f"{column}__gt": earliest}), output_field=BooleanField())


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """The state that a worker reports with every heartbeat."""

    name: str
    boot_id: str
    host: str
    pid: int
    versions: dict[str, str]
    queues: Sequence[str]  # empty: all
    slots: int
    in_flight: int
    stuck_slots: int
    tasks: Sequence[str] = ()  # the keys of the tasks that it can run
    vitals: Mapping[str, Any] = field(default_factory=dict)  # its counters since it started


_NOTE = f"""
WITH noted AS (
    INSERT INTO pulse_django_worker AS worker
        (name, boot_id, host, pid, versions, queues, slots, in_flight, stuck_slots, tasks, vitals)
    SELECT name, boot_id, host, pid, versions, queues, slots, in_flight, stuck_slots, tasks, vitals
    FROM pg_catalog.json_to_record(%s::json) AS said (
        name text, boot_id text, host text, pid int, versions jsonb, queues jsonb, slots int, in_flight int,
        stuck_slots int, tasks jsonb, vitals jsonb
    )
    ON CONFLICT (name, boot_id) DO UPDATE SET
        slots = excluded.slots,
        in_flight = excluded.in_flight,
        stuck_slots = excluded.stuck_slots,
        -- Long, and nearly always the same: a value that is not replaced is not written again.
        tasks = CASE WHEN worker.tasks = excluded.tasks THEN worker.tasks ELSE excluded.tasks END,
        vitals = excluded.vitals,
        last_beat_at = excluded.last_beat_at,
        stopped_at = NULL,
        lost_at = NULL,
        acknowledged_at = NULL,
        acknowledged_by = ''
    RETURNING worker.id, worker.queues, worker.stack_wanted, worker.stack_asked_at
)
SELECT pg_catalog.count(other.id) FILTER (WHERE other.id < noted.id), pg_catalog.count(other.id) + 1, {WANTED}
FROM noted
LEFT JOIN pulse_django_worker AS other ON other.queues = noted.queues
    AND other.id <> noted.id
    AND other.stopped_at IS NULL
    AND other.last_beat_at > statement_timestamp() - %s::interval
GROUP BY noted.id, noted.stack_wanted, noted.stack_asked_at
"""  # noqa: S608 - made of constants


class Standing(NamedTuple):
    """The position of a worker among the live workers that serve the same queues."""

    rank: int
    total: int
    stack_wanted: int | None = None  # the job whose handler's stack an operator requested


_FAREWELL = """
WITH leaving AS MATERIALIZED (
    SELECT id FROM pulse_django_worker WHERE name::text = %s AND boot_id::text = %s FOR NO KEY UPDATE
),
gone AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM leaving
),
written AS (
    UPDATE pulse_django_worker AS worker
    SET in_flight = 0, stopped_at = gone.now, last_beat_at = gone.now,
        lost_at = NULL, acknowledged_at = NULL, acknowledged_by = ''
    FROM gone
    WHERE worker.id = gone.id
    RETURNING worker.id
)
SELECT id FROM written
"""


class WorkerManager(TableManager[Table]):
    def note(self, presence: Presence, silence: timedelta = timedelta(minutes=1)) -> Standing:
        """Store the state of this worker. Return its position among the workers with a heartbeat within ``silence``."""
        said = asdict(presence)
        for name, otherwise in (("versions", {}), ("tasks", None), ("vitals", {})):
            if len(json.dumps(said[name])) > MAX_REGISTRY_TEXT // 2:  # the table would refuse the heartbeat
                said[name] = otherwise
        return Standing._make(run_joined(self.write_alias, _NOTE, [json.dumps(said), silence])[0])

    def farewell(self, name: str, boot_id: str) -> None:
        """Record that this worker stopped cleanly."""
        run_joined(self.write_alias, _FAREWELL, [name, boot_id])

    def mark_lost(self, silent_for: timedelta) -> list[str]:
        """Mark workers as lost that were silent for so long. Return their names.

        A worker that comes back clears the mark itself. If a new worker has its name, no acknowledgement is needed."""
        found = run_joined(self.write_alias, MARK_LOST, [silent_for])
        return sorted(f"{name}:{boot_id}" for name, boot_id, is_new in found if is_new)

    def ask_stack(self, name: str, boot_id: str, job_id: int) -> bool:
        """Request the stack of a job's handler from a live worker. It answers with one of its next heartbeats."""
        return bool(run_joined(self.write_alias, ASK, [name, boot_id, job_id]))

    def answer_stack(self, name: str, boot_id: str, job_id: int, text: str) -> None:
        """Store the requested stack. Only the latest is kept, for some minutes."""
        run_joined(self.write_alias, ANSWER, [name, boot_id, job_id, clean_text(text, MAX_TRACEBACK)])

    def acknowledge(self, name: str, boot_id: str, *, by: str) -> bool:
        """Acknowledge a lost worker. Return whether it was lost and not acknowledged before."""
        return bool(run_joined(self.write_alias, ACKNOWLEDGE, [name, boot_id, clean_text(by, MAX_USER)]))

    def forget(self, stopped_for: timedelta, lost_for: timedelta) -> int:
        """Delete the rows of workers that stopped longer ago than ``stopped_for``, and of lost, unacknowledged ones
        after ``lost_for``.

        Also delete stacks that are not shown any more."""
        run_joined(self.write_alias, FORGET_STACKS, [])
        return len(run_joined(self.write_alias, FORGET, [stopped_for, lost_for]))
