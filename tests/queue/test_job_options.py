from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from pulse_django.exceptions import InvalidJob
from pulse_django.queue.words.job_options import NewJob
from tests.faults import each_of

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"task": ""}, "task: '' is not a non-empty string"),
    ({"task": "x" * 201}, "task: 201 characters, over the limit of 200"),
    ({"task": "x\n2026 CRITICAL forged"}, "unprintable characters"),
    ({"task": "nul\x00"}, "unprintable characters"),
    ({"task": 5}, "task: 5 is not a non-empty string"),
    ({"queue": ""}, "queue: '' is not a non-empty string"),
    ({"queue": "x" * 101}, "queue: 101 characters"),
    ({"priority": 101}, "priority: 101 is not within -100 to 100"),
    ({"priority": -101}, "priority: -101 is not within -100 to 100"),
    ({"priority": True}, "priority: True is not a whole number"),
    ({"priority": 1.5}, "priority: 1.5 is not a whole number"),
    ({"max_attempts": 0}, "max_attempts: 0 is not within 1 to"),
    ({"run_after": datetime(2030, 1, 1)}, "run_after: .* is naive; use an aware datetime"),  # noqa: DTZ001
    ({"run_after": 30}, "run_after: 30 is neither"),
    ({"run_after": timedelta(seconds=-1)}, "run_after: .* is not between 0 and"),
    ({"run_after": timedelta.max}, "is not between 0 and"),
    ({"lease": timedelta()}, "lease: .* must be positive"),
    ({"lease": timedelta(milliseconds=99)}, "lease: .* shorter than"),
    ({"lease": timedelta(days=1, seconds=1)}, "lease: .* is longer than 1 day"),
    ({"lease": timedelta(days=365_000)}, "lease: .* is longer than 1 day"),
    ({"run_after": datetime(1, 1, 1, tzinfo=UTC)}, "is not between the years"),
    ({"run_after": datetime(9999, 12, 31, tzinfo=timezone(timedelta(hours=-12)))}, "is not between the years"),
    ({"parent_id": 2**70}, "parent_id: .* is not within"),
    ({"idempotency_key": ""}, "idempotency_key: '' is not a non-empty string"),
    ({"timeout": "soon"}, "timeout: 'soon' is not a number of seconds or a timedelta"),
    ({"progress_timeout": timedelta(days=-1)}, "progress_timeout: .* must be positive"),
]


@each_of(*REFUSED)
def test_a_job_that_could_never_run_is_refused_with_the_field_named(*, fields: Any, message: Any) -> None:
    with pytest.raises(InvalidJob, match=message):
        NewJob(**{"task": "tests.add", **fields})


def test_any_printable_queue_name_is_fine() -> None:
    assert NewJob(task="tests.add", queue="'; DROP TABLE jobs; -- 100% {x} \\ ünïcödé").queue


def test_an_aware_datetime_is_fine() -> None:
    assert NewJob(task="tests.add", run_after=datetime(2030, 1, 1, tzinfo=UTC)).run_after
