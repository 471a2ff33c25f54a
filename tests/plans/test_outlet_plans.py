"""What a scrape reads beside a million finished jobs, through the page itself.

One table is built once with generate_series: a million completed jobs, and 20,000 that wait or run in 100 queues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from tests.plans.fleet import ERA, explain, past_days, tables
from tests.plans.test_plans import buffers, indexes_built_afterwards, undone
from tests.queue.steps import sql

__all__ = ["undone"]

MILLION, WAITING, QUEUES, RUNNING_EVERY = 1_000_000, 20_000, 100, 50
TOKEN = {"Authorization": "Bearer open"}

_FILL = f"""
INSERT INTO pulse_django_job
    (era, task, queue, priority, status, attempts, created_at, next_run_at, started_at, finished_at, locked_by,
    lease_until, token)
SELECT
    CASE status WHEN 'COMPLETED' THEN {ERA} ELSE 0 END,
    'tests.task_' || n %% 40, 'queue-' || n %% %(queues)s, n %% 3, status,
    CASE status WHEN 'PENDING' THEN 0 ELSE 1 END, at, at, at, CASE status WHEN 'COMPLETED' THEN at END,
    CASE status WHEN 'RUNNING' THEN 'host-' || n %% 4 || ':boot:1' END,
    CASE status WHEN 'RUNNING' THEN clock_timestamp() + interval '1 hour' END,
    CASE status WHEN 'RUNNING' THEN n END
FROM (
    SELECT
        n, statement_timestamp() - (%(jobs)s - n) * interval '0.1 second' AS at,
        CASE
            WHEN n <= %(finished)s THEN 'COMPLETED'
            ELSE CASE n %% %(running_every)s WHEN 1 THEN 'RUNNING' ELSE 'PENDING' END
        END AS status
    FROM generate_series(1, %(jobs)s) AS n
) AS made
"""


@pytest.fixture(scope="class")
def fleet(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    params = {"jobs": MILLION + WAITING, "finished": MILLION, "queues": QUEUES, "running_every": RUNNING_EVERY}
    with tables(django_db_blocker), past_days():
        with indexes_built_afterwards(), connection.cursor() as cursor:
            cursor.execute(_FILL, params)
        sql("VACUUM ANALYZE pulse_django_job")
        yield


@pytest.fixture
def scraper(undone: None) -> Iterator[Client]:
    """Who knows the token, and a fleet of 20 workers whose watchdogs wrote minutes for two days."""
    sql(
        "INSERT INTO pulse_django_worker (name, boot_id, host, pid, slots, tasks)"
        " SELECT 'host-' || n, 'boot', 'host', 1, 200, '[\"tests.task_1\"]' FROM generate_series(0, 19) AS n"
    )
    totals = {"jobs_ended_total": {f"queue-{queue}": {"COMPLETED": 1_000} for queue in range(QUEUES)}}
    sql(
        "INSERT INTO pulse_django_minute (minute, signs, totals)"
        " SELECT date_trunc('minute', statement_timestamp()) - n * interval '1 min', %s,"
        " CASE n WHEN 1 THEN %s::jsonb END"
        " FROM generate_series(1, 2880) AS n",
        json.dumps(totals),
        json.dumps(totals),
    )
    with override_settings(PULSE={"METRICS_TOKEN": "open"}):
        yield Client(headers=TOKEN)


def asked_by_a_scrape(client: Client) -> tuple[str, list[str]]:
    with CaptureQueriesContext(connection) as queries:
        response = client.get("/metrics")
    assert response.status_code == 200
    return response.content.decode(), [query["sql"] for query in queries]


def reads_the_table(node: dict[str, Any]) -> bool:
    if node["Node Type"] == "Seq Scan" and node["Relation Name"].startswith("pulse_django_job"):
        return True
    return any(reads_the_table(inner) for inner in node.get("Plans", []))


@pytest.mark.usefixtures("fleet")
class TestAScrapeBesideAMillionFinishedJobs:
    def test_it_takes_five_queries_and_reads_what_lives(self, scraper: Client) -> None:
        _, asked = asked_by_a_scrape(scraper)
        assert len(asked) == 3
        plans = [explain(query) for query in asked]
        for query, plan in zip(asked, plans, strict=True):
            assert not reads_the_table(plan["Plan"]), query
        assert sum(buffers(plan) for plan in plans) < 5_000
        assert reads_the_table(explain("SELECT 1 FROM pulse_django_job WHERE task = 'tests.task_1'")["Plan"])

    def test_a_user_costs_no_more_than_his_session_and_his_permissions(self, scraper: Client) -> None:
        client = Client()
        client.force_login(User.objects.create_superuser("operator"))
        _, asked = asked_by_a_scrape(client)
        assert len(asked) <= 6 + 2

    def test_it_tells_what_lives(self, scraper: Client) -> None:
        text, _ = asked_by_a_scrape(scraper)
        found = {family.name: family for family in text_string_to_metric_families(text)}
        assert len(found["pulse_queue_due"].samples) == QUEUES
        running = WAITING // RUNNING_EVERY
        assert sum(sample.value for sample in found["pulse_active_leases"].samples) == running
        assert sum(sample.value for sample in found["pulse_queue_due"].samples) == WAITING - running
        assert len(found["pulse_jobs_ended"].samples) == QUEUES
