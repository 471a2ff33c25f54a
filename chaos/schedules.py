"""``python -m chaos.schedules``: many watchdogs fire many schedules while they are killed and the clock is set.

Each tick between the first and the last has to fire exactly once. Exits with 0 if so, with 1 if not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

from chaos.clock import Clock
from chaos.own_server import ClockSteps, ask, own_server, say

WATCHDOGS = 8
SCHEDULES = 100
BETWEEN = (0.2, 0.8)  # seconds between two nemeses
REST = 5.0  # seconds without any, at the end
SECOND = timedelta(seconds=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong: to measure the lateness alone")
    parser.add_argument("--mutant", default="", help="a bug to plant in the watchdogs: the run must find it")
    options = parser.parse_args()
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
        self.processes: list[Any] = []

    def verdict(self) -> int:
        from chaos.handlers import quick
        from pulse_django.harness.processes import StartedProcesses
        from pulse_django.models import Schedule
        from pulse_django.words.timings import Every

        say(f"seed {self.options.seed}, {self.options.seconds:g} s, {WATCHDOGS} watchdogs, {SCHEDULES} schedules")
        for number in range(SCHEDULES):
            timing = Every(SECOND, missed="all", overlap="allow")
            Schedule.objects.create(name=f"every second {number}", task=quick, timing=timing)
        with StartedProcesses(self.folder) as started:
            self.processes = [self._start(started, number) for number in range(WATCHDOGS)]
            self._wait_for_the_first()
            until = time.monotonic() + self.options.seconds
            while time.monotonic() < until:
                if self.options.calm:
                    time.sleep(0.5)
                    continue
                self.chance.choice([self._kill, self._kill, self._terminate, self._terminate, self._set_clock])(started)
                time.sleep(self.chance.uniform(*BETWEEN))
            time.sleep(REST)
        return self._judge()

    def _start(self, started: Any, number: int) -> Any:
        from tests.crash.processes import ROOT

        settings: dict[str, Any] = {"WATCHDOG_INTERVAL": 0.5, "LEASE_TTL": 5, "HEARTBEAT_INTERVAL": 1}
        settings["TASK_MODULES"] = ["chaos.handlers"]
        if self.options.mutant:
            settings["TASK_MODULES"].append("chaos.schedule_mutants")
        env = os.environ | {"PULSE": json.dumps(settings), "PYTHONPATH": str(ROOT), "CHAOS_MUTANT": self.options.mutant}
        command = [sys.executable, "-m", "django", "pulse_watchdog"]
        return started.start(f"watchdog-{number}-{self.happened['kill']}", command, env, cwd=ROOT)

    def _wait_for_the_first(self) -> None:
        from pulse_django.models import Tick

        until = time.monotonic() + 60
        while not Tick.objects.exists():
            if time.monotonic() > until:
                log = (self.folder / "watchdog-0-0.log").read_text(errors="replace")
                raise SystemExit(f"No tick fired within a minute. The log of a watchdog:\n{log[-2_000:]}")
            time.sleep(0.2)

    def _kill(self, started: Any) -> None:
        place = self.chance.randrange(WATCHDOGS)
        self.processes[place].kill()
        self.happened["kill"] += 1
        self.processes[place] = self._start(started, place)

    def _terminate(self, _started: Any) -> None:
        ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pulse schedules'"
            " ORDER BY random() LIMIT 2"
        )
        self.happened["terminate backends"] += 1

    def _set_clock(self, _started: Any) -> None:
        self.clock.step()

    def _judge(self) -> int:
        broken: list[str] = []
        rows = ask(
            "SELECT schedule_id, count(*), count(DISTINCT at), EXTRACT(epoch FROM max(at) - min(at))::int + 1,"
            " count(*) FILTER (WHERE outcome <> 'FIRED') FROM pulse_django_tick GROUP BY 1 ORDER BY 1"
        )
        if len(rows) < SCHEDULES:
            broken.append(f"only {len(rows)} of {SCHEDULES} schedules fired at all")
        for schedule, ticks, distinct, expected, others in rows:
            if not ticks == distinct == expected or others:
                broken.append(f"schedule {schedule}: {ticks} ticks of {expected}, {others} of them did not fire")
        [(ticks, jobs, keys)] = ask(
            "SELECT (SELECT count(*) FROM pulse_django_tick), (SELECT count(*) FROM pulse_django_job),"
            " (SELECT count(DISTINCT job_id) FROM pulse_django_tick)"
        )
        if not ticks == jobs == keys:
            broken.append(f"{ticks} ticks, {jobs} jobs, {keys} different jobs of ticks")
        lags = self._lags()
        for name, times in sorted(self.happened.items()):
            say(f"  {times} x {name}")
        say(f"  {ticks} ticks, {jobs} jobs")
        if lags:
            p50, p99 = lags[len(lags) // 2], lags[int(len(lags) * 0.99)]
            say(f"  late by {p50 * 1000:.0f} ms (p50), {p99 * 1000:.0f} ms (p99), {lags[-1] * 1000:.0f} ms (most)")
        for one in broken[:10]:
            say(f"BROKEN: {one}")
        if self.options.mutant:
            say(f"MUTANT {self.options.mutant}: {'found' if broken else 'NOT FOUND'}")
            return 0 if broken else 1
        say("Something was broken." if broken else "Nothing was broken.")
        return 1 if broken else 0

    def _lags(self) -> list[float]:
        """How late each tick was decided, since all watchdogs run and without those near a step of the clock."""
        found = ask(
            "SELECT at, EXTRACT(epoch FROM decided_at - at)::float8 FROM pulse_django_tick"
            " WHERE at > (SELECT min(decided_at) + interval '5 s' FROM pulse_django_tick)"
        )
        return sorted(late for at, late in found if not self.clock.covers(at))


if __name__ == "__main__":
    sys.exit(main())
