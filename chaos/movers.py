"""``python -m chaos.movers``: move waiting jobs from one shard to another and back, by processes that are killed.

Unique jobs stay: where their key is looked for is decided by the placement, which does not change in a run.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

MOVED = ("chaos.quick", "chaos.slow", "chaos.steps", "chaos.failing")
AT_ONCE = 20
PAUSE = 0.02
LIFE = (0.05, 1.0)  # seconds, of a process that moves jobs
QUIET = "CHAOS_MOVER_QUIET"  # if set, deliver departures and move no more jobs
KILLED = "Killed a mover"


class Movers:
    """The program that starts movers, one after the other."""

    def __init__(self, folder: Path, mutant: str) -> None:
        from testproject.harness.processes import StartedProcesses

        self._processes, self._mutant = StartedProcesses(folder), mutant

    @property
    def killed(self) -> int:
        """How many movers were killed."""
        return sum(one.log.count(KILLED) for one in self._processes.started)

    def start(self) -> None:
        self._start("moving")

    def let_finish(self) -> None:
        """Deliver the jobs that are between two shards, and kill no more movers."""
        self._processes.kill()
        self._start("finishing", **{QUIET: "yes"})

    def end(self) -> None:
        self._processes.kill()

    def _start(self, name: str, **more: str) -> None:
        env = os.environ | {"CHAOS_MUTANT": self._mutant, **more}
        self._processes.start(name, [sys.executable, "-m", "chaos.movers"], env)


def main() -> None:
    import django

    django.setup()
    if os.environ.get("CHAOS_MUTANT"):
        import chaos.shard_mutants  # noqa: F401 - it plants the bug
    if QUIET in os.environ:
        move_jobs()
    while True:
        if not (mover := os.fork()):
            signal.setitimer(signal.ITIMER_REAL, random.uniform(*LIFE))  # its signal ends the process, wherever it is
            move_jobs()
        os.waitpid(mover, 0)
        print(KILLED, flush=True)


def move_jobs() -> None:
    from django.db import connections

    from pulse_django.models import Job
    from pulse_django.shards.moving import finish, move
    from pulse_django.shards.placement import shards

    chance, aliases = random.Random(), list(shards())
    while True:
        source, to = chance.sample(aliases, 2)
        try:
            finish(source)
            if QUIET not in os.environ:
                jobs = Job.objects.using(source).filter(task__in=MOVED)
                move(jobs.filter(pk__in=list(jobs.claimable().values_list("pk", flat=True)[:AT_ONCE])), to)
        except Exception as error:
            print(f"{source} to {to}: {error}", flush=True)
            connections.close_all()
        time.sleep(PAUSE)


if __name__ == "__main__":
    main()
