"""What can be asked of jobs: where an instant lies among their ids, and what their errors have in common."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db.models import Case, F, Value, When
from django.db.models.functions import Coalesce, Concat

from pulse_django.models import Attempt, Job
from pulse_django.queue.database.sql_functions import Fingerprint
from pulse_django.queue.words.states import Status
from tests.database import on_empty_tables
from tests.factories import make_job, now
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


class TestWhereAnInstantLies:
    @pytest.fixture
    def jobs(self) -> list[tuple[int, datetime]]:
        """Fifty jobs, a minute apart, with gaps among their ids."""
        sql(
            "INSERT INTO pulse_django_job (id, task, created_at)"
            " OVERRIDING SYSTEM VALUE SELECT n * n + 7, 'tests.add', '2026-01-01 00:00Z'::timestamptz"
            " + n * interval '1 min'"
            " FROM generate_series(1, 50) AS n"
        )
        return list(Job.objects.order_by("pk").values_list("pk", "created_at"))

    def test_every_job_is_found_by_its_own_instant_and_by_one_just_before(
        self, jobs: list[tuple[int, datetime]]
    ) -> None:
        for pk, instant in jobs:
            found = [Job.objects.id_at(instant), Job.objects.id_at(instant - timedelta(seconds=1))]
            assert [
                Job.objects.filter(pk__gte=one).order_by("pk").values_list("pk", flat=True)[0] for one in found
            ] == [
                pk,
                pk,
            ]

    def test_before_all_after_all_and_in_an_empty_table(self, jobs: list[tuple[int, datetime]]) -> None:
        assert Job.objects.id_at(jobs[0][1] - timedelta(days=9)) == jobs[0][0]
        assert Job.objects.id_at(jobs[-1][1] + timedelta(days=9)) > jobs[-1][0]
        sql("DELETE FROM pulse_django_job")
        assert Job.objects.id_at(jobs[0][1]) == 0


def fingerprint(error: str) -> str:
    sql("DELETE FROM pulse_django_job")
    make_job(Status.DEAD_LETTERED, last_error=error)
    found: str = Job.objects.values_list(Fingerprint(F("last_error")), flat=True)[0]
    return found


@each_of(
    ("OSError: host 10.0.0.1:5432 is away", "OSError: host 10.0.0.99:5433 is away"),
    ("TypeError: <Thing object at 0x7f3c2a10>", "TypeError: <Thing object at 0x7f0000ff>"),
    ("SMTPError: ada@example.com refused", "SMTPError: bob.x+y@mail.example refused"),
    ("FileNotFoundError: /srv/a/b.txt", "FileNotFoundError: /home/zoë/c"),
    ("E: C:\\Users\\ada is gone", "E: D:/x is gone"),
    ("E: took 3s", "E: took 2.75s"),
    around=on_empty_tables,
)
def test_numbers_ids_and_addresses_make_no_difference(*, one: Any, other: Any) -> None:
    """What tests/queue/test_error_groups.py does not make up."""
    assert fingerprint(one) == fingerprint(other)


@each_of(
    ("ValueError: no [a.py:f]", "ValueError: no"),
    ("ValueError: can't and won't", "ValueError: can't or won't"),
    ("Http404: no", "S3Error: no"),
    ("ValueError: added", "ValueError: faded"),  # words, though all their letters are hexadecimal
    around=on_empty_tables,
)
def test_words_make_one(*, one: Any, other: Any) -> None:
    assert fingerprint(one) != fingerprint(other)


@each_of("x" * 2_000, "\U0001f4a9" * 2_000, "%s %(x)s {} \\1 \\m", "1" * 2_000, around=on_empty_tables)
def test_any_error_has_one_that_fits_the_index(*, error: Any) -> None:
    assert len(fingerprint(error)) <= 200


def test_the_ledger_tells_when_a_lost_worker_was_heard_of_last() -> None:
    job = make_job(Status.RUNNING, lease_ttl=timedelta(seconds=20), lease_until=now(timedelta(seconds=-1)))
    default = make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-1)))
    timed_out = make_job(Status.RUNNING, deadline=now(timedelta(seconds=-1)))
    Job.objects.reap()
    attempts = {attempt.job_id: attempt for attempt in Attempt.objects.all()}
    assert attempts[job.pk].last_seen_at == job.lease_until - timedelta(seconds=20)
    assert attempts[default.pk].last_seen_at == default.lease_until - timedelta(seconds=30)
    assert attempts[timed_out.pk].last_seen_at is None, "its worker is alive"


@each_of(
    (Concat("queue", Value("-"), "task"), "mail-shop.echo"),
    (Concat(Value("-"), "queue"), "-mail"),
    (Case(When(priority__gt=5, then=Value("high")), default="queue"), "mail"),
    (Coalesce("locked_by", Value("nobody")), "nobody"),
    (Coalesce(Value("x"), "locked_by"), "x"),
    around=on_empty_tables,
)
def test_they_mix_with_other_text(*, expression: Any, expected: Any) -> None:
    make_job(task="shop.echo", queue="mail")
    assert Job.objects.annotate(found=expression).get().found == expected
