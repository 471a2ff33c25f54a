"""No row can be written that Python cannot read: it would break each list that it is in."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, transaction

from pulse_django import api
from pulse_django.models import Job, Limiter
from pulse_django.queue.words.bounds import MAX_META_BYTES, MAX_TAG, MOST_TAGS
from pulse_django.queue.words.job_options import NewJob, encode_meta
from pulse_django.queue.words.states import Status
from tests.console.staff import staff
from tests.factories import make_job
from tests.faults import all_faults, each
from tests.queue.steps import sql
from tests.undoing import undone

pytestmark = pytest.mark.usefixtures("pulse_db")

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


@each(
    {
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
def test_labels_are_bounded_at_their_true_length(column: Any, value: Any) -> None:
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
