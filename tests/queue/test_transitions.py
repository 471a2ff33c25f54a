"""The transition table of ``states.MOVES`` against the database, pair by pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from pulse_django.models import Attempt, Dependency, Job, Pause, StoredBatch, Unresolved
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry, Wait
from pulse_django.queue.words.job_options import Payload
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Cancelled, Outcome, Released, Succeeded, Waited, WorkerLost
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.queue.words.verb_results import Report
from tests.database import on_empty_tables
from tests.factories import lease_of, make_job
from tests.faults import combined, each_of
from tests.queue.moves import GONE, MOVES

pytestmark = pytest.mark.usefixtures("pulse_db")

# Every way in which a verb can be called that may lead somewhere else.
DECISIONS: list[tuple[Outcome, Decision]] = [
    (Succeeded(), Complete()),
    (WorkerLost(), Retry(timedelta(), "no")),
    (Released(), Postpone(timedelta())),
    (WorkerLost(), DeadLetter("no")),
    (Cancelled(), Cancel()),
    (Waited(), Wait()),
]

Act = Callable[[Job], object]


def settle_with(outcome: Outcome, decision: Decision) -> Act:
    return lambda job: Job.objects.settle([Report(lease_of(job), outcome, decision)])


def prune_any(job: Job) -> None:
    for status in Status:
        if status in TERMINAL:
            Job.objects.prune(status, older_than=timedelta())


LONG_AGO = "2026-01-01T00:00:00Z"


def expire_now(job: Job) -> None:
    """Let the job expire, whatever it is, and put back what only this function changed."""
    Job.objects.filter(pk=job.pk).update(expires_at=LONG_AGO)
    Job.objects.expire()
    Job.objects.filter(pk=job.pk).update(expires_at=job.expires_at)


def set_aside_now(job: Job) -> None:
    Pause.objects.pause(job.task)
    Job.objects.set_aside()
    Pause.objects.all().delete()


def bring_back_now(job: Job) -> None:
    """Set the job aside, whatever it is, bring it back, and put back what only this function changed."""
    Job.objects.filter(pk=job.pk).update(ready=None)
    Job.objects.bring_back()
    Job.objects.filter(pk=job.pk, ready=None).update(ready=job.ready)


def resolve_free(job: Job) -> None:
    """Look at a job that needs nothing."""
    Unresolved.objects.create(job_id=job.pk)
    Job.objects.resolve()
    Unresolved.objects.all().delete()


def resolve_lost(job: Job) -> None:
    """Look at a job that needs one which was cancelled."""
    needed = make_job(Status.CANCELLED)
    Dependency.objects.create(job_id=job.pk, needs=needed.pk)
    resolve_free(job)
    Dependency.objects.all().delete()
    Job.objects.filter(pk=needed.pk).delete()


def hold_now(job: Job) -> None:
    """Pause a batch that has the job, and put back what only this function changed."""
    batch = StoredBatch.objects.create(name="b", paused_at=LONG_AGO)
    Job.objects.filter(pk=job.pk).update(batch=batch)
    Job.objects.hold()
    Job.objects.filter(pk=job.pk).update(batch=None)
    batch.delete()


ACTS: dict[str, list[Act]] = {
    "resolve": [resolve_free, resolve_lost],
    "hold": [hold_now],
    "claim": [lambda job: Job.objects.claim(Identity("other"))],
    "heartbeat": [lambda job: Job.objects.heartbeat([lease_of(job)])],
    "settle": [settle_with(outcome, decision) for outcome, decision in DECISIONS],
    "reap": [lambda job: Job.objects.reap()],
    "touch_expired": [lambda job: Job.objects.touch_expired()],
    "mend": [lambda job: Job.objects.mend([job.pk])],
    "shorten_leases": [lambda job: Job.objects.shorten_leases(step=timedelta(hours=1))],
    "release": [lambda job: Job.objects.release([lease_of(job)])],
    "expire": [expire_now],
    "request_cancel": [lambda job: Job.objects.request_cancel([job.pk])],
    "reschedule": [lambda job: Job.objects.reschedule([job.pk])],
    "move": [lambda job: Job.objects.move([job.pk], queue="other", priority=5)],
    "amend": [lambda job: Job.objects.amend(job.pk, Payload("[1]", "{}"))],
    "set_aside": [set_aside_now],
    "bring_back": [bring_back_now],
    "retry": [lambda job: Job.objects.retry([job.pk])],
    "prune": [prune_any],
}

# Variants of a status that a verb may answer differently.
VARIANTS: dict[Status, list[dict[str, Any]]] = {status: [{}] for status in Status}
VARIANTS[Status.RUNNING] = [
    {"expired": True},
    {"expired": True, "attempts": 10},
    {"expired": True, "cancel_requested_at": "2026-01-01T00:00:00Z"},
    {"overdue": True},
    {"stalled": True},
]


def reached(verb: str, status: Status) -> Iterator[Status | None]:
    for act in ACTS[verb]:
        for variant in VARIANTS[status]:
            before = make_job(status, **variant)
            entries = Attempt.objects.count()
            act(before)
            after = Job.objects.filter(pk=before.pk).values().first()
            if not MOVES[verb].get(status):
                assert after == row_of(before), f"{verb} touched a {status} job"
                assert Attempt.objects.count() == entries, f"{verb} wrote a ledger row for a {status} job"
            yield Status(after["status"]) if after else GONE
            Job.objects.filter(pk=before.pk).delete()


def row_of(job: Job) -> dict[str, Any]:
    return {field.attname: getattr(job, field.attname) for field in Job._meta.concrete_fields}


@each_of(*combined(MOVES, Status), around=on_empty_tables)
def test_a_verb_moves_a_job_exactly_as_the_transition_table_says(*, verb: Any, status: Any) -> None:
    expected = MOVES[verb].get(status) or {status}  # a status that is not listed stays as it was
    assert set(reached(verb, status)) == set(expected)


def test_no_verb_leads_out_of_a_terminal_status_but_retry_and_prune() -> None:
    out = {(verb, origin) for verb in MOVES for origin in Status if origin in TERMINAL and MOVES[verb].get(origin)}
    assert out == {
        ("retry", Status.DEAD_LETTERED),
        ("prune", Status.COMPLETED),
        ("prune", Status.CANCELLED),
        ("prune", Status.DEAD_LETTERED),
    }
