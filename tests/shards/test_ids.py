"""The id of a job says its shard, however it was enqueued: on Citus, whose nodes count in ranges of their own, too."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.queue.words.job_ids import shard_number_of
from pulse_django.queue.words.job_options import NewJob
from pulse_django.unique.rule import Unique, UniqueKey
from pulse_django.workflows.models import StoredBatch
from tests.database import empty_tables
from tests.faults import each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

EACH_HOUR = NewJob(task="t", unique=UniqueKey.of("k", Unique(per=timedelta(hours=1))))
WAYS: dict[str, Callable[[], list[int]]] = {
    "one": lambda: [Job.objects.enqueue(NewJob(task="t")).pk],
    "with an idempotency key": lambda: [Job.objects.enqueue(NewJob(task="t", idempotency_key="k")).pk],
    "unique": lambda: [Job.objects.enqueue(NewJob(task="t", unique=UniqueKey.of("k", Unique()))).pk],
    "unique in a period": lambda: [Job.objects.enqueue(EACH_HOUR).pk],
    "a list": lambda: Job.objects.enqueue_many([NewJob(task="t")] * 3),
    "a long list": lambda: Job.objects.enqueue_many([NewJob(task="t")] * 500),
    "a list with keys": lambda: Job.objects.enqueue_many([NewJob(task="t", idempotency_key=key) for key in "ab"]),
    "a list of unique jobs": lambda: Job.objects.enqueue_many([EACH_HOUR] * 2),
    "a batch": lambda: [StoredBatch.objects.create().pk],
}


@each_of(*WAYS)
def test_an_id_says_its_shard(*, way: Any) -> None:
    empty_tables()
    assert {shard_number_of(row_id) for row_id in WAYS[way]()} == {0}
