"""Queries about lanes: which have claimable jobs, when the first is due, and how many leases they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from pulse_django.queue.words.lane_keys import OF_QUEUE
from pulse_django.queue.words.lanes import Lane

from ..capability import assembled
from ..gates import gate_relations, gates_of_lanes, gates_of_tasks, lanes_open_in
from .constraints import IS_CLAIMABLE
from .sql_functions import loose_scan
from .transactions import run_joined

# The condition that a job is set aside.
IS_SET_ASIDE = f"{IS_CLAIMABLE} AND ready IS NULL"
ARE_SET_ASIDE = f"EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE {IS_SET_ASIDE})"  # noqa: S608 - made of constants

# By task and queue, so that a lasting pause costs one probe, however many of its jobs are set aside.
TASKS_SET_ASIDE = loose_scan(
    "met",
    "task, queue",
    where=IS_SET_ASIDE,
    order="task, queue",
    following=("task::text = met.task::text AND queue::text > met.queue::text", "task::text > met.task::text"),
)


class WaitingLane(NamedTuple):
    """A lane with claimable jobs."""

    lane: Lane
    due_in: float  # seconds until the first job is due, by the server's clock; zero or less: now
    ready: bool = True  # False: its jobs are not claimable before ``promote()``


class LaneUse(NamedTuple):
    """The leases and gates of a lane with a key, for claims."""

    held: int  # the sum of the weights of its leases
    is_open: bool  # False: one of its gates is shut
    opens_in: float | None = None  # seconds until the first of its gates opens; None: not known


# The next pair is the next lower priority of the same queue, or else the highest priority of the next queue.
PAIRS = loose_scan(
    "pair",
    "queue, priority",
    where=IS_CLAIMABLE,
    order="queue, priority DESC",
    following=("queue::text = pair.queue::text AND priority < pair.priority", "queue::text > pair.queue::text"),
)

# How many lanes with keys are read for each queue and priority. There may be a hundred thousand, at 9 us each.
MOST_KEYS = 256
_OF_PAIR = f"{IS_CLAIMABLE} AND queue::text = pair.queue::text AND priority = pair.priority AND ready"
_FIRST = "ORDER BY lane_key, next_run_at, id LIMIT 1"


def _keys(first: str, *, end: str = "", most: int = MOST_KEYS) -> str:
    """Return the SQL for the lanes of a pair whose keys meet a condition. Each costs one probe of the index.

    ``first`` is for the first key, and ``end`` for all of them.
    """
    return f"""
        WITH RECURSIVE met AS (
            (
                SELECT lane_key, next_run_at, 1 AS place FROM pulse_django_job_hot
                WHERE {_OF_PAIR} AND {first}{end} {_FIRST}
            )
            UNION ALL
            SELECT following.lane_key, following.next_run_at, met.place + 1
            FROM met
            CROSS JOIN LATERAL (
                SELECT lane_key, next_run_at FROM pulse_django_job_hot
                WHERE {_OF_PAIR} AND lane_key::text > met.lane_key::text{end} {_FIRST}
            ) AS following
            WHERE met.place < {most}
        )
        SELECT lane_key, next_run_at FROM met"""  # noqa: S608 - made of constants


def lanes_cte(pairs: str, *, most: int = MOST_KEYS) -> str:
    """Return a CTE with the lanes of these pairs of queue and priority, at most ``most`` keys of each."""
    return f"""{pairs},
lane AS MATERIALIZED (
    SELECT queue, priority, ''::varchar AS lane_key FROM pair
    UNION ALL
    SELECT pair.queue, pair.priority, keyed.lane_key
    FROM pair
    CROSS JOIN LATERAL ({_keys("lane_key::text > ''", most=most)}
    ) AS keyed
)"""  # noqa: S608 - made of constants


def limits_of(row: str) -> str:
    """Return a query for the names of the limits of a job or a lane: its own limit, and that of its queue."""
    return (
        f"SELECT pg_catalog.split_part({row}.lane_key::text, ':', 1) AS limiter "
        f"UNION SELECT pg_catalog.concat('{OF_QUEUE}', {row}.queue)"
    )


LANES_CTE = lanes_cte(PAIRS)  # for the conditions and the depths
IN_LANE = (
    f"{IS_CLAIMABLE} AND queue::text = lane.queue::text AND priority = lane.priority AND ready "
    "AND lane_key::text = lane.lane_key::text"
)
_LANES = f"""{LANES_CTE}
SELECT queue, priority, lane_key FROM lane
WHERE EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE {IN_LANE})
"""  # noqa: S608 - made of constants


@assembled
def waiting_sql() -> str:
    """Return the statement that an idle worker sends: the lanes with jobs, and the time until their first job is due.

    It probes the index for each lane. It reads keys after the cursor, and then from the first key up to the cursor. It
    skips jobs of paused tasks: a worker would claim them again and again and get none. It does not skip lanes of paused
    keys, because it would have to read their jobs one by one.
    """
    can_start = f" AND {gates_of_tasks('pulse_django_job_hot')}"
    behind = _keys("lane_key::text > ''", end=f" AND lane_key::text <= pair.cursor{can_start}")
    return f"""{PAIRS},
known AS MATERIALIZED (
    SELECT queue, priority, lane_key
    FROM ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[]), pg_catalog.unnest(%s::text[])
    ) AS known (queue, priority, lane_key)
),
behind AS MATERIALIZED (
    SELECT pair.queue, pair.priority, COALESCE(known.lane_key, '') AS cursor
    FROM pair
    LEFT JOIN known ON known.queue = pair.queue::text AND known.priority = pair.priority
)
SELECT
    pair.queue, pair.priority, part.lane_key,
    EXTRACT(epoch FROM part.next_run_at - statement_timestamp())::float8, true
FROM {gate_relations()}behind AS pair
CROSS JOIN LATERAL (
    (
        SELECT lane_key, next_run_at FROM pulse_django_job_hot
        WHERE {_OF_PAIR} AND lane_key::text = ''{can_start} ORDER BY next_run_at, id LIMIT 1
    )
    UNION ALL
    (
        (SELECT * FROM ({_keys("lane_key::text > pair.cursor", end=can_start)}) AS ahead)
        UNION ALL
        (
            SELECT * FROM ({behind}) AS behind
            WHERE pair.cursor <> ''
        )
        LIMIT {MOST_KEYS}
    )
) AS part
WHERE {gates_of_lanes("pair", keyed=False)}
UNION ALL
(
    SELECT queue, priority, lane_key, EXTRACT(epoch FROM next_run_at - statement_timestamp())::float8, false
    FROM pulse_django_job_hot
    WHERE {IS_CLAIMABLE} AND NOT ready
    ORDER BY next_run_at, id
    LIMIT 1
)
"""  # noqa: S608 - made of constants


@assembled
def use_sql() -> str:
    """Return the total weight of the leases of each lane. Jobs without a lane key are counted by queue."""
    are_open = gates_of_lanes("lane", keyed=True)
    return f"""
SELECT
    CASE
        WHEN lane.key = '' THEN (
            SELECT COALESCE(pg_catalog.sum(weight), 0) FROM pulse_django_job_hot
            WHERE status::text = 'RUNNING' AND queue::text = lane.queue AND lane_key::text = ''
        )
        ELSE (
            SELECT COALESCE(pg_catalog.sum(weight), 0) FROM pulse_django_job_hot
            WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND lane_key::text = lane.key
        )
    END,
    {are_open},
    CASE WHEN NOT ({are_open}) THEN (
        {lanes_open_in("lane")}
    ) END
FROM {gate_relations()}ROWS FROM (
    pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])
) WITH ORDINALITY AS lane (queue, key, place)
ORDER BY lane.place
"""  # noqa: S608 - made of constants


class LaneReader:
    """Methods of ``Job.objects`` about lanes."""

    @property
    def write_alias(self) -> str:
        raise NotImplementedError

    def lanes(self, queues: Collection[str] | None = None) -> list[Lane]:
        """Return the lanes with claimable jobs, of these queues or of all."""
        lanes = [Lane(*row) for row in run_joined(self.write_alias, _LANES, [])]
        return lanes if queues is None else [lane for lane in lanes if lane.queue in queues]

    def waiting(self, queues: Collection[str] | None = None, cursors: Collection[Lane] = ()) -> list[WaitingLane]:
        """Return the lanes with claimable jobs that are not paused, each with the time until its first job is due.

        For each queue and priority, return up to ``MOST_KEYS`` lanes with keys, beginning after its cursor. If jobs
        wait for ``promote()``, also return the lane of the first one, from any queue, with ``ready=False``.
        """
        known = [[lane.queue for lane in cursors], [lane.priority for lane in cursors], [lane.key for lane in cursors]]
        rows = run_joined(self.write_alias, waiting_sql(), known, plan_once=True)
        waiting = [WaitingLane(Lane(*lane), due_in, ready) for *lane, due_in, ready in rows]
        if queues is not None:
            waiting = [one for one in waiting if one.lane.queue in queues or not one.ready]
        return waiting

    def use(self, lanes: Sequence[Lane]) -> dict[Lane, LaneUse]:
        """Return the total weight of the leases of each lane, and whether its jobs may start.

        Leases of the same key in other queues count, too.
        """
        params = [[lane.queue for lane in lanes], [lane.key for lane in lanes]]
        rows = run_joined(self.write_alias, use_sql(), params, plan_once=True)
        return {lane: LaneUse(*row) for lane, row in zip(lanes, rows, strict=True)}
