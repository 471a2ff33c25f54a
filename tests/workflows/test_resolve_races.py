"""Races around ``resolve``, one statement at a time: no waiting job is forgotten, and none deadlocks."""

from __future__ import annotations

import pytest
from django.db import transaction

from pulse_django import Batch, Workflow
from pulse_django.models import Dependency, Job, StoredBatch, Unresolved
from pulse_django.queue.words.decisions import Complete, DeadLetter, Wait
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.outcomes import Failed, Succeeded, Waited
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.testing import drain, run_job
from pulse_django.workflows.batch_verbs import pause_batch, resume_batch
from pulse_django.workflows.needs import add_needs_of_run
from pulse_django.workflows.resolve import RESOLVE_LIMIT
from pulse_django.workflows.resolving import Remaining, resolve
from pulse_django.workflows.rules import Need
from tests.crash.workers import status
from tests.queue.steps import sql, success
from tests.rival import PATIENCE, Rival, backend_pid
from tests.workflows.tasks import note, plain

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_a_job_whose_row_is_locked_is_looked_at_again(rival: Rival) -> None:
    """As by ``amend`` or a cancellation in a long transaction, or by another call that has not committed."""
    flow = Workflow().add("a", plain.prepare("a")).add("b", plain.prepare("b"), needs=["a"])
    placed = flow.enqueue()
    rival.lock_row(placed.job_ids["b"])
    [claim] = Job.objects.claim(Identity("w"))
    Job.objects.settle([success(claim)])
    assert resolve("default") is Remaining.LOCKED
    assert resolve("default") is Remaining.LOCKED
    rival.rollback()
    assert resolve("default") is Remaining.NOTHING
    assert status(placed.job_ids["b"]) == Status.PENDING
    assert not Unresolved.objects.exists()


def test_runs_that_begin_to_wait_lock_jobs_in_the_order_of_their_ids(rival: Rival) -> None:
    """The last job waits for both others, and the middle one for the first."""
    results = [plain.enqueue(name) for name in ("first", "middle", "last")]
    first, middle, last = (int(one.id) for one in results)
    leases = {claim.job_id: claim.lease for claim in Job.objects.claim(Identity("w"), limit=3)}
    pid = backend_pid()
    with transaction.atomic():
        sql("SELECT id FROM pulse_django_job_hot WHERE id = %s FOR NO KEY UPDATE", middle)
        waiting = rival.start(add_needs_of_run, Job.objects, leases[last], [Need(job_id=middle), Need(job_id=first)])
        rival.wait_until_blocked(pid)
        # Whoever has locked the middle one may lock what stands behind it: the rival has not come so far.
        sql("SELECT id FROM pulse_django_job_hot WHERE id = %s FOR NO KEY UPDATE NOWAIT", last)
    assert waiting.result(PATIENCE)
    assert Dependency.objects.filter(job_id=last).count() == 2


def a_batch_and_a_run() -> tuple[Batch, Lease]:
    """Return a batch whose only job is over, though nobody has looked, and a run of another job."""
    batch = Batch.open("import")
    batch.add(plain.prepare("member"))
    batch.seal()
    waiter = plain.enqueue("waiter")
    leases = {claim.job_id: claim.lease for claim in Job.objects.claim(Identity("w"), limit=2)}
    waits = leases.pop(int(waiter.id))
    [member] = leases.values()
    Job.objects.settle([Report(member, Succeeded(), Complete())])
    return batch, waits


def test_a_run_that_waits_for_a_batch_while_that_is_closed(rival: Rival) -> None:
    """Its need is met before it waits, and who looks at it then does not see that yet."""
    batch, lease = a_batch_and_a_run()
    assert add_needs_of_run(Job.objects, lease, [Need(batch_id=batch.id)])
    rival.begin()
    assert rival.run(Job.objects.resolve).finished == {batch.id}
    Job.objects.settle([Report(lease, Waited(), Wait())])
    resolve("default")
    assert status(lease.job_id) == Status.WAITING
    rival.commit()
    resolve("default")
    assert status(lease.job_id) == Status.PENDING
    assert not Unresolved.objects.exists()


def test_a_need_on_a_batch_that_is_just_being_closed(rival: Rival) -> None:
    """Whoever closes the batch has looked for needs already."""
    batch, lease = a_batch_and_a_run()
    with transaction.atomic():
        assert Job.objects.resolve().finished == {batch.id}
        added = rival.start(add_needs_of_run, Job.objects, lease, [Need(batch_id=batch.id)])
        rival.wait_until_blocked(backend_pid())
    assert added.result(PATIENCE)
    Job.objects.settle([Report(lease, Waited(), Wait())])
    resolve("default")
    assert status(lease.job_id) == Status.PENDING


def test_a_batch_remembers_a_member_that_was_retried_before_anybody_looked() -> None:
    batch = Batch.open("import")
    bad = batch.add(note.prepare("bad"))
    batch.seal(on_dead=note.prepare("dead"))
    [claim] = Job.objects.claim(Identity("w"))
    failed = Failed(ErrorReport.of(ValueError("no")))
    Job.objects.settle([Report(claim.lease, failed, DeadLetter("no"))])
    Job.objects.retry([int(bad.id)])
    drain()
    assert StoredBatch.objects.get().died_at is not None
    assert not Job.objects.filter(status=Status.CANCELLED).exists()


def test_a_job_that_is_held_while_its_batch_is_resumed(rival: Rival) -> None:
    batch = Batch.open("import")
    member = batch.add(plain.prepare("member"))
    pause_batch(Job.objects, batch.id)
    with transaction.atomic():
        assert Job.objects.hold() == [int(member.id)]
        resumed = rival.start(batch.resume)
        rival.wait_until_blocked(backend_pid())
    assert resumed.result(PATIENCE)
    resolve("default")
    assert status(int(member.id)) == Status.PENDING


def test_a_job_that_begins_to_wait_while_its_batch_is_resumed(rival: Rival) -> None:
    batch = Batch.open("import")
    member = batch.add(plain.prepare("member"))
    [claim] = Job.objects.claim(Identity("w"))
    batch.pause()
    rival.begin()
    assert rival.run(resume_batch, Job.objects, batch.id) == [batch.id]
    Job.objects.settle([Report(claim.lease, Waited(), Wait())])
    resolve("default")
    assert status(int(member.id)) == Status.WAITING
    rival.commit()
    resolve("default")
    assert status(int(member.id)) == Status.PENDING
    assert not Unresolved.objects.exists()


def test_a_batch_that_is_locked_for_long_stops_no_others(rival: Rival) -> None:
    """As by an import that adds to it in one transaction, while jobs that were added before end one by one."""
    batch = Batch.open("import")
    sql("INSERT INTO pulse_django_unresolved (batch_id) SELECT %s FROM generate_series(1, %s)", batch.id, RESOLVE_LIMIT)
    placed = Workflow().add("a", plain.prepare("a")).add("b", plain.prepare("b"), needs=["a"]).enqueue()
    rival.begin()
    rival.run(batch.add, plain.prepare("row"))
    run_job(placed.job_ids["a"])
    assert resolve("default") is Remaining.LOCKED
    assert status(placed.job_ids["b"]) == Status.PENDING
    rival.commit()
    assert resolve("default") is Remaining.NOTHING
    assert not Unresolved.objects.exists()


def test_who_needs_a_member_does_not_wait_for_its_batch(rival: Rival) -> None:
    """One note says that the member is over, and that the batch has one more. The batch is locked by another."""
    placed = Workflow().add("a", plain.prepare("a")).add("b", plain.prepare("b"), needs=["a"]).enqueue()
    rival.begin()
    rival.run(sql, "SELECT FROM pulse_django_batch WHERE id = %s FOR SHARE", placed.id)
    run_job(placed.job_ids["a"])
    assert Unresolved.objects.filter(job_id=placed.job_ids["a"], batch_id__isnull=False).count() == 1
    assert resolve("default") is Remaining.LOCKED
    assert status(placed.job_ids["b"]) == Status.PENDING
    rival.rollback()
    assert resolve("default") is Remaining.NOTHING
    assert not Unresolved.objects.exists()


def test_a_batch_counts_a_note_once_that_stays_for_its_job(rival: Rival) -> None:
    """A member ended, was brought back, and waits for another job: two calls look at the note of its first end."""
    placed = Workflow().add("a", plain.prepare("a")).add("b", plain.prepare("b"), needs=["a"]).enqueue()
    resolve("default")
    note = "INSERT INTO pulse_django_unresolved (job_id, batch_id, completed) VALUES (%s, %s, 1)"
    sql(note, placed.job_ids["b"], placed.id)
    rival.lock_row(placed.job_ids["b"])
    assert [resolve("default"), resolve("default")] == [Remaining.LOCKED, Remaining.LOCKED]
    rival.rollback()
    assert resolve("default") is Remaining.NOTHING
    assert StoredBatch.objects.get(pk=placed.id).completed == 1
    assert not Unresolved.objects.exists()
