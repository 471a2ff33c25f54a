"""What the verbs cost: claim + settle against pgbench running the same statements, bulk enqueue against bulk_create.

Run by hand on a quiet machine: ``make bench``. The contenders alternate, because machines drift; every figure is the
median over the rounds, every ratio the median of the rounds' own ratios. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")
os.environ["DEBUG"] = "0"  # Django keeps every statement otherwise, and that is what would be measured

import django

django.setup()

from django.db import connection
from django.test.utils import CaptureQueriesContext

from pulse_django import managers
from pulse_django.answers import Report
from pulse_django.decisions import Complete
from pulse_django.identity import Identity
from pulse_django.models import Job
from pulse_django.newjob import NewJob
from pulse_django.outcomes import Succeeded

BATCH = 100
QUEUE = "default"


def main() -> None:
    options = parse_arguments()
    with scratch_database():
        rounds = [measure(options) for _ in range(options.rounds)]
        about = {
            "rounds": options.rounds,
            "server": server(),
            "python": sys.version.split()[0],
            "django": django.__version__,
        }
    medians = {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}
    whole = {key: round(value) for key, value in medians.items() if key.endswith("_per_s")}
    ratios = {key: round(value, 3) for key, value in medians.items() if not key.endswith("_per_s")}
    spread = {
        key: [round(min(values), 3), round(max(values), 3)]
        for key in rounds[0]
        for values in [[found[key] for found in rounds]]
    }
    print(json.dumps(whole | ratios | about | {"spread": spread}, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per drain")
    parser.add_argument("--rows", type=int, default=10_000, help="rows per bulk enqueue")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, float]:
    verbs = options.jobs / timed_drain(options.jobs, drain_by_verbs)
    floor = options.jobs / timed_drain(options.jobs, drain_by_pgbench())
    enqueue = options.rows / timed_enqueue(lambda: Job.objects.enqueue_many(new_jobs(options.rows)))
    create = options.rows / timed_enqueue(lambda: Job.objects.bulk_create(models(options.rows), batch_size=2_000))
    return {
        "claim_settle_per_s": verbs,
        "floor_per_s": floor,
        "claim_settle_vs_floor": verbs / floor,
        "enqueue_many_per_s": enqueue,
        "bulk_create_per_s": create,
        "enqueue_many_vs_bulk_create": enqueue / create,
    }


def timed_drain(jobs: int, drain: Callable[[int], None]) -> float:
    fill(jobs)
    started = time.perf_counter()
    drain(jobs)
    seconds = time.perf_counter() - started
    if left := Job.objects.exclude(status="COMPLETED").count():
        raise SystemExit(f"{left} of {jobs} jobs were not completed: the figure would be a lie")
    return seconds


def drain_by_verbs(jobs: int) -> None:
    worker = Identity("bench")
    lanes = Job.objects.lanes()
    while claims := Job.objects.claim(worker, limit=BATCH, lanes=lanes):
        done = [Report(claim.lease, Succeeded(), Complete()) for claim in claims]
        if len(Job.objects.settle(done).accepted) != len(done):
            raise SystemExit("a settle was refused")


def drain_by_pgbench() -> Callable[[int], None]:
    """Run the verbs' own SQL. The claim also writes the report that the settle reads, as a worker would."""
    script = f"{claim_sql()} \\gset\n{settle_sql()};\n"

    def drain(jobs: int) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            run_pgbench(["-n", "-f", file.name, "-t", str(jobs // BATCH)])

    return drain


def claim_sql() -> str:
    fill(BATCH)
    with CaptureQueriesContext(connection) as captured:
        Job.objects.claim(Identity("bench", boot_id="floor"), limit=BATCH)
    [claim] = [query["sql"] for query in captured.captured_queries if "claimed AS" in query["sql"]]
    body, columns = claim.split("on; ", 1)[1].removesuffix("; COMMIT").split("SELECT\n    id, attempts", 1)
    report = f"""
        SELECT json_agg(json_build_object(
            'id', id, 'holder', 'bench:floor:1', 'attempt', attempts, 'outcome', 'SUCCEEDED', 'status', 'COMPLETED',
            'delay', 0, 'refund', 0, 'loss', 0, 'error_class', '', 'message', '', 'traceback', ''
        )) AS report
        FROM (SELECT id, attempts{columns}) AS granted"""
    return one_line(body + report)


def settle_sql() -> str:
    return one_line(managers._SETTLE.format(skip_locked="").replace("%s", "':report'"))


def one_line(sql: str) -> str:
    return " ".join(sql.split())


def run_pgbench(arguments: list[str]) -> None:
    program = shutil.which("pgbench") or find_pgbench()
    settings = connection.settings_dict
    where = ["-h", settings["HOST"], "-U", settings["USER"] or "postgres"]
    if settings["PORT"]:
        where += ["-p", str(settings["PORT"])]
    environment = os.environ | {"PGPASSWORD": settings["PASSWORD"]}
    command = [program, *where, *arguments, settings["NAME"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pgbench failed: {done.stderr}")


def find_pgbench() -> str:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    if not found:
        raise SystemExit("pgbench is not installed (Debian: apt-get install postgresql-15)")
    return str(found[-1])


def timed_enqueue(enqueue: Callable[[], Any]) -> float:
    empty()
    started = time.perf_counter()
    enqueue()
    return time.perf_counter() - started


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(**work(number)) for number in range(count)]


def models(count: int) -> list[Job]:
    return [Job(**work(number)) for number in range(count)]


def work(number: int) -> dict[str, Any]:
    return {
        "task": "app.tasks.send_invoice",
        "args": [number, "customer@example.com"],
        "kwargs": {"lang": "de"},
    }


def fill(jobs: int) -> None:
    empty()
    Job.objects.enqueue_many(new_jobs(jobs))
    execute("VACUUM ANALYZE pulse_django_job")
    execute("CHECKPOINT")


def empty() -> None:
    execute("TRUNCATE pulse_django_job, pulse_django_attempt")


def execute(sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else []


def server() -> str:
    return str(execute("SHOW server_version")[0][0])


@contextmanager
def scratch_database() -> Iterator[None]:
    """Work in a database of our own, beside the project's and its tests'."""
    connection.settings_dict["TEST"]["NAME"] = f"bench_{connection.settings_dict['NAME']}"
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False)
    try:
        yield
    finally:
        connection.creation.destroy_test_db("", verbosity=0)


if __name__ == "__main__":
    main()
