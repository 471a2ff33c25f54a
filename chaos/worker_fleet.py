"""The workers of a run on a server of its own, and what is done to them: killed, frozen and cut off."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.own_server import ask
from testproject.harness.processes import StartedProcesses, StartedWorker, send, worker_command
from tests.crash.processes import ROOT, database_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """How the workers of a run are started."""

    workers: int
    arguments: Sequence[str]
    pulse: dict[str, Any]  # their settings
    modules: Sequence[str]  # of their tasks
    more_of_every_second: Sequence[str] = ()  # arguments of these alone
    mutants: str  # the module that plants a bug
    freeze: float = 2.6  # seconds, longer than a lease
    victims: str = "application_name LIKE 'pulse%'"  # whose connections are cut


class WorkerFleet:
    def __init__(
        self, started: StartedProcesses, kind: Kind, mutant: str, chance: random.Random, happened: Counter[str]
    ) -> None:
        self._started, self._kind, self._mutant = started, kind, mutant
        self._chance, self._happened, self._starts = chance, happened, 0
        self.workers = [self._start(number) for number in range(kind.workers)]

    @property
    def nemeses(self) -> list[Callable[[], None]]:
        return [self.kill, self.kill_child, self.freeze, self.terminate]

    def wait_for_the_first(self, question: str) -> None:
        """Return once this has an answer."""
        until = time.monotonic() + 60
        while not ask(question):
            if time.monotonic() > until:
                raise SystemExit(f"No job began within a minute. The log of a worker:\n{self.workers[0].log[-2_000:]}")
            time.sleep(0.2)

    def supervise(self) -> None:
        """Start workers again that ended by themselves: one whose fork server was killed does."""
        for place, worker in enumerate(self.workers):
            if worker.exit_code is not None:
                self.workers[place] = self._start(place)
                self._happened["start a worker that ended"] += 1

    def kill(self) -> None:
        place = self._chance.randrange(len(self.workers))
        self.workers[place].kill()
        self._happened["kill a worker"] += 1
        self.workers[place] = self._start(place)

    def kill_child(self) -> None:
        family = self._chance.choice(self.workers).family()[1:]
        if family:
            send([self._chance.choice(family)], signal.SIGKILL)
            self._happened["kill a child"] += 1

    def freeze(self) -> None:
        worker = self._chance.choice(self.workers)
        worker.freeze()
        time.sleep(self._kind.freeze)
        worker.thaw()
        self._happened["freeze a worker"] += 1

    def terminate(self) -> None:
        ask(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {self._kind.victims}"
            " ORDER BY random() LIMIT 3"
        )
        self._happened["terminate backends"] += 1

    def _start(self, number: int) -> StartedWorker:
        self._starts += 1
        name = f"worker-{number}-{self._starts}"
        settings = self._kind.pulse | {"TASK_MODULES": list(self._kind.modules)}
        if self._mutant:
            settings["TASK_MODULES"].append(self._kind.mutants)
        env = os.environ | {
            "DATABASE_URL": database_url(options=f"-c chaos.worker={name}"),
            "PULSE": json.dumps(settings),
            "PYTHONPATH": str(ROOT),
            "CHAOS_MUTANT": self._mutant,
        }
        env.pop("PGAPPNAME", None)  # is that of this process
        more = self._kind.more_of_every_second if number % 2 else ()
        command = worker_command("--name", name, *self._kind.arguments, *more)
        return self._started.start_worker(name, command, env, cwd=ROOT)
