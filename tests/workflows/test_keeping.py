"""What belongs to an open batch is kept, what belongs to nothing is deleted, and a pause starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.db import transaction

from pulse_django import Batch, api, chain, send_event
from pulse_django.models import Dependency, Duty, Event, Job, Step, StoredBatch, Unresolved
from pulse_django.queue import prune
from pulse_django.queue.words.states import Status, era_of
from pulse_django.testing import drain, run_job
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from pulse_django.workflows import needs
from pulse_django.workflows.resolving import resolve
from tests.queue.steps import sql
from tests.workflows.tasks import BROKEN, SAW, note, plain, stepwise

pytestmark = pytest.mark.usefixtures("pulse_db")
LONG_AGO = datetime(2026, 1, 5, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _walks_begin() -> None:
    prune._walked_until.clear()
    needs._walked_until.clear()


@pytest.fixture
def old_day() -> Iterator[int]:
    era = era_of(LONG_AGO.date())
    sql(f"SELECT pulse_django_make_day({era}, 0)")
    yield era
    sql(f"SELECT pulse_django_drop_day({era})")


def age(era: int) -> None:
    """Let all that is over have ended on that day."""
    sql("UPDATE pulse_django_job SET era = %s, finished_at = %s WHERE era <> 0", era, LONG_AGO)


def test_a_day_that_is_dropped_leaves_the_members_of_open_batches(old_day: int) -> None:
    BROKEN.add("b")
    placed = chain(note.prepare("a"), note.prepare("b"), note.prepare("c")).enqueue()
    alone = plain.enqueue("alone")
    drain(failures="keep")
    age(old_day)
    assert Job.objects.drop_days(older_than=timedelta(days=1))
    assert not Job.objects.filter(pk=int(alone.id)).exists()
    assert Job.objects.get(pk=placed.job_ids["note"]).result == "A"
    BROKEN.clear()
    api.retry(placed.job_ids["note 2"])
    drain()
    assert SAW[-1] == ("c", {"note 2": "B"})


def test_a_dead_letter_that_is_needed_is_not_pruned() -> None:
    BROKEN.update({"a", "b"})
    held = chain(note.prepare("a"), note.prepare("c")).enqueue()
    single = note.enqueue("b")
    drain(failures="keep")
    sql("UPDATE pulse_django_job_hot SET finished_at = %s WHERE finished_at IS NOT NULL", LONG_AGO)
    assert Job.objects.prune(Status.DEAD_LETTERED, older_than=timedelta(days=1)) == 1
    assert not Job.objects.filter(pk=int(single.id)).exists()
    assert Job.objects.filter(pk=held.job_ids["note"]).exists()


def test_what_belongs_to_no_job_is_deleted() -> None:
    placed = chain(note.prepare("a"), note.prepare("b")).enqueue()
    stepwise.enqueue("order")
    drain()
    send_event("old")
    sql("DELETE FROM pulse_django_job WHERE era <> 0")
    Job.objects.forget_orphans()
    assert not Dependency.objects.exists()
    assert not Step.objects.exists()
    assert Job.objects.forget_batches(older_than=timedelta(days=1)) == 0
    StoredBatch.objects.update(finished_at=LONG_AGO)
    Event.objects.update(sent_at=LONG_AGO)
    assert Job.objects.forget_batches(older_than=timedelta(days=1)) == 1
    assert not StoredBatch.objects.filter(pk=placed.id).exists()
    assert not Event.objects.exists()


def test_a_paused_workflow_starts_nothing_and_goes_on_where_it_was() -> None:
    placed = chain(note.prepare("a"), note.prepare("b")).enqueue()
    assert placed.pause()
    assert not placed.pause()
    drain()
    assert SAW == []
    late = placed.add(note.prepare("late"))
    Job.objects.hold()
    drain()
    assert SAW == []
    assert Job.objects.get(pk=int(late.id)).status == Status.WAITING
    assert placed.resume()
    drain()
    assert sorted(name for name, _ in SAW) == ["a", "b", "late"]


def test_a_watchdog_finishes_what_a_process_left() -> None:
    """Whoever cancelled the batch died after the commit, and so did who settled the last need."""
    with transaction.atomic():
        batch = Batch.open("many")
        batch.add_many(plain, [[str(number)] for number in range(2_500)])
        from pulse_django.workflows.batch_verbs import cancel_batch

        cancel_batch(Job.objects, batch.id, reason="stop")
    assert Unresolved.objects.exists()
    ours = GuardedConnection("default", "watchdog")
    try:
        Watchdog(ours).sweep()
    finally:
        ours.hang_up()
    assert not Job.objects.filter(batch_id=batch.id).exclude(status=Status.CANCELLED).exists()
    assert batch.row.finished_at is not None
    progress = batch.progress()
    assert (progress.total, progress.cancelled) == (2_500, 2_500)


def test_what_ended_without_a_note_is_found_by_a_watchdog() -> None:
    """As workers of a release without workflows end jobs: the row moves, and nothing is noted."""
    placed = chain(note.prepare("a"), plain.prepare("b")).enqueue()
    batch = Batch.open("import")
    batch.add(plain.prepare("c"))
    batch.seal(on_success=plain.prepare("d"))
    drain_all_but_notes = [placed.job_ids["note"], batch.jobs.get().pk]
    resolve("default")
    for job_id in drain_all_but_notes:
        run_job(job_id)
    sql("DELETE FROM pulse_django_unresolved")
    sql("UPDATE pulse_django_job SET batch_id = NULL, awaited = false WHERE era <> 0")
    assert drain() == []
    assert Job.objects.note_overlooked() == 2
    assert Job.objects.note_overlooked() == 0
    drain()
    assert sorted(name for name, _ in SAW) == ["a", "b", "c", "d"]
    assert not StoredBatch.objects.filter(finished_at=None).exists()


def test_what_nobody_has_looked_at_yet_is_not_overlooked() -> None:
    chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    run_job(Job.objects.get(status=Status.PENDING).pk)
    assert Job.objects.note_overlooked() == 0


def test_a_project_without_workflows_is_asked_nothing_more() -> None:
    plain.enqueue("x")
    drain()
    assert Duty.objects.take({}).with_work == set()
