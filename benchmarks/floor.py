"""The floor: pgbench running the verbs' own SQL, with no Python at all between one statement and the next."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from django.db import connection
from django.test.utils import CaptureQueriesContext

from benchmarks.scratch import fill
from pulse_django.models import Job
from pulse_django.queue import settle
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity

BATCH = 100


def drain_by_pgbench(job: NewJob, *, connections: int = 1) -> Callable[[int], None]:
    """Prepare to drain such jobs. The claim also writes the report that the settle reads, as a worker would."""
    script = f"{claim_sql(job)} \\gset\n{settle_sql()};\n"

    def drain(jobs: int) -> None:
        each = -(-jobs // (BATCH * connections)) + SPARE
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
            file.write(script)
            file.flush()
            run_pgbench(["-n", "-f", file.name, "-c", str(connections), "-j", str(connections), "-t", str(each)])

    return drain


# Claims of two connections that meet get less than a batch; an empty one costs next to nothing.
SPARE = 8


def claim_sql(job: NewJob) -> str:
    fill([job] * BATCH)
    with CaptureQueriesContext(connection) as captured:
        Job.objects.claim(Identity("bench", boot_id="floor"), limit=BATCH)
    [claim] = [query["sql"] for query in captured.captured_queries if "claimed AS" in query["sql"]]
    body, columns = claim.split("on; ", 1)[1].removesuffix("; COMMIT").split("SELECT\n    id, attempts", 1)
    report = f"""
        SELECT
            COALESCE(array_agg(id)::text, '{{}}') AS ids, COALESCE(array_agg(attempts)::text, '{{}}') AS attempts,
            COALESCE(array_agg('bench:floor:1'::text)::text, '{{}}') AS holders,
            COALESCE(array_agg(NULL::text)::text, '{{}}') AS results
        FROM (SELECT id, attempts{columns}) AS granted"""
    return one_line(body + report)


def settle_sql() -> str:
    statement = settle.statement_of(settle.COMPLETIONS, True, wait=True)
    for variable in ("ids", "holders", "attempts", "results"):
        statement = statement.replace("%s", f"':{variable}'", 1)
    return one_line(statement)


def one_line(sql: str) -> str:
    return " ".join(sql.split())


def run_pgbench(arguments: list[str]) -> None:
    settings = connection.settings_dict
    where = ["-h", settings["HOST"], "-U", settings["USER"] or "postgres"]
    if settings["PORT"]:
        where += ["-p", str(settings["PORT"])]
    environment = os.environ | {"PGPASSWORD": settings["PASSWORD"]}
    command = [find_pgbench(), *where, *arguments, settings["NAME"]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"pgbench failed: {done.stderr}")


def find_pgbench() -> str:
    if program := shutil.which("pgbench"):
        return program
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pgbench"))
    if not found:
        raise SystemExit("pgbench is not installed (Debian: apt-get install postgresql-15)")
    return str(found[-1])
