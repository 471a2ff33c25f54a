"""The fleet over all of its shards: each is asked alone, and one that is away does not hide the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import Error, router

from pulse_django.execution.placement import has_several_shards, shards
from pulse_django.models import Departure, Job
from pulse_django.store.citus_nodes import node_of
from pulse_django.store.shards import TOKENS, position_of, problem_with_numbers
from pulse_django.store.tables import explained
from pulse_django.words.display import inert
from pulse_django.words.states import CLAIMABLE, Status
from pulse_django.words.vital_signs import Histogram, VitalSign

from .conditions import Limits, Verdict, ask_all
from .history import POINTS, SPAN, History, Pick, Signs
from .known_queues import PerMinute
from .snapshot import Health, QueueFacts, WorkerFacts, WorkflowCounts, by_due


def shards_to_read() -> list[str]:
    """Return the databases that tell how the fleet is. A single one may have a replica for it."""
    return list(shards()) if has_several_shards() else [router.db_for_read(Job)]


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """What all conditions say in all shards that were asked."""

    by_shard: Mapping[str, Verdict]
    away: Mapping[str, str]  # the error of each that did not answer

    @property
    def is_well(self) -> bool:
        return not self.away and all(one.is_well for one in self.by_shard.values())

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known to be wrong, and something could not be checked."""
        wrong = [one for one in self.by_shard.values() if not one.is_well]
        return not self.is_well and all(one.is_unknown for one in wrong)

    @property
    def says(self) -> str:
        if self._is_one:
            return "; ".join(one.says for one in self.by_shard.values())
        said = {alias: one.says for alias, one in self.by_shard.items() if one.says}
        said |= {alias: f"it does not respond: {error}" for alias, error in self.away.items()}
        return "; ".join(f"shard {alias!r}: {words}" for alias, words in said.items())

    @property
    def _is_one(self) -> bool:
        return len(self.by_shard) + len(self.away) == 1

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for the JSON of commands and of the health view."""
        if self._is_one:
            return next(iter(self.by_shard.values())).to_json() if self.by_shard else {}
        told: dict[str, Any] = {alias: one.to_json() for alias, one in self.by_shard.items()}
        told |= {alias: {"is_well": None, "error": error} for alias, error in self.away.items()}
        return {"is_well": self.is_well, "shards": told}


def ask_shards(aliases: Iterable[str], limits: Limits | None = None) -> FleetVerdict:
    """Ask every condition in each of these shards. The error of a single one is raised."""
    aliases = list(aliases)
    verdicts: dict[str, Verdict] = {}
    away: dict[str, str] = {}
    for alias in aliases:
        try:
            verdicts[alias] = ask_all(alias, limits)
        except Error as error:
            if len(aliases) == 1:
                raise
            away[alias] = inert(explained(error, alias))
    return FleetVerdict(verdicts, away)


# The facts of several shards as those of one fleet: counts are added up, and what is the same is told once.


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedQueue(QueueFacts):
    """A queue that is paused if it is paused in any shard."""

    paused_in: tuple[str, ...] = ()  # empty: in all of them, or in none


def joined_queues(by_shard: Mapping[str, Sequence[QueueFacts]]) -> list[QueueFacts]:
    """Return one entry for each name."""
    if len(by_shard) == 1:
        return list(next(iter(by_shard.values())))
    parts: dict[str, dict[str, QueueFacts]] = {}
    for alias, queues in by_shard.items():
        for queue in queues:
            parts.setdefault(queue.name, {})[alias] = queue
    return sorted((_queue(name, found, len(by_shard)) for name, found in parts.items()), key=by_due)


def _queue(name: str, found: Mapping[str, QueueFacts], shards: int) -> JoinedQueue:
    paused = {alias: one for alias, one in found.items() if one.is_paused}
    first = next(iter(paused.values()), QueueFacts(name=name))
    return JoinedQueue(
        name=name,
        due=sum(one.due for one in found.values()),
        later=sum(one.later for one in found.values()),
        running=sum(one.running for one in found.values()),
        oldest_due=max((one.oldest_due for one in found.values() if one.oldest_due is not None), default=None),
        is_more=any(one.is_more for one in found.values()),
        is_paused=first.is_paused,
        pause_reason=first.pause_reason,
        paused_until=first.paused_until,
        paused_in=tuple(paused) if len(paused) < shards else (),
        dead=sum(one.dead for one in found.values()),
        is_more_dead=any(one.is_more_dead for one in found.values()),
        per_minute=_added([one.per_minute for one in found.values() if one.per_minute is not None]),
    )


def _added(rates: Sequence[PerMinute]) -> PerMinute | None:
    return sum(rates, PerMinute()) if rates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedWorker:
    """A worker as the shard says it that heard from it last, and the shards that it serves."""

    facts: WorkerFacts
    alias: str
    serves: Mapping[str, timedelta]  # how long ago each shard heard from it


def joined_workers(by_shard: Mapping[str, Sequence[WorkerFacts]]) -> list[JoinedWorker]:
    """Return each start of a worker once. In each of its shards it has said the same of itself, but for the time."""
    found: dict[tuple[str, str], dict[str, WorkerFacts]] = {}
    for alias, workers in by_shard.items():
        for one in workers:
            found.setdefault((one.name, one.boot_id), {})[alias] = one
    joined = []
    for rows in found.values():
        alias = min(rows, key=lambda one: (rows[one].has_stopped, rows[one].last_beat))
        serves = {one: row.last_beat for one, row in rows.items()}
        joined.append(JoinedWorker(facts=rows[alias], alias=alias, serves=serves))
    return sorted(joined, key=_lost_ones_first)


def _lost_ones_first(one: JoinedWorker) -> tuple[bool, bool, str, str]:
    return (not one.facts.is_lost, one.facts.has_stopped, one.facts.name, one.facts.boot_id)


def joined_health(by_shard: Mapping[str, Health]) -> Health:
    """Add up what a glance at each shard found. Workers are ``joined_workers``."""
    every = list(by_shard.values())
    return Health(
        queues=tuple(joined_queues({alias: one.queues for alias, one in by_shard.items()})),
        statuses=(),
        workers=(),
        dead_letters=(),
        expired_leases=sum(one.expired_leases for one in every),
        oldest_expired=max((one.oldest_expired for one in every if one.oldest_expired is not None), default=None),
        workflows=WorkflowCounts(
            open=sum(one.workflows.open for one in every),
            held=sum(one.workflows.held for one in every),
            waiting=sum(one.workflows.waiting for one in every),
        ),
    )


def joined_history(parts: Sequence[History]) -> History:
    return parts[0] if len(parts) == 1 else JoinedHistory(now=None, minutes=(), parts=parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedHistory(History):
    """The hours of several shards. Each has minutes of its own, which are compared by its own clock."""

    parts: Sequence[History]

    @property
    def latest(self) -> Signs | None:
        """Return what a latest minute says, if all shards have one."""
        found = [one.latest for one in self.parts]
        return next(iter(found), None) if None not in found else None

    @property
    def conditions(self) -> dict[str, int] | None:
        found = [one.conditions for one in self.parts if one.conditions is not None]
        total: Counter[str] = Counter()
        for one in found:
            total += Counter(one)
        return dict(total) if found else None

    def sampled(self, queue: str) -> int:
        return sum(one.sampled(queue) for one in self.parts)

    def line(self, pick: Any) -> list[float | None]:
        lines = [one.line(pick) for one in self.parts]
        return [_sum(line[place] for line in lines) for place in range(POINTS)]

    def rate(self, pick: Pick) -> float | None:
        return _sum(one.rate(pick) for one in self.parts)

    def total(self, pick: Pick, within: timedelta = SPAN) -> int | None:
        found = _sum(one.total(pick, within) for one in self.parts)
        return None if found is None else round(found)

    def histogram(self, sign: VitalSign, within: timedelta = SPAN) -> Histogram:
        return Histogram.merged(one.histogram(sign, within).to_json() for one in self.parts)


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# How each shard stands: whether it answers, what it holds, and what is on its way to another.


MOST_COUNTED = 10_000  # of each kind: more is said to be more


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    alias: str
    number: int
    problem: str = ""  # empty: none
    waiting: int = 0  # for their time, or for a worker
    running: int = 0
    for_others: int = 0  # wait for other jobs, or for events
    departed: int = 0  # have left, and are not known to have arrived elsewhere
    token: int = 0  # that was granted last
    node: str = ""  # of Citus, that its schema is on

    @property
    def is_empty(self) -> bool:
        """Whether no job of this shard is still to run."""
        return not self.problem and not any((self.waiting, self.running, self.for_others, self.departed))


def shard_facts(alias: str) -> ShardFacts:
    """Ask one shard. An error is its answer."""
    number = shards()[alias]
    try:
        if problem := problem_with_numbers(alias, number):
            return ShardFacts(alias=alias, number=number, problem=problem)
        jobs = Job.objects.using(alias)
        return ShardFacts(
            alias=alias,
            number=number,
            waiting=jobs.filter(status__in=list(CLAIMABLE))[:MOST_COUNTED].count(),
            running=jobs.filter(status=Status.RUNNING)[:MOST_COUNTED].count(),
            for_others=jobs.filter(status=Status.WAITING)[:MOST_COUNTED].count(),
            departed=Departure.objects.using(alias)[:MOST_COUNTED].count(),
            token=position_of(alias, TOKENS),
            node=str(node_of(alias) or ""),
        )
    except Error as error:
        return ShardFacts(alias=alias, number=number, problem=inert(explained(error, alias)))
