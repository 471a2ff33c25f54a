"""``python -m chaos.nights``: a capability that the package does not know keeps its gate while workers are killed.

Nights are short, and days break between the look of a worker and its claim. No job of the night may start by day, and
each night some must. Exits with 0 if so, with 1 if not.
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

os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings_of_night_shift"

from chaos.own_server import ask, own_server, say

WORKERS = 3
# Seconds of a night, and of a day. By day what waits is set aside, and in time it is brought back.
NIGHT, DAY = (0.5, 2.0), (1.0, 3.0)
SLACK = "0.5 s"  # from the start of a claim's statement, which asks for the night, to the start of its runs
WAITING = 400
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.6, "WATCHDOG_INTERVAL": 0.5, "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5, "MAX_LOST_WORKERS": 50, "MAX_ATTEMPTS": 200,
}  # fmt: skip

_STARTS = """
SELECT task, started_at FROM pulse_django_job WHERE started_at IS NOT NULL
UNION ALL
SELECT job.task, attempt.started_at
FROM pulse_django_attempt AS attempt JOIN pulse_django_job AS job ON job.id = attempt.job_id
"""
_BY_DAY = f"""
SELECT started.started_at::text FROM ({_STARTS}) AS started
WHERE started.task = 'night.report' AND NOT EXISTS (
    SELECT 1 FROM night_shift
    WHERE started.started_at >= began_at AND started.started_at < ends_at + interval '{SLACK}'
)
ORDER BY 1
"""
_DARK_BUT_IDLE = f"""
SELECT began_at::text FROM night_shift
WHERE ends_at - began_at > interval '1.5 s' AND NOT EXISTS (
    SELECT 1 FROM ({_STARTS}) AS started
    WHERE started.task = 'night.report' AND started.started_at BETWEEN began_at AND ends_at + interval '{SLACK}'
)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--without", action="store_true", help="workers lack the capability: the run must find it")
    options = parser.parse_args()
    os.environ["PULSE"] = json.dumps(PULSE)  # for what is enqueued here
    with own_server() as (folder, _):
        return _run(folder, options)


def _run(folder: Path, options: argparse.Namespace) -> int:
    import django

    django.setup()
    from django.core.management import call_command

    from chaos.worker_fleet import Kind, WorkerFleet
    from testproject.harness.processes import StartedProcesses
    from tests.night_shift import TABLE

    call_command("migrate", verbosity=0)
    ask(TABLE)
    chance, happened = random.Random(options.seed), Counter[str]()
    say(f"seed {options.seed}, {options.seconds:g} s, {WORKERS} workers")
    _refill()
    kind = Kind(
        workers=WORKERS,
        arguments=("--concurrency", "8", "--processes", "2"),
        pulse=PULSE,
        modules=["chaos.night_handlers"],
        mutants="",
    )
    if options.without:
        os.environ["DJANGO_SETTINGS_MODULE"] = "testproject.settings"
    with StartedProcesses(folder) as started:
        fleet = WorkerFleet(started, kind, "", chance, happened)
        fleet.wait_for_the_first("SELECT 1 FROM pulse_django_job_over LIMIT 1")
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            _refill()
            length = chance.uniform(*NIGHT)
            ask("INSERT INTO night_shift SELECT now(), now() + %s * interval '1 s'", length)
            happened["nights"] += 1
            time.sleep(length + chance.uniform(*DAY))
            chance.choice([*fleet.nemeses, fleet.supervise])()
            fleet.supervise()
        broken = [f"a job of the night started by day, at {at}" for (at,) in ask(_BY_DAY)]
        broken += [f"no job of the night started in that which began at {at}" for (at,) in ask(_DARK_BUT_IDLE)]
    for name, times in sorted(happened.items()):
        say(f"  {times} x {name}")
    for task, starts in ask(f"SELECT task, count(*) FROM ({_STARTS}) AS started GROUP BY 1 ORDER BY 1"):
        say(f"  {starts} starts of {task}")
    for one in broken[:10]:
        say(f"BROKEN: {one}")
    if options.without:
        say("Found." if broken else "NOT FOUND")
        return 0 if broken else 1
    say("Something was broken." if broken else "Nothing was broken.")
    return 1 if broken else 0


def _refill() -> None:
    from chaos.night_handlers import any_time, report
    from pulse_django import enqueue_many

    waiting = dict(
        ask("SELECT task, count(*) FROM pulse_django_job_hot WHERE status IN ('PENDING', 'RETRYING') GROUP BY task")
    )
    for task in (report, any_time):
        if waiting.get(task.registered_name, 0) < WAITING:
            enqueue_many(task, [(number,) for number in range(WAITING)])


if __name__ == "__main__":
    sys.exit(main())
