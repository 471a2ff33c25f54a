"""The part of the drive that is about batches, workflows, steps and events."""

from __future__ import annotations

import io
from datetime import timedelta

from django.core.management import call_command
from django.db import transaction

from pulse_django import Batch, chain, send_event
from pulse_django.health.explanation import explain
from pulse_django.models import Duty, Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.workflows import reading as fleet
from pulse_django.workflows.acts import retry_dead_letters
from pulse_django.workflows.batch_verbs import open_batch
from pulse_django.workflows.builder import EnqueuedWorkflow
from pulse_django.workflows.needs import add_needs_of_run
from pulse_django.workflows.resolving import hold_paused, resolve
from pulse_django.workflows.rules import Need, Place
from pulse_django.workflows.steps import begin_sleep, copy_steps, forget_steps, steps_of, store_step
from pulse_django.workflows.waits import NeededResults
from tests.factories import lease_of, make_job
from tests.workflows.tasks import plain

ALIAS = "default"


def workflows() -> None:
    """All that can become of a batch and of what needs others."""
    placed = chain(plain.prepare("a"), plain.prepare("b")).enqueue()
    chain(plain.prepare("a"), plain.using(idempotency_key="of a node").prepare("b")).enqueue()
    inner = Batch.open("inner", parent=placed, context={"a": 1})
    inner.add(plain.prepare("c"))
    inner.add_many(plain, [["d"], ["e"]])
    place = Place(inner.id)
    Job.objects.enqueue_many([NewJob(task="t", idempotency_key="of a batch", place=place), NewJob(task="t")])
    inner.seal(on_success=plain.prepare("f"), on_dead=plain.prepare("g"), on_end=plain.prepare("h"))
    assert inner.progress().total == 4
    look_at(placed)
    placed.pause()
    assert not hold_paused(ALIAS)
    placed.resume()
    for claim in Job.objects.claim(Identity("driver"), limit=10):
        Job.objects.release([claim.lease])
    assert "workflows" in Duty.objects.take({}).with_work
    with transaction.atomic():
        placed.cancel(reason="no")
    while resolve(ALIAS, with_timeouts=True):
        pass
    plain.prepare("late")
    open_batch(Job.objects, "in a cancelled one", parent_id=inner.id)
    inner.add(plain.prepare("late"))
    assert list(NeededResults(placed.job_ids["plain 2"], ALIAS).not_done)
    Job.objects.note_overlooked()
    Job.objects.forget_orphans()
    Job.objects.forget_batches(older_than=timedelta())


def look_at(placed: EnqueuedWorkflow) -> None:
    """All that people see of a workflow."""
    seen = fleet.batches(ALIAS, before=placed.id + 1, open_only=True)
    assert fleet.graph_of(ALIAS, seen[0]).is_drawn
    first, second = placed.job_ids.values()
    assert fleet.needed_by(ALIAS, first, placed.id)
    assert fleet.needs_of(ALIAS, second, unmet_only=True)
    assert explain(second).reasons
    retry_dead_letters(ALIAS, placed.id)
    for act in ("list", "show"):
        call_command("pulse_workflows", act, *([placed.id] if act == "show" else []), stdout=io.StringIO())


def steps_and_events() -> None:
    needed, run = make_job(), make_job(Status.RUNNING)
    lease = lease_of(run)
    assert store_step(Job.objects, lease, "one", '{"a": 1}', 0.1)
    assert begin_sleep(Job.objects, lease, "two", 1.0)
    assert len(steps_of(ALIAS, run.pk)) == 2
    assert copy_steps(Job.objects, run.pk, to=needed.pk, first=2)
    assert forget_steps(Job.objects, run.pk, first=1)
    needs = [Need(job_id=needed.pk), Need(event="e", timeout=1.0)]
    assert add_needs_of_run(Job.objects, lease, needs)
    send_event("e", {"a": 1})
    resolve(ALIAS, with_timeouts=True)
