"""``python -m chaos.limits``: workers claim jobs of all kinds of limits while they are killed, frozen and cut off.

Never more leases than a limit allows, and no window with more starts than a rate allows. Exits with 0 if so, with 1 if
not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from chaos.clock import Clock
from chaos.own_server import ClockSteps, ask, own_server, say

WORKERS = 4
PROCESSES = "2"  # of each worker: these claim
CONCURRENCY = "24"  # of each worker
BETWEEN = (0.5, 1.5)  # seconds between two nemeses
FREEZE = 2.6  # seconds, longer than a lease
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.6, "WATCHDOG_INTERVAL": 0.5, "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5, "MAX_LOSSES": 50, "MAX_ATTEMPTS": 200,
    "QUEUE_LIMITS": {"bulk": {"running": 10}},
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong: to measure the use alone")
    parser.add_argument("--only", default="", help="kinds of jobs, as chaos.long,chaos.api: to measure their use alone")
    parser.add_argument("--mutant", default="", help="a bug to plant in the workers: the run must find it")
    options = parser.parse_args()
    os.environ["PULSE"] = json.dumps(PULSE)  # for what is enqueued here
    with own_server() as (folder, clock):
        return Run(folder, clock, options).verdict()


class Run:
    def __init__(self, folder: Path, clock: Clock, options: argparse.Namespace) -> None:
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        self.folder, self.options = folder, options
        self.chance = random.Random(options.seed)
        self.happened: Counter[str] = Counter()
        self.clock = ClockSteps(clock, self.happened)
        self.workers: list[Any] = []

    def verdict(self) -> int:
        from chaos import limit_history
        from pulse_django.harness.processes import StartedProcesses

        say(f"seed {self.options.seed}, {self.options.seconds:g} s, {WORKERS} workers of {PROCESSES} processes")
        ask(limit_history.SCHEMA)
        self._refill()
        with StartedProcesses(self.folder) as started:
            self.workers = [self._start(started, number) for number in range(WORKERS)]
            self._wait_for_the_first()
            until = time.monotonic() + self.options.seconds
            next_one = time.monotonic() + self.chance.uniform(*BETWEEN)
            while time.monotonic() < until:
                self._refill()
                if not self.options.calm and time.monotonic() >= next_one:
                    nemeses = [self._kill, self._kill_child, self._freeze, self._terminate, self._set_clock]
                    self.chance.choice(nemeses)(started)
                    next_one = time.monotonic() + self.chance.uniform(*BETWEEN)
                time.sleep(0.2)
        return self._judge()

    def _refill(self) -> None:
        from chaos.limited_handlers import LOAD, WEIGHTS
        from pulse_django import enqueue_many

        waiting = dict(
            ask("SELECT task, count(*) FROM pulse_django_job_hot WHERE status IN ('PENDING', 'RETRYING') GROUP BY task")
        )
        only = self.options.only.split(",") if self.options.only else [task.registered_name for task in LOAD]
        for task, (customers, least) in LOAD.items():
            if task.registered_name not in only:
                continue
            if waiting.get(task.registered_name, 0) < least:
                weights = WEIGHTS.get(task, (1,))
                for weight in weights:
                    of_each = [(self.chance.randrange(customers),) for _ in range(least // len(weights))]
                    enqueue_many(task.using(weight=weight), of_each)

    def _start(self, started: Any, number: int) -> Any:
        from pulse_django.harness.processes import worker_command
        from tests.crash.processes import ROOT

        settings = PULSE | {"TASK_MODULES": ["chaos.limited_handlers"]}
        if self.options.mutant:
            settings["TASK_MODULES"] = [*settings["TASK_MODULES"], "chaos.limit_mutants"]
        env = os.environ | {"PULSE": json.dumps(settings), "PYTHONPATH": str(ROOT), "CHAOS_MUTANT": self.options.mutant}
        name = f"worker-{number}-{self.happened['kill a worker']}"
        command = worker_command("--name", name, "--concurrency", CONCURRENCY, "--processes", PROCESSES)
        return started.start_worker(name, command, env, cwd=ROOT)

    def _wait_for_the_first(self) -> None:
        until = time.monotonic() + 60
        while not ask("SELECT 1 FROM chaos_lease LIMIT 1"):
            if time.monotonic() > until:
                raise SystemExit(f"No job began within a minute. The log of a worker:\n{self.workers[0].log[-2_000:]}")
            time.sleep(0.2)

    # Nemeses

    def _kill(self, started: Any) -> None:
        place = self.chance.randrange(WORKERS)
        self.workers[place].kill()
        self.happened["kill a worker"] += 1
        self.workers[place] = self._start(started, place)

    def _kill_child(self, _started: Any) -> None:
        from pulse_django.harness.processes import send

        family = self.chance.choice(self.workers).family()[1:]
        if family:
            send([self.chance.choice(family)], 9)
            self.happened["kill a child"] += 1

    def _freeze(self, _started: Any) -> None:
        worker = self.chance.choice(self.workers)
        worker.freeze()
        time.sleep(FREEZE)
        worker.thaw()
        self.happened["freeze a worker"] += 1

    def _terminate(self, _started: Any) -> None:
        ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pulse%'"
            " ORDER BY random() LIMIT 3"
        )
        self.happened["terminate backends"] += 1

    def _set_clock(self, _started: Any) -> None:
        self.clock.step()

    # The end

    def _judge(self) -> int:
        from chaos.limit_history import HISTORY, Line, judge
        from chaos.limited_handlers import LIMITS, QUEUES
        from pulse_django.words.lane_keys import limiter_of, limiter_of_queue

        lines = [Line(*row) for row in ask(HISTORY)]
        verdict = judge(lines, LIMITS, self.clock.covers, QUEUES)
        for name, times in sorted(self.happened.items()):
            say(f"  {times} x {name}")
        say(f"  {sum(line.step == 1 for line in lines)} runs began")
        names = [*(limit.name for limit in LIMITS), *map(limiter_of_queue, QUEUES)]
        for name in names:
            most = {scope: n for scope, n in verdict.most.items() if limiter_of(scope.partition(" ")[0]) == name}
            own = {scope: n for scope, n in most.items() if ":" not in scope.partition(" ")[0]}
            of_keys = max((n for scope, n in most.items() if scope not in own), default=0)
            begun, used = verdict.begun[name], verdict.used.get(name, 0)
            say(f"  {name}: {begun} runs, most {own}, of a key {of_keys}; in use {used:.0%}")
        if not self.options.only and not all(verdict.begun[name] for name in names):
            verdict.broken.append(f"no run of some limit began: {dict(verdict.begun)}")
        for one in verdict.broken[:10]:
            say(f"BROKEN: {one}")
        if self.options.mutant:
            say(f"MUTANT {self.options.mutant}: {'found' if verdict.broken else 'NOT FOUND'}")
            return 0 if verdict.broken else 1
        say("Something was broken." if verdict.broken else "Nothing was broken.")
        return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
