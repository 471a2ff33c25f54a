"""``python -m chaos.limits``: workers claim jobs of all kinds of limits while they are killed, frozen and cut off.

Never more leases than a limit allows, no window with more starts than a rate allows, and no handler that begins when
its lease is over. Exits with 0 if so, with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from chaos.clock import Clock
from chaos.own_server import ClockSteps, ask, own_server, say

WORKERS = 4
PROCESSES = "2"  # of each worker: these claim
CONCURRENCY = "24"  # of each worker
BETWEEN = (0.5, 1.5)  # seconds between two nemeses
# At the end the clock is set back by so many seconds, and within PATIENCE seconds jobs with a rate have to start again.
BACK, PATIENCE = 40.0, 10.0
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.6, "WATCHDOG_INTERVAL": 0.5, "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5, "MAX_LOST_WORKERS": 50, "MAX_ATTEMPTS": 200,
    "QUEUE_LIMITS": {"bulk": {"max_running": 10}},
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

    def verdict(self) -> int:
        from chaos.limit_history import HISTORY, SCHEMA, Line
        from chaos.limited_handlers import SHORT_QUEUE
        from chaos.worker_fleet import Kind, WorkerFleet
        from testproject.harness.processes import StartedProcesses

        say(f"seed {self.options.seed}, {self.options.seconds:g} s, {WORKERS} workers of {PROCESSES} processes")
        ask(SCHEMA)
        self._refill()
        kind = Kind(
            workers=WORKERS,
            arguments=("--concurrency", CONCURRENCY, "--processes", PROCESSES),
            pulse=PULSE,
            modules=["chaos.limited_handlers"],
            mutants="chaos.limit_mutants",
            more_of_every_second=("--queues", SHORT_QUEUE),
        )
        with StartedProcesses(self.folder) as started:
            fleet = WorkerFleet(started, kind, self.options.mutant, self.chance, self.happened)
            fleet.wait_for_the_first("SELECT 1 FROM chaos_lease LIMIT 1")
            until = time.monotonic() + self.options.seconds
            next_one = time.monotonic() + self.chance.uniform(*BETWEEN)
            while time.monotonic() < until:
                self._refill()
                if not self.options.calm and time.monotonic() >= next_one:
                    self.chance.choice([*fleet.nemeses, self.clock.step])()
                    fleet.supervise()
                    next_one = time.monotonic() + self.chance.uniform(*BETWEEN)
                time.sleep(0.2)
            lines = [Line(*row) for row in ask(HISTORY)]
            fleet.supervise()
            stalled = [] if self.options.only else self._stalled_by_the_clock()
        return self._judge(lines, stalled)

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

    def _stalled_by_the_clock(self) -> list[str]:
        """Set the clock back, and return the rates that wait for it. Jobs from before are not due for a while."""
        from chaos.limited_handlers import KEY_RATE, RATE, key_rate, rate
        from pulse_django import enqueue_many

        if not self.clock.step_back(BACK):
            return []
        [(last,)] = ask("SELECT max(n) FROM chaos_lease")
        waiting = {RATE.name, KEY_RATE.name}
        until = time.monotonic() + PATIENCE
        while waiting and time.monotonic() < until:
            for task in (rate, key_rate):
                enqueue_many(task, [(number,) for number in range(10)])
            time.sleep(0.5)
            begun = (
                "SELECT DISTINCT split_part(lane_key, ':', 1) FROM chaos_lease"
                " WHERE n > %s AND began_at <= clock_timestamp()"
            )
            waiting -= {name for (name,) in ask(begun, last)}
        return sorted(waiting)

    # The end

    def _judge(self, lines: Sequence[Any], stalled: Sequence[str]) -> int:
        from chaos.limit_history import LATE, judge
        from chaos.limited_handlers import LIMITS, QUEUES
        from pulse_django.queue.words.lane_keys import limiter_of, limiter_of_queue

        verdict = judge(lines, LIMITS, self.clock.covers, QUEUES)
        set_back = f"within {PATIENCE:g} s after the clock was set back by {BACK:g} s"
        verdict.broken += [f"{name}: no job began {set_back}" for name in stalled]
        verdict.broken += [f"job {job_id} began after its lease" for (job_id,) in ask(LATE)]
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
