"""What may go wrong with jobs that need others, and what must follow: a test for each, by name."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django import Batch, Context, Workflow, chain, task
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Dependency, Job, Unresolved
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain, run_job
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from pulse_django.workflows.needs import add_needs, add_needs_of_run
from pulse_django.workflows.resolving import Remaining, resolve
from pulse_django.workflows.rules import Need, Place
from tests.crash.workers import status
from tests.queue.steps import sql, success
from tests.rival import PATIENCE, Rival, backend_pid
from tests.workflows.tasks import SAW, plain

pytestmark = pytest.mark.usefixtures("pulse_db")


def fork() -> Any:
    """A job that needs two others."""
    flow = Workflow().add("a", plain.prepare("a")).add("b", plain.prepare("b"))
    return flow.add("then", plain.prepare("then"), needs=["a", "b"]).enqueue()


def claimed(job_id: int) -> Any:
    [claim] = Job.objects.claim_these(Identity("w"), [job_id])
    return claim


def test_two_last_needs_end_at_once(rival: Rival) -> None:
    """Each process sees the end of its own job only. The one that commits later frees the waiter, and once."""
    placed = fork()
    [first, second] = [claimed(placed.job_ids[name]) for name in "ab"]
    rival.begin()
    rival.run(Job.objects.settle, [success(first)])
    Job.objects.settle([success(second)])
    assert resolve("default") is Remaining.NOTHING
    assert status(placed.job_ids["then"]) == Status.WAITING
    rival.commit()
    assert rival.run(resolve, "default") is Remaining.NOTHING
    assert status(placed.job_ids["then"]) == Status.PENDING
    assert len(drain()) == 1
    assert [name for name, _ in SAW] == ["then"]


def test_worker_dies_after_settle() -> None:
    placed = fork()
    Job.objects.settle([success(claimed(placed.job_ids[name])) for name in "ab"])
    assert status(placed.job_ids["then"]) == Status.WAITING
    dog = Watchdog(GuardedConnection("default", "watchdog"))
    dog.sweep(housekeeping=False)
    dog.database.hang_up()
    assert status(placed.job_ids["then"]) == Status.PENDING


@task(takes_context=True)
def completes_itself(context: Context) -> None:
    with context.atomic():
        SAW.append(("inside", status_of_who_needs(context.job_id)))


def status_of_who_needs(job_id: int | str) -> list[str]:
    waiters = Dependency.objects.filter(needs=int(job_id)).values_list("job_id", flat=True)
    return [status(one) for one in waiters]


def test_need_settled_inside_context_atomic() -> None:
    """Nothing is resolved inside. A worker that dies after the commit leaves the note, as in the test before."""
    flow = Workflow().add("a", completes_itself.prepare()).add("then", plain.prepare("then"), needs=["a"])
    placed = flow.enqueue()
    drain()
    assert SAW == [("inside", ["WAITING"]), ("then", None)]
    assert status(placed.job_ids["then"]) == Status.COMPLETED


def test_need_is_completed_twice_by_a_zombie() -> None:
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    first, then = sorted(placed.job_ids.values())
    zombie = claimed(first)
    sql("UPDATE pulse_django_job SET lease_until = statement_timestamp() - interval '1 second' WHERE id = %s", first)
    Job.objects.reap()
    sql("UPDATE pulse_django_job SET next_run_at = statement_timestamp() WHERE id = %s", first)
    again = claimed(first)
    assert Job.objects.settle([success(zombie)]).lost == {zombie.lease}
    assert not Unresolved.objects.filter(job_id=first).exists()
    resolve("default")
    assert status(then) == Status.WAITING
    Job.objects.settle([success(again)])
    resolve("default")
    assert status(then) == Status.PENDING


def test_a_need_was_pruned_before() -> None:
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    first, then = sorted(placed.job_ids.values())
    sql("DELETE FROM pulse_django_job WHERE id = %s", first)  # by hand: prune takes no members of open batches
    sql("INSERT INTO pulse_django_unresolved (job_id) VALUES (%s)", then)
    resolve("default")
    assert status(then) == Status.PENDING


def test_prune_takes_no_member_of_an_open_batch() -> None:
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    first, _ = sorted(placed.job_ids.values())
    run_job(first)
    Job.objects.prune(Status.COMPLETED, older_than=timedelta(0))
    assert Job.objects.filter(pk=first).exists()


def test_need_added_to_a_job_that_ended_meanwhile(rival: Rival) -> None:
    """The need is written down after the end was committed, because it locks the job first. It is met at once."""
    first = int(plain.enqueue("a").id)
    claim = claimed(first)
    [then] = Job.objects.enqueue_many([NewJob(task=plain.module_path, place=Place(waits=True))])
    pid = backend_pid()
    with transaction.atomic():
        Job.objects.settle([success(claim)])
        added = rival.start(add_needs, Job.objects, [(then, Need(job_id=first))])
        rival.wait_until_blocked(pid)
    added.result(PATIENCE)
    resolve("default")
    assert status(then) == Status.PENDING


def test_cycle_of_two_runs_that_wait_for_each_other() -> None:
    [first, second] = [int(plain.enqueue(name).id) for name in "ab"]
    [one, two] = [claimed(first).lease, claimed(second).lease]
    assert add_needs_of_run(Job.objects, one, [Need(job_id=second)])
    with pytest.raises(InvalidWorkflow, match=f"job {second} cannot wait for job {first}, which waits for it"):
        add_needs_of_run(Job.objects, two, [Need(job_id=first)])
    assert Dependency.objects.count() == 1


def test_cycle_of_two_runs_that_begin_to_wait_at_once(rival: Rival) -> None:
    """The second one waits for the locks of the first, and then sees what that one needs."""
    [first, second] = [int(plain.enqueue(name).id) for name in "ab"]
    [one, two] = [claimed(first).lease, claimed(second).lease]
    pid = backend_pid()
    with transaction.atomic():
        assert add_needs_of_run(Job.objects, one, [Need(job_id=second)])
        waiting = rival.start(add_needs_of_run, Job.objects, two, [Need(job_id=first)])
        rival.wait_until_blocked(pid)
    with pytest.raises(InvalidWorkflow):
        waiting.result(PATIENCE)
    assert Dependency.objects.count() == 1


def test_cycle_of_a_member_that_waits_for_its_own_batch() -> None:
    outer = Batch.open("outer")
    inner = Batch.open("inner", parent=outer)
    inner.add(plain.prepare("a"))
    lease = claimed(inner.jobs.get().pk).lease
    for batch in (inner, outer):
        with pytest.raises(InvalidWorkflow, match=f"cannot wait for batch {batch.id}"):
            add_needs_of_run(Job.objects, lease, [Need(batch_id=batch.id)])
    assert add_needs_of_run(Job.objects, lease, [Need(batch_id=Batch.open("another").id)])


def test_cycle_of_a_workflow_in_a_batch_that_it_needs() -> None:
    batch = Batch.open("outer")
    flow = Workflow().add("a", plain.prepare("a"), needs=[batch])
    with pytest.raises(InvalidWorkflow, match=f"batch {batch.id} cannot wait for batch {batch.id}"):
        flow.enqueue(parent=batch)
    assert not Job.objects.exists()
    assert batch.row.added == 0


def test_cycle_through_a_callback() -> None:
    """The callback of a batch needs it. A member that waits for the callback would wait for itself."""
    batch = Batch.open("import")
    batch.add(plain.prepare("a"))
    member = batch.jobs.get().pk
    batch.seal(on_success=plain.prepare("then"))
    callback = Job.objects.get(status=Status.WAITING).pk
    with pytest.raises(InvalidWorkflow, match=f"cannot wait for job {callback}"):
        add_needs_of_run(Job.objects, claimed(member).lease, [Need(job_id=callback)])


def test_ten_thousand_needs_by_edges() -> None:
    first = Job.objects.enqueue_many([NewJob(task="t", place=Place(awaited=True))] * 10_000)
    [then] = Job.objects.enqueue_many([NewJob(task="t", place=Place(waits=True))])
    add_needs(Job.objects, [(then, Need(job_id=one)) for one in first], new_jobs=first)
    for _ in range(10):
        claims = Job.objects.claim(Identity("w"), limit=1_000)
        assert status(then) == Status.WAITING
        Job.objects.settle([success(claim) for claim in claims])
        resolve("default")
    assert status(then) == Status.PENDING
    assert not Dependency.objects.filter(met_at=None).exists()


def test_old_workers_never_claim_who_waits() -> None:
    """They look for PENDING and RETRYING."""
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    _, then = sorted(placed.job_ids.values())
    assert Job.objects.claim_these(Identity("w"), [then]) == []
    assert [claim.job_id for claim in Job.objects.claim(Identity("w"), limit=10)] != [then]
