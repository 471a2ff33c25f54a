"""A table as a fleet leaves it: completed jobs and dead letters among them, then what waits or runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from tests.queue.steps import sql


@contextmanager
def tables(blocker: Any, names: str = "pulse_django_job, pulse_django_attempt") -> Iterator[None]:
    """Begin with tables that are empty, and empty them afterwards."""
    with blocker.unblock():
        sql(f"TRUNCATE {names} RESTART IDENTITY")
        yield
        sql(f"TRUNCATE {names}")
        connection.close()


def explain(statement: str, params: Any = None) -> dict[str, Any]:
    """Run a statement, and return its plan. Without parameters it has them in it."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params)
        [(plan,)] = cursor.fetchall()
    found: dict[str, Any] = (json.loads(plan) if isinstance(plan, str) else plan)[0]
    return found


# The era of a job that was completed ``at`` an instant.
ERA = "to_char(at AT TIME ZONE 'UTC', 'YYYYMMDD')::int"

# Of ``jobs``, the last that were created, ``waiting``, wait or run; of the others each ``dead_every``th has died.
FILL = f"""
INSERT INTO pulse_django_job
    (era, task, queue, priority, status, attempts, last_error, created_at, started_at, finished_at, locked_by,
    lease_until, token)
SELECT
    CASE status WHEN 'COMPLETED' THEN {ERA} ELSE 0 END,
    'tests.task_' || n %% 40, 'queue-' || n %% 100, n %% 10, status, CASE status WHEN 'PENDING' THEN 0 ELSE 1 END,
    CASE status WHEN 'DEAD_LETTERED' THEN 'ValueError: order ' || n || ' of kind ' || chr(97 + n %% 26) ELSE '' END,
    at, at, CASE WHEN status IN ('COMPLETED', 'DEAD_LETTERED') THEN at END,
    CASE status WHEN 'RUNNING' THEN 'host-' || n %% 4 || ':boot:1' END,
    CASE status WHEN 'RUNNING' THEN clock_timestamp() + interval '1 hour' END,
    CASE status WHEN 'RUNNING' THEN n END
FROM (
    SELECT
        n, statement_timestamp() - (%(jobs)s - n) * interval '1 second' AS at,
        CASE
            WHEN n > %(jobs)s - %(waiting)s THEN CASE n %% 101 WHEN 0 THEN 'RUNNING' ELSE 'PENDING' END
            ELSE CASE n %% %(dead_every)s WHEN 0 THEN 'DEAD_LETTERED' ELSE 'COMPLETED' END
        END AS status
    FROM generate_series(1, %(jobs)s) AS n
) AS made
"""

# The same with arguments that are searched, on each job: one that none shares, and one that a thousandth share.
FILL_SEARCHED = FILL.replace("token)", "token, search_terms)").replace(
    "THEN n END\nFROM", "THEN n END,\n    ARRAY['order_id:' || n, 'customer_id:' || n %% 1000]\nFROM"
)


@contextmanager
def past_days(days: int = 13) -> Iterator[None]:
    """Have partitions of so many days before today for a while."""
    instants = "SELECT now() - n * interval '1 day' FROM generate_series(1, %s) AS n"
    eras = [era for (era,) in sql(f"SELECT {ERA} FROM ({instants}) AS day (at)", days)]
    for era in eras:
        sql("SELECT pulse_django_make_day(%s, 0)", era)
    try:
        yield
    finally:
        for era in eras:
            sql("SELECT pulse_django_drop_day(%s)", era)
