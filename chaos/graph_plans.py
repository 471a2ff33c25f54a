"""Random graphs for the chaos of graphs: workflows, batches, and jobs that need what was there before."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

from chaos.graph_handlers import after, approve, atom, fan, grow, late, seal, spread, steps, work
from pulse_django import Batch, Workflow
from pulse_django.exceptions import BatchFinished, InvalidWorkflow

KINDS = ("success", "dead", "end")
DIES = 0.012  # of jobs that can
MANY_NEEDS = 0.25  # of workflows have a job that needs more than 50
SEND_AT_ONCE = 0.3  # of events, before anybody waits
LONGEST_WAIT = 6.0  # seconds until an event is sent
ON_NEED_FAILED = ("wait", "wait", "wait", "continue", "cancel")


class Planner:
    """Enqueues one random thing after another. ``send_later`` gets each event that some job waits for."""

    def __init__(self, chance: random.Random, send_later: Callable[[str, float], None]) -> None:
        self._chance, self._send_later = chance, send_later
        self.enqueued = 0  # jobs, without those that handlers add
        self.counts: dict[str, int] = dict.fromkeys(("workflows", "batches", "events", "jobs of 50 needs"), 0)
        self.refused: list[str] = []  # what should have been possible
        self._before: list[int] = []  # jobs of earlier workflows
        self._batches: list[Batch] = []

    def enqueue(self) -> None:
        """Enqueue a workflow or a batch."""
        self._chance.choices([self._workflow, self._batch, self._nested_batches], [6, 3, 1])[0]()

    # Workflows

    def _workflow(self) -> None:
        many = self._chance.random() < MANY_NEEDS
        flow = self._filled(self._chance.randint(60, 90) if many else self._chance.randint(5, 40), depth=0)
        if many:
            names = self._chance.sample([name for name in flow.nodes if name.startswith("job")], 51)
            flow.add("all", self._call(), needs=names)
            self.counts["jobs of 50 needs"] += 1
        if self._before and self._chance.random() < 0.3:
            flow.add("after others", self._call(), needs=self._chance.sample(self._before, min(3, len(self._before))))
        if self._batches and self._chance.random() < 0.2:
            flow.add("after a batch", self._call(), needs=[self._chance.choice(self._batches)])
        placed = flow.enqueue()
        self.counts["workflows"] += 1
        self._before = [*self._before[-50:], *placed.job_ids.values()]

    def _filled(self, count: int, *, depth: int) -> Workflow:
        chance = self._chance
        flow = Workflow(f"graph {depth}", on_need_failed=chance.choice(ON_NEED_FAILED))
        names: list[str] = []
        for number in range(count):
            needs = chance.sample(names[-15:], min(len(names[-15:]), chance.choice((0, 1, 1, 2, 2, 3, 4))))
            if depth < 2 and chance.random() < 0.04:
                name = f"part {number}"
                flow.add_workflow(name, self._filled(chance.randint(0, 6), depth=depth + 1), needs=needs)
            else:
                name = f"job {number}"
                flow.add(name, self._call(), needs=needs)
            names.append(name)
        return flow

    def _call(self) -> Any:
        self.enqueued += 1
        chance = self._chance
        dies = chance.random() < DIES
        kind = chance.choices((work, steps, atom, fan, spread, approve, late, after), (28, 16, 36, 4, 2, 6, 3, 5))[0]
        if kind is fan:
            return fan.prepare(chance.randint(1, 6))
        if kind is spread:
            return spread.prepare(chance.randint(0, 5), self._kinds())
        if kind is approve:
            return approve.prepare(self._event())
        if kind is late:
            return late.prepare(self._name("never"), chance.uniform(0.3, 2.0))
        if kind is after and self._before:
            # In any order of their ids, and one may wait for another.
            return after.prepare(chance.sample(self._before, min(len(self._before), chance.randint(1, 4))))
        return kind.prepare(dies) if kind in (work, steps, atom) else work.prepare()

    def _event(self) -> str:
        name = self._name("event")
        self._send_later(name, 0.0 if self._chance.random() < SEND_AT_ONCE else self._chance.uniform(0, LONGEST_WAIT))
        return name

    def _name(self, of: str) -> str:
        self.counts["events"] += 1
        return f"{of} {self.counts['events']}"

    # Batches

    def _batch(self, parent: Batch | None = None) -> None:
        """Fill a batch in several transactions, so that all members so far may be over before the next ones."""
        chance, kinds = self._chance, self._kinds()
        parts = [chance.randint(0, 12) for _ in range(chance.randint(1, 4))]
        growers = chance.randint(0, 3)
        grown = [chance.randint(1, 4) for _ in range(growers)]
        context = {"planned": sum(parts) + growers + sum(grown), "callbacks": kinds}
        self.counts["batches"] += 1
        try:
            batch = Batch.open("a batch", parent=parent, context=context)
            for part in parts:
                for _ in range(part):
                    batch.add(self._call())
                self._pause()
            for more in grown:
                batch.add(grow.prepare(more, chance.random() < 0.5))
            if chance.random() < 0.5:
                self._pause()
            seal(batch, kinds)
        except (BatchFinished, InvalidWorkflow) as error:
            self.refused.append(f"a batch could not be filled and sealed: {error}")
            return
        if parent is None:
            self._batches.append(batch)

    def _nested_batches(self) -> None:
        kinds = self._kinds()
        outer = Batch.open("outside", context={"callbacks": kinds})
        for _ in range(self._chance.randint(1, 3)):
            outer.add(self._call())
            self._batch(parent=outer)
        seal(outer, kinds)
        self.counts["batches"] += 1

    def _kinds(self) -> list[str]:
        return [kind for kind in KINDS if self._chance.random() < 0.7]

    def _pause(self) -> None:
        time.sleep(self._chance.uniform(0, 0.4))
