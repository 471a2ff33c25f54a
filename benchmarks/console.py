"""How long the database works for each page of the admin, beside millions of jobs.

Run by hand: ``python benchmarks/console.py`` (minutes, and some 5 GB while it runs). The pages are those of a plain
project: ``startproject``, the README's lines and the admin's own addresses. Every page is opened several times by a
superuser; the first time is printed apart, because it may find nothing in memory. Then it is
opened on new connections, as Django opens one for each request unless CONN_MAX_AGE is set. Pages that renew themselves
are asked whether they have changed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from django.db import connection

from benchmarks.processes import PlainSurroundings
from benchmarks.scratch import scratch_database, server, settle_down
from pulse_django.metrics import traffic
from tests.plans.fleet import FILL_SEARCHED, past_days

WORKERS, DEAD_EVERY = 20, 95
SECONDS_OF_A_DAY = 86_400  # a job was created in each second
LONGEST = 1_800.0  # seconds, to open all pages

# What the project declares: by which arguments its jobs are found.
TASKS = """
from pulse_django import task


@task(name="bench.searched", searchable=["order_id", "customer_id"])
def searched(order_id, customer_id):
    pass
"""

_ATTEMPTS = """
INSERT INTO pulse_django_attempt (job_id, number, token, worker, started_at, finished_at, outcome, message, traceback)
SELECT id, 1, id, 'host-1:boot:1', started_at, finished_at, 'FAILED', last_error, repeat('a line of a traceback', 100)
FROM pulse_django_job WHERE status = 'DEAD_LETTERED'
"""
_WORKERS = """
INSERT INTO pulse_django_worker (name, boot_id, host, pid, slots, tasks)
SELECT 'host-' || n, 'boot', 'host', 1, 200, '["tests.task_1"]' FROM generate_series(0, %(workers)s - 1) AS n
"""

# Something happens to each of 200 tasks and 20 queues in every span.
_TRAFFIC = """
INSERT INTO pulse_django_traffic
    (kind, length, began_at, name, enqueued, started, succeeded, failed, died, ran_seconds, ran, waited_seconds, waited)
SELECT
    named.kind, %(length)s,
    date_bin(%(length)s * interval '1 min', now() - span * %(length)s * interval '1 min', 'epoch'),
    named.name, 100, 100, 95, 5, span %% 3, 50.0, array_fill(4, ARRAY[12 + named.n %% 25]), 5.0,
    array_fill(4, ARRAY[5 + named.n %% 20])
FROM generate_series(1, %(spans)s) AS span
CROSS JOIN (
    SELECT 'task' AS kind, 'tests.task_' || n AS name, n FROM generate_series(1, 200) AS n
    UNION ALL
    SELECT 'queue', 'queue-' || n, n FROM generate_series(1, 20) AS n
) AS named
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000_000)
    parser.add_argument("--waiting", type=int, default=20_000, help="of them, a hundredth of which run")
    parser.add_argument("--times", type=int, default=5, help="that each page is opened")
    options = parser.parse_args()
    days = options.jobs // SECONDS_OF_A_DAY + 1
    with scratch_database("bench_console"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        around = PlainSurroundings.make(Path(folder))
        around.made.write("shop/tasks.py", TASKS)
        with past_days(days):
            fill(options.jobs, options.waiting)
            figures = opened(around, options.times)
        print(json.dumps({"postgresql": server(), "jobs": options.jobs, "days": days} | figures, indent=1))


def opened(around: PlainSurroundings, times: int) -> dict[str, Any]:
    """Open the pages in the project's own process, and return the figures that it prints."""
    connection.close()
    command = [sys.executable, "-m", "benchmarks.console_pages", str(times)]
    done = subprocess.run(
        command,
        cwd=around.project,
        env=around.environment(DJANGO_SETTINGS_MODULE="mysite.settings"),
        stdout=subprocess.PIPE,
        text=True,
        timeout=LONGEST,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def fill(jobs: int, waiting: int) -> None:
    facts = {"jobs": jobs, "waiting": waiting, "workers": WORKERS, "dead_every": DEAD_EVERY}
    for statement in (FILL_SEARCHED, _ATTEMPTS, _WORKERS):
        with connection.cursor() as cursor:
            cursor.execute(statement, facts)
    for length, kept in traffic.KEPT.items():
        spans = {"length": length, "spans": int(kept / timedelta(minutes=length))}
        with connection.cursor() as cursor:
            cursor.execute(_TRAFFIC, spans)
    settle_down("pulse_django_job", "pulse_django_attempt", "pulse_django_worker", "pulse_django_traffic")


if __name__ == "__main__":
    main()
