"""What a page of the list of jobs reads beside a million of them, through the view itself.

One table is built once with generate_series: 900,000 completed jobs and among them 10,000 dead letters, then 50,000
that wait or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.faults import all_faults
from tests.plans.fleet import FILL, explain, past_days, tables
from tests.plans.test_plans import buffers, indexes_built_afterwards, undone
from tests.queue.steps import sql

__all__ = ["undone"]

LIST = reverse("admin:pulse_django_job_changelist")
MILLION, WAITING, DEAD_EVERY = 1_000_000, 50_000, 95
WINDOW_PAGES = 3_000
FINGERPRINT = "ValueError: order # of kind a"


@pytest.fixture(scope="class")
def fleet(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with tables(django_db_blocker), past_days():
        with indexes_built_afterwards(), connection.cursor() as cursor:
            cursor.execute(FILL, {"jobs": MILLION, "waiting": WAITING, "dead_every": DEAD_EVERY})
        sql("VACUUM ANALYZE pulse_django_job")
        yield


@pytest.fixture
def client(undone: None) -> Client:
    client = Client()
    client.force_login(User.objects.create(username="plans", is_staff=True, is_superuser=True))
    sql(
        "INSERT INTO pulse_django_worker (name, boot_id, host, pid, slots, tasks)"
        " SELECT 'host-' || n, 'boot', 'host', 1, 200, '[\"tests.task_1\"]' FROM generate_series(0, 19) AS n"
    )
    return client


class Page(NamedTuple):
    text: str
    queries: list[str]  # all of them
    plans: list[dict[str, Any]]  # of those about jobs

    @property
    def read(self) -> int:
        return sum(buffers(plan) for plan in self.plans)

    @property
    def jobs(self) -> int:
        return self.text.count('class="field-id"')

    @property
    def older(self) -> str:
        [address] = re.findall(r'<a rel="next" href="([^"]*)"', self.text)
        return str(address).replace("&amp;", "&")


def look(client: Client, address: str) -> Page:
    """Open a page, and ask again what it asked about jobs."""
    with CaptureQueriesContext(connection) as captured:
        response = client.get(LIST + address)
    assert response.status_code == 200
    queries = [query["sql"] for query in captured]
    return Page(
        response.content.decode(), queries, [explain(query) for query in queries if "pulse_django_job" in query]
    )


def scans(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the scans of whole partitions that are larger than a window."""
    inner = [scan for plan in node.get("Plans", []) for scan in scans(plan)]
    is_one = node["Node Type"] == "Seq Scan" and node["Relation Name"].startswith("pulse_django_job")
    return [*inner, node] if is_one and node["Shared Hit Blocks"] + node["Shared Read Blocks"] > WINDOW_PAGES else inner


# For each: how many rows it shows, if that does not depend on the hour; and how many buffers it may read, half as many
# again as it does. The sidebar reads some 900 of them. A window is some 2,000 of the table; all of it would be 40,000.
# To find where a day begins takes some 1,000: 20 probes of the primary key of each of 18 partitions.
PAGES: dict[str, tuple[int | None, int]] = {
    "": (100, 1_400),
    "?older=500000": (100, 1_400),
    "?newer=500000": (100, 1_400),
    "?status__exact=PENDING": (100, 1_800),
    "?status__exact=RUNNING": (100, 2_000),
    "?status__exact=RETRYING": (0, 4_700),
    "?status__exact=COMPLETED": (0, 4_600),
    "?status__exact=COMPLETED&older=950000": (100, 1_600),
    "?status__exact=CANCELLED": (0, 1_400),
    "?status__exact=DEAD_LETTERED": (100, 2_200),
    "?status__exact=DEAD_LETTERED&older=5000": (52, 1_700),
    "?queue=queue-7": (100, 2_200),
    "?queue=none": (0, 4_600),
    "?task=tests.task_7": (100, 1_800),
    "?task=tests.none": (0, 4_600),
    "?task=tests.none&older=500000": (0, 4_700),
    "?task=tests.none&newer=500000": (0, 4_700),
    f"?error={FINGERPRINT.replace('#', '%23')}": (100, 3_000),
    "?worker=host-1:boot": (100, 2_200),
    "?age=15m": (100, 2_900),
    "?age=7d": (100, 2_900),
    "?age=7d&task=tests.none": (0, 4_900),
    "?q=500000": (1, 1_400),
    "?q=nothing": (0, 4_600),
    "?q=nothing&status__exact=DEAD_LETTERED": (0, 16_500),
    "?status__exact=PENDING&queue=queue-7": (100, 2_300),
    "?worker=host-1:boot&status__exact=COMPLETED": (0, 1_400),
}


@pytest.mark.usefixtures("fleet")
class TestAMillionJobs:
    def test_a_page_reads_a_bounded_part_and_counts_and_scans_nothing(self, client: Client, undone: None) -> None:
        with all_faults() as about:
            for address, (shown, most) in PAGES.items():
                page = None
                with about(f"{address}: it opens"):
                    page = look(client, address)
                if page is None:
                    continue
                with about(f"{address}: it reads a bounded part"):
                    assert shown is None or page.jobs == shown
                    assert page.read <= most
                    assert len(page.queries) <= 9
                with about(f"{address}: it counts and scans nothing"):
                    for query in page.queries:
                        assert "OFFSET" not in query.upper().replace("OFFSET 0", "")  # which only keeps the planner out
                        is_bounded = re.search(r"LIMIT \d+\) ", query)
                        assert "COUNT(" not in query.upper() or is_bounded, "bounded, in a subquery"
                    for plan in page.plans:
                        assert scans(plan["Plan"]) == []
                        assert "JIT" not in plan, "compiling takes longer than the page may"

    def test_an_old_dead_letter_is_on_the_first_page(self, client: Client) -> None:
        sql("UPDATE pulse_django_job SET task = 'tests.lost' WHERE id = %s", DEAD_EVERY)
        page = look(client, "?status__exact=DEAD_LETTERED&task=tests.lost")
        assert page.jobs == 1
        assert page.read < 16_500

    def test_a_window_that_holds_none_leads_to_the_next(self, client: Client) -> None:
        page = look(client, "?task=tests.none")
        assert "Searched jobs 950001 to 1000000." in page.text
        assert "Searched jobs 900001 to 950000." in look(client, page.older).text
