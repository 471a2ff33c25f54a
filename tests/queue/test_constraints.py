"""The table refuses nonsense, whoever writes it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import CheckConstraint

from pulse_django import api
from pulse_django.models import Job, Limiter, Pause, StoredAttempt, Worker
from pulse_django.queue.words.bounds import MAX_META_BYTES, MAX_TAG, MOST_TAGS
from pulse_django.queue.words.job_options import NewJob, encode_meta
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import AttemptFactory, make_job, now
from tests.faults import all_faults, each_of
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.usefixtures("pulse_db")

# Each row: from a lawful job of this status, one edit that must be refused, and the constraint that refuses it.
NONSENSE: list[tuple[Status, dict[str, Any], str]] = [
    (Status.PENDING, {"status": "SLEEPING"}, "pulse_job_status_is_known"),
    (Status.PENDING, {"status": "RUNNING"}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"locked_by": None}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"lease_until": None}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"token": None}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"started_at": None}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"attempts": 0}, "pulse_job_running_iff_leased"),
    (Status.RUNNING, {"refunds": 1}, "pulse_job_running_iff_leased"),  # a refund before the run has ended
    (Status.PENDING, {"locked_by": "me"}, "pulse_job_running_iff_leased"),
    (Status.DEAD_LETTERED, {"lease_until": now()}, "pulse_job_running_iff_leased"),
    (Status.RETRYING, {"token": 1}, "pulse_job_running_iff_leased"),
    (Status.PENDING, {"deadline": now()}, "pulse_job_running_iff_leased"),
    (Status.DEAD_LETTERED, {"finished_at": None}, "pulse_job_finished_iff_terminal"),
    (Status.PENDING, {"finished_at": now()}, "pulse_job_finished_iff_terminal"),
    (Status.RUNNING, {"finished_at": now()}, "pulse_job_finished_iff_terminal"),
    (Status.DEAD_LETTERED, {"last_error": ""}, "pulse_job_dead_letter_has_reason"),
    (Status.RETRYING, {"refunds": -1}, "pulse_job_refunds_within_attempts"),
    (Status.RETRYING, {"refunds": 2}, "pulse_job_refunds_within_attempts"),
    (Status.DEAD_LETTERED, {"attempts": 11}, "pulse_job_attempts_within_budget"),
    (Status.DEAD_LETTERED, {"attempts": 0, "max_attempts": 0}, "pulse_job_attempts_within_budget"),
    (Status.RETRYING, {"attempts": 10}, "pulse_job_waiting_has_budget"),
    (Status.PENDING, {"cancel_requested_at": now()}, "pulse_job_waiting_is_wanted"),
    (Status.RETRYING, {"losses": -1}, "pulse_job_losses_within_attempts"),
    (Status.RETRYING, {"losses": 2}, "pulse_job_losses_within_attempts"),
    (Status.RUNNING, {"result": 1}, "pulse_job_result_only_if_completed"),
    (Status.PENDING, {"timeout": timedelta()}, "pulse_job_durations_are_sensible"),
    (Status.PENDING, {"lease_ttl": timedelta(seconds=-1)}, "pulse_job_durations_are_sensible"),
    (Status.PENDING, {"progress_timeout": timedelta(days=365_001)}, "pulse_job_durations_are_sensible"),
    (Status.PENDING, {"give_up_after": timedelta()}, "pulse_job_retry_limit_is_sensible"),
    (Status.PENDING, {"give_up_after": timedelta(days=365_001)}, "pulse_job_retry_limit_is_sensible"),
    (Status.PENDING, {"next_run_at": datetime(1800, 1, 1, tzinfo=UTC)}, "pulse_job_instant_can_be_read"),
    (Status.PENDING, {"next_run_at": datetime(9999, 1, 1, tzinfo=UTC)}, "pulse_job_instant_can_be_read"),
    (Status.PENDING, {"expires_at": datetime(1800, 1, 1, tzinfo=UTC)}, "pulse_job_expiry_can_be_read"),
    (Status.DEAD_LETTERED, {"created_at": datetime(9999, 1, 1, tzinfo=UTC)}, "pulse_job_can_be_read"),
    (Status.PENDING, {"args": {"an": "object"}}, "pulse_job_arguments_have_their_shape"),
    (Status.PENDING, {"kwargs": ["a list"]}, "pulse_job_arguments_have_their_shape"),
    (Status.PENDING, {"priority": 101}, "pulse_job_priority_in_range"),
    (Status.PENDING, {"priority": -101}, "pulse_job_priority_in_range"),
    (Status.PENDING, {"weight": 0}, "pulse_job_weight_in_range"),
    (Status.PENDING, {"weight": 1_001}, "pulse_job_weight_in_range"),
    (Status.RUNNING, {"cancel_reason": "é" * 8_193}, "pulse_job_texts_are_bounded"),
    (Status.DEAD_LETTERED, {"last_error": "x" * 16_385}, "pulse_job_texts_are_bounded"),
    (Status.WAITING, {"on_dead": "x" * 131_071}, "pulse_job_hook_is_bounded"),
]


@each_of(*NONSENSE)
def test_an_impossible_job_is_refused(*, status: Any, edit: Any, constraint: Any) -> None:
    job = make_job(status)
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**edit)


def test_every_constraint_of_a_job_has_a_row_above() -> None:
    names = {c.name for c in Job._meta.constraints if isinstance(c, CheckConstraint)}
    # test_enqueue, test_payload_size, and below
    elsewhere = {"pulse_job_payload_is_bounded", "pulse_job_payload_text_is_bounded", "pulse_job_labels_are_bounded"}
    assert names - elsewhere == {constraint for _, _, constraint in NONSENSE}


def test_a_run_has_one_ledger_row() -> None:
    job = make_job(Status.COMPLETED)
    AttemptFactory(job=job)
    with pytest.raises(IntegrityError, match="pulse_attempt_one_per_run"), transaction.atomic():
        AttemptFactory(job=job)


@each_of(
    ({"number": 0}, "pulse_attempt_number_is_positive"),
    ({"outcome": "FINE"}, "pulse_attempt_outcome_is_known"),
    ({"late_outcome": "SUCCEEDED"}, "pulse_attempt_late_has_an_instant"),
    ({"late_at": now()}, "pulse_attempt_late_has_an_instant"),
    ({"late_outcome": "FINE", "late_at": now()}, "pulse_attempt_late_has_an_instant"),
)
def test_an_impossible_ledger_row_is_refused(*, edit: Any, constraint: Any) -> None:
    entry = AttemptFactory(job=make_job(Status.COMPLETED))
    with pytest.raises(IntegrityError, match=constraint), transaction.atomic():
        StoredAttempt.objects.filter(pk=entry.pk).update(**edit)


def test_a_pause_is_of_a_key_or_of_a_task_or_a_queue() -> None:
    for subject in ({}, {"lane_key": ":0000a", "task": "t"}, {"lane_key": ":0000a", "queue": "q"}):
        with pytest.raises(IntegrityError, match="pulse_pause_is_of_something"), transaction.atomic():
            Pause.objects.create(**subject)


def test_ids_are_bigints() -> None:
    """And the sequences behind them give out one at a time: a cached range would come after larger tokens."""
    kinds = sql(
        "SELECT table_name, column_name, data_type, is_identity FROM information_schema.columns"
        " WHERE table_name = ANY (%s) AND column_name IN ('id', 'job_id', 'parent_id', 'token')",
        [model._meta.db_table for model in (Job, StoredAttempt, Worker, Pause)],
    )
    assert {kind for _, _, kind, _ in kinds} == {"bigint"}
    ours = {table for table, column, _, identity in kinds if column == "id" and identity != "YES"}
    assert ours == {"pulse_django_job"}  # partitions have no identity before PostgreSQL 17: a sequence stands in
    [(schema, sequence)] = sql("SELECT current_schema(), pg_get_serial_sequence('pulse_django_job', 'id')")
    assert sequence == f"{schema}.pulse_django_job_id_seq"
    assert sql("SELECT seqcache FROM pg_sequence WHERE seqrelid = 'pulse_django_token'::regclass") == [(1,)]


def test_no_index_holds_or_is_conditioned_on_what_a_heartbeat_changes() -> None:
    for (definition,) in sql("SELECT indexdef FROM pg_indexes WHERE tablename = 'pulse_django_job_hot'"):
        assert "lease_until" not in definition
        assert "progress" not in definition


UNREADABLE = ("infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "200000-01-01 00:00:00+00")
LABELS = "pulse_job_labels_are_bounded"
TABLES = """
SELECT relname FROM pg_class
WHERE relname LIKE 'pulse\\_django\\_%%' AND relkind IN ('r', 'p') AND pg_table_is_visible(oid)
    AND relname <> 'pulse_django_job'
ORDER BY relname
"""
INSTANTS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND atttypid = 'timestamptz'::regtype
"""
# Those of the domain are about the value that a row is cast to.
CHECKS = """
SELECT conname, replace(pg_get_constraintdef(oid), '(VALUE).', '') FROM pg_constraint
WHERE contype = 'c' AND (conname LIKE '%%can_be_read' OR conname LIKE '%%are_finite') AND (
    conrelid = %s::regclass
    OR %s = 'pulse_django_job_hot' AND contypid = 'pulse_django_job_rules'::regtype
)
"""


@pytest.mark.one_server("it makes tables beside those of the schema")
def test_every_table_refuses_instants_that_python_cannot_read() -> None:
    """A copy of each table, with these rules alone, shows that they hold for each column."""
    tables = [name for (name,) in sql(TABLES)]
    assert {"pulse_django_job_hot", "pulse_django_job_over", "pulse_django_worker"} <= set(tables)
    assert any(name.removeprefix("pulse_django_job_").isdigit() for name in tables), "there is no day"
    with all_faults() as about:
        for table in tables:
            with about(table), undone():
                columns = [name for (name,) in sql(INSTANTS, table)]
                make = f"CREATE TEMPORARY TABLE copy AS SELECT * FROM {table} WITH NO DATA"
                rules = sql(CHECKS, table, table)
                checks = "".join(f"; ALTER TABLE copy ADD CONSTRAINT {name} {how}" for name, how in rules)
                sql(f"{make}{checks.replace(' NOT VALID', '')}")
                for column in columns:
                    sql(f"INSERT INTO copy ({column}) VALUES (now())")
                    for value in UNREADABLE:
                        with pytest.raises(IntegrityError), transaction.atomic():
                            sql(f"INSERT INTO copy ({column}) VALUES ('{value}')")


def test_a_job_whose_id_cannot_be_negated_is_refused() -> None:
    """The ledger shows the run that completed a job under its negative id."""
    with pytest.raises(IntegrityError, match="pulse_job_can_be_read"), transaction.atomic():
        sql("INSERT INTO pulse_django_job (id, task) VALUES (-9223372036854775808, 't')")


def test_lists_of_lists_are_no_labels() -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        sql("INSERT INTO pulse_django_job (task, tags) VALUES ('t', ARRAY[ARRAY['a'], ARRAY['b']])")


@each_of(
    *{
        "meta": f"jsonb_build_object('x', repeat('x', {2 * MAX_META_BYTES}))",
        "tags": f"string_to_array(repeat('n,', {MOST_TAGS}), ',')",
        "tags ": "ARRAY[repeat('x', 100000000)]",
        "tags  ": "ARRAY[NULL::text]",
        "tags   ": "ARRAY['a', NULL]",
        "search_terms": "ARRAY[repeat('x', 100000)]",
        "search_terms ": "string_to_array(repeat('n,', 20000), ',')",
        "search_terms  ": "ARRAY[NULL::text]",
    }.items()
)
def test_labels_are_bounded_at_their_true_length(*, column: Any, value: Any) -> None:
    """A hundred million letters take a megabyte as they are stored."""
    with pytest.raises(IntegrityError, match=LABELS), transaction.atomic():
        sql(f"INSERT INTO pulse_django_job (task, {column}) VALUES ('t', {value})")
    job = make_job(Status.WAITING)
    with pytest.raises(IntegrityError, match=LABELS), transaction.atomic():
        sql(f"UPDATE pulse_django_job SET {column} = {value} WHERE id = {job.pk}")


def test_the_largest_labels_of_a_call_are_stored() -> None:
    largest = {
        "numbers": [0] * ((MAX_META_BYTES - 20) // 2),
        "letters": "é" * ((MAX_META_BYTES - 20) // 6),
        "quotes": '"' * ((MAX_META_BYTES - 20) // 2),
    }
    tags = [f"{number:02}" + '"' * (MAX_TAG - 2) for number in range(MOST_TAGS)]
    with all_faults() as about:
        for name, value in largest.items():
            with about(name):
                meta = {name[0]: value}
                assert MAX_META_BYTES - 30 < len(encode_meta(meta) or "") <= MAX_META_BYTES
                job = Job.objects.enqueue(NewJob(task="t", meta=encode_meta(meta), tags=tuple(tags)))
                assert Job.objects.get(pk=job.pk).tags == tags


def test_a_row_that_was_written_before_is_shown_as_it_is() -> None:
    """Labels of jobs that are over are not measured."""
    job = make_job(Status.COMPLETED)
    sql("UPDATE pulse_django_job SET tags = ARRAY[NULL, 'a'] || %s WHERE id = %s", ["b"] * 20_000, job.pk)
    client = staff("pulse_view_jobs", "pulse_view_arguments")
    assert [one.pk for one in api.jobs()] == [job.pk]
    for page in ("/admin/pulse_django/job/", f"/admin/pulse_django/job/{job.pk}/change/"):
        begun = time.process_time()
        assert client.get(page).status_code == 200
        assert time.process_time() - begun < 5, page


def test_numbers_of_a_limit_are_bounded() -> None:
    """They are read by each claim of its jobs, and by the list of all limits."""
    Limiter.objects.override("stripe", {"max_running": 1})
    values = ("[1]", '{"max_running": 1' + "0" * 5000 + "}", json.dumps({"x": "y" * 5000}), "1")
    with all_faults() as about:
        for column in ("numbers", "override"):
            for value in values:
                with (
                    about((column, value[:30])),
                    pytest.raises(IntegrityError, match="pulse_limiter_numbers_are_bounded"),
                    transaction.atomic(),
                ):
                    sql(f"UPDATE pulse_django_limiter SET {column} = %s::jsonb", value)
