"""A batch of a million members: what its statements read does not grow with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.db import connection

from pulse_django.models import Job, StoredBatch, Unresolved
from pulse_django.queue import settle
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Lease
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report
from pulse_django.workflows import batch_progress as batches
from pulse_django.workflows import batch_verbs as close_batches
from pulse_django.workflows.batch_verbs import open_batch, seal_batch
from tests.plans.fleet import tables
from tests.plans.test_plans import (
    MILLION,
    buffers,
    claimed,
    explain,
    explain_claim,
    indexes_built_afterwards,
    undone,
)
from tests.queue.steps import sql

__all__ = ["undone"]

SMALL, LARGE = "of a thousand", "of a million"
SIZES = {SMALL: 1_000, LARGE: MILLION}
AT_ONCE = 100
TABLES = "pulse_django_job, pulse_django_attempt, pulse_django_batch, pulse_django_unresolved"


class Reads(NamedTuple):
    """How many buffers each took."""

    claim: int
    settle: int
    resolve: int
    progress: int


@pytest.fixture(scope="class")
def two_batches(django_db_setup: None, django_db_blocker: Any) -> Iterator[dict[str, int]]:
    """A batch of a thousand jobs in one queue, and one of a million in another."""
    with tables(django_db_blocker, TABLES):
        ids = {name: open_batch(Job.objects, name) for name in SIZES}
        with indexes_built_afterwards():
            for name, size in SIZES.items():
                sql(
                    "INSERT INTO pulse_django_job (task, queue, batch_id)"
                    " SELECT 'tests.add', %s, %s FROM generate_series(1, %s)",
                    name,
                    ids[name],
                    size,
                )
                sql("UPDATE pulse_django_batch SET added = %s WHERE id = %s", size, ids[name])
        for batch_id in ids.values():
            seal_batch(Job.objects, batch_id)
        sql("TRUNCATE pulse_django_unresolved")
        sql("VACUUM ANALYZE pulse_django_job")
        yield ids


def reads(name: str, batch_id: int) -> Reads:
    """Claim and complete some members of a batch, and judge it."""
    claim = explain_claim(AT_ONCE, [Lane(name, 0)])
    assert claimed(claim) == AT_ONCE
    held = Job.objects.running().filter(batch_id=batch_id).values_list("id", "locked_by", "attempts")
    reports = [Report(Lease(*row), Succeeded(), Complete()) for row in held]
    source, params = settle.completions(reports)
    settled = explain(settle.statement_of(source, True, wait=True), *params)
    assert claimed(settled) == AT_ONCE
    notes = list(Unresolved.objects.values_list("id", flat=True))
    judged = explain(close_batches._JUDGE_BATCHES, notes, [batch_id])
    sql("DELETE FROM pulse_django_unresolved")
    assert StoredBatch.objects.get(pk=batch_id).completed >= AT_ONCE
    with connection.cursor() as cursor:
        asked = cursor.mogrify(batches._PROGRESS, {"batches": [batch_id]})
    progress = explain(asked.replace("%", "%%"))
    return Reads(*map(buffers, (claim, settled, judged, progress)))


@pytest.mark.usefixtures("undone")
class TestABatchOfAMillion:
    def test_it_costs_as_much_as_one_of_a_thousand(self, two_batches: dict[str, int]) -> None:
        small, large = (reads(name, two_batches[name]) for name in (SMALL, LARGE))
        # Deeper indexes add a page for each row and index.
        assert large.claim < 2 * small.claim
        assert large.settle < 2 * small.settle
        assert large.resolve < small.resolve + 50
        assert large.progress < small.progress + 50

    def test_also_once_most_of_it_is_over(self, two_batches: dict[str, int]) -> None:
        """All but 200 are in the partition of the day, and their entries are dead in the indexes."""
        batch_id = two_batches[LARGE]
        sql(
            "DELETE FROM pulse_django_job WHERE batch_id = %s AND id < (SELECT max(id) - 200 FROM pulse_django_job)",
            batch_id,
        )
        late = reads(LARGE, batch_id)
        assert late.resolve < 300
        assert late.progress < 300
