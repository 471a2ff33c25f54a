"""Grant leases on due jobs: the claim is the lease."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import BooleanField
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from pulse_django import conf

from .capability import assembled
from .database.dialects import Statements, statements_for
from .database.job_queries import JobReader
from .database.sql_functions import TextSize
from .database.transactions import Row, refuse_callers_transaction, run_alone
from .gates import gate_relations, gates_of_jobs, gates_of_lanes
from .statements import Compiled, compiled, skip_locked
from .words.bounds import MOST_WEIGHT
from .words.job_ids import job_ids_of
from .words.lanes import NOT_AGED, Lane, rotation
from .words.leases import Claim, Identity, Lease
from .words.options import OPTIONS, ClaimedOptions

if TYPE_CHECKING:
    from .job import JobRow

FROM_THE_FIRST = float("-inf")
NO_BOUNDS: Mapping[Lane, float] = MappingProxyType({})


class Slots(NamedTuple):
    """The slots of the worker that claims. Without them, a claim assumes one slot for each job of its limit."""

    all: int
    free: int


class Claims(list[Claim]):
    """The result of a claim."""

    __slots__ = ("is_left",)

    def __init__(self, claims: Iterable[Claim] = (), *, is_left: bool = False) -> None:
        """``is_left``: a job was left that needs more slots than its worker has free."""
        super().__init__(claims)
        self.is_left = is_left


# At least one row: a claim that grants nothing also reports whether a job was left.
GRANTED = """(SELECT pg_catalog.bool_or(has_room AND NOT has_slots) AS is_left{more} FROM fitting) AS line
LEFT JOIN claimed ON true"""
_ENOUGH = Slots(MOST_WEIGHT, 2**31 - 1)

# The most bytes that a claim returns, unless a single job is larger. Larger answers are copied several times on their
# way. With a smaller limit, large jobs cost a statement each.
CLAIM_BYTES = 32_000_000

# The ORM makes the pick. It filters on the lane's columns, so that every (queue, priority) is one range of the claim
# index. Measured with 1M claimable jobs in 100 queues of 10 priorities, 100 jobs a claim: ``queue IN (...) ORDER
# BY`` takes 1.1 s, one lateral pick per lane 2 ms.
#
# MATERIALIZED: a planner may run ``id IN (SELECT ... LIMIT 3 FOR UPDATE)`` once per outer row, and then a claim of 3
# takes 17 jobs.
#
# A lane may have a lower bound. Most jobs that were due before it have been claimed, and the claim does not read their
# dead index entries again. Vacuum cannot remove these while another session holds an old snapshot.
#
# Lanes are visited in the order given. No sort may stand above the pick, because it would lock the jobs of every lane
# first.
#
# Picked jobs are taken in that order up to CLAIM_BYTES. The first job is always taken: the sum so far is then its own
# size. The others stay for the next claim.
#
# Jobs of weight 1 may wait in the worker for a slot. From the first heavier job on, a job is taken only if there is
# room for it and for all jobs before it, so that a lighter job behind it cannot take its slots. A job that is heavier
# than its worker counts as all slots of the worker. The same rule holds from the first job that runs at most once: when
# its worker is lost, it is not known whether the job had begun or still waited for a slot.
_CLAIM = """
WITH picked AS MATERIALIZED ({picked}),
{in_line},
fitting AS (
    SELECT
        id, lease_ttl, timeout,
        (so_far <= %s OR so_far = bytes) AS is_small,
        slots = place OR slots <= %s::int AS has_slots,
        {has_room} AS has_room{of_lane}
    FROM in_line
),
{grant}
    RETURNING {returning}, COALESCE(job.lease_ttl, %s) AS ttl
){spent}
SELECT
    id, attempts, token, task, queue, priority, args::text, kwargs::text, progress::text, refunds, max_attempts, losses,
    pg_catalog.date_part('epoch', ttl), parent_id, pg_catalog.date_part('epoch', created_at),
    pg_catalog.date_part('epoch', started_at), pg_catalog.date_part('epoch', next_run_at), trace, sensitive, meta::text,
    lane_key, {probe}, {options}{columns}
FROM {granted}
ORDER BY priority DESC, next_run_at, id
"""


class Granting(Statements):
    """The part of a claim that grants the leases.

    The picked rows are locked by now, so the clock and the tokens are current. The array of ids is made once; with it,
    a plan that was made for an empty table also uses the primary key.
    """

    grant = """claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        lease_until = clock_timestamp() + COALESCE(job.lease_ttl, %s),
        locked_by = %s,
        token = pg_catalog.nextval('pulse_django_token'),
        deadline = clock_timestamp() + job.timeout,
        started_at = {started}
    WHERE job.id = ANY (ARRAY(SELECT id FROM fitting WHERE is_small AND has_slots AND has_room))
        AND job.locked_by IS NULL"""


_IN_LINE = """in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, pg_catalog.sum(bytes) OVER line AS so_far,
        pg_catalog.sum(LEAST(weight, %s::int)) OVER line AS slots,
        pg_catalog.count(*) FILTER (WHERE max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM picked
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
)"""


class Parts(NamedTuple):
    """The parts of the statement that a claim of jobs with a limit replaces."""

    in_line: str = _IN_LINE  # sums over the picked jobs
    has_room: str = "true"  # a further condition on these sums
    of_lane: str = ""  # a column of the picked jobs
    started: str = "clock_timestamp()"  # the instant at which the runs begin
    probe: str = "false"  # whether the ends of the runs decide about a circuit breaker
    spent: str = ""  # a CTE after ``claimed``
    columns: str = ""  # of the answer
    granted: str = "claimed"  # the relation that the answer is read from


_PLAIN = Parts()
_DEALT = Parts(columns=", line.is_left", granted=GRANTED.format(more=""))

_PICK_FROM_LANES = """
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers
    FROM {read}ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::float8[])
    ) AS lane (queue, priority, key, take, since)
    CROSS JOIN LATERAL ({pick}) AS pick
    WHERE {are_open}
    LIMIT %s
"""

_OPTIONS = ", ".join(OPTIONS[name].column for name in ClaimedOptions._fields)
_RETURNING = ", ".join(
    f"job.{column}"
    for column in (
        *("id", "attempts", "token", "task", "queue", "priority", "args", "kwargs", "progress", "refunds"),
        *("max_attempts", "losses", "parent_id", "created_at", "started_at", "next_run_at"),
        *("trace", "sensitive", "meta", "lane_key"),
        *(OPTIONS[name].column for name in ClaimedOptions._fields),
    )
)
_OWN = len(Claim._fields)  # columns before the options: the lease has two columns, and the options are one field
_OWN_AND_OPTIONS = _OWN + len(ClaimedOptions._fields)

# The columns of a picked job.
PICKED = ("id", "weight", "lease_ttl", "timeout", "max_lost_workers")
# The size of the values that a claim returns of a job.
_BYTES = Coalesce("payload_bytes", TextSize("args") + TextSize("kwargs")) + Coalesce(TextSize("progress"), 0)


def claim(
    jobs: JobReader,
    identity: Identity,
    *,
    limit: int = 1,
    slots: Slots | None = None,
    lanes: Sequence[Lane] | None = None,
    turn: int = 0,
    since: Mapping[Lane, float] = NO_BOUNDS,
    takes: Mapping[Lane, int] | None = None,
    aged: Mapping[Lane, int] = NOT_AGED,
) -> Claims:
    """Grant leases on up to ``limit`` due jobs, of these lanes or of all lanes.

    ``slots`` bounds the sum of the weights, if a job weighs more than 1. The default is ``limit``. ``turn`` decides
    which of several queues of equal priority comes first; increase it from claim to claim. ``since`` leaves out the
    jobs of a lane that were due before that instant, in seconds since 1970. ``takes`` is the maximum number of jobs of
    each lane. ``aged`` is the number of priority levels by which a lane is raised.
    """
    refuse_callers_transaction(jobs.write_alias)
    visited = rotation(jobs.lanes() if lanes is None else lanes, turn, aged)
    if not visited or limit < 1:
        return Claims()
    queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
    keys = [lane.key for lane in visited]
    is_dealt = takes is not None or any(keys)
    picked, pick_params = pick_from_lanes(_PICK_FROM_LANES, jobs.model, jobs.write_alias, keyed=is_dealt)
    most = [limit if takes is None else takes.get(lane, 0) for lane in visited]
    bounds = [since.get(lane, FROM_THE_FIRST) for lane in visited]
    params = [queues, priorities, keys, most, bounds, *pick_params, limit]
    found = _claim(jobs, identity, picked, params, slots or Slots(limit, limit), _DEALT if is_dealt else _PLAIN)
    if aged:
        place = {lane: place for place, lane in enumerate(visited)}
        found.sort(key=lambda claim: place[Lane(claim.queue, claim.priority, claim.lane_key)])
    return found


@assembled
def pick_from_lanes(text: str, model: type[JobRow], alias: str, *, keyed: bool, heaviest: str = "") -> Compiled:
    """Return the pick from lanes. ``keyed``: some may have a key. ``heaviest`` is SQL: heavier jobs are skipped."""
    pick, params = _pick(model, alias, heaviest)
    return text.format(read=gate_relations(), pick=pick, are_open=gates_of_lanes("lane", keyed=keyed)), params


def _pick(model: type[JobRow], alias: str, heaviest: str) -> Compiled:
    """Compile the pick from one lane, a row of the relation ``lane``."""
    lane: dict[str, Any] = {"queue": RawSQL("lane.queue", ()), "priority": RawSQL("lane.priority", ())}
    lane |= {"ready": True, "lane_key": RawSQL("lane.key", ())}
    lane["next_run_at__gte"] = RawSQL("pg_catalog.to_timestamp(lane.since)", ())
    if heaviest:
        lane["weight__lte"] = RawSQL(heaviest, ())  # noqa: S611 - a constant
    are_open = RawSQL(gates_of_jobs('"pulse_django_job"'), (), output_field=BooleanField())  # noqa: S611 - constants
    due = model.objects.due().filter(are_open, **lane)
    in_line = due.order_by("next_run_at", "id").values(*PICKED, bytes=_BYTES)
    pick, params = compiled(skip_locked(in_line), alias)
    return f"{pick} LIMIT lane.take", params


def claim_these(jobs: JobReader, identity: Identity, job_ids: Collection[int]) -> Claims:
    """Grant leases on these jobs if they are due, at any position in their queues, and also if those are paused."""
    due = jobs.due().startable().filter(pk__in=sorted(job_ids_of(job_ids)))
    these = skip_locked(due.order_by("id").values(*PICKED, bytes=_BYTES))
    return _claim(jobs, identity, *compiled(these, jobs.write_alias), _ENOUGH, _PLAIN)


def _claim(
    jobs: JobReader, identity: Identity, picked: str, params: Sequence[Any], slots: Slots, parts: Parts
) -> Claims:
    holder = identity.mint_holder()
    sql, values = claiming(jobs.write_alias, picked, params, holder, slots, parts)
    return claims_of(run_alone(jobs.write_alias, sql, values, plan_once=True), holder)


def claiming(
    alias: str, picked: str, params: Sequence[Any], holder: str, slots: Slots, parts: Parts = _PLAIN
) -> tuple[str, list[Any]]:
    """Return the statement that grants leases on the picked jobs, and its parameters."""
    ttl = conf.current().lease_ttl
    grant = statements_for(Granting, alias).grant.format(started=parts.started)
    sql = _CLAIM.format(picked=picked, grant=grant, options=_OPTIONS, returning=_RETURNING, **parts._asdict())
    return sql, [*params, slots.all, CLAIM_BYTES, slots.free, ttl, holder, ttl]


def claims_of(rows: Sequence[Row], holder: str) -> Claims:
    """Turn the rows of a claim's answer into claims. The first two columns make the lease."""
    return Claims(
        (
            Claim._make((Lease(row[0], holder, row[1]), *row[2:_OWN], ClaimedOptions._make(row[_OWN:_OWN_AND_OPTIONS])))
            for row in rows
            if row[0] is not None
        ),
        is_left=bool(rows and rows[0][_OWN_AND_OPTIONS:] and rows[0][_OWN_AND_OPTIONS]),
    )
