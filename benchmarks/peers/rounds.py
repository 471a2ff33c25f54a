"""The rounds: everybody takes every turn, one after another, and another begins each round."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
from django.db import DatabaseError

from benchmarks.peers import floors
from benchmarks.peers.beside import drain_beside
from benchmarks.peers.catalogue import FLOOR
from benchmarks.peers.contender import Contender, MeasureFailed
from benchmarks.peers.measures import FEWEST, Figures, Sizes, cost, drain, enqueue, idle_or_pickup, jobs_for
from benchmarks.peers.peer import ASYNC, ORM, ORM_ASYNC, SYNC
from benchmarks.peers.results import Results
from benchmarks.peers.server_counts import ServerCounts

PROCESSES = (1, 2)
STEADY = ("cost", "idle")  # what does not drift with the machine is measured in the first round only
MOST_THAT_WRITE = 6_000  # jobs of a drain whose handlers write
MOST_BESIDE = 5_000  # jobs of a drain beside finished rows: few, so that those that it leaves do not count
BETWEEN_NOTIFICATIONS = 0.1  # seconds, as between the jobs of a pickup
# Whatever a stranger's worker makes of it.
NOT_MEASURABLE = (MeasureFailed, OSError, ValueError, SystemExit, psycopg.Error, DatabaseError)


@dataclass(frozen=True)
class Turn:
    """One measurement of one contender."""

    measure: str
    variant: str
    peer: str
    take: Callable[[], Figures]


class Rounds:
    def __init__(
        self,
        options: argparse.Namespace,
        results: Results,
        contenders: list[Contender],
        counts: ServerCounts,
        sizes: Sizes,
        *,
        has_floor: bool,
        say: Callable[[str], None],
    ) -> None:
        self._rounds, self._measures = options.rounds, options.measures
        self._results, self._contenders, self._counts, self._sizes = results, contenders, counts, sizes
        self._has_floor, self._say = has_floor, say
        self._jobs: dict[str, int] = {}
        self._failed: set[tuple[str, str, str]] = set()

    def run(self) -> None:
        if {"drain", "orm", "cost", "beside"} & set(self._measures):
            self._find_sizes()
        for number in range(1, self._rounds + 1):
            for turns in self._turns():
                start = number % len(turns) if turns else 0
                for turn in turns[start:] + turns[:start]:
                    if number == 1 or turn.measure not in STEADY:
                        self._take(turn, number)

    def run_beside(self, most: int) -> None:
        """Let those whose finished jobs are rows drain beside many of them."""
        for who in [who for who in self._contenders if "beside" not in who.peer.without]:
            name, jobs = who.peer.name, min(self._jobs.get(who.peer.name, FEWEST), MOST_BESIDE)

            def keep(point: str, figures: Figures, name: str = name) -> None:
                self._results.add(name, "beside", point, 1, figures)
                self._say(f"beside {point}: {name}: {figures['jobs_per_s']:,.0f} jobs/s")

            try:
                drain_beside(who, jobs, most, self._sizes.limit, keep)
            except NOT_MEASURABLE as failed:
                self._fail(name, "beside", "finished rows", one_line(failed))

    def _find_sizes(self) -> None:
        """Everybody's first drain is short, warms everything up, and is not counted."""
        for who in list(self._contenders):
            try:
                self._jobs[who.peer.name] = jobs_for(who, self._counts, self._sizes)
            except NOT_MEASURABLE as failed:
                self._fail(who.peer.name, "drain", "the first", one_line(failed))
            else:
                self._say(f"{who.peer.title}: drains of {self._jobs[who.peer.name]:,} jobs")

    def _turns(self) -> list[list[Turn]]:
        """Return what is compared with each other, in one list each."""
        groups = []
        if "drain" in self._measures:
            for mode in (SYNC, ASYNC):
                groups += [self._drains(mode, processes) for processes in PROCESSES]
        if "orm" in self._measures:
            groups += [self._drains(ORM, processes) for processes in PROCESSES] + [self._drains(ORM_ASYNC, 1)]
        if "enqueue" in self._measures:
            groups += [self._each("enqueue", how, self._enqueue(how)) for how in ("one", "many")]
        if "cost" in self._measures:
            groups.append(self._each("cost", "1 process", self._cost, on_redis=False))
        for what in ("pickup", "idle"):
            if what in self._measures:
                groups.append(self._each(what, "1 process", self._wait(what)))
        return groups

    def _drains(self, mode: str, processes: int) -> list[Turn]:
        variant = f"{mode}, {processes} process{'es' if processes > 1 else ''}"
        writes = mode in (ORM, ORM_ASYNC)

        def take(who: Contender) -> Callable[[], Figures]:
            jobs = self._jobs[who.peer.name]
            jobs = min(jobs, MOST_THAT_WRITE) if writes else jobs
            return lambda: drain(who, self._counts, jobs, mode, processes, self._sizes.limit)

        them = [
            who for who in self._contenders if mode in who.peer.modes + who.peer.writes and who.peer.name in self._jobs
        ]
        turns = [Turn("orm" if writes else "drain", variant, who.peer.name, take(who)) for who in them]
        if self._has_floor and mode == SYNC:  # next to ours, with which it is compared
            turns.insert(1, Turn("drain", variant, FLOOR, lambda: floors.drain(self._sizes.jobs, processes)))
        return turns

    def _each(
        self, measure: str, variant: str, take: Callable[[Contender], Callable[[], Figures]], *, on_redis: bool = True
    ) -> list[Turn]:
        them = [who for who in self._contenders if on_redis or not who.is_on_redis]
        if variant == "many":
            them = [who for who in them if who.peer.has_bulk]
        turns = [Turn(measure, variant, who.peer.name, take(who)) for who in them]
        if self._has_floor and (below := self._floors.get((measure, variant))):
            turns.insert(1, Turn(measure, variant, FLOOR, below))
        return turns

    @property
    def _floors(self) -> dict[tuple[str, str], Callable[[], Figures]]:
        return {
            ("enqueue", "many"): lambda: floors.copy(self._sizes.bulk),
            ("pickup", "1 process"): lambda: floors.notify(self._sizes.pickups, BETWEEN_NOTIFICATIONS),
        }

    def _enqueue(self, how: str) -> Callable[[Contender], Callable[[], Figures]]:
        return lambda who: lambda: enqueue(who, self._sizes, how)

    def _cost(self, who: Contender) -> Callable[[], Figures]:
        jobs = min(self._sizes.cost, self._jobs.get(who.peer.name, FEWEST) or FEWEST)
        return lambda: cost(who, self._counts, jobs, self._sizes.limit)

    def _wait(self, what: str) -> Callable[[Contender], Callable[[], Figures]]:
        return lambda who: lambda: idle_or_pickup(who, self._counts, self._sizes, what)

    def _take(self, turn: Turn, number: int) -> None:
        if (turn.peer, turn.measure, turn.variant) in self._failed:
            return
        try:
            figures = turn.take()
        except NOT_MEASURABLE as failed:
            self._fail(turn.peer, turn.measure, turn.variant, one_line(failed))
            return
        self._results.add(turn.peer, turn.measure, turn.variant, number, figures)
        shown = ", ".join(
            f"{name} {value:,.4g}" if value < 1_000 else f"{name} {value:,.0f}" for name, value in figures.items()
        )
        self._say(
            f"round {number}: {turn.measure}, {turn.variant}: {turn.peer}: {shown}; load {os.getloadavg()[0]:.1f}"
        )

    def _fail(self, peer: str, measure: str, variant: str, reason: str) -> None:
        self._failed.add((peer, measure, variant))
        self._results.fail(peer, measure, variant, reason)
        self._say(f"{measure}, {variant}: {peer} FAILED: {reason}")


def one_line(failed: BaseException) -> str:
    return " ".join(str(failed).split())[:300] or type(failed).__name__
