from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import islice, product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import IntegrityError, OperationalError, transaction
from django.db.transaction import TransactionManagementError
from django.test import override_settings

from pulse_django.backend import new_job
from pulse_django.exceptions import InvalidJob, PayloadError
from pulse_django.models import Job
from pulse_django.queue.enqueue import ENQUEUE_CHUNK
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.run.results import result_of
from testproject.shop import tasks
from tests.database import empty_tables, on_empty_tables
from tests.faults import all_faults, each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_the_job_that_is_returned_is_the_job_that_is_stored() -> None:
    enqueued = Job.objects.enqueue(
        NewJob(
            task="app.tasks.send",
            args=[1, "ünï😀", None, 1.5, {"a": [True]}],
            kwargs={"b": "\\u0000"},
            queue="mail",
            priority=-7,
            run_after=timedelta(minutes=1),
            max_attempts=3,
            lease=timedelta(seconds=5),
            timeout=timedelta(minutes=10),
            progress_timeout=timedelta(seconds=90),
            parent_id=12,
        )
    )
    stored = Job.objects.get()
    for field in Job._meta.concrete_fields:
        assert getattr(enqueued, field.attname) == getattr(stored, field.attname), field.attname
    assert abs(stored.next_run_at - stored.created_at - timedelta(minutes=1)) < timedelta(seconds=1)


def test_defaults_are_the_fleets_and_an_instant_is_kept_to_the_microsecond() -> None:
    instant = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    with override_settings(PULSE={"MAX_ATTEMPTS": 4}):
        job = Job.objects.enqueue(NewJob(task="tests.add", run_after=instant))
    assert job.max_attempts == Job.objects.get().max_attempts == 4
    assert (job.queue, job.priority, job.status, job.attempts) == ("default", 0, Status.PENDING, 0)
    assert job.next_run_at == instant


def test_enqueueing_joins_the_callers_transaction() -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Job.objects.enqueue(NewJob(task="tests.add"))
        Job.objects.enqueue_many([NewJob(task="tests.add")])
        raise ZeroDivisionError
    assert not Job.objects.exists()


def test_many_jobs_come_back_as_ids_in_their_order() -> None:
    count = ENQUEUE_CHUNK + 7
    ids = Job.objects.enqueue_many(NewJob(task="tests.add", args=[n]) for n in range(count))
    assert [args for (args,) in Job.objects.filter(pk__in=ids).order_by("pk").values_list("args")] == [
        [n] for n in range(count)
    ]
    assert ids == sorted(ids)
    assert len(set(ids)) == count
    assert list(Job.objects.order_by("next_run_at", "id").values_list("id", flat=True)) == ids, "and are claimed so"


def due_in(new: NewJob, job: Job) -> timedelta:
    """How long after it was created a job is due, or after the instant that was given for it."""
    since: datetime = new.run_after if isinstance(new.run_after, datetime) else job.created_at
    return job.next_run_at - since


def test_many_jobs_of_several_kinds_keep_their_order_and_what_is_their_own() -> None:
    instant = datetime(2031, 2, 3, 4, 5, 6, 789, tzinfo=UTC)
    kinds = [
        {
            "task": "tests.add",
            "priority": 5,
            "lease": timedelta(seconds=5),
            "max_lost_workers": 2,
            "count_lost_workers": False,
        },
        {"task": "tests.echo", "queue": "mail", "run_after": instant, "max_attempts": 3, "parent_id": 12},
        {"task": "tests.add", "run_after": timedelta(hours=1), "timeout": timedelta(minutes=1)},
        {"task": "tests.add", "progress_timeout": timedelta(seconds=90), "trace": "00-ab-cd-01"},
    ]
    news = [NewJob(args=[n], kwargs={"n": n}, **kinds[n % len(kinds)]) for n in range(40)]
    ids = Job.objects.enqueue_many(news)
    many = {job.pk: job for job in Job.objects.filter(pk__in=ids)}
    for new, job_id in zip(news, ids, strict=True):
        alone, job = Job.objects.enqueue(new), many[job_id]
        for field in Job._meta.concrete_fields:
            if field.name not in ("id", "created_at", "next_run_at"):
                assert getattr(job, field.attname) == getattr(Job.objects.get(pk=alone.pk), field.attname), (
                    field.attname
                )
        assert abs(due_in(new, job) - due_in(new, alone)) < timedelta(seconds=5)
        if new.run_after == instant:
            assert job.next_run_at == instant


def test_a_job_is_added_once_for_each_of_many_arguments() -> None:
    new = NewJob(task="tests.add", queue="mail", args=["not these"])
    ids = Job.objects.enqueue_alike(new, [((1, 2), {}), ((), {"a": 3})])
    assert [(job.queue, job.args, job.kwargs) for job in Job.objects.filter(pk__in=ids).order_by("id")] == [
        ("mail", [1, 2], {}),
        ("mail", [], {"a": 3}),
    ]


@each_of(
    '"',
    "\\",
    '\\"',
    "{a,b}",
    "NULL",
    "\\N",
    "\\.",
    ",",
    "'",
    "a\tb\nc\rd",
    "%s",
    "{}",
    "\\u0041",
    "ünï😀",
    around=on_empty_tables,
)
def test_what_copy_spells_specially_is_an_argument_like_any_other(*, text: Any) -> None:
    [job_id] = Job.objects.enqueue_many([NewJob(task="tests.add", args=[text], kwargs={text: text})])
    job = Job.objects.get(pk=job_id)
    assert (job.args, job.kwargs) == ([text], {text: text})


@each_of("a\\b", "\\N", "\\.", "ünï😀", around=on_empty_tables)
def test_what_copy_spells_specially_is_a_name_like_any_other(*, name: Any) -> None:
    [job_id] = Job.objects.enqueue_many([NewJob(task=name, queue=name, trace=name)])
    job = Job.objects.get(pk=job_id)
    assert (job.task, job.queue, job.trace) == (name, name, name)


@pytest.mark.one_server("Citus reports an error of COPY without its SQLSTATE")
def test_an_error_of_the_table_does_not_repeat_the_jobs_that_it_refused() -> None:
    new = NewJob(task="tests.add", args=["a secret"])
    object.__setattr__(new, "priority", 1_000)
    for enqueue in (lambda: Job.objects.enqueue(new), lambda: Job.objects.enqueue_many([new])):
        with pytest.raises(IntegrityError, match="pulse_job_priority_in_range") as refused:
            enqueue()
        assert "secret" not in f"{refused.value} {refused.value.__cause__}"
    assert not Job.objects.exists()


@pytest.mark.one_server("its trigger is a function of the session")
def test_a_copy_that_is_interrupted_does_not_repeat_the_job_that_it_was_at() -> None:
    new = NewJob(task="tests.add", kwargs={"card": "a secret"})
    with pytest.raises(OperationalError, match="interrupted") as ended, transaction.atomic():
        sql("""
            CREATE FUNCTION pg_temp.ends() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'interrupted' USING ERRCODE = '57014'; END $$;
            CREATE TRIGGER ends BEFORE INSERT ON pulse_django_job_hot FOR EACH ROW EXECUTE FUNCTION pg_temp.ends()
        """)
        Job.objects.enqueue_many([new])
    assert "secret" not in f"{ended.value} {ended.value.__cause__}"


def test_a_lone_surrogate_in_a_name_does_not_put_all_jobs_into_the_error() -> None:
    new = NewJob(task="tests.add", args=["a secret"], sensitive="\ud800")
    with pytest.raises(InvalidJob, match="lone surrogate") as refused:
        Job.objects.enqueue_many([new])
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


class Urgency(int, Enum):
    HIGH = 7


class Department(str, Enum):  # noqa: UP042 - as projects have them
    MAIL = "mail"


def test_options_that_are_enums_are_stored_as_their_values() -> None:
    new = NewJob(task="tests.add", priority=Urgency.HIGH, queue=Department.MAIL, max_attempts=Urgency.HIGH)
    for job_id in (Job.objects.enqueue(new).pk, *Job.objects.enqueue_many([new])):
        job = Job.objects.get(pk=job_id)
        assert (job.priority, job.queue, job.max_attempts) == (7, "mail", 7)


@each_of(60, 120, 180, 240, 300, around=on_empty_tables)
def test_a_delay_is_as_long_in_a_time_zone_that_changes_its_clocks(*, days: Any) -> None:
    delay = timedelta(days=days)
    new = NewJob(task="tests.add", run_after=delay)
    with transaction.atomic():
        sql("SET LOCAL timezone = 'Europe/Berlin'")
        ids = [
            Job.objects.enqueue(new).pk,
            *Job.objects.enqueue_many([new]),
            Job.objects.enqueue(NewJob(task="t")).pk,
        ]
        Job.objects.reschedule(ids[2:], delay=delay)
    waits = "extract(epoch FROM next_run_at) - extract(epoch FROM created_at)"
    for (seconds,) in sql(f"SELECT {waits} FROM pulse_django_job"):
        assert abs(float(seconds) - delay.total_seconds()) < 60


def test_two_instants_that_differ_in_their_fold_only_are_two() -> None:
    first = datetime(2031, 10, 26, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    ids = Job.objects.enqueue_many([NewJob(task="t", run_after=one) for one in (first, first.replace(fold=1))])
    earlier, later = (Job.objects.get(pk=job_id).next_run_at for job_id in ids)
    assert later - earlier == timedelta(hours=1)


def test_many_jobs_are_refused_in_a_transaction_that_is_broken() -> None:
    with transaction.atomic():
        transaction.set_rollback(True)
        with pytest.raises(TransactionManagementError):
            Job.objects.enqueue_many([NewJob(task="tests.add")])


def test_many_jobs_are_all_or_none() -> None:
    def with_a_bad_one_at_the_end() -> Any:
        yield from (NewJob(task="tests.add") for _ in range(ENQUEUE_CHUNK + 1))
        yield NewJob(task="tests.add", args=["\x00"])

    with pytest.raises(PayloadError, match="contains a NUL"):
        Job.objects.enqueue_many(with_a_bad_one_at_the_end())
    assert not Job.objects.exists()
    assert Job.objects.enqueue(NewJob(task="tests.add"))  # the connection is as good as before


def test_many_jobs_are_read_as_they_are_needed() -> None:
    endless = (NewJob(task="tests.add", args=[n]) for n in iter(int, 1))
    assert len(Job.objects.enqueue_many(islice(endless, 10))) == 10
    assert Job.objects.enqueue_many([]) == []


def test_bad_arguments_are_refused_and_the_callers_transaction_goes_on() -> None:
    with all_faults() as about:
        for bad, where in product(["nul\x00", "\ud800", math.nan, object(), b"x", 10**5000], ["args", "kwargs"]):
            with about((ascii(bad) if isinstance(bad, str) else type(bad), where)):
                empty_tables()
                with transaction.atomic():
                    good = Job.objects.enqueue(NewJob(task="tests.add"))
                    payload: Any = [bad] if where == "args" else {"bad": bad}
                    with pytest.raises(PayloadError, match=where):
                        Job.objects.enqueue(NewJob(task="tests.add", **{where: payload}))
                assert list(Job.objects.values_list("pk", flat=True)) == [good.pk]


def test_a_payload_over_the_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(PayloadError, match="args: 1000004 bytes of JSON, over the limit of 1000000"):
        Job.objects.enqueue(NewJob(task="tests.add", args=["x" * 1_000_000]))
    with override_settings(PULSE={"MAX_PAYLOAD_BYTES": 2_000_000}):
        assert Job.objects.enqueue(NewJob(task="tests.add", args=["x" * 1_000_000]))


def test_the_largest_payload_that_the_setting_allows_is_stored_whatever_its_shape() -> None:
    with override_settings(PULSE={"MAX_PAYLOAD_BYTES": 4_000_000}):
        # ones need six times the room in jsonb that they need in JSON: the worst there is
        Job.objects.enqueue(NewJob(task="tests.add", args=[1] * 1_999_000))


@pytest.mark.one_server("Citus reports an error of INSERT ... SELECT without its SQLSTATE")
def test_a_payload_past_all_settings_is_refused_by_the_table() -> None:
    with pytest.raises(IntegrityError, match="pulse_job_payload_is_bounded"):
        sql(
            "INSERT INTO pulse_django_job (task, args)"
            " SELECT 'tests.add', jsonb_agg(n) FROM generate_series(1, 3000000) AS n"
        )


def test_a_job_can_be_enqueued_from_plain_sql() -> None:
    sql("INSERT INTO pulse_django_job (task) VALUES ('tests.add')")
    assert Job.objects.due().get().max_attempts == 10


def test_naive_instants_are_refused_also_where_django_allows_them() -> None:
    with override_settings(USE_TZ=False), pytest.raises(InvalidJob, match="is naive"):
        NewJob(task="tests.add", run_after=datetime(2031, 1, 1))  # noqa: DTZ001


def stored(result: Any) -> Job:
    return Job.objects.get(pk=int(result.id))


def test_a_change_of_settings_or_options_counts_for_the_next_job(settings: Any) -> None:
    first, second = stored(tasks.add.enqueue(1, 2)), stored(tasks.add.enqueue(a=3, b=4))
    assert (first.args, first.kwargs, second.args, second.kwargs) == ([1, 2], {}, [], {"a": 3, "b": 4})
    settings.PULSE = settings.PULSE | {"MAX_ATTEMPTS": first.max_attempts + 1}
    assert stored(tasks.add.enqueue(1, 2)).max_attempts == first.max_attempts + 1
    urgent = tasks.add.using(priority=7, queue_name="other", tags=["red"])
    assert [(job.priority, job.queue, job.tags) for job in (stored(urgent.enqueue(1, 2)) for _ in range(2))] == [
        (7, "other", ["red"])
    ] * 2
    assert stored(tasks.add.enqueue(1, 2)).priority == 0


def test_a_job_that_is_changed_shares_nothing() -> None:
    tasks.add.enqueue(1, 2)
    alike = new_job(tasks.add, (1, 2), {})
    assert alike.alike is not None
    changed = replace(alike, queue="other")
    assert changed.alike is None
    assert Job.objects.get(pk=Job.objects.enqueue(changed).pk).queue == "other"
    assert Job.objects.get(pk=Job.objects.enqueue(alike).pk).queue == "default"


def test_the_result_of_a_new_job_is_that_of_its_row() -> None:
    calls: list[Any] = [(tasks.add, (1, 2), {}), (tasks.later, ("now",), {}), (tasks.send_invoice, (1,), {"card": "4"})]
    for task, args, kwargs in calls:
        told = task.enqueue(*args, **kwargs)
        assert told == result_of(stored(told), told.task)


def test_a_model_is_made_with_what_the_row_has() -> None:
    job = Job.objects.enqueue(NewJob(task="t", args=[1], tags=("red",), meta='{"a": 1}'))
    row = Job.objects.get(pk=job.pk)
    names = [one.attname for one in Job._meta.concrete_fields]
    assert {name: getattr(job, name) for name in names} == {name: getattr(row, name) for name in names}
