"""One job's life under each capability: every verb, in the order in which it is called.

A verb is called in the same way whatever the job uses. Where a capability has a statement of its own, it is sent here;
where the text is the same, the file has it once.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any

from pulse_django import Batch
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Job, Limiter
from pulse_django.queue.claim import Claims
from pulse_django.queue.words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry
from pulse_django.queue.words.job_options import NewJob, Payload
from pulse_django.queue.words.lane_keys import lane_key, lane_of_chunks, lane_of_share
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.masks import Masks
from pulse_django.queue.words.outcomes import Cancelled, Failed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from pulse_django.testing.drain import expire_lease
from pulse_django.unique.rule import Unique, UniqueKey
from pulse_django.workflows.resolving import resolve
from pulse_django.workflows.rules import Place
from tests.citus import statements_of_citus

ALIAS = "default"
ME = Identity("me")
SOON, DAY = timedelta(seconds=1), timedelta(days=1)
PLAIN = NewJob(task="t", args=[1], names=["order_id"])
LIMITER = "stripe"

Claiming = Callable[[], Claims]


def plain() -> Claims:
    return Job.objects.claim(ME, limit=20)


def dealt() -> Claims:
    """Of several lanes so many jobs each."""
    lanes = Job.objects.lanes()
    return Job.objects.claim(ME, limit=20, lanes=lanes, takes=dict.fromkeys(lanes, 20))


def limited() -> Claims:
    lane = Lane("default", 0, LIMITED)
    return Job.objects.claim_limited(ME, LIMITER, [lane], {lane: 20}, limit=20).claims


LIMITED = lane_key(LIMITER, "k")
FAILED = Failed(ErrorReport.of(ValueError("no")))
_NUMBERS = Limit(
    LIMITER, max_running=99, max_running_per_key=99, rate=Rate(9_999, SOON), rate_per_key=Rate(9_999, SOON)
).numbers()
ON_CITUS = "on Citus"
HOOK = (
    '{"task": "t", "queue": "q", "priority": 0, "lane_key": "",'
    ' "max_attempts": 1, "count_lost_workers": true, "weight": 1}'
)


def lives() -> dict[str, Callable[[], None]]:
    """Return what lives the life of a job of each capability, and of one that uses all."""
    return {name: partial(_live, name) for name in CAPABILITIES}


def _live(name: str) -> None:
    options, claim = CAPABILITIES[name]
    with statements_of_citus() if name == ON_CITUS else nullcontext():
        Limiter.objects.declare_new("project", {LIMITER: _NUMBERS})
        live(replace(PLAIN, **options()), claim)


def _batch() -> Place:
    return Place(Batch.open("b").id, node="n", awaited=True)


# What a job has that uses one capability, and how it is claimed.
CAPABILITIES: dict[str, tuple[Callable[[], dict[str, Any]], Claiming]] = {
    "plain": (dict, plain),
    "limits": (lambda: {"lane_key": LIMITED}, limited),
    "unique": (lambda: {"unique": UniqueKey.of("k", Unique())}, plain),
    "chunks": (lambda: {"lane_key": lane_of_chunks("t")}, dealt),
    "workflows": (lambda: {"place": _batch()}, plain),
    "expiry": (lambda: {"expires": DAY, "give_up_after": DAY}, plain),
    "labels": (lambda: {"tags": ("a",), "meta": '{"a": 1}'}, plain),
    "searchable": (lambda: {"searchable": ("order_id",)}, plain),
    "encryption": (lambda: {"sensitive": Masks(encrypted=True).text}, plain),
    "shares": (lambda: {"lane_key": lane_of_share("a")}, dealt),
    "weights": (lambda: {"weight": 2}, plain),
    "hooks": (lambda: {"on_dead": HOOK}, plain),
    ON_CITUS: (dict, plain),
}
_EACH = [options for options, _ in CAPABILITIES.values()]


def _all() -> dict[str, Any]:
    return dict(pair for options in _EACH for pair in options().items()) | {"lane_key": LIMITED}


CAPABILITIES["all"] = (_all, limited)


def live(new: NewJob, claim: Claiming) -> None:
    """Call each verb of a job's life."""
    counted = count()

    def another(**changes: Any) -> NewJob:
        unique = new.unique and UniqueKey.of(f"k{next(counted)}", new.unique.rule)
        return replace(new, unique=unique, **changes)

    def run(**changes: Any) -> Lease:
        """Enqueue a job and claim it."""
        job = Job.objects.enqueue(another(**changes))
        return next(claim.lease for claim in claim() if claim.lease.job_id == job.pk)

    def fail(decision: Decision) -> None:
        assert Job.objects.settle([Report(run(), FAILED, decision)]).accepted

    Job.objects.enqueue(another())
    Job.objects.enqueue_many([another(), another()])
    Job.objects.waiting()
    lease, other = run(), run()
    assert Job.objects.heartbeat([lease, other], {lease: '{"done": 1}'}).alive
    done = Report(lease, Succeeded(), Complete("1"))
    assert Job.objects.settle([done, Report(other, FAILED, Retry(timedelta(), "no"))]).accepted
    assert Job.objects.settle([done._replace(outcome=FAILED, decision=DeadLetter("late"))]).lost
    Job.objects.promote()
    fail(Postpone(timedelta()))
    assert Job.objects.release([run()]).accepted
    lost = run()
    expire_lease(Job.objects.get(pk=lost.job_id))
    assert Job.objects.reap()
    dead = run()
    assert Job.objects.settle([Report(dead, FAILED, DeadLetter("no"))]).accepted
    assert Job.objects.retry([dead.job_id]).revived
    if new.on_dead is not None:
        assert Job.objects.settle([Report(run(on_dead="{}"), FAILED, DeadLetter("no"))]).accepted  # without a hook
    waits, runs = Job.objects.enqueue(another(run_after=SOON)), run()
    assert Job.objects.reschedule([waits.pk], delay=SOON / 2).changed
    assert Job.objects.move([waits.pk], queue="other").changed
    assert Job.objects.amend(waits.pk, Payload("[2]", "{}"))
    assert Job.objects.request_cancel([waits.pk, runs.job_id]).asked
    assert Job.objects.settle([Report(runs, Cancelled(""), Cancel())]).accepted
    Job.objects.expire()
    resolve(ALIAS)
    Job.objects.prune(Status.COMPLETED, older_than=timedelta())
