"""How long the database works for each page of the admin, beside millions of jobs.

Run by hand: ``python benchmarks/console.py`` (minutes, and some 5 GB while it runs). Every page is opened several times
by a superuser, through the views; the first time is printed apart, because it may find nothing in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.urls import reverse

from benchmarks.scratch import scratch_database, server, settle_down
from pulse_django import task
from pulse_django.fleet.traffic import WINDOWS
from pulse_django.models import Job
from pulse_django.store import traffic
from pulse_django.words.states import Status
from tests.plans.fleet import FILL_SEARCHED, past_days

WORKERS, DEAD_EVERY = 20, 95
SECONDS_OF_A_DAY = 86_400  # a job was created in each second
ERROR = "ValueError: order # of kind a"

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


@task(name="bench.searched", search=["order_id", "customer_id"])
def searched(order_id: int, customer_id: int) -> None:
    """Declare by which arguments the jobs are found."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000_000)
    parser.add_argument("--waiting", type=int, default=20_000, help="of them, a hundredth of which run")
    parser.add_argument("--times", type=int, default=5, help="that each page is opened")
    options = parser.parse_args()
    with scratch_database("bench_console"), past_days(options.jobs // SECONDS_OF_A_DAY + 1):
        fill(options.jobs, options.waiting)
        client = Client(SERVER_NAME="localhost")
        client.force_login(get_user_model().objects.create(username="operator", is_staff=True, is_superuser=True))
        figures = {name: opened(client, address, options.times) for name, address in pages().items()}
        print(json.dumps({"postgresql": server(), "jobs": options.jobs, "pages": figures}, indent=1))


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


def pages() -> dict[str, str]:
    jobs, dead = reverse("admin:pulse_django_job_changelist"), reverse("admin:pulse_django_deadletter_group")
    tasks, task = reverse("admin:pulse_django_taskoverview_changelist"), reverse("admin:pulse_django_taskoverview_one")
    middle = Job.objects.order_by("pk").values_list("pk", flat=True).last() // 2
    letter = Job.objects.filter(status=Status.DEAD_LETTERED).order_by("finished_at").values_list("pk", flat=True).last()
    return {
        "jobs": jobs,
        "jobs, from the middle on": f"{jobs}?older={middle}",
        "jobs, completed": f"{jobs}?status__exact=COMPLETED",
        "jobs, dead letters": f"{jobs}?status__exact=DEAD_LETTERED",
        "jobs, one queue": f"{jobs}?queue=queue-7",
        "jobs, one task": f"{jobs}?task=tests.task_7",
        "jobs, a task that has none": f"{jobs}?task=tests.none",
        "jobs, words that are nowhere": f"{jobs}?q=nowhere",
        "jobs, by the error of some": f"{jobs}?q=error:%22order 4750%22",
        "jobs, by an argument": f"{jobs}?q=order_id:{middle}",
        "jobs, by an argument that a thousandth share": f"{jobs}?q=customer_id:7",
        "jobs, by a number": f"{jobs}?q={middle}",
        "jobs, by a number that is nowhere": f"{jobs}?q=999999999",
        "jobs, by parent": f"{jobs}?q=parent:{middle}",
        "jobs, by tag": f"{jobs}?q=tag:nowhere",
        "due in the next hour": reverse("admin:pulse_django_job_due"),
        "jobs by due time": reverse("admin:pulse_django_job_by_due"),
        "a dead job": reverse("admin:pulse_django_job_change", args=[letter]),
        "dead letters by error": reverse("admin:pulse_django_deadletter_changelist"),
        "dead letters of one error": f"{dead}?error={ERROR.replace('#', '%23')}",
        "board": reverse("admin:pulse_django_board_changelist"),
        "queues": reverse("admin:pulse_django_queue_changelist"),
        "a queue": f"{reverse('admin:pulse_django_queue_one')}?name=queue-7",
        **{f"tasks, {window}": f"{tasks}?window={window}" for window in WINDOWS},
        **{f"a task, {window}": f"{task}?name=tests.task_7&window={window}" for window in WINDOWS},
        "workers": reverse("admin:pulse_django_worker_changelist"),
    }


def opened(client: Client, address: str, times: int) -> dict[str, Any]:
    """Open a page again and again. Return how many statements it took, and for how many milliseconds they did."""
    took: list[float] = []
    statements = 0

    def timed(execute: Callable[..., Any], *statement: Any) -> Any:
        nonlocal statements
        statements += 1
        began = time.perf_counter()
        try:
            return execute(*statement)
        finally:
            took[-1] += (time.perf_counter() - began) * 1_000

    for _ in range(times):
        took.append(0.0)
        statements = 0
        with connection.execute_wrapper(timed):
            response = client.get(address)
        if response.status_code != 200:
            raise SystemExit(f"{address}: {response.status_code}")
    first, *later = (round(milliseconds, 1) for milliseconds in took)
    median = round(statistics.median(later or [first]), 1)
    return {"statements": statements, "first_ms": first, "median_ms": median, "most_ms": max(later or [first])}


if __name__ == "__main__":
    main()
