"""``python -m chaos.schedules``: many watchdogs fire many schedules while they are killed and the clock is set.

Beside the good schedules some are days behind, some are refused by their task or by the server, two wait for locks,
functions that make keys are slow, raise or never return, and rows are locked for a while. Each tick of a good schedule
between the first and the last has to fire exactly once, and the last one has to be of now. Of those that are behind,
each tick fires once at most. Exits with 0 if so, with 1 if not.

A good schedule may be late for a while: processes start anew, a machine is busy, and the server's timeouts take longer
when its clock is set back. So the run counts what was decided of the others while a good tick waited, not seconds: each
watchdog writes one batch of those that are behind between two batches of those in time. Before the first trouble and
after the last one, good schedules have to be in time; before it, while others are still behind.

``--calm`` measures: nothing goes wrong, all catch up, and no good schedule may be later than ``LATEST``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from bisect import bisect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import psycopg

from chaos.clock import Clock
from chaos.own_server import ClockSteps, ask, own_server, say, server_now

BEHIND_BY = timedelta(days=2)
LATEST = 2.0  # seconds, if nothing goes wrong
BETWEEN = (0.2, 0.8)  # seconds between two nemeses
PATIENCE = 60.0  # seconds until good schedules are in time
SECOND, LATELY = timedelta(seconds=1), timedelta(seconds=5)
GOOD = (
    "(SELECT id, name, EXTRACT(epoch FROM every)::int AS every FROM pulse_django_schedule"
    " WHERE name = 'declared' OR starts_with(name, 'good')) AS good"
)


# The server refuses each tick of one schedule. So the batch that it is in fails, and its ticks cannot be refused.
UNWRITABLE = """
CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT name FROM pulse_django_schedule WHERE id = NEW.schedule_id) = 'unwritable' THEN
        RAISE 'refused' USING ERRCODE = '23514';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER chaos_refuse BEFORE INSERT ON pulse_django_tick FOR EACH ROW EXECUTE FUNCTION chaos_refuse()
"""


@contextmanager
def held_locks() -> Iterator[None]:
    """Hold the row of a job, for whose cancellation a schedule waits, and the unique key of another one."""
    from chaos.scheduled import keyed
    from pulse_django.unique.keys import key_of_call

    key = key_of_call(keyed, (), {})
    assert key is not None
    [(job_id,)] = ask(
        "INSERT INTO pulse_django_job (task, next_run_at) VALUES ('chaos.quick', now() + interval '1 day') RETURNING id"
    )
    ask("UPDATE pulse_django_schedule SET overlap = 'cancel', last_job_id = %s WHERE name = 'locked'", job_id)
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        other.execute("SELECT FROM pulse_django_job_hot WHERE id = %s FOR UPDATE", [job_id])
        other.execute("INSERT INTO pulse_django_job (task, unique_key) VALUES ('chaos.keyed', %s)", [key.key])
        yield


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--calm", action="store_true", help="nothing goes wrong: to measure the lateness")
    parser.add_argument("--watchdogs", type=int, default=8, help="processes; the first is a worker that declares")
    parser.add_argument("--schedules", type=int, default=100, help="good ones")
    parser.add_argument("--every", type=int, default=1, help="seconds between two ticks of a good one")
    parser.add_argument("--behind", type=int, default=300, help="schedules of each minute that are two days behind")
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
        from testproject.harness.processes import StartedProcesses

        given = self.options
        say(f"seed {given.seed}, {given.seconds:g} s, {given.watchdogs} watchdogs, {given.schedules} schedules")
        self._make_schedules()
        with StartedProcesses(self.folder) as started, held_locks():
            self.processes = [self._start(started, number) for number in range(given.watchdogs)]
            broken = self._never_in_time()
            if not (broken or given.calm or self._behind()):
                broken = ["good schedules were in time only when all others had caught up"]
            if broken:
                log = (self.folder / "watchdog-1-0.log").read_text(errors="replace")
                return self._conclude([*broken, f"The log of a watchdog:\n{log[-2_000:]}"])
            self.began = server_now()
            until = time.monotonic() + given.seconds
            while time.monotonic() < until:
                if given.calm:
                    time.sleep(0.5)
                    continue
                nemeses = [self._kill, self._kill, self._terminate, self._terminate, self._set_clock, self._lock_rows]
                self.chance.choice(nemeses)(started)
                time.sleep(self.chance.uniform(*BETWEEN))
            return self._judge(self._never_in_time())

    def _make_schedules(self) -> None:
        from chaos.handlers import quick
        from chaos.scheduled import each, exiting_key, key_without_end, keyed, slow_key
        from pulse_django.models import Schedule

        given, many = self.options, Schedule.objects
        for number in range(given.schedules):
            phase = timedelta(seconds=given.every) * number / given.schedules if given.every > 1 else timedelta()
            many.create(name=f"good {number}", task=quick, timing=each(timedelta(seconds=given.every), phase))
        for number in range(given.behind):
            many.create(name=f"behind {number}", task=quick, timing=each(timedelta(minutes=1)))
        for name in ("refused", "locked", "unwritable"):
            many.create(name=name, task=quick, timing=each(SECOND))
        ask(UNWRITABLE)
        for task in (keyed, slow_key, key_without_end, exiting_key):
            many.create(name=f"alone {task.name}", task=task, timing=each(timedelta(minutes=1)))
        ask(
            "UPDATE pulse_django_schedule SET next_at = date_trunc('minute', clock_timestamp()) - %s::interval"
            " WHERE starts_with(name, 'behind') OR starts_with(name, 'alone')",
            BEHIND_BY,
        )
        ask("""UPDATE pulse_django_schedule SET kwargs = '{"colour": "red"}' WHERE name = 'refused'""")

    def _start(self, started: Any, number: int) -> Any:
        from tests.crash.processes import ROOT

        settings: dict[str, Any] = {"WATCHDOG_INTERVAL": 0.5, "LEASE_TTL": 5, "HEARTBEAT_INTERVAL": 1}
        settings["TASK_MODULES"] = ["chaos.handlers", "chaos.scheduled"]
        if self.options.mutant:
            settings["TASK_MODULES"].append("chaos.schedule_mutants")
        env = os.environ | {"PULSE": json.dumps(settings), "PYTHONPATH": str(ROOT), "CHAOS_MUTANT": self.options.mutant}
        command = [sys.executable, "-m", "django", "pulse_watchdog"]
        if number == 0:
            command = [sys.executable, "-m", "django", "pulse_worker", "--processes", "1", "--queues", "none"]
        return started.start(f"watchdog-{number}-{self.happened['kill']}", command, env, cwd=ROOT)

    def _never_in_time(self) -> list[str]:
        """Wait until each good schedule has fired and no tick of one is due for more than a second."""
        until = time.monotonic() + PATIENCE
        while late := self._late():
            if time.monotonic() > until:
                return [f"{late} good schedules were not in time for {PATIENCE:.0f} s"]
            time.sleep(0.2)
        return []

    def _late(self) -> int:
        [(in_time,)] = ask(
            f"SELECT count(*) FROM {GOOD} JOIN pulse_django_schedule AS schedule USING (id)"
            " WHERE schedule.last_at IS NOT NULL AND schedule.next_at > clock_timestamp() - interval '1 s'"
        )
        return int(self.options.schedules + 1 - in_time)  # and the one that is declared

    def _behind(self) -> int:
        [(behind,)] = ask(
            "SELECT count(*) FROM pulse_django_schedule"
            " WHERE starts_with(name, 'behind') AND next_at < clock_timestamp() - interval '5 s'"
        )
        return int(behind)

    def _kill(self, started: Any) -> None:
        place = self.chance.randrange(self.options.watchdogs)
        self.processes[place].kill()
        self.happened["kill"] += 1
        self.processes[place] = self._start(started, place)

    def _terminate(self, _started: Any) -> None:
        ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE starts_with(application_name, 'pulse schedules') ORDER BY random() LIMIT 2"
        )
        self.happened["terminate backends"] += 1

    def _set_clock(self, _started: Any) -> None:
        self.clock.step()

    def _lock_rows(self, _started: Any) -> None:
        """Lock the rows of some schedules for a while. No other schedule may be late because of it."""
        with psycopg.connect(os.environ["DATABASE_URL"]) as other:
            other.execute("SELECT FROM pulse_django_schedule ORDER BY random() LIMIT 10 FOR UPDATE SKIP LOCKED")
            time.sleep(self.chance.uniform(0.5, 2.0))
        self.happened["lock rows"] += 1

    def _judge(self, broken: list[str]) -> int:
        from pulse_django.schedules.ticking import MOST_ROWS

        given = self.options
        rows = ask(
            "SELECT good.name, count(*), count(DISTINCT at),"
            " EXTRACT(epoch FROM max(at) - min(at))::int / every + 1, count(*) FILTER (WHERE outcome <> 'FIRED')"
            f" FROM pulse_django_tick JOIN {GOOD} ON good.id = schedule_id GROUP BY name, every ORDER BY name"
        )
        for name, ticks, distinct, expected, others in rows:
            if not ticks == distinct == expected or others:
                broken.append(f"{name}: {ticks} ticks of {expected}, {others} of them did not fire")
        [(fired, jobs, distinct, refused)] = ask(
            "SELECT count(*) FILTER (WHERE outcome = 'FIRED'), (SELECT count(*) FROM pulse_django_job) - 1,"
            " count(DISTINCT job_id), count(*) FILTER (WHERE outcome = 'REFUSED') FROM pulse_django_tick"
        )
        if not fired == jobs == distinct:
            broken.append(f"{fired} ticks that fired, {jobs} jobs, {distinct} different jobs of ticks")
        if not refused:
            broken.append("nothing was refused")
        [(behind, caught_up)] = ask(
            "SELECT count(*), EXTRACT(epoch FROM max(decided_at) - %s)::float8 FROM pulse_django_tick AS tick"
            " JOIN pulse_django_schedule AS schedule ON schedule.id = schedule_id"
            " WHERE starts_with(name, 'behind') AND at < %s",
            self.began,
            self.began,
        )
        late = self._behind()
        [(decided,)] = ask(
            "SELECT count(*) FROM pulse_django_tick AS tick JOIN pulse_django_schedule AS schedule"
            " ON schedule.id = schedule_id WHERE starts_with(name, 'behind') AND decided_at > %s",
            server_now() - LATELY,
        )
        if late and not decided:
            broken.append(f"{late} schedules are behind, and none of their ticks was decided in the last {LATELY}")
        lags, overtaken = self._waited()
        for name, times in sorted(self.happened.items()):
            say(f"  {times} x {name}")
        say(f"  {fired} ticks fired, {refused} were refused; {behind} of those that were behind, the last after")
        say(f"  {caught_up or 0:.1f} s; {late} schedules are still behind")
        if lags:
            p50, p99 = lags[len(lags) // 2], lags[int(len(lags) * 0.99)]
            say(f"  late by {p50 * 1000:.0f} ms (p50), {p99 * 1000:.0f} ms (p99), {lags[-1] * 1000:.0f} ms (most)")
            say(f"  overtaken by {overtaken[len(overtaken) // 2]} ticks (p50), {overtaken[-1]} (most)")
            if overtaken[len(overtaken) // 2] > 2 * given.watchdogs * MOST_ROWS:  # it is due within the first round
                broken.append(f"{overtaken[len(overtaken) // 2]} late ticks were decided while a good one waited (p50)")
            if given.calm and lags[-1] > LATEST:
                broken.append(f"good schedules were late by {p50:.1f} s (p50), {lags[-1]:.1f} s (most)")
        if given.calm and late:
            broken.append(f"{late} schedules are still behind")
        return self._conclude(broken)

    def _conclude(self, broken: list[str]) -> int:
        for one in broken[:10]:
            say(f"BROKEN: {one}")
        if self.options.mutant:
            say(f"MUTANT {self.options.mutant}: {'found' if broken else 'NOT FOUND'}")
            return 0 if broken else 1
        say("Something was broken." if broken else "Nothing was broken.")
        return 1 if broken else 0

    def _waited(self) -> tuple[list[float], list[int]]:
        """Return how long good ticks waited, and how many of those that were behind were decided meanwhile.

        Ticks near a step of the clock are left out.
        """
        found = ask(
            f"SELECT at, decided_at FROM pulse_django_tick JOIN {GOOD} ON good.id = schedule_id WHERE at > %s",
            self.began,
        )
        of_others = [
            decided_at
            for (decided_at,) in ask(
                "SELECT decided_at FROM pulse_django_tick AS tick JOIN pulse_django_schedule AS schedule"
                " ON schedule.id = schedule_id WHERE starts_with(name, 'behind') ORDER BY decided_at"
            )
        ]
        waited = [(at, decided_at) for at, decided_at in found if not self.clock.covers(at)]
        return (
            sorted((decided_at - at).total_seconds() for at, decided_at in waited),
            sorted(bisect(of_others, decided_at) - bisect(of_others, at) for at, decided_at in waited),
        )


if __name__ == "__main__":
    sys.exit(main())
