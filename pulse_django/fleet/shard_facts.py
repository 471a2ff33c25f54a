"""How each shard stands: whether it answers, what it holds, and what is on its way to another."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import Error

from pulse_django.execution.placement import shards
from pulse_django.models import Departure, Job
from pulse_django.store.citus_nodes import node_of
from pulse_django.store.shards import TOKENS, position_of, problem_with_numbers
from pulse_django.store.tables import explained
from pulse_django.words.display import inert
from pulse_django.words.states import CLAIMABLE, Status

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
