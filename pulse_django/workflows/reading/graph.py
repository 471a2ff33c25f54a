"""The jobs of a batch and their needs, as a graph: at most nine statements, each bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.states import Status
from pulse_django.workflows.batch_progress import TREE, members

from .facts import (
    AWAITED,
    DONE,
    SENT,
    BatchFacts,
    Edge,
    Graph,
    GraphNode,
    counts_of,
    critical_path,
    layers_of,
    state_of,
)
from .listing import children

MOST_DRAWN = 200  # nodes; if there are more, each layer is one box
MOST_LAYERS = 200  # counted one by one; a chain has as many layers as jobs
MOST_READ = 10_000  # members; if there are more, only the progress is known
MOST_INSIDE = 200  # batches within the batch
MOST_EDGES = 50_000
MOST_FIRST = 50  # members of a batch within it, among which are those that begin
MOST_OUTSIDE = 200  # needs of its jobs that do not belong to it

_COLUMNS = "id, node, task, status, created_at, started_at, finished_at"
_MEMBERS = f"""
SELECT
    member.id, COALESCE(member.node::text, member.task::text), member.status, statement_timestamp(), member.created_at,
    (SELECT pg_catalog.max(met_at) FROM pulse_django_dependency WHERE job_id = member.id), member.started_at,
    member.finished_at
FROM ({members(_COLUMNS, "%(batch)s::bigint", "%(most)s::int")}) AS member
"""  # noqa: S608 - made of constants

_NEEDS = """
SELECT job_id, needs, needs_batch, needs_event, met_at
FROM pulse_django_dependency
WHERE job_id = ANY (%(jobs)s::bigint[])
ORDER BY id
LIMIT %(most)s
"""

# The first jobs within a batch need what the batch needs. They come first, by their ids.
_NEEDS_INSIDE = f"""{TREE}
SELECT DISTINCT tree.root, need.needs, need.needs_batch, need.needs_event, need.met_at IS NOT NULL
FROM tree
CROSS JOIN LATERAL ({members("id", "tree.id", "%(first)s::int")}) AS first
JOIN pulse_django_dependency AS need ON need.job_id = first.id
LIMIT %(most)s
"""  # noqa: S608 - made of constants

_TREE = f"{TREE}\nSELECT root, id FROM tree LIMIT %(most)s"

_OUTSIDE = """
SELECT 'job', id, COALESCE(node::text, task::text), status::text, batch_id, false, false, false
FROM pulse_django_job
WHERE id = ANY (%(jobs)s::bigint[])
UNION ALL
SELECT
    'batch', id, name::text, '', parent_id, finished_at IS NOT NULL, cancelled_at IS NOT NULL, paused_at IS NOT NULL
FROM pulse_django_batch
WHERE id = ANY (%(batches)s::bigint[])
"""


class Need(NamedTuple):
    """One need of a node, as it is stored."""

    node: str
    job: int | None
    batch: int | None
    event: str | None
    is_met: bool

    @property
    def key(self) -> str:
        if self.job is not None:
            return f"job {self.job}"
        return f"event {self.event}" if self.batch is None else f"batch {self.batch}"


def graph_of(alias: str, batch: BatchFacts) -> Graph:
    """Read the members of a batch and their needs."""
    with read_only(alias):
        rows = run_joined(alias, _MEMBERS, {"batch": batch.id, "most": MOST_READ + 1})
        within = children(alias, batch.id, MOST_INSIDE + 1)
        if len(rows) > MOST_READ or len(within) > MOST_INSIDE:
            return Graph(is_cut=True)
        jobs = [_job(*row) for row in rows]
        needs = [*_needs_of(alias, [row[0] for row in rows]), *_needs_inside(alias, [one.id for one in within])]
        homes = _homes(alias, [one.id for one in within])
        inside = {node.key for node in jobs} | {f"batch {one.id}" for one in within}
        outside = _outside(alias, needs, inside)
    edges, others = _joined(needs, inside, outside, homes)
    return _drawn([*jobs, *_batches(within, edges, rows), *others], edges)


def _drawn(nodes: Sequence[GraphNode], edges: Sequence[Edge]) -> Graph:
    layers = layers_of([node.key for node in nodes], edges)
    counts = counts_of(layers, {node.key: node.state for node in nodes})
    if len(nodes) > MOST_DRAWN:
        return Graph(counts=counts[:MOST_LAYERS], more_layers=max(0, len(counts) - MOST_LAYERS))
    path = critical_path(nodes, edges, layers)
    return Graph(nodes=nodes, edges=edges, layers=layers, critical=path, counts=counts)


def _job(
    job_id: int,
    name: str,
    status: str,
    now: datetime,
    created: datetime,
    met: datetime | None,
    started: datetime | None,
    finished: datetime | None,
) -> GraphNode:
    free = created if met is None else max(created, met)
    begun = started if started is not None and started >= free else None
    has_ended = finished is not None or status == Status.RUNNING
    return GraphNode(
        key=f"job {job_id}",
        kind="job",
        id=job_id,
        name=name,
        state=str(status),
        waited=None if status == Status.WAITING else _between(free, begun or finished or now),
        ran=_between(begun, finished or now) if begun is not None and has_ended else None,
        is_done=status == Status.COMPLETED,
    )


def _batches(
    within: Sequence[BatchFacts], edges: Iterable[Edge], rows: Sequence[tuple[object, ...]]
) -> list[GraphNode]:
    """Return the batches as nodes. The time of a batch begins when the last job that it needs has ended."""
    ends = {f"job {row[0]}": row[7] for row in rows} | {f"batch {one.id}": one.finished_at for one in within}
    begins: dict[str, list[datetime]] = {f"batch {one.id}": [one.created_at] for one in within}
    for edge in edges:
        end = ends.get(edge.needs)
        if edge.node in begins and isinstance(end, datetime):
            begins[edge.node].append(end)
    return [
        GraphNode(
            key=f"batch {one.id}",
            kind="batch",
            id=one.id,
            name=one.name,
            state=one.state,
            ran=_between(max(begins[f"batch {one.id}"]), one.finished_at),
            is_done=one.state == DONE,
        )
        for one in sorted(within, key=lambda one: one.id)
    ]


def _between(begin: datetime, end: datetime | None) -> float | None:
    return None if end is None else max(0.0, (end - begin).total_seconds())


def _needs_of(alias: str, jobs: Sequence[int]) -> list[Need]:
    rows = run_joined(alias, _NEEDS, {"jobs": list(jobs), "most": MOST_EDGES})
    return [Need(f"job {job_id}", job, batch, event, met is not None) for job_id, job, batch, event, met in rows]


def _needs_inside(alias: str, batches: Sequence[int]) -> list[Need]:
    if not batches:
        return []
    params = {"batches": list(batches), "first": MOST_FIRST, "most": MOST_EDGES}
    rows = run_joined(alias, _NEEDS_INSIDE, params)
    return [Need(f"batch {root}", job, batch, event, is_met) for root, job, batch, event, is_met in rows]


def _homes(alias: str, batches: Sequence[int]) -> dict[int, str]:
    """Return the node that contains each batch that is nested at any depth."""
    if not batches:
        return {}
    rows = run_joined(alias, _TREE, {"batches": list(batches), "most": MOST_EDGES})
    return {batch_id: f"batch {root}" for root, batch_id in rows}


def _outside(alias: str, needs: Iterable[Need], inside: set[str]) -> dict[str, tuple[GraphNode, int | None]]:
    """Return the needed jobs that are not among the nodes, each with its batch."""
    missing = {need.key: need for need in needs if need.key not in inside and need.event is None}
    first = list(missing.values())[: MOST_OUTSIDE * 10]
    params = {
        "jobs": [need.job for need in first if need.job is not None],
        "batches": [need.batch for need in first if need.batch is not None],
    }
    found = {}
    for kind, one_id, name, status, home, finished, cancelled, paused in run_joined(alias, _OUTSIDE, params):
        state = status or state_of(is_finished=finished, is_cancelled=cancelled, is_paused=paused, dead=0)
        key = f"{kind} {one_id}"
        found[key] = (GraphNode(key=key, kind=kind, id=one_id, name=name, state=state, is_outside=True), home)
    return found


def _joined(
    needs: Iterable[Need],
    inside: set[str],
    outside: Mapping[str, tuple[GraphNode, int | None]],
    homes: Mapping[int, str],
) -> tuple[list[Edge], list[GraphNode]]:
    """Return the edges between nodes, and the nodes that do not belong to the batch."""
    edges: dict[tuple[str, str], Edge] = {}
    others: dict[str, GraphNode] = {}
    for need in needs:
        key = need.key
        if key not in inside:
            node, home = outside.get(key, (None, None))
            key = homes.get(home, key) if home is not None else key
            if need.event is not None and need.node.startswith("job "):
                state = SENT if need.is_met else AWAITED
                node = GraphNode(key=key, kind="event", id=None, name=need.event, state=state)
            if key not in inside and node is not None and len(others) < MOST_OUTSIDE:
                others.setdefault(key, node)
        if key != need.node and (key in inside or key in others):
            before = edges.get((key, need.node))
            edges[key, need.node] = Edge(key, need.node, need.is_met and (before is None or before.is_met))
    return list(edges.values()), list(others.values())
