"""The fleet over all shards. Each shard is queried on its own, so one that is down does not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import Error, router

from pulse_django.health.conditions import Limits, Verdict, ask_all
from pulse_django.models import Departure, Job
from pulse_django.queue.database.dialects import statements_for
from pulse_django.queue.database.tables import explained
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.states import CLAIMABLE, Status

from .ids import TOKENS, Sequences, position_of, problem_with_numbers
from .placement import has_several_shards, shards


def shards_to_read() -> list[str]:
    """Return the databases to read the state of the fleet from. A single database may have a replica."""
    return list(shards()) if has_several_shards() else [router.db_for_read(Job)]


@dataclass(frozen=True, slots=True)
class FleetVerdict:
    """The results of all health conditions in all queried shards."""

    by_shard: Mapping[str, Verdict]
    away: Mapping[str, str]  # the error of each shard that did not answer

    @property
    def is_well(self) -> bool:
        return not self.away and all(one.is_well for one in self.by_shard.values())

    @property
    def is_unknown(self) -> bool:
        """Return whether no problem is known, but something could not be checked."""
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

    def to_json(self, *, clear_too: bool = False) -> dict[str, Any]:
        """Return the verdict for JSON in commands and in the health view."""
        reports: dict[str, Any] = {alias: one.to_json(clear_too=clear_too) for alias, one in self.by_shard.items()}
        if self._is_one:
            return next(iter(reports.values()), {})
        reports |= {alias: {"is_well": None, "error": error} for alias, error in self.away.items()}
        return {"is_well": self.is_well, "shards": reports}


def ask_shards(aliases: Iterable[str], limits: Limits | None = None, *, advice: bool = False) -> FleetVerdict:
    """Check every condition in each of these shards. With a single shard, raise its error."""
    aliases = list(aliases)
    verdicts: dict[str, Verdict] = {}
    away: dict[str, str] = {}
    for alias in aliases:
        try:
            verdicts[alias] = ask_all(alias, limits, advice=advice)
        except Error as error:
            if len(aliases) == 1:
                raise
            away[alias] = inert(explained(error, alias))
    return FleetVerdict(verdicts, away)


# The state of each shard: whether it answers, its jobs, and jobs that are moving to another shard.


MOST_COUNTED = 10_000  # of each kind; more are shown as "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFacts:
    alias: str
    number: int
    problem: str = ""  # empty: no problem
    waiting: int = 0  # jobs that wait to be due or for a worker
    running: int = 0
    for_others: int = 0  # jobs that wait for other jobs or events
    departed: int = 0  # jobs that have left, and are not known to have arrived
    token: int = 0  # the last fencing token
    node: str = ""  # of a cluster, which has its tables

    @property
    def is_empty(self) -> bool:
        """Return whether no job is left to run in this shard."""
        return not self.problem and not any((self.waiting, self.running, self.for_others, self.departed))


def shard_facts(alias: str) -> ShardFacts:
    """Query one shard. An error becomes its ``problem``."""
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
            node=statements_for(Sequences, alias).node(),
        )
    except Error as error:
        return ShardFacts(alias=alias, number=number, problem=inert(explained(error, alias)))
