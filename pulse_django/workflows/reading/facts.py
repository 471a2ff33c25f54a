"""The values: a batch, what holds it, and its jobs as nodes of a graph. This module reads nothing."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pulse_django.health.snapshot import to_json
from pulse_django.workflows.batch_progress import BatchProgress

OPEN, HELD, PAUSED, CANCELLED, DONE = "open", "held", "paused", "cancelled", "done"
AWAITED, SENT = "awaited", "sent"  # events
STATES = (OPEN, HELD, PAUSED, CANCELLED, DONE)


def state_of(*, is_finished: bool, is_cancelled: bool, is_paused: bool, dead: int) -> str:
    """Return the state of a batch: cancelled, done, paused, held by dead letters, or open."""
    if is_cancelled:
        return CANCELLED
    if is_finished:
        return DONE
    if is_paused:
        return PAUSED
    return HELD if dead else OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A job that keeps a batch from its end: a dead letter, or one that waits for an event."""

    job_id: int
    name: str  # of the job in its workflow, or its task
    event: str | None  # None: the job is a dead letter

    def as_json(self) -> dict[str, Any]:
        return {"job": self.job_id, "name": self.name, "event": self.event}


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The present state of a batch: a row of the list."""

    id: int
    name: str
    kind: str
    parent_id: int | None
    created_at: datetime
    sealed_at: datetime | None  # None: more jobs may be added
    finished_at: datetime | None
    cancelled_at: datetime | None
    cancel_reason: str
    paused_at: datetime | None
    age: float  # seconds since it was opened
    progress: BatchProgress = field(repr=False)
    holders: Sequence[Holder] = ()  # the first of each kind

    @property
    def state(self) -> str:
        """Return one of ``STATES``."""
        return state_of(
            is_finished=self.finished_at is not None,
            is_cancelled=self.cancelled_at is not None,
            is_paused=self.paused_at is not None,
            dead=self.progress.dead,
        )

    @property
    def took(self) -> float | None:
        """Seconds from its opening to its end; None: it has not ended."""
        return None if self.finished_at is None else (self.finished_at - self.created_at).total_seconds()

    @property
    def dead_letters(self) -> list[Holder]:
        return [one for one in self.holders if one.event is None]

    @property
    def events(self) -> list[Holder]:
        return [one for one in self.holders if one.event is not None]

    def as_json(self) -> dict[str, Any]:
        own = ("id", "name", "kind", "state", "created_at", "sealed_at", "finished_at", "cancelled_at", "paused_at")
        counts = ("total", "completed", "cancelled", "dead", "open", "percent")
        return {
            **{name: to_json(getattr(self, name)) for name in (*own, "age", "took")},
            **{name: getattr(self.progress, name) for name in counts},
            "parent": self.parent_id,
            "held_by": [one.as_json() for one in self.holders],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A job, a batch or an event of a graph."""

    key: str  # tells nodes of a graph apart
    kind: str  # job, batch or event
    id: int | None  # of an event: none
    name: str
    state: str  # the status of a job, the state of a batch; of an event "sent" or "awaited"
    waited: float | None = None  # seconds from when it could have run, until its last run began, or until now
    ran: float | None = None  # seconds of its last run; of a batch, from when it could begin
    is_outside: bool = False  # it does not belong to the batch
    is_done: bool = False

    @property
    def seconds(self) -> float:
        """The time that the jobs that need it waited for it."""
        return (self.waited or 0.0) + (self.ran or 0.0)

    def as_json(self) -> dict[str, Any]:
        names = ("kind", "id", "name", "state", "waited", "ran", "is_outside")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Edge:
    """One node needs another."""

    needs: str
    node: str
    is_met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """The nodes of a batch in layers: each stands to the right of all that it needs."""

    nodes: Sequence[GraphNode] = ()  # empty if there are too many to draw
    edges: Sequence[Edge] = ()
    layers: Mapping[str, int] = field(default_factory=dict)  # by the key of a node
    critical: Sequence[str] = ()  # keys of nodes, the first to run first
    counts: Sequence[Mapping[str, int]] = ()  # of each layer, how many nodes have each state
    more_layers: int = 0  # that are not in ``counts``
    is_cut: bool = False  # there are more nodes than were read

    @property
    def is_drawn(self) -> bool:
        return bool(self.nodes)


# The layer of each node of a graph: one to the right of the last node that it needs. Pure.


def layers_of(keys: Sequence[str], edges: Iterable[Edge]) -> dict[str, int]:
    """Return the layer of each node, from 0. Nodes of a cycle come after all others."""
    followers, open_needs = defaultdict(list), dict.fromkeys(keys, 0)
    for edge in edges:
        followers[edge.needs].append(edge.node)
        open_needs[edge.node] += 1
    layers: dict[str, int] = {}
    ready = deque(key for key in keys if not open_needs[key])
    deepest = dict.fromkeys(keys, 0)
    while ready:
        key = ready.popleft()
        layers[key] = deepest[key]
        for follower in followers[key]:
            deepest[follower] = max(deepest[follower], layers[key] + 1)
            open_needs[follower] -= 1
            if not open_needs[follower]:
                ready.append(follower)
    behind = max(layers.values(), default=-1) + 1
    return {key: layers.get(key, behind) for key in keys}


def counts_of(layers: Mapping[str, int], states: Mapping[str, str]) -> list[dict[str, int]]:
    """Count the nodes of each layer by their states."""
    counts: list[dict[str, int]] = [defaultdict(int) for _ in range(max(layers.values(), default=-1) + 1)]
    for key, layer in layers.items():
        counts[layer][states[key]] += 1
    return [dict(sorted(one.items())) for one in counts]


# The critical path: the chain of done nodes that took the most time. To make the workflow faster, speed these up. Pure.


def critical_path(nodes: Sequence[GraphNode], edges: Iterable[Edge], layers: Mapping[str, int]) -> list[str]:
    """Return the keys of the chain whose nodes took the most time in total, in the order of their runs.

    The time of a node is the time that it waited although it could have run, and the time that it ran.
    """
    done = {node.key: node for node in nodes if node.is_done and not node.is_outside}
    needs: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        if edge.needs in done and edge.node in done and layers[edge.needs] < layers[edge.node]:
            needs[edge.node].append(edge.needs)
    total: dict[str, float] = {}
    before: dict[str, str | None] = {}
    for key in sorted(done, key=lambda key: layers[key]):
        longest = max(needs[key], key=lambda need: total[need], default=None)
        total[key] = done[key].seconds + (0.0 if longest is None else total[longest])
        before[key] = longest
    path: list[str] = []
    last = max(total, key=lambda key: total[key], default=None)
    while last is not None:
        path.append(last)
        last = before[last]
    return path[::-1]
