"""The questions about dead letters at scale: what they read, and from which index.

Twenty large groups and two thousand of one dead letter each, beside completed jobs: built once with generate_series.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from pulse_django.console.dead_letters import groups
from tests.faults import each_of
from tests.plans.fleet import ERA, explain, tables
from tests.plans.test_plans import buffers, indexes_built_afterwards
from tests.queue.steps import sql

LARGE, LARGE_GROUPS, SINGLE, DONE = 300_000, 20, 2_000, 200_000
INDEX = "pulse_job_error_group"

# Of large groups, every error has a number of its own; of the others, letters that no fingerprint takes away.
_FILL = """
INSERT INTO pulse_django_job (task, status, attempts, last_error, finished_at)
SELECT 'tests.add' || n %% 3, 'DEAD_LETTERED', 1,
    CASE
        WHEN n <= %(large)s THEN 'ValueError: order ' || n || ' of ' || translate((n %% %(groups)s)::text, {letters})
        ELSE 'KeyError: ' || translate(n::text, {letters})
    END,
    clock_timestamp() - n * interval '1 second'
FROM generate_series(1, %(large)s + %(single)s) AS n
""".format(letters="'0123456789', 'ghijklmnop'")


@pytest.fixture(scope="class")
def dead_letters(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with tables(django_db_blocker):
        with indexes_built_afterwards():
            with connection.cursor() as cursor:
                cursor.execute(_FILL, {"large": LARGE, "groups": LARGE_GROUPS, "single": SINGLE})
            sql(
                "INSERT INTO pulse_django_job (era, task, status, attempts, finished_at)"
                f" SELECT {ERA}, 'tests.add', 'COMPLETED', 1, at"
                " FROM generate_series(1, %s), LATERAL (SELECT clock_timestamp()) AS clock (at)",
                DONE,
            )
        sql("VACUUM ANALYZE pulse_django_job")
        yield


@pytest.fixture
def unblocked(django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        yield
        connection.close()


def tables_read(plan: dict[str, Any]) -> set[str]:
    """By which index jobs are read, or by which other way."""
    how = {plan.get("Index Name") or plan["Node Type"]} if "Relation Name" in plan or "Index Name" in plan else set()
    return how.union(*(tables_read(part) for part in plan.get("Plans", [])))


LIST = {
    "most_groups": groups.MOST_GROUPS,
    "page_size": groups.GROUPS_ON_A_PAGE,
    "offset": 0,
    **groups._counting(groups.MOST_COUNTED),
}
COMMON = "ValueError: order # of g"
RARE = "KeyError: jggggh"
FINGERPRINTS = [COMMON, RARE]


@pytest.mark.usefixtures("dead_letters", "unblocked")
class TestManyDeadLetters:
    def test_the_list_is_read_from_the_index_of_fingerprints(self) -> None:
        plan = explain(groups.GROUPS, LIST)
        # The other index serves the latest dead letters, which it is read for because there are too many groups.
        assert tables_read(plan["Plan"]) == {INDEX, "pulse_job_dead_letters"}
        assert plan["Plan"]["Actual Rows"] == groups.GROUPS_ON_A_PAGE
        # Five for a group, one for a dead letter that is counted or whose task is named; there are twenty large groups.
        each = groups.LEAST_COUNTED + groups.TASK_LETTERS + 200
        most = 6 * groups.MOST_GROUPS + 10 * groups.GROUPS_ON_A_PAGE + LARGE_GROUPS * each + groups.MOST_COUNTED
        assert buffers(plan) < most

    def test_large_groups_are_found_among_thousands_of_others(self) -> None:
        found = groups.groups("default")
        assert found.is_partial
        assert found.has_older
        large = [one for one in found.groups if one.fingerprint.startswith("ValueError")]
        assert len(large) == LARGE_GROUPS
        assert sum(one.letters for one in large) > groups.MOST_COUNTED
        assert large[0].letters <= large[0].counted
        assert large[-1].letters > large[-1].counted

    @each_of(*FINGERPRINTS)
    def test_a_group_costs_what_is_counted_of_it(self, *, fingerprint: Any) -> None:
        params = {"fingerprint": fingerprint} | groups._counting(groups.MOST_COUNTED_ALONE)
        plan = explain(groups.GROUP, params)
        assert plan["Plan"]["Actual Rows"] == 1
        assert tables_read(plan["Plan"]) == {INDEX}
        assert buffers(plan) < (LARGE // LARGE_GROUPS + groups.TASK_LETTERS + 300 if fingerprint == COMMON else 40)

    @each_of(*FINGERPRINTS)
    def test_its_page_costs_a_buffer_for_each_dead_letter(self, *, fingerprint: Any) -> None:
        size = groups.LETTERS_ON_A_PAGE
        place = {"finished_at": "infinity", "id": 2**63 - 1}
        params = {"fingerprint": fingerprint, "sample": 300, "page_size": size} | place
        plan = explain(groups.LETTERS, params)
        assert plan["Plan"]["Actual Rows"] == (size + 1 if fingerprint == COMMON else 1)
        assert tables_read(plan["Plan"]) == {INDEX}
        assert buffers(plan) < 2 * size

    def test_an_older_page_costs_no_more_than_the_first(self) -> None:
        [(instant, job_id)] = sql(
            "SELECT finished_at, id FROM pulse_django_job WHERE status = 'DEAD_LETTERED' AND last_error LIKE '%% of g'"
            " ORDER BY finished_at LIMIT 1 OFFSET 5000"
        )
        params = {"fingerprint": COMMON, "sample": 300, "page_size": 100, "finished_at": instant, "id": job_id}
        plan = explain(groups.LETTERS, params)
        assert plan["Plan"]["Actual Rows"] == 101
        assert buffers(plan) < 200
