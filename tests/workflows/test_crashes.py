"""Workflows in real workers: in order, after kills at the worst moments, and soon."""

from __future__ import annotations

from pulse_django import Batch, Workflow, send_event
from pulse_django.models import Fence, Job, Unresolved
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.workflows.batch_verbs import cancel_batch, members_to_cancel
from tests.crash.workers import Workers, status, wait_for, wait_until
from tests.queue.steps import success
from tests.workflows import handlers as workflow_handlers
from tests.workflows.handlers import MODULES


def test_a_workflow_runs_in_order_and_its_callback_once(workers: Workers) -> None:
    batch = Batch.open("outer")
    flow = Workflow("inner")
    for number in range(5):
        needs = [f"part {number - 1}"] if number else []
        flow.add(f"part {number}", workflow_handlers.part.prepare(str(number)), needs=needs)
    placed = flow.enqueue(parent=batch)
    batch.seal(on_success=workflow_handlers.callback.prepare("done"))
    workers.start("--concurrency", "4", settings=MODULES)
    wait_until(lambda: batch.row.finished_at is not None)
    wait_until(lambda: [line["what"] for line in workers.trace.lines()] == ["ran"] * 5 + ["called back"])
    assert [line["name"] for line in workers.trace.lines()][:5] == list("01234")
    assert [line["job"] for line in workers.trace.lines()][:5] == list(placed.job_ids.values())
    wait_until(lambda: not Unresolved.objects.exists())


def test_a_job_that_completed_itself_in_its_own_transaction_is_followed(workers: Workers) -> None:
    flow = Workflow().add("first", workflow_handlers.atomic.prepare("first"))
    placed = flow.add("then", workflow_handlers.part.prepare("then"), needs=["first"]).enqueue()
    workers.start("--no-watchdog", settings=MODULES)
    wait_for(Status.COMPLETED, placed.job_ids["then"])


def test_a_worker_that_dies_after_the_commit_of_a_handler_is_followed_by_another(workers: Workers) -> None:
    """Nobody has looked at what follows, because that is never done inside of the handler's transaction."""
    flow = Workflow().add("first", workflow_handlers.atomic_then_dies.prepare())
    placed = flow.add("then", workflow_handlers.part.prepare("then"), needs=["first"]).enqueue()
    dead = workers.start("--concurrency", "1", "--no-watchdog", settings=MODULES)  # its watchdog would look in between
    wait_until(lambda: dead.popen.poll() is not None)
    assert [line["what"] for line in workers.trace.lines()] == ["committed"]
    assert (status(placed.job_ids["first"]), status(placed.job_ids["then"])) == (Status.COMPLETED, Status.WAITING)
    workers.start(settings=MODULES)
    wait_for(Status.COMPLETED, placed.job_ids["then"])


def test_what_a_worker_left_when_it_was_killed_is_followed_by_another(workers: Workers) -> None:
    """It died between the settle and the look at what follows: the note is there, and nobody has looked."""
    flow = Workflow().add("first", workflow_handlers.part.prepare("first"))
    placed = flow.add("then", workflow_handlers.part.prepare("then"), needs=["first"]).enqueue()
    [claim] = Job.objects.claim_these(Identity("dead"), [placed.job_ids["first"]])
    Job.objects.settle([success(claim)])
    assert (status(placed.job_ids["then"]), Unresolved.objects.exists()) == (Status.WAITING, True)
    workers.start(settings=MODULES)
    wait_for(Status.COMPLETED, placed.job_ids["then"])


def test_a_batch_that_is_cancelled_by_a_process_that_dies_is_emptied_by_a_watchdog(workers: Workers) -> None:
    batch = Batch.open("many")
    batch.add_many(workflow_handlers.part, [[str(number)] for number in range(10_000)])
    cancel_batch(Job.objects, batch.id, reason="no")  # and died before it cancelled any member
    members, reason = members_to_cancel(Job.objects, batch.id)
    Job.objects.request_cancel(members[:500], reason=reason)  # or in the middle
    workers.start("--concurrency", "1", "--queues", "none", settings=MODULES)
    wait_until(lambda: batch.row.finished_at is not None, patience=60)
    assert not batch.jobs.exclude(status=Status.CANCELLED).exists()
    wait_until(lambda: batch.progress().cancelled == 10_000)


def test_an_order_is_charged_once_though_its_worker_is_killed_and_it_waits_for_a_person(workers: Workers) -> None:
    job = workflow_handlers.order.enqueue("order-1")
    workers.start("--concurrency", "2", settings=MODULES)
    wait_for(Status.WAITING, job.id)
    send_event("approved:order-1")
    wait_for(Status.COMPLETED, job.id)
    assert Fence.objects.get(resource="order-1").token == 1
    assert Job.objects.get(pk=int(job.id)).result == 1
    Fence.objects.all().delete()
