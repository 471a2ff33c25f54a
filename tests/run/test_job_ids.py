"""What cannot be an id or an attempt is refused before any SQL, and the caller's transaction goes on."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import partial
from itertools import product
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django import api
from pulse_django.backend import PulseBackend
from pulse_django.exceptions import InvalidJob
from pulse_django.models import Job
from pulse_django.queue.words.job_ids import MAX_ATTEMPT, MAX_ID, job_id_of, job_ids_of
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import TaskResultDoesNotExist
from testproject.shop import tasks
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of

pytestmark = pytest.mark.usefixtures("pulse_db")

NO_IDS: list[Any] = [1.9, 1.0, True, False, None, 0, -1, 2**63, 10**5000, b"1", [1], (1,), object()]
NO_IDS += ["1_0", "01", "+1", " 1", "1 ", "1\n", "１", "-1", "", "0", "1.0", "abc", "9223372036854775808", "9" * 5000]
NO_ATTEMPTS: list[Any] = ["x", "1", 1.0, True, -(2**31) - 1, MAX_ATTEMPT + 1]
NO_RUNS: list[Any] = [True, "1", 1.5, None, 0, -1, 32_768, 2**40]

VERBS: dict[str, Callable[[Any], Any]] = {
    "get": api.get,
    "progress": api.progress,
    "cancel": api.cancel,
    "cancel with children": lambda wrong: api.cancel(wrong, children=True),
    "retry": api.retry,
    "release": api.release,
    "one of several": lambda wrong: api.retry(1, wrong),
    "request_cancel": lambda wrong: Job.objects.request_cancel([wrong]),
    "reschedule": lambda wrong: Job.objects.reschedule([wrong]),
    "move": lambda wrong: Job.objects.move([wrong], queue="q"),
    "prune_these": lambda wrong: Job.objects.prune_these([wrong]),
}
VERBS_OF_AN_ATTEMPT: dict[str, Callable[[Any], Any]] = {
    "retry": lambda wrong: api.retry(1, attempt=wrong),
    "release": lambda wrong: api.release(1, attempt=wrong),
    "reschedule": lambda wrong: Job.objects.reschedule([1], attempt=wrong),
    "request_cancel": lambda wrong: Job.objects.request_cancel([1], attempt=wrong),
    "move": lambda wrong: Job.objects.move([1], queue="q", attempt=wrong),
}


def short(value: Any) -> str:
    try:
        return repr(value)[:20].partition(" at ")[0]  # an address is another one in each process
    except ValueError:
        return "of many digits"


def refuses(message: str | None, call: Callable[[], Any], error: type[Exception] = InvalidJob) -> None:
    """Expect this to be refused before any SQL."""
    with transaction.atomic():
        with CaptureQueriesContext(connection) as sent, pytest.raises(error, match=message):
            call()
        assert len(sent) == 0


def test_what_is_no_id_is_refused_before_any_sql() -> None:
    with all_faults() as about:
        for wrong, verb in product(NO_IDS, VERBS):
            with about(f"{verb}: {short(wrong)}"):
                refuses("job id: ", partial(VERBS[verb], wrong))


def test_for_django_what_is_no_id_is_the_id_of_no_result() -> None:
    backend = PulseBackend("default", {})
    with all_faults() as about:
        for wrong in NO_IDS:
            with about(short(wrong)):
                refuses(None, partial(backend.get_result, wrong), TaskResultDoesNotExist)


@each_of(1, "1", 7, "10", MAX_ID, str(MAX_ID))
def test_an_id_is_a_whole_number_or_its_digits(*, right: Any) -> None:
    assert job_id_of(right) == int(right)


def test_a_text_is_no_collection_of_ids_and_an_id_that_no_job_has_is_an_answer() -> None:
    with pytest.raises(InvalidJob, match=r"write \['123'\]"):
        job_ids_of("123")
    with pytest.raises(InvalidJob):
        Job.objects.retry("123")  # type: ignore[arg-type]
    assert api.cancel(MAX_ID).refused == {MAX_ID}
    assert api.retry(str(MAX_ID)).moved_on == {MAX_ID}


def test_what_is_no_attempt_no_number_of_runs_and_no_delay_is_refused_before_any_sql() -> None:
    with all_faults() as about:
        for wrong, verb in product(NO_ATTEMPTS, VERBS_OF_AN_ATTEMPT):
            with about(f"{verb}: {short(wrong)}"):
                refuses("attempt: ", partial(VERBS_OF_AN_ATTEMPT[verb], wrong))
        for wrong in NO_RUNS:
            with about(f"runs: {short(wrong)}"):
                refuses("runs: ", partial(api.retry, 1, runs=wrong))
        for wrong in [True, "1 minute", None]:
            with about(f"delay: {short(wrong)}"):
                said = "not a number of seconds or a timedelta"
                refuses(said, partial(api.retry, 1, delay=wrong), TypeError)


def test_the_most_runs_can_be_granted() -> None:
    dead = make_job(Status.DEAD_LETTERED)
    assert api.retry(dead.pk, runs=32_767).revived == {dead.pk}


class LocalMeanTime(tzinfo):
    """As towns had it before there were time zones."""

    def __str__(self) -> str:
        return "local mean time"

    def utcoffset(self, _: datetime | None) -> timedelta:
        return timedelta(minutes=53, seconds=28)

    def dst(self, _: datetime | None) -> None:
        return None


OFFSETS = [
    timedelta(hours=23, minutes=59, seconds=59),
    -timedelta(hours=23, minutes=59, seconds=59),
    timedelta(hours=16),
    timedelta(seconds=1),
    timedelta(microseconds=1),
    -timedelta(minutes=53, seconds=28),
]


def test_an_instant_is_kept_whatever_the_offset_of_its_zone() -> None:
    with all_faults() as about:
        for zone, many in product([*map(timezone, OFFSETS), LocalMeanTime()], [False, True]):
            with about(f"{zone}, many: {many}"):
                empty_tables()
                instant = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=zone)
                with transaction.atomic():
                    if many:
                        Job.objects.enqueue_many([NewJob(task="tests.add", run_after=instant)])
                    else:
                        tasks.add.using(run_after=instant).enqueue(1, 2)
                assert Job.objects.get().next_run_at == instant.astimezone(UTC)
