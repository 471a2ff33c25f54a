"""``python -m chaos.graphs``: workers run jobs that need each other while they are killed, frozen and cut off.

No job starts before what it needs is over, none waits for ever, each callback runs once, and no step is done twice.
Exits with 0 if so, with 1 if not.
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

from chaos.own_server import ask, own_server, say

WORKERS = 3
PROCESSES = "2"  # of each worker
CONCURRENCY = "24"  # of each worker
BETWEEN = (0.3, 1.2)  # seconds between two nemeses
JOBS = 50  # for each second, about
ENQUEUE = 0.7  # the share of the time in which jobs are enqueued
QUIET = 15.0  # seconds without any change after which nothing more is expected
LONGEST_END = 180.0  # seconds
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.6, "WATCHDOG_INTERVAL": 0.5, "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5, "MAX_LOST_WORKERS": 50, "MAX_ATTEMPTS": 200,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong")
    parser.add_argument("--mutant", default="", help="a bug to plant in the workers: the run must find it")
    options = parser.parse_args()
    os.environ["PULSE"] = json.dumps(PULSE)
    os.environ["PGAPPNAME"] = "chaos"  # these connections are not cut
    with own_server() as (folder, _clock):
        return Run(folder, options).verdict()


class Run:
    def __init__(self, folder: Path, options: argparse.Namespace) -> None:
        import django

        django.setup()
        from django.core.management import call_command

        from chaos import graph_records

        call_command("migrate", verbosity=0)
        ask(graph_records.SCHEMA)
        if options.mutant:
            ask(graph_records.WITHOUT_CHECKS)
        self.folder, self.options = folder, options
        self.chance = random.Random(options.seed)
        self.happened: Counter[str] = Counter()

    def verdict(self) -> int:
        from chaos import graph_records
        from chaos.graph_clients import Clients
        from chaos.worker_fleet import Kind, WorkerFleet
        from testproject.harness.processes import StartedProcesses

        kind = Kind(
            workers=WORKERS,
            arguments=("--concurrency", CONCURRENCY, "--processes", PROCESSES),
            pulse=PULSE,
            modules=["chaos.graph_handlers"],
            mutants="chaos.graph_mutants",
            victims="application_name <> 'chaos' AND backend_type = 'client backend'",
        )
        say(f"seed {self.options.seed}, {self.options.seconds:g} s, {WORKERS} workers of {PROCESSES} processes")
        [(deadlocks,)] = ask(graph_records.DEADLOCKS)
        clients = Clients(self.chance.randrange(2**32), self.options.seconds, JOBS, ENQUEUE)
        with StartedProcesses(self.folder) as started, clients:
            fleet = WorkerFleet(started, kind, self.options.mutant, self.chance, self.happened)
            fleet.wait_for_the_first("SELECT 1 FROM chaos_history WHERE what = 'RUNNING' LIMIT 1")
            until = time.monotonic() + self.options.seconds
            while time.monotonic() < until:
                time.sleep(self.chance.uniform(*BETWEEN))
                if not self.options.calm:
                    self.chance.choice([*fleet.nemeses, fleet.freeze])()
                fleet.supervise()
            took = self._wait_for_the_end(clients, fleet)
        return self._judge(clients, deadlocks, took)

    def _wait_for_the_end(self, clients: Any, fleet: Any) -> float:
        """Wait until everything is over, or nothing changes any more. Return how long that took."""
        from chaos import graph_records

        begin = changed = time.monotonic()
        last = None
        while clients.is_busy or not ask(graph_records.IS_OVER)[0][0]:
            fleet.supervise()
            now = time.monotonic()
            if (seen := ask(graph_records.LAST)) != last:
                last, changed = seen, now
            if now - changed > QUIET or now - begin > LONGEST_END:
                clients.refused.append(f"it did not come to an end within {now - begin:.0f} s")
                break
            time.sleep(0.3)
        return time.monotonic() - begin

    def _overlooked(self) -> list[str]:
        """Return the log lines about jobs whose needs had ended without a note, which watchdogs had to find."""
        from pulse_django.workflows.sweeps import OVERLOOKED

        lines = [line for log in sorted(self.folder.glob("*.log")) for line in log.read_text().splitlines()]
        return [line for line in lines if OVERLOOKED in line]

    def _judge(self, clients: Any, deadlocks: int, took: float) -> int:
        from chaos.graph_handlers import EFFECTS
        from chaos.graph_history import Judge
        from chaos.graph_records import read

        history = read([*clients.refused, *self._overlooked()], deadlocks)
        broken = Judge(history, EFFECTS).broken()
        for name, times in sorted(self.happened.items()):
            say(f"  {times} x {name}")
        runs = sum(line.what == "RUNNING" for line in history.lines)
        statuses = ", ".join(f"{count} {one}" for one, count in Counter(job.status for job in history.jobs).items())
        died = len({line.id for line in history.lines if line.what == "DEAD_LETTERED"})
        say(f"  {', '.join(f'{count} {name}' for name, count in clients.counts.items())}")
        say(f"  {len(history.jobs)} jobs, {len(history.needs)} needs, {len(history.batches)} batches, {runs} runs")
        say(f"  {statuses}; {died} died, {took:.1f} s to the end")
        say(f"  {len(history.effects)} effects, {history.deadlocks} deadlocks")
        for one in broken[:10]:
            say(f"BROKEN: {one}")
        if self.options.mutant:
            say(f"MUTANT {self.options.mutant}: {'found' if broken else 'NOT FOUND'}")
            return 0 if broken else 1
        say(f"{len(broken)} things were broken." if broken else "Nothing was broken.")
        return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
